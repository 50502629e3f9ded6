//! Whatever the text, parsing answers; whatever was said, canonical is canonical.

use super::{ApiJob, Input, parse, validate};
use proptest::prelude::*;

/// Pieces that make something like a specification more often than chance would.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("job \"x\" {\n".to_owned()),
        Just("group \"g\" {\n".to_owned()),
        Just("task \"t\" {\n".to_owned()),
        Just("config {\n".to_owned()),
        Just("locals {\n a = local.b\n".to_owned()),
        Just("variable \"v\" { default = [1] }\n".to_owned()),
        Just("dynamic \"port\" {\n for_each = range(3)\n content {\n".to_owned()),
        Just("}\n".to_owned()),
        Just("meta { a = \"${var.v[0]}%{ if true }x%{ endif }\" }\n".to_owned()),
        Just("count = [for x in var.v : x * 1e300][0] ** 2\n".to_owned()),
        Just("data = <<-EOF\n  ${upper(\"é\")}\n  EOF\n".to_owned()),
        "[a-z]{1,8} = -?[0-9]{1,40}(\\.[0-9]{1,5})?\n",
        "[a-z_]{1,12} = \"[^\\x00-\\x1f\"]{0,20}\"\n",
        "[\\[\\](){}$%\"\\\\=:,.?!<>|&*/+a0 \n-]{0,30}",
        "\\PC{0,20}",
    ]
}

/// Pieces of a group that parse, each once.
const PARTS: [&str; 9] = [
    "count = 3\n",
    "meta { a = \"${1 + 2}\" }\n",
    "ephemeral_disk {\n sticky = true\n }\n",
    "restart {\n attempts = 2\n }\n",
    "shutdown_delay = \"7s\"\n",
    "network {\n port \"p\" { static = 80 }\n }\n",
    "service {\n provider = \"nomad\"\n name = \"s\"\n }\n",
    "constraint {\n attribute = \"${attr.a}\"\n value = \"b\"\n }\n",
    "task \"u\" {\n driver = \"mock_driver\"\n leader = true\n }\n",
];

/// A client that parses here and registers what it was given gets the same job as one that this
/// server parses for: the two ways are each other's second implementation.
fn round_trip(job: ApiJob) -> Result<(), TestCaseError> {
    let sent = job.to_json();
    let Ok(model) = job.into_model() else {
        return Ok(());
    };
    let read = ApiJob::from_json(sent).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let again = read.into_model();
    let again = again.map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&model, &again);
    let limits = super::JobLimits::default();
    prop_assert_eq!(validate(&model, &limits), validate(&again, &limits));
    Ok(())
}

#[test]
fn a_fault_that_the_grammar_finds_within_a_character_is_named() {
    for text in [
        "a\"\\\u{11d6a}",
        "a = \"\\\u{11d6a}\"\n",
        "meta { a = \"\\\u{e9}\" }",
    ] {
        let problems = parse(&Input::server(text)).unwrap_err();
        assert!(!problems.is_empty(), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_answered(pieces in proptest::collection::vec(piece(), 0..12)) {
        let text = pieces.concat();
        let again = parse(&Input::server(&text));
        match parse(&Input::server(&text)) {
            Ok(job) => {
                let same = again.ok();
                prop_assert_eq!(same.as_ref(), Some(&job), "the same text, the same job");
                round_trip(job)?;
            }
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                let reported = again.err().map(|problems| problems.to_string());
                prop_assert_eq!(reported, Some(problems.to_string()));
            }
        }
    }

    #[test]
    fn what_parses_means_the_same_by_way_of_its_json(
        parts in proptest::sample::subsequence(&PARTS[..], 0..=PARTS.len()),
        kind in "service|batch|system|sysbatch",
    ) {
        let body = parts.concat();
        let text = format!(
            "job \"x\" {{\n type = \"{kind}\"\n group \"g\" {{\n {body}\n task \"t\" {{\n \
             driver = \"raw_exec\"\n config {{ command = \"/bin/true\" }}\n }}\n }}\n}}\n"
        );
        let job = parse(&Input::server(&text));
        let job = job.map_err(|problems| TestCaseError::fail(format!("{problems}\n{text}")))?;
        round_trip(job)?;
    }

    #[test]
    fn canonical_is_canonical(
        kind in "service|batch|system|sysbatch",
        count in proptest::option::of(0..9i64),
        cpu in proptest::option::of(1..900i64),
        stagger in proptest::option::of(1..900i64),
        provider in "nomad|consul",
    ) {
        let job = serde_json::json!({
            "id": "x", "TYPE": kind, "Update": {"Stagger": stagger},
            "TaskGroups": [{"Name": "g", "Count": count, "Services": [{"Provider": provider}],
                "Tasks": [{"Name": "t", "Driver": "raw_exec", "Resources": {"CPU": cpu}}]}],
        });
        let mut once = ApiJob::from_json(job.clone()).expect("reads");
        once.canonicalise();
        let mut twice = once.clone();
        twice.canonicalise();
        prop_assert_eq!(&once, &twice);
        // The model's JSON is the API's form of the same job.
        let model = once.into_model().expect("model");
        let bytes = drover_events::gojson::to_vec(&model).expect("json");
        let json = serde_json::from_slice(&bytes).expect("json");
        let again = ApiJob::from_json(json).expect("reads").into_model().expect("model");
        prop_assert_eq!(model, again);
    }
}
