//! Questions about syntax.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::{BinOp, Expr};

/// Whether an item is there for tests only.
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let words = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        let last = path.segments.last().map(|last| last.ident.to_string());
        last.as_deref() == Some("test")
            || (path.is_ident("cfg") && words.is_ok_and(|words| words.contains("test")))
    })
}

/// The bytes of a piece of syntax.
pub(super) fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

/// Whether `a && let … = b && c` holds a `let`, which cannot stand in brackets.
pub(super) fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// A call whose result is not used, or an assignment: what is left out when it is left out.
pub(super) fn does_something(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) => true,
        Expr::Binary(binary) => is_assigning(&binary.op),
        Expr::Try(inner) => does_something(&inner.expr),
        Expr::Await(inner) => does_something(&inner.base),
        Expr::MethodCall(call) => !starts_with_macro(&call.receiver),
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop")),
        _ => false,
    }
}

/// Figures and traces: `metrics::counter!(…).increment(1)`.
fn starts_with_macro(expression: &Expr) -> bool {
    match expression {
        Expr::Macro(_) => true,
        Expr::MethodCall(call) => starts_with_macro(&call.receiver),
        _ => false,
    }
}

fn is_assigning(operator: &BinOp) -> bool {
    use BinOp::{
        AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, RemAssign,
        ShlAssign, ShrAssign, SubAssign,
    };
    matches!(
        operator,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}
