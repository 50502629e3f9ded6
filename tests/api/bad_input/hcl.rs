//! Job specifications that are too long, too deep, or never end.

use serde_json::json;

use super::Bad;

/// A specification whose task has these further lines.
fn job(lines: &str) -> String {
    format!(
        "job \"x\" {{\n type = \"batch\"\n group \"g\" {{\n task \"t\" {{\n driver = \"raw_exec\"\n\
         config {{\n command = \"/bin/true\"\n }}\n{lines}\n }}\n }}\n}}\n"
    )
}

fn parse(bad: &mut Bad, text: &str) -> (u16, String) {
    let body = json!({"JobHCL": text}).to_string();
    bad.reported("PUT", "/v1/jobs/parse", body.as_bytes())
}

fn refused(bad: &mut Bad, text: &str, word: &str) {
    let (status, reported) = parse(bad, text);
    let begin: String = text.chars().take(60).collect();
    assert_eq!(status, 400, "{begin}: {reported}");
    assert!(
        reported.starts_with("Failed to parse job: ") && reported.contains(word),
        "{begin}: {reported}"
    );
}

#[test]
fn ten_megabytes_are_refused_by_size() {
    let mut bad = Bad::start();
    let comments = format!("{}{}", job(""), "# x\n".repeat(2_500_000));
    let garbage = "}".repeat(10_000_000);
    let groups = "group \"g\" {\n}\n".repeat(700_000);
    for text in [comments, garbage, groups] {
        refused(&mut bad, &text, "too large");
    }
    bad.end();
}

#[test]
fn what_is_nested_or_chained_without_end_is_refused_by_place() {
    let mut bad = Bad::start();
    const MANY: usize = 1_000_000;
    for (text, word) in [
        ("[".repeat(MANY), "nesting depth"),
        ("(".repeat(MANY), "nesting depth"),
        (format!("{}true", "!".repeat(MANY)), "nesting depth"),
        (format!("{}1", "-".repeat(MANY)), "nesting depth"),
        (format!("1{}", "+1".repeat(MANY)), "chained"),
        (format!("\"{}\"", "${".repeat(MANY)), ""),
        (format!("{}1", "true?1:".repeat(MANY / 4)), ""),
    ] {
        refused(&mut bad, &format!("locals {{\n a = {text}\n}}\n"), word);
    }
    refused(&mut bad, &"a {\n".repeat(MANY), "nesting depth");
    bad.end();
}

#[test]
fn locals_that_refer_to_each_other_are_named() {
    let mut bad = Bad::start();
    let user = job("user = local.a");
    let cycle = "local.a -> local.b -> local.c -> local.a";
    let three = "locals {\n a = local.b\n b = local.c\n c = local.a\n}\n";
    refused(&mut bad, &format!("{three}{user}"), cycle);
    refused(
        &mut bad,
        &format!("locals {{\n a = local.a\n}}\n{user}"),
        "local.a -> local.a",
    );
    bad.end();
}

#[test]
fn what_would_grow_without_end_is_stopped() {
    let mut bad = Bad::start();
    let mut doubling = "locals {\n a0 = \"xx\"\n".to_owned();
    for n in 0..60 {
        doubling.push_str(&format!(
            " a{} = \"${{local.a{n}}}${{local.a{n}}}\"\n",
            n + 1
        ));
    }
    refused(
        &mut bad,
        &format!("{doubling}}}\n{}", job("user = local.a60")),
        "too large",
    );
    let nested = "[for x in range(1000): [for y in range(1000): [for z in range(1000): z]]]";
    refused(
        &mut bad,
        &format!("locals {{\n a = {nested}\n}}\n{}", job("")),
        "too large",
    );
    for (expression, word) in [
        ("jsonencode(range(0, 1000000000))", "range"),
        (
            "jsonencode(setproduct(range(1000), range(1000), range(1000)))",
            "setproduct",
        ),
        ("pow(10, 1000000000)", "pow"),
        ("format(\"%1000000000d\", 1)", "format"),
        ("file(\"/etc/hostname\")", "file"),
    ] {
        refused(&mut bad, &job(&format!("user = {expression}")), word);
    }
    bad.end();
}

#[test]
fn text_that_is_none_is_refused_by_place() {
    let mut bad = Bad::start();
    refused(&mut bad, &job("user = \"\\ud800\""), "input.hcl:9");
    refused(&mut bad, &job("user = <<EOF\nabc"), "heredoc");
    refused(&mut bad, "}{", "input.hcl:1");
    refused(&mut bad, "locals {\n}\n", "job block");
    assert_eq!(parse(&mut bad, ""), (400, "Job spec is empty".to_owned()));
    bad.refused(
        400,
        &["JobHCL", "string"],
        ("PUT", "/v1/jobs/parse", b"{\"JobHCL\": 7}"),
    );
    let body = json!({"JobHCL": job(""), "Variables": "}{"}).to_string();
    bad.refused(
        400,
        &["Failed to parse job"],
        ("PUT", "/v1/jobs/parse", body.as_bytes()),
    );
    assert_eq!(parse(&mut bad, &job("")).0, 200);
    bad.end();
}
