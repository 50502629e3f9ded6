//! The dearest texts within the limits of length: each is refused before it is read, or read in
//! time.

use super::{Input, parse};
use serde_json::json;

const MANY: &str = "One object has more than 20000 keys";
const WORK: &str = "Evaluating this would take more than";

fn keys(number: usize) -> String {
    (0..number).map(|n| format!("k{n} = 1, ")).collect()
}

/// A job in the JSON form with the texts as its metadata.
fn meta(texts: &[String]) -> String {
    let meta: serde_json::Map<_, _> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| (format!("m{n}"), json!(text)))
        .collect();
    json!({ "job": { "x": { "meta": meta } } }).to_string()
}

fn native(value: &str) -> String {
    format!("locals {{\n  a = {value}\n}}\njob \"x\" {{}}\n")
}

#[test]
fn what_is_dear_to_read_is_refused_before_it_is_read() {
    let list = format!("[{}]", "1, ".repeat(300));
    let lists: String = (0..3_000).map(|n| format!("({list}[{n}]) = 1, ")).collect();
    let objects: String = (0..15)
        .map(|n| format!("  a{n} = {{ {} }}\n", keys(19_000)))
        .collect();
    let comments = "/**/".repeat(900_000);
    let template = |items: &str| format!("${{ {{ {items} }} }}");
    let long = "x".repeat(600);
    let braced: String = (0..230).map(|n| format!("\"{n}{{{long}\" = 1, ")).collect();
    let types: String = (0..25_000).map(|n| format!("k{n} = string, ")).collect();
    let of = format!("object({{ {types} }})");
    for (what, text, why) in [
        (
            "objects of many keys",
            format!("locals {{\n{objects}}}\njob \"x\" {{}}\n"),
            WORK,
        ),
        (
            "keys that are lists",
            native(&format!("{{ {lists} }}")),
            WORK,
        ),
        (
            "comments behind operators that are open",
            native(&format!("{}1 {comments}", "!".repeat(60))),
            WORK,
        ),
        (
            "comments behind conditions that are open",
            native(&format!("({}1 {comments})", "b ? 1 : ".repeat(60))),
            WORK,
        ),
        (
            "an object in a template of the JSON form",
            meta(&[template(&keys(100_000))]),
            MANY,
        ),
        (
            "objects in templates of the JSON form",
            meta(&vec![template(&braced); 28]),
            WORK,
        ),
        (
            "the type of a variable in the JSON form",
            json!({ "variable": { "v": { "type": of } }, "job": { "x": {} } }).to_string(),
            MANY,
        ),
    ] {
        assert!(text.len() < 4 << 20, "{what}: {}", text.len());
        let found = parse(&Input::server(&text)).expect_err(what).to_string();
        assert!(found.contains(why), "{what}: {found:.300}");
        assert!(found.len() < 20_000, "{what}: {}", found.len());
    }
}

#[test]
fn values_from_outside_are_bounded_as_the_text_is() {
    let text = "variable \"v\" { type = map(number) }\njob \"x\" {}\n";
    let given = format!("{{ {} }}", keys(25_000));
    let mut input = Input::server(text);
    input.flags = vec![("v".to_owned(), given.clone())];
    let found = parse(&input).expect_err("a flag").to_string();
    assert!(found.contains(MANY), "{found:.300}");
    for given in [format!("v = {given}\n"), "{".repeat(5 << 20)] {
        let mut input = Input::server(text);
        input.files = vec![("a.vars".to_owned(), given)];
        let found = parse(&input).expect_err("a file").to_string();
        assert!(found.contains("Specification too large"), "{found:.300}");
    }
}

#[test]
fn what_is_many_and_no_more_than_that_is_read_in_proportion() {
    // A copy of all locals for each would never end.
    let locals: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("l{n}"), json!(n))).collect();
    let text = json!({ "locals": locals, "job": { "x": {} } }).to_string();
    parse(&Input::server(&text)).expect("locals");
    // Nor would one of a long value for each rule.
    let rules = "  validation {\n    condition = var.v != \"\"\n    error_message = \"No.\"\n  }\n";
    let long = "x".repeat(1 << 20);
    let text = format!(
        "variable \"v\" {{\n  default = \"{long}\"\n{}}}\njob \"x\" {{}}\n",
        rules.repeat(20_000)
    );
    let found = parse(&Input::server(&text)).expect_err("rules").to_string();
    assert!(found.contains("build more than 64 MiB"), "{found:.300}");
    // Only so many problems are looked for in a long line.
    let unset: String = (0..20_000)
        .map(|n| format!("variable \"v{n}\" {{}}\n"))
        .collect();
    let uses: String = (0..20_000).map(|n| format!("var.v{n}, ")).collect();
    let text = format!("{unset}job \"x\" {{\n  datacenters = [{uses}]\n}}\n");
    let found = parse(&Input::server(&text)).expect_err("unset variables");
    assert_eq!(found.list.len(), 100);
}

#[test]
fn a_mark_of_a_heredoc_with_a_megabyte_of_blanks_is_looked_at_once() {
    // Looked at for each of the lines it would take an hour.
    let (blanks, lines) = (" ".repeat(2 << 20), "\n".repeat(1 << 20));
    let text = format!("job \"x\" {{}}\na = <<E{blanks}\n{lines}");
    parse(&Input::server(&text)).expect_err("it has no end");
}

#[test]
fn comparing_every_element_of_sets_with_every_other_is_charged() {
    let many = format!("split(\"x\", \"{}\")", "x".repeat(10_000));
    for set in ["setintersection", "setsubtract"] {
        let text = native(&format!("length({set}({many}, {many}))"));
        let refused = parse(&Input::server(&text)).expect_err(set).to_string();
        assert!(refused.contains(WORK), "{set}: {refused:.300}");
        let few = native(&format!("length({set}(split(\"x\", \"xx\"), [\"\"]))"));
        parse(&Input::server(&few)).expect(set);
    }
}
