//! Which names an expression refers to.

use hcl_edit::expr::{Expression, Traversal, TraversalOperator};
use hcl_edit::visit::{Visit, visit_expr, visit_traversal};

/// A reference: the root's name and the first step after it, if that is plain.
pub(super) type Reference = (String, Option<String>);

#[derive(Default)]
struct Collector {
    found: Vec<Reference>,
}

impl Visit for Collector {
    fn visit_traversal(&mut self, node: &Traversal) {
        if let Expression::Variable(root) = &node.expr {
            let first = node.operators.first().and_then(|op| match op.value() {
                TraversalOperator::GetAttr(name) => Some(name.as_str().to_owned()),
                TraversalOperator::Index(Expression::String(name)) => {
                    Some(name.as_str().to_owned())
                }
                _ => None,
            });
            self.found.push((root.as_str().to_owned(), first));
            for op in &node.operators {
                if let TraversalOperator::Index(expr) = op.value() {
                    self.visit_expr(expr);
                }
            }
            return;
        }
        visit_traversal(self, node);
    }

    fn visit_expr(&mut self, node: &Expression) {
        if let Expression::Variable(name) = node {
            self.found.push((name.as_str().to_owned(), None));
            return;
        }
        visit_expr(self, node);
    }
}

/// Every reference in an expression.
pub(super) fn references(expr: &Expression) -> Vec<Reference> {
    let mut collector = Collector::default();
    collector.visit_expr(expr);
    collector.found
}
