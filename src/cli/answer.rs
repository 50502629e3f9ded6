//! What an agent answers, read as the types of its API: what it leaves out or says is null is
//! empty, and a field of another type is an error that names the field.

use anyhow::{Result, bail};
use drover_events::gojson::{self, GoJsonError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// An answer as it came.
///
/// # Errors
/// It is no JSON, or of another shape.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    gojson::from_slice(body).map_err(unread)
}

/// The body of an answer. An empty one is `null` where something was changed; an empty answer to a
/// read is an error, since it does not say that nothing was found.
///
/// # Errors
/// It is empty, no JSON, or of another shape.
pub(super) fn body<T: DeserializeOwned>(body: &[u8], is_read: bool) -> Result<T> {
    match body.trim_ascii() {
        [] if is_read => bail!(
            "the agent's answer is empty: it says neither what there is nor that there is \
             nothing; does it come from a proxy before the agent?"
        ),
        [] => read(b"null"),
        body => read(body),
    }
}

/// An answer that is passed on as it is as well.
///
/// # Errors
/// It is of another shape.
pub(super) fn of<T: DeserializeOwned>(answer: Json) -> Result<T> {
    gojson::from_value(answer).map_err(unread)
}

/// What is shown in place of an entry of a list that cannot be read: the list continues behind it.
pub(super) fn unreadable(error: &anyhow::Error) -> String {
    format!("unreadable: {}", error.root_cause())
}

fn unread(error: GoJsonError) -> anyhow::Error {
    let why = match error.is_data() {
        true => "the agent's answer cannot be read; is it of another version?",
        false => "the agent's answer is not JSON",
    };
    anyhow::Error::from(error).context(why)
}

/// An answer, or a part of one, that is still passed on as it came: of one that a newer agent wrote
/// no more need be known than the type says.
///
/// # Errors
/// It is of another shape.
pub(super) fn of_ref<T: DeserializeOwned>(answer: &Json) -> Result<T> {
    gojson::from_value_ref(answer).map_err(unread)
}

/// What says which entry of a list one is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct EntryIndex {
    index: Option<u64>,
}

/// The index of an entry whose other fields may be unreadable; `None` where it has no index.
pub(super) fn index(entry: &Json) -> Option<u64> {
    let entry: EntryIndex = of_ref(entry).unwrap_or_default();
    entry.index
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_events::model::Evaluation;
    use serde_json::json;

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct OwnedAnswer {
        names: Vec<String>,
        inner: AnswerInner,
        perhaps: Option<AnswerInner>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct AnswerInner {
        count: u64,
    }

    #[test]
    fn what_is_left_out_or_null_is_empty() {
        for body in [
            "{}",
            "null",
            r#"{"Names":null,"Inner":null,"Perhaps":null,"More":[1]}"#,
        ] {
            let own: OwnedAnswer = read(body.as_bytes()).unwrap();
            assert!(own.names.is_empty() && own.perhaps.is_none(), "{body}");
            assert_eq!(own.inner.count, 0);
        }
        let own: OwnedAnswer = of(json!({"Names": ["a", null], "Perhaps": {"Count": 7}})).unwrap();
        assert_eq!(own.names, ["a", ""]);
        assert_eq!(own.perhaps.map(|inner| inner.count), Some(7));
        let all: Vec<Evaluation> = read(b"null").unwrap();
        assert!(all.is_empty());
    }

    #[test]
    fn what_stays_is_read_as_far_as_it_can_be() {
        for (entry, wanted) in [
            (json!({"Index": 7, "Kind": {}}), Some(7)),
            (json!({"Index": null}), None),
            (json!({"Index": "7"}), None),
            (json!({}), None),
            (json!("7"), None),
        ] {
            assert_eq!(index(&entry), wanted, "{entry}");
        }
    }

    #[test]
    fn an_empty_answer_says_nothing_only_where_something_was_changed() {
        for (is_read, text, wanted) in [
            (true, "null", 0),
            (true, "[1]", 1),
            (false, "", 0),
            (false, " \n", 0),
        ] {
            let read: Vec<u64> = body(text.as_bytes(), is_read).unwrap();
            assert_eq!(read.len(), wanted, "{text:?}");
        }
        let reported = body::<Vec<u64>>(b" \n", true).unwrap_err().to_string();
        assert!(
            reported.starts_with("the agent's answer is empty"),
            "{reported}"
        );
    }

    #[test]
    fn a_field_of_another_type_is_named() {
        let error = read::<Vec<Evaluation>>(br#"[{"ID":"a"},{"Status":5}]"#).unwrap_err();
        let reported = format!("{error:#}");
        assert!(
            reported.contains("another version?: [1].Status: invalid type"),
            "{reported}"
        );
        let reported = format!("{:#}", of::<OwnedAnswer>(json!({"Names": {}})).unwrap_err());
        assert!(
            reported.contains("another version?: Names: invalid type"),
            "{reported}"
        );
        let reported = format!("{:#}", read::<OwnedAnswer>(b"<html>").unwrap_err());
        assert!(
            reported.starts_with("the agent's answer is not JSON: "),
            "{reported}"
        );
    }
}
