use proptest::prelude::*;

use super::*;
use crate::model::Job;

crate::wire! {
    /// A shape with one of everything.
    struct Sample {
        id: String = "ID",
        count: i64 = "Count",
        small: u8 = "Small",
        ratio: f64 = "Ratio",
        flag: Option<bool> = "Flag",
        items: List<i64> = "Items",
        labels: Map<List<String>> = "Labels",
        at: Time = "At",
        made: GoTime = "Made",
        ttl: DurationTextOrEmpty = "TTL",
        data: Base64 = "Data",
        free: Map<Any> = "Free",
        nested: List<Inner> = "Nested",
        extra: String = "Extra" omit,
    }

    /// Something nested.
    struct Inner {
        value: u64 = "Value",
    }
}

fn read(text: &str) -> Sample {
    from_slice(text.as_bytes()).unwrap()
}

fn refusal(text: &str) -> GoJsonError {
    from_slice::<Sample>(text.as_bytes()).unwrap_err()
}

/// An error that is printed with its sources is printed once.
#[test]
fn the_readers_words_are_told_once() {
    for (text, is_data) in [(r#"{"Count":"x"}"#, true), ("{", false)] {
        let error = refusal(text);
        assert_eq!(error.is_data(), is_data, "{text}");
        assert!(std::error::Error::source(&error).is_none(), "{text}");
    }
    let reported = refusal(r#"{"Count":"x"}"#).to_string();
    assert!(reported.starts_with("Count: "), "{reported}");
}

#[test]
fn null_is_the_zero_value_everywhere() {
    let nulls = r#"{"ID":null,"Count":null,"Small":null,"Ratio":null,"Flag":null,"Items":null,
        "Labels":{"a":null},"At":null,"Made":null,"TTL":null,"Data":null,"Free":null,
        "Nested":[null]}"#;
    let mut want = Sample {
        nested: List::from([Inner::default()]),
        ..Sample::default()
    };
    want.labels.insert("a", List::nil());
    assert_eq!(read(nulls), want);
    assert_eq!(read("null"), Sample::default());
}

#[test]
fn keys_match_in_any_case_and_the_last_one_counts() {
    assert_eq!(
        read(r#"{"id":"a","ITEMS":[1],"uNkNown":{"x":[1]},"Id":"b"}"#).id,
        "b"
    );
    assert_eq!(read(r#"{"nested":[{"vALUE":7}]}"#).nested[0].value, 7);
}

#[test]
fn map_keys_keep_their_case() {
    let sample = read(r#"{"Free":{"Value":{"ID":null}}}"#);
    assert_eq!(sample.free["Value"], serde_json::json!({"ID": null}));
}

#[test]
fn an_error_names_its_field() {
    for (text, path) in [
        (r#"{"count":"x"}"#, "Count"),
        (r#"{"Nested":[{},{"Value":-1}]}"#, "Nested[1].Value"),
        (r#"{"Labels":{"k":[1]}}"#, "Labels.k[0]"),
        (r#"{"Small":256}"#, "Small"),
        (r#"{"Count":9223372036854775808}"#, "Count"),
        (r#"{"Count":1e3}"#, "Count"),
        (r#"{"At":"yesterday"}"#, "At"),
        (r#"{"TTL":"5 parsecs"}"#, "TTL"),
        (r#"{"Data":"*"}"#, "Data"),
        (r#"[]"#, ""),
    ] {
        assert_eq!(refusal(text).path(), path, "{text}");
    }
    assert!(
        refusal(r#"{"Ratio":1e999}"#)
            .to_string()
            .contains("number out of range")
    );
}

#[test]
fn deep_input_is_refused() {
    let deep = format!(
        r#"{{"Free":{{"x":{}{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(refusal(&deep).to_string().contains("recursion limit"));
}

#[test]
fn output_has_nomads_form() {
    let text = String::from_utf8(
        to_vec(&Sample {
            ratio: 1.0,
            ..Sample::default()
        })
        .unwrap(),
    );
    assert_eq!(
        text.unwrap(),
        r#"{"ID":"","Count":0,"Small":0,"Ratio":1.0,"Flag":null,"Items":null,"Labels":null,"#
            .to_owned()
            + r#""At":null,"Made":"0001-01-01T00:00:00Z","TTL":"","Data":null,"Free":null,"#
            + r#""Nested":null}"#
    );
    assert_eq!(to_vec("<&>").unwrap(), b"\"<&>\"");
}

#[test]
fn durations_are_read_and_printed_as_go_does() {
    for (text, nanos) in [
        ("0s", 0),
        ("1ns", 1),
        ("1.5\u{b5}s", 1_500),
        ("200ms", 200_000_000),
        ("1m30s", 90_000_000_000),
        ("1h0m0.5s", 3_600_500_000_000),
        ("-2s", -2_000_000_000),
        ("2562047h47m16.854775807s", i64::MAX),
    ] {
        assert_eq!(format_duration(nanos), text);
        assert_eq!(parse_duration(text), Some(nanos), "{text}");
    }
    assert_eq!(parse_duration("60000ms"), Some(60_000_000_000));
    for bad in [
        "",
        "-",
        "1",
        "s",
        "1x",
        "1s2",
        ".s",
        "1.2.3s",
        "99999999999999h",
    ] {
        assert_eq!(parse_duration(bad), None, "{bad}");
    }
    assert_eq!(read(r#"{"TTL":5}"#).ttl.0, 5);
    assert_eq!(read(r#"{"TTL":"1h"}"#).ttl.0, 3_600_000_000_000);
}

#[test]
fn times_are_read_and_printed_as_rfc_3339() {
    for (text, nanos) in [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("2026-11-21T09:17:03.94293577Z", 1_795_252_623_942_935_770),
        ("2000-02-29T23:59:59Z", 951_868_799_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
    ] {
        assert_eq!(Time(nanos).to_string(), text);
        assert_eq!(Time::parse(text), Some(Time(nanos)), "{text}");
    }
    let east = Time::parse("2026-11-21T10:17:03+01:00");
    assert_eq!(east, Time::parse("2026-11-21T09:17:03Z"));
    for bad in [
        "",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-01",
        "9999-01-01T00:00:00Z",
    ] {
        assert_eq!(Time::parse(bad), None, "{bad}");
    }
}

/// What the adaptor reads, it writes so that it reads the same again, and it reads no text that is
/// no JSON: `serde_json` is the second opinion.
fn read_and_written<T>(bytes: &[u8]) -> Result<(), TestCaseError>
where
    T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug,
{
    let Ok(read) = from_slice::<T>(bytes) else {
        return Ok(());
    };
    let other = serde_json::from_slice::<serde_json::Value>(bytes);
    prop_assert!(other.is_ok(), "it is no JSON: {other:?}");
    let written = to_vec(&read).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let again = from_slice::<T>(&written).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&again, &read);
    prop_assert_eq!(to_vec(&again).ok(), Some(written));
    Ok(())
}

/// Base64 as RFC 4648 has it, digit by digit; line ends count for nothing.
fn plain_base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text: String = text.chars().filter(|c| !"\r\n".contains(*c)).collect();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut bits = Vec::new();
    for digit in digits.chars() {
        let value = DIGITS.find(digit)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1 == 1));
    }
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    Some(bits.chunks_exact(8).map(byte).collect())
}

proptest! {
    #[test]
    fn what_the_adaptor_reads_is_json_and_comes_back(
        text in ".{0,200}",
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        fields in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        cut in any::<proptest::sample::Index>(),
        to in any::<u8>(),
    ) {
        read_and_written::<Sample>(text.as_bytes())?;
        read_and_written::<Job>(&bytes)?;
        // One that is nearly right: a byte of it is another.
        let pairs = fields.iter().map(|at| {
            let name = Sample::FIELDS[at.index(Sample::FIELDS.len())];
            format!("\"{name}\": null")
        });
        let mut near = format!("{{{}}}", pairs.collect::<Vec<_>>().join(", ")).into_bytes();
        let at = cut.index(near.len());
        near[at] = to;
        read_and_written::<Sample>(&near)?;
    }

    #[test]
    fn json_of_any_shape_comes_back_or_is_refused(
        name in proptest::sample::select(Sample::FIELDS),
        value in json(),
        upper in any::<bool>(),
    ) {
        let key = if upper { name.to_uppercase() } else { name.to_owned() };
        let text = serde_json::to_string(&serde_json::json!({ key: value })).unwrap();
        read_and_written::<Sample>(text.as_bytes())?;
        read_and_written::<Job>(text.as_bytes())?;
    }

    #[test]
    fn base64_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(Base64::decode(&Base64::encode(&bytes)), Some(bytes));
    }

    #[test]
    fn base64_is_read_as_by_its_definition(text in "[A-Za-z0-9+/=\n]{0,40}") {
        prop_assert_eq!(Base64::decode(&text), plain_base64(&text));
    }

    #[test]
    fn base64_that_is_nearly_right_is_read_as_by_its_definition(
        bytes in proptest::collection::vec(any::<u8>(), 0..20),
        at in any::<proptest::sample::Index>(),
        to in "[A-Za-z=\n%]",
    ) {
        let mut text = Base64::encode(&bytes);
        if !text.is_empty() {
            let at = at.index(text.len());
            text.replace_range(at..=at, &to);
        }
        prop_assert_eq!(Base64::decode(&text), plain_base64(&text));
    }

    #[test]
    fn times_round_trip(nanos in any::<i64>()) {
        prop_assert_eq!(Time::parse(&Time(nanos).to_string()), Some(Time(nanos)));
    }

    #[test]
    fn durations_round_trip(nanos in any::<i64>()) {
        prop_assume!(nanos != i64::MIN);
        prop_assert_eq!(parse_duration(&format_duration(nanos)), Some(nanos));
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map("[A-Za-z]{1,8}", inner, 0..4)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}
