//! The words of `events/src/model/status.rs` where they are compared, matched or written: one that
//! stands there as a plain literal is one that the compiler does not find when its set changes.

use std::collections::BTreeMap;

use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Expr, ExprAssign, ExprBinary, ExprLet, ExprLit, ExprMatch, FieldValue, Ident, Lit,
    LitStr, Macro, Member, Pat, Token,
};

use crate::tree::File;

/// Where the words are.
const STATUS: &str = include_str!("../../../events/src/model/status.rs");
/// Whose code speaks of them.
const OURS: &[&str] = &["src/", "events/src/", "projections/src/", "migrations/src/"];
/// What is not held to it: the model itself, and what is frozen as it once was.
const FROZEN: &[&str] = &[
    "events/src/model/",
    "migrations/src/events/",
    "migrations/src/golden/",
];

/// Fields, as [`plain`] writes them, and the sets of words that they take.
const FIELDS: &[(&str, &[&str])] = &[
    ("accessmode", &["access_mode"]),
    ("algorithm", &["algorithm"]),
    ("attachmentmode", &["attachment_mode"]),
    ("clientstatus", &["client"]),
    ("desiredstatus", &["desired"]),
    ("eligibility", &["eligibility"]),
    (HOOK, &["hook"]),
    ("initialstatus", &["check"]),
    ("jobtype", &["job_type"]),
    ("kind", &["diff", "job_type", "volume_type"]),
    ("scheduleralgorithm", &["algorithm"]),
    ("schedulingeligibility", &["eligibility"]),
    ("state", &["host_volume", "root_key", "task"]),
    (
        "status",
        &[
            "check",
            "client",
            "deployment",
            "drain",
            "eval",
            "job",
            "node",
            "task",
        ],
    ),
    ("statusdescription", &["deployment_reason"]),
    ("subsystem", &["node_subsystem"]),
    ("trigger", &["trigger"]),
    ("triggeredby", &["trigger"]),
    ("type", &["diff", "job_type", "token_type", "volume_type"]),
    ("value", &["client"]),
];
/// When a task runs beside others; but what a client does around a task has a name of that field
/// too, which is written where it fails.
const HOOK: &str = "hook";

/// Methods that change nothing about which field it is, or which text.
const PLAIN: &[&str] = &[
    "as_deref",
    "as_ref",
    "as_str",
    "clone",
    "into",
    "to_owned",
    "to_string",
    "trim",
    "unwrap_or_default",
];

/// The words of each set.
type Sets = BTreeMap<&'static str, Vec<&'static str>>;

/// Finds the literals of a Rust file that should be constants, or words of an enum.
pub(crate) fn check(file: &File, tested: impl Fn(usize) -> bool, problems: &mut Vec<String>) {
    let within = |dirs: &[&str]| dirs.iter().any(|dir| file.path.starts_with(dir));
    let is_test = file.is_test() || file.path.contains("/tests/");
    if !within(OURS) || within(FROZEN) || is_test {
        return;
    }
    let sets = sets();
    let holds = |word: &&str| file.text.contains(&format!("\"{word}\""));
    if !sets.values().flatten().any(holds) {
        return;
    }
    // The compiler reports what does not parse.
    let Ok(parsed) = syn::parse_file(&file.text) else {
        return;
    };
    let mut finder = Finder {
        sets: &sets,
        found: Vec::new(),
    };
    finder.visit_file(&parsed);
    for (line, word) in finder.found {
        if !tested(line - 1) {
            let place = format!("{}:{line}", file.path);
            let why = "a word of model::status is its constant there, or is matched as its enum";
            problems.push(format!("{place}: {word:?}: {why}"));
        }
    }
}

/// Reads the sets: a line that opens one begins with its name.
fn sets() -> Sets {
    let body = STATUS
        .split_once("\nwords! {\n")
        .map_or("", |(_, body)| body);
    let body = body.split_once("\n}\n").map_or(body, |(body, _)| body);
    let mut sets = Sets::new();
    let mut current = "";
    for code in body.lines().map(str::trim) {
        if let Some(head) = code.strip_suffix(" {") {
            current = head.split(' ').next().unwrap_or_default();
        } else if !code.starts_with("///") {
            let words = code.split('"').skip(1).step_by(2);
            sets.entry(current).or_default().extend(words);
        }
    }
    sets
}

/// A name in one form, whether it is written as Rust or as the wire does.
fn plain(name: &str) -> String {
    name.trim_start_matches("r#")
        .replace('_', "")
        .to_ascii_lowercase()
}

fn is_plain(method: &Ident) -> bool {
    PLAIN.contains(&method.to_string().as_str())
}

/// The fields that an expression reads.
fn fields(expr: &Expr) -> Vec<String> {
    match expr {
        Expr::Field(field) => match &field.member {
            Member::Named(name) => vec![plain(&name.to_string())],
            Member::Unnamed(_) => Vec::new(),
        },
        Expr::Path(path) => {
            let name = path.path.get_ident();
            name.map(|name| plain(&name.to_string()))
                .into_iter()
                .collect()
        }
        Expr::MethodCall(call) if is_plain(&call.method) => fields(&call.receiver),
        // `text(alloc, "ClientStatus")`, `alloc.get("ClientStatus")` and `alloc["ClientStatus"]`.
        Expr::MethodCall(call) => named(&call.args).into_iter().collect(),
        Expr::Call(call) => match named(&call.args) {
            Some(name) => vec![name],
            None => call.args.iter().flat_map(fields).collect(),
        },
        Expr::Index(index) => {
            let name = literal(&index.index);
            name.map(|name| plain(&name.value())).into_iter().collect()
        }
        Expr::Tuple(tuple) => tuple.elems.iter().flat_map(fields).collect(),
        Expr::Paren(inner) => fields(&inner.expr),
        Expr::Reference(inner) => fields(&inner.expr),
        Expr::Unary(inner) => fields(&inner.expr),
        _ => Vec::new(),
    }
}

/// The last argument that is a text names what is requested.
fn named(args: &Punctuated<Expr, Token![,]>) -> Option<String> {
    args.iter().rev().find_map(|arg| match arg {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(plain(&text.value())),
        _ => None,
    })
}

/// The text that an expression is, however it is owned.
fn literal(expr: &Expr) -> Option<&LitStr> {
    match expr {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        Expr::MethodCall(call) if is_plain(&call.method) => literal(&call.receiver),
        Expr::Call(call) if wraps(&call.func) => call.args.first().and_then(literal),
        Expr::Paren(inner) => literal(&inner.expr),
        Expr::Reference(inner) => literal(&inner.expr),
        _ => None,
    }
}

/// `Some(…)` and `String::from(…)`.
fn wraps(function: &Expr) -> bool {
    let Expr::Path(path) = function else {
        return false;
    };
    let name = path.path.segments.last().map(|last| last.ident.to_string());
    matches!(name.as_deref(), Some("Some" | "from"))
}

/// The texts in a pattern.
fn texts(pattern: &Pat) -> Vec<&LitStr> {
    let mut texts = Texts(Vec::new());
    texts.visit_pat(pattern);
    texts.0
}

struct Texts<'p>(Vec<&'p LitStr>);

impl<'p> Visit<'p> for Texts<'p> {
    fn visit_lit_str(&mut self, text: &'p LitStr) {
        self.0.push(text);
    }
}

/// The inside of `matches!(…)`.
struct MatchesCall {
    head: Expr,
    pattern: Pat,
    guard: Option<Expr>,
}

impl Parse for MatchesCall {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let head = input.parse()?;
        input.parse::<Token![,]>()?;
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        let guarded = input.parse::<Option<Token![if]>>()?.is_some();
        let guard = if guarded { Some(input.parse()?) } else { None };
        input.parse::<Option<Token![,]>>()?;
        Ok(Self {
            head,
            pattern,
            guard,
        })
    }
}

struct Finder<'s> {
    sets: &'s Sets,
    /// Lines (from 1), and the words on them.
    found: Vec<(usize, String)>,
}

impl Finder<'_> {
    /// Notes which of the texts are words of one of the fields.
    fn meet(&mut self, fields: &[String], texts: &[&LitStr]) {
        for text in texts {
            let word = text.value();
            if fields.iter().any(|field| self.takes(field, &word)) {
                self.found.push((text.span().start().line, word));
            }
        }
    }

    fn takes(&self, field: &str, word: &str) -> bool {
        let own = FIELDS.iter().filter(|(name, _)| *name == field);
        let mut sets = own.flat_map(|(_, sets)| sets.iter());
        sets.any(|set| {
            let mut words = self.sets.get(*set).into_iter().flatten();
            words.any(|known| *known == word)
        })
    }

    /// The field becomes what the expression is.
    fn written(&mut self, fields: &[String], expr: &Expr) {
        if let Some(text) = literal(expr)
            && fields.iter().all(|field| field != HOOK)
        {
            self.meet(fields, &[text]);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_)) {
            let (left, right) = (&binary.left, &binary.right);
            for (one, other) in [(left, right), (right, left)] {
                let text = literal(other);
                self.meet(&fields(one), text.as_slice());
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, matched: &'ast ExprMatch) {
        let head = fields(&matched.expr);
        for arm in &matched.arms {
            self.meet(&head, &texts(&arm.pat));
        }
        visit::visit_expr_match(self, matched);
    }

    fn visit_expr_let(&mut self, requested: &'ast ExprLet) {
        self.meet(&fields(&requested.expr), &texts(&requested.pat));
        visit::visit_expr_let(self, requested);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        if !called.path.is_ident("matches") {
            return;
        }
        if let Ok(requested) = called.parse_body::<MatchesCall>() {
            self.meet(&fields(&requested.head), &texts(&requested.pattern));
            self.visit_expr(&requested.head);
            if let Some(guard) = &requested.guard {
                self.visit_expr(guard);
            }
        }
    }

    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        self.written(&fields(&assign.left), &assign.right);
        visit::visit_expr_assign(self, assign);
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        if let Member::Named(name) = &field.member {
            self.written(&[plain(&name.to_string())], &field.expr);
        }
        visit::visit_field_value(self, field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer;

    fn found(path: &str, text: &str) -> usize {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let blanked = lexer::blank(text);
        let lines: Vec<&str> = blanked.lines().collect();
        let test = lexer::test_lines(&lines);
        let mut problems = Vec::new();
        check(&file, |number| test[number], &mut problems);
        problems.len()
    }

    fn within(code: &str) -> usize {
        found("src/a.rs", &format!("fn f() {{\n    {code}\n}}\n"))
    }

    #[test]
    fn every_set_is_read_and_every_field_takes_words_of_one() {
        let sets = sets();
        assert_eq!(sets["job_type"].len(), 5);
        assert_eq!(sets["diff"], ["None", "Added", "Deleted", "Edited"]);
        for (field, takes) in FIELDS {
            assert_eq!(*field, plain(field));
            assert!(takes.iter().all(|set| sets.contains_key(set)), "{field}");
        }
    }

    #[test]
    fn words_of_a_field_are_no_literals() {
        for code in [
            "a.client_status == \"running\"",
            "if !x || \"dead\" != job.status {}",
            "match eval.status.as_str() { \"blocked\" => {} _ => {} }",
            "match (a, node.status.as_str()) { (1, \"down\") => {} _ => {} }",
            "match text(alloc, \"ClientStatus\").as_str() { s @ (\"lost\" | _) => s }",
            "matches!(alloc.desired_status.as_str(), \"evict\" | \"\")",
            "matches!(lifecycle, Some(l) if l.hook == \"prestart\")",
            "if let Some(\"batch\") = job.r#type.as_deref() {}",
            "Evaluation { status: \"pending\".to_owned(), ..eval }",
            "Job { r#type: \"service\".into(), ..job }",
            "row.status = \"complete\".to_owned();",
            "alloc[\"DesiredStatus\"] == \"run\"",
            "text(diff, \"Type\") != \"None\"",
            "matches!(check.initial_status.as_str(), \"\" | \"success\")",
            "token.r#type == \"management\"",
        ] {
            assert_eq!(within(code), 1, "{code}");
        }
        let both = "matches!(alloc.desired_status.as_str(), \"stop\" | \"evict\")";
        assert_eq!(within(both), 2);
    }

    #[test]
    fn texts_that_only_look_alike_are_left_alone() {
        for code in [
            "a.client_status == client::RUNNING",
            "a.client_status == \"\"",
            "a.client_status == \"eligible\"",
            "config.missed == \"stop\"",
            "network.mode == \"host\"",
            "text(&status, \"Stage\") == \"failed\"",
            "status.stage = \"failed\".to_owned();",
            "match code { 0 => \"running\", _ => \"dead\" }",
            "HookError { hook: \"prestart\".to_owned() }",
            "json!({ \"Status\": \"running\" })",
        ] {
            assert_eq!(within(code), 0, "{code}");
        }
    }

    #[test]
    fn tests_the_model_and_what_is_frozen_may_say_them() {
        let code = "fn f(a: &Job) -> bool {\n    a.status == \"dead\"\n}\n";
        for (path, wanted) in [
            ("src/a.rs", 1),
            ("projections/src/apply/a.rs", 1),
            ("events/src/a.rs", 1),
            ("events/src/model/a.rs", 0),
            ("migrations/src/events/a_v1.rs", 0),
            ("projections/src/apply/tests/a.rs", 0),
            ("src/a_test.rs", 0),
            ("tests/a.rs", 0),
            ("tools/a.rs", 0),
        ] {
            assert_eq!(found(path, code), wanted, "{path}");
        }
        let inline = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert_eq!(found("src/a.rs", &inline), 0);
    }
}
