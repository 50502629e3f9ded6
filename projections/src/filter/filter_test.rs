//! Limits, messages, and that nothing panics.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{FILTER_VERSION, FilterError, MAX_DEPTH, MAX_LENGTH, compile};

fn answer(expr: &str, row: &impl Serialize) -> Result<bool, FilterError> {
    compile(expr, FILTER_VERSION)?.matches(row)
}

fn row() -> Json {
    json!({"Row": {
        "Status": "running", "Count": 3, "Tags": ["a", "b"], "Mixed": ["a", 1, true],
        "Groups": [{"Name": "web", "Tasks": [{"Name": "x"}]}],
    }})
}

#[test]
fn unknown_versions_are_refused() {
    assert_eq!(compile("a == 1", 2).unwrap_err(), FilterError::Version(2));
}

#[test]
fn long_and_deep_expressions_are_refused() {
    let long = format!("a == \"{}\"", "x".repeat(MAX_LENGTH));
    assert!(matches!(
        answer(&long, &row()),
        Err(FilterError::TooLong { .. })
    ));
    let deep = format!(
        "{}Row.Count == 3{}",
        "(".repeat(MAX_DEPTH),
        ")".repeat(MAX_DEPTH)
    );
    assert!(matches!(answer(&deep, &row()), Err(FilterError::TooDeep)));
    let depth = MAX_DEPTH - 1;
    let just = format!("{}Row.Count == 3{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(answer(&just, &row()), Ok(true));
    let wide = vec!["Row.Count == 3"; 500].join(" and ");
    assert_eq!(answer(&wide, &row()), Ok(true));
    let nots = format!("{}Row.Count == 3", "not ".repeat(3001));
    assert_eq!(answer(&nots, &row()), Ok(false));
}

#[test]
fn huge_patterns_are_refused() {
    let huge = "Row.Status matches \"((((a{100}){100}){100}){100})\"";
    assert!(matches!(
        answer(huge, &row()),
        Err(FilterError::Pattern { .. })
    ));
}

#[test]
fn costly_expressions_are_given_up() {
    let row = json!({"R": {"L": vec![1; 300]}});
    let costly = "any R.L as a { any R.L as b { any R.L as c { a == 2 } } }";
    assert_eq!(answer(costly, &row), Err(FilterError::TooCostly));
}

#[test]
fn mixed_lists_skip_what_does_not_parse() {
    assert_eq!(answer("a in Row.Mixed", &row()), Ok(true));
    assert_eq!(answer("z in Row.Mixed", &row()), Ok(false));
}

#[test]
fn errors_name_the_place_and_the_selector() {
    let text = |expr: &str| answer(expr, &row()).unwrap_err().to_string();
    assert_eq!(
        text("Row.Count = 3"),
        "1:11: no match found, unexpected '='"
    );
    assert_eq!(
        text("Row.Count =="),
        "1:13: no match found, unexpected end of expression"
    );
    assert!(text("Row.Count == three").contains("three"));
    assert!(text("Row.Count is empty").contains("Row.Count"));
    #[derive(Serialize)]
    struct Eval {
        status: String,
    }
    let eval = Eval {
        status: String::new(),
    };
    let text = answer("Statsu == x", &eval).unwrap_err().to_string();
    assert!(text.contains("\"Statsu\""), "{text}");
}

#[test]
fn skipped_fields_count_as_zero() {
    #[derive(Serialize)]
    struct Sparse {
        #[serde(skip_serializing_if = "String::is_empty")]
        text: String,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        map: BTreeMap<String, String>,
    }
    let sparse = Sparse {
        text: String::new(),
        map: BTreeMap::new(),
    };
    assert_eq!(answer("text == \"\"", &sparse), Ok(true));
    assert_eq!(answer("text == x", &sparse), Ok(false));
    assert_eq!(answer("text is empty", &sparse), Ok(true));
    assert_eq!(answer("map is nil", &sparse), Ok(true));
    assert_eq!(answer("map.x is nil", &sparse), Ok(true));
}

#[test]
fn rows_of_the_model_are_read_by_their_wire_names() {
    use drover_events::model::{Evaluation, Job, Node};
    let eval = Evaluation {
        status: "pending".into(),
        priority: 50,
        ..Evaluation::default()
    };
    assert_eq!(
        answer("Status == pending and Priority == 50", &eval),
        Ok(true)
    );
    assert_eq!(answer("JobID == \"\" and NodeID is empty", &eval), Ok(true));
    assert_eq!(answer("ModifyIndex == 0", &eval), Ok(true));
    assert!(answer("Gone == 0", &eval).is_err());
    let job = Job::default();
    assert_eq!(
        answer("Datacenters is empty and Datacenters is nil", &job),
        Ok(true)
    );
    assert_eq!(answer("Meta.owner == x", &job), Ok(false));
    assert_eq!(answer("Periodic is nil and Meta is nil", &job), Ok(true));
    assert_eq!(answer("x in Datacenters", &job), Ok(false));
    let node = Node::default();
    assert_eq!(
        answer("Attributes[\"kernel.name\"] == linux", &node),
        Ok(false)
    );
}

/// Pieces that make text which is nearly a filter.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("Row.Status".to_owned()),
        Just("Row.Tags".to_owned()),
        Just("\"/Row/Groups\"".to_owned()),
        Just("Row[\"Count\"]".to_owned()),
        prop::sample::select(vec![
            "==", "!=", "in", "not", "contains", "matches", "is", "empty", "nil", "and", "or", "(",
            ")", "{", "}", "any", "all", "as", "x", "_", ",", "[", "]", ".", "\"", "`", "3", "-",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ]
}

/// What a filter says, its opposite denies, and saying it twice changes nothing; a refusal names
/// its reason.
fn agrees_with_itself(text: &str) -> Result<(), TestCaseError> {
    let row = row();
    let passes = match answer(text, &row) {
        Ok(passes) => passes,
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            prop_assert_eq!(answer(text, &row), Err(error));
            return Ok(());
        }
    };
    for (other, wanted) in [
        (format!("not ({text})"), !passes),
        (format!("not (not ({text}))"), passes),
        (format!("({text}) and ({text})"), passes),
        (format!("({text}) or ({text})"), passes),
        (format!("({text}) and not ({text})"), false),
        (format!("({text}) or not ({text})"), true),
    ] {
        match answer(&other, &row) {
            Err(FilterError::TooLong { .. } | FilterError::TooDeep | FilterError::TooCostly) => {}
            result => prop_assert_eq!(result, Ok(wanted), "{}", other),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_gets_an_answer_that_agrees_with_itself(text in "\\PC*") {
        agrees_with_itself(&text)?;
    }

    #[test]
    fn nearly_filters_get_an_answer_that_agrees_with_itself(
        pieces in prop::collection::vec(piece(), 0..14),
        glue in prop::sample::select(vec!["", " "]),
    ) {
        agrees_with_itself(&pieces.join(glue))?;
    }

    #[test]
    fn filters_agree_with_themselves(
        parts in prop::collection::vec(prop::sample::select(vec![
            "Row.Status == running", "Row.Count != 3", "a in Row.Tags", "c not in Row.Tags",
            "Row.Tags contains b", "Row.Groups is empty", "Row.Status matches `^r.n`",
            "any Row.Tags as t { t == a }", "all Row.Tags as t { t != c }", "Row.Gone is nil",
        ]), 1..6),
        glue in prop::collection::vec(prop::sample::select(vec![" and ", " or "]), 5),
    ) {
        let mut text = parts[0].to_owned();
        for (part, glue) in parts[1..].iter().zip(glue) {
            text = format!("({text}){glue}{part}");
        }
        agrees_with_itself(&text)?;
    }

    #[test]
    fn patterns_agree_with_themselves(
        pattern in "[\\[\\](){}*+?|^$.\\\\a-zA-Z0-9,:&~<>=!_ -]{0,16}",
    ) {
        let matches = answer(&format!("Row.Status matches `{pattern}`"), &row());
        let not = answer(&format!("Row.Status not matches `{pattern}`"), &row());
        prop_assert_eq!(matches.as_ref().map(|m| !m), not.as_ref().map(|m| *m));
        agrees_with_itself(&format!("Row.Status matches `{pattern}`"))?;
    }

    /// A pattern without any sign in it is looked for as it is.
    #[test]
    fn plain_patterns_are_looked_for_as_they_are(text in "[a-z0-9]{0,3}") {
        let row = json!({"Row": {"Status": "running a7 banana"}});
        let found = "running a7 banana".contains(&text);
        prop_assert_eq!(answer(&format!("Row.Status matches `{text}`"), &row), Ok(found));
        let whole = answer(&format!("Row.Status matches `^{text}$`"), &row);
        prop_assert_eq!(whole, Ok(false));
    }
}
