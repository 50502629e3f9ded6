//! Puts every change into the code at once, each behind a probe that is off.
//!
//! A change is text put between the text that is there, never in place of lines, so that places in
//! messages stay. What stands between probes means what it meant: `a == b` becomes
//! `(on(7) != (a == b))`, which is `a == b` unless change 7 is on.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, ExprBinary, ExprMatch, ExprUnary, ImplItemFn, ItemFn, ItemImpl, ItemMod,
    ItemTrait, Signature, Stmt, TraitItemFn, UnOp,
};

use super::replace;
use super::syntax::{does_something, has_let, is_test, range};
use super::weave::{self, Edit, Side};

/// The functions of the module that every changed crate gets.
const PROBE: &str = "crate::mutants_probe";

/// One change of the code.
pub(crate) struct Mutant {
    /// `src/a.rs: Type::function: a == b -> !=`: what it is called wherever its line goes.
    pub(crate) name: String,
    /// Which function it is in, as an index into [`Generated::functions`].
    pub(crate) function: usize,
    /// The line (from 1) it is on.
    pub(crate) line: usize,
}

/// What came of one file.
pub(crate) struct Generated {
    pub(crate) text: String,
    /// Names as `src/a.rs: Type::function`.
    pub(crate) functions: Vec<String>,
    /// Where each function's body lies in the new text.
    pub(crate) bodies: Vec<Range<usize>>,
    pub(crate) mutants: Vec<Mutant>,
    /// The bytes of the new text that were put there, and for which of the mutants.
    pub(crate) pieces: Vec<(Range<usize>, usize)>,
}

/// Changes one file. Numbers of functions and changes begin at those given; `refused` are the
/// names of changes that did not compile.
pub(crate) fn generate(
    path: &str,
    source: &str,
    first: (usize, usize),
    refused: &dyn Fn(&str) -> bool,
) -> Result<Generated> {
    let file = syn::parse_file(source).with_context(|| path.to_owned())?;
    let mut found = Finder {
        path,
        source,
        first,
        refused,
        scope: Vec::new(),
        within: Vec::new(),
        functions: Vec::new(),
        spans: Vec::new(),
        mutants: Vec::new(),
        edits: Vec::new(),
        names: BTreeMap::new(),
    };
    found.visit_file(&file);
    Ok(found.finish())
}

struct Finder<'a> {
    path: &'a str,
    source: &'a str,
    first: (usize, usize),
    refused: &'a dyn Fn(&str) -> bool,
    scope: Vec<String>,
    /// The functions around this place; none in constants.
    within: Vec<Option<usize>>,
    functions: Vec<String>,
    spans: Vec<Range<usize>>,
    mutants: Vec<Mutant>,
    edits: Vec<Edit>,
    names: BTreeMap<String, usize>,
}

impl Finder<'_> {
    fn finish(self) -> Generated {
        let woven = weave::weave(self.source, self.edits);
        // A body begins after its brace and before what was put there.
        let span = |span: &Range<usize>| woven.place(span.start - 1) + 1..woven.place(span.end);
        Generated {
            bodies: self.spans.iter().map(span).collect(),
            text: woven.text,
            functions: self.functions,
            mutants: self.mutants,
            pieces: woven.pieces,
        }
    }

    /// A new change in the function around this place, if there is one and it was not refused.
    fn mutant(&mut self, at: usize, what: &str) -> Option<(usize, usize)> {
        let function = (*self.within.last()?)?;
        let mut name = format!("{}: {what}", self.functions[function]);
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            name = format!("{name} ({count})");
        }
        if (self.refused)(&name) {
            return None;
        }
        let index = self.mutants.len();
        let line = self.source[..at].matches('\n').count() + 1;
        self.mutants.push(Mutant {
            name,
            function: self.first.0 + function,
            line,
        });
        Some((index, self.first.1 + index))
    }

    fn put(&mut self, at: usize, side: Side, text: String, mutant: usize) {
        self.edits.push(Edit {
            at,
            side,
            gone: 0,
            text,
            mutant: Some(mutant),
        });
    }

    fn words(&self, span: Range<usize>) -> String {
        let words: Vec<&str> = self.source[span].split_whitespace().collect();
        let text = words.join(" ");
        match text.char_indices().nth(70) {
            Some((at, _)) => format!("{}…", &text[..at]),
            None => text,
        }
    }

    fn function(&mut self, signature: &Signature, attributes: &[syn::Attribute], body: &Block) {
        if is_test(attributes) {
            return;
        }
        if signature.constness.is_some() || self.scope.iter().any(|part| part == "Debug") {
            self.constant(|finder| visit::visit_block(finder, body));
            return;
        }
        self.scope.push(signature.ident.to_string());
        let names: Vec<&str> = self.scope.iter().map(String::as_str).collect();
        let index = self.functions.len();
        self.functions
            .push(format!("{}: {}", self.path, names.join("::")));
        let open = body.brace_token.span.open().byte_range().end;
        self.spans
            .push(open..body.brace_token.span.close().byte_range().start);
        self.within.push(Some(index));
        let number = self.first.0 + index;
        let reach = format!(" {PROBE}::reach({number});");
        self.edits.push(Edit {
            at: open,
            side: Side::Before,
            gone: 0,
            text: reach,
            mutant: None,
        });
        for value in replace::results(&signature.output) {
            if self.is_that(body, &value) {
                continue;
            }
            if let Some((mutant, id)) = self.mutant(open, &format!("-> {value}")) {
                let text = format!(" if {PROBE}::on({id}) {{ return {value}; }}");
                self.put(open, Side::Before, text, mutant);
            }
        }
        visit::visit_block(self, body);
        self.within.pop();
        self.scope.pop();
    }

    /// Whether a body says this value and nothing else.
    fn is_that(&self, body: &Block, value: &str) -> bool {
        let open = body.brace_token.span.open().byte_range().end;
        let close = body.brace_token.span.close().byte_range().start;
        let text = self.source[open..close].trim();
        text == value || text.is_empty()
    }

    fn constant(&mut self, inside: impl FnOnce(&mut Self)) {
        self.within.push(None);
        inside(self);
        self.within.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.attrs, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.attrs, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, &item.attrs, body);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if is_test(&item.attrs) {
            return;
        }
        let kind = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        let last = |path: &syn::Path| path.segments.last().map(|s| s.ident.to_string());
        let interface = item.trait_.as_ref().and_then(|(_, path, _)| last(path));
        let before = self.scope.len();
        self.scope.extend(kind);
        self.scope.extend(interface);
        visit::visit_item_impl(self, item);
        self.scope.truncate(before);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.scope.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.scope.pop();
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(|finder| visit::visit_item_const(finder, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.constant(|finder| visit::visit_item_static(finder, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(|finder| visit::visit_impl_item_const(finder, item));
    }

    fn visit_expr_const(&mut self, item: &'ast syn::ExprConst) {
        self.constant(|finder| visit::visit_expr_const(finder, item));
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
    }

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let span = range(binary);
        let what = |finder: &Self, to: &str| format!("{} -> {to}", finder.words(span.clone()));
        let close = match binary.op {
            BinOp::Eq(_) | BinOp::Ne(_) => {
                let to = if matches!(binary.op, BinOp::Eq(_)) {
                    "!="
                } else {
                    "=="
                };
                let name = what(self, to);
                self.mutant(span.start, &name).map(|(mutant, id)| {
                    self.put(
                        span.start,
                        Side::Before,
                        format!("({PROBE}::on({id}) != ("),
                        mutant,
                    );
                    ("))", mutant)
                })
            }
            BinOp::And(_) | BinOp::Or(_) if !has_let(&binary.left) && !has_let(&binary.right) => {
                self.shortcut(binary, &span)
            }
            BinOp::Lt(_) => self.helped(binary, &what(self, "<="), "lt", "&"),
            BinOp::Le(_) => self.helped(binary, &what(self, "<"), "le", "&"),
            BinOp::Gt(_) => self.helped(binary, &what(self, ">="), "gt", "&"),
            BinOp::Ge(_) => self.helped(binary, &what(self, ">"), "ge", "&"),
            BinOp::Add(_) => self.helped(binary, &what(self, "-"), "add", ""),
            BinOp::Sub(_) => self.helped(binary, &what(self, "+"), "sub", ""),
            _ => None,
        };
        self.visit_expr(&binary.left);
        self.visit_expr(&binary.right);
        if let Some((text, mutant)) = close {
            self.put(span.end, Side::After, text.to_owned(), mutant);
        }
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let span = range(unary);
        let mut changed = None;
        if matches!(unary.op, UnOp::Not(_)) {
            let name = format!("{} -> without !", self.words(span.clone()));
            changed = self.mutant(span.start, &name).map(|(mutant, id)| {
                let text = format!("({PROBE}::on({id}) == (");
                let bang = range(&unary.op);
                let (at, gone) = (bang.start, bang.len());
                let edit = Edit {
                    at,
                    side: Side::Before,
                    gone,
                    text,
                    mutant: Some(mutant),
                };
                self.edits.push(edit);
                mutant
            });
        }
        visit::visit_expr_unary(self, unary);
        if let Some(mutant) = changed {
            self.put(span.end, Side::After, "))".to_owned(), mutant);
        }
    }

    fn visit_expr_match(&mut self, matched: &'ast ExprMatch) {
        self.visit_expr(&matched.expr);
        let takes_all = |arm: &Arm| match &arm.pat {
            syn::Pat::Wild(_) => arm.guard.is_none(),
            syn::Pat::Ident(name) => {
                arm.guard.is_none()
                    && name.subpat.is_none()
                    && name
                        .ident
                        .to_string()
                        .starts_with(|c: char| c.is_ascii_lowercase())
            }
            _ => false,
        };
        let covered = matched.arms.last().is_some_and(takes_all);
        for arm in &matched.arms {
            self.arm(arm, covered && !takes_all(arm));
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let mut open = None;
        let span = range(statement);
        if let Stmt::Expr(expression, Some(_)) = statement
            && does_something(expression)
        {
            let name = format!("without {}", self.words(span.clone()));
            open = self.mutant(span.start, &name).map(|(mutant, id)| {
                let text = format!("if !{PROBE}::on({id}) {{ ");
                self.put(span.start, Side::Before, text, mutant);
                mutant
            });
        }
        visit::visit_stmt(self, statement);
        if let Some(mutant) = open {
            self.put(span.end, Side::After, " }".to_owned(), mutant);
        }
    }
}

impl Finder<'_> {
    /// `a < b` as a call that compares in one of two ways.
    fn helped(
        &mut self,
        binary: &ExprBinary,
        name: &str,
        helper: &str,
        by: &str,
    ) -> Option<(&'static str, usize)> {
        let span = range(binary);
        let (mutant, id) = self.mutant(span.start, name)?;
        let text = format!("{PROBE}::{helper}({id}, {by}(");
        self.put(span.start, Side::Before, text, mutant);
        let operator = range(&binary.op);
        self.edits.push(Edit {
            at: operator.start,
            side: Side::Instead,
            gone: operator.len(),
            text: format!("), {by}("),
            mutant: Some(mutant),
        });
        Some(("))", mutant))
    }

    /// `a && b` as `if a { b } else { false }`, and `a || b` in its place.
    fn shortcut(
        &mut self,
        binary: &ExprBinary,
        span: &Range<usize>,
    ) -> Option<(&'static str, usize)> {
        let is_and = matches!(binary.op, BinOp::And(_));
        let to = if is_and { "||" } else { "&&" };
        let name = format!("{} -> {to}", self.words(span.clone()));
        let (mutant, id) = self.mutant(span.start, &name)?;
        // `and` is in force where the operator is one of the two: for `&&`, where it is off.
        let and = if is_and {
            format!("!{PROBE}::on({id})")
        } else {
            format!("{PROBE}::on({id})")
        };
        let open = format!("({{ let mutants_and = {and}; if (");
        self.put(span.start, Side::Before, open, mutant);
        let operator = range(&binary.op);
        self.edits.push(Edit {
            at: operator.start,
            side: Side::Instead,
            gone: operator.len(),
            text: ") == mutants_and { ".to_owned(),
            mutant: Some(mutant),
        });
        Some((" } else { !mutants_and } })", mutant))
    }

    fn arm(&mut self, arm: &Arm, may_go: bool) {
        let pattern = range(&arm.pat);
        let mut open = None;
        match &arm.guard {
            Some((_, guard)) if !has_let(guard) => {
                let span = range(guard);
                let name = format!("{} -> true", self.words(span.clone()));
                open = self.mutant(span.start, &name).map(|(mutant, id)| {
                    let text = format!("{PROBE}::on({id}) || (");
                    self.put(span.start, Side::Before, text, mutant);
                    (span.end, mutant)
                });
                self.visit_expr(guard);
            }
            Some((_, guard)) => self.visit_expr(guard),
            None if may_go => {
                let name = format!("without the arm {}", self.words(pattern.clone()));
                if let Some((mutant, id)) = self.mutant(pattern.start, &name) {
                    let text = format!(" if !{PROBE}::on({id})");
                    self.put(pattern.end, Side::After, text, mutant);
                }
            }
            None => {}
        }
        if let Some((end, mutant)) = open {
            self.put(end, Side::After, ")".to_owned(), mutant);
        }
        self.visit_expr(&arm.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Generated {
        generate("src/a.rs", source, (0, 0), &|_| false).expect("it parses")
    }

    fn names(source: &str) -> Vec<String> {
        let names = of(source).mutants.into_iter().map(|mutant| mutant.name);
        names.map(|name| name.replace("src/a.rs: ", "")).collect()
    }

    #[test]
    fn each_result_and_operator_is_changed() {
        assert_eq!(
            names("impl A { fn f(&self) -> bool { self.a == 1 && self.b < 2 } }"),
            [
                "A::f: -> true",
                "A::f: -> false",
                "A::f: self.a == 1 && self.b < 2 -> ||",
                "A::f: self.a == 1 -> !=",
                "A::f: self.b < 2 -> <=",
            ]
        );
    }

    #[test]
    fn statements_arms_and_guards_are_left_out() {
        assert_eq!(
            names(
                "fn f() { match a { 1 => b(), 2 if c => {} _ => {} } d.e()?; g = 1; metrics!(); }"
            ),
            [
                "f: -> ()",
                "f: without the arm 1",
                "f: c -> true",
                "f: without d.e()?;",
                "f: without g = 1;",
            ]
        );
    }

    #[test]
    fn what_no_probe_can_stand_in_is_left_alone() {
        assert_eq!(
            names("const A: bool = 1 == 2; const fn f() -> bool { 1 == 2 }"),
            [""; 0]
        );
        assert_eq!(names("trait T { fn f(&self) -> bool; }"), [""; 0]);
        assert_eq!(
            names("#[cfg(test)] mod tests { fn f() -> bool { true } }"),
            [""; 0]
        );
        assert_eq!(
            names("fn f() { if let A = b && c == d { return; } }"),
            ["f: -> ()", "f: c == d -> !="]
        );
        assert_eq!(names("fn f() -> bool { true }"), ["f: -> false"]);
    }

    #[test]
    fn places_and_names_are_told() {
        let file = of("fn f() {}\nfn g(x: u8) -> bool {\n    !h(x == 1)\n}\n");
        let last = file.mutants.last().expect("some");
        assert_eq!(
            (last.name.as_str(), last.line),
            ("src/a.rs: g: x == 1 -> !=", 3)
        );
        assert_eq!(file.text.lines().count(), 4, "lines stay where they are");
        let body = file.text[file.bodies[1].clone()].trim();
        assert!(
            body.starts_with("crate::mutants_probe::reach(1);"),
            "{body}"
        );
        assert!(body.ends_with("(x == 1)))))"), "{body}");
    }

    #[test]
    fn the_changed_text_parses_and_means_the_same_where_no_probe_is_on() {
        let source =
            "fn f(a: u8, b: u8) -> bool { let c = a + b - 1; !(c > a || b >= c && a != b) }";
        let file = of(source);
        syn::parse_file(&file.text).expect(&file.text);
        for helper in ["sub(", "add(", "gt(", "ge(", "mutants_and"] {
            assert!(file.text.contains(helper), "{helper}: {}", file.text);
        }
    }

    #[test]
    fn what_was_refused_keeps_its_number_free() {
        let source = "fn f() { g(); g(); }";
        let second = "src/a.rs: f: without g(); (2)";
        let file = generate("src/a.rs", source, (0, 0), &|name| name == second).expect("parses");
        let names: Vec<&str> = file
            .mutants
            .iter()
            .map(|mutant| mutant.name.as_str())
            .collect();
        assert_eq!(names, ["src/a.rs: f: -> ()", "src/a.rs: f: without g();"]);
    }
}
