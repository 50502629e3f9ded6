//! How confidential values are compared: hidden where they have to be, and yet distinguishable.
//!
//! The class of a field decides, as everywhere. What is configured is shown: a caller who may read
//! of an object in the audit trail may read the object. A sensitive map's value under a name that
//! no credential has is shown as well. A sensitive value is its hash. A secret one, and a sensitive
//! one where nothing can be hashed, becomes a placeholder that differs as the values do, so that
//! a change is seen; placeholders live in memory only, and [`uncover`] takes them out.

use drover_events::class::Class;
use drover_events::mask::{Place, Redact};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::address::{self, CHECKSUM, PLAIN};
use crate::history::record::Redactor;
use crate::history::record::redact::REDACTED;

/// What a placeholder begins and ends with.
const EDGE: char = '\0';
/// Headers that say nothing of the caller, in small letters.
const HEADERS: [&str; 4] = ["accept", "content-type", "host", "user-agent"];

/// Covers the values of rows that are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover<'r>(pub(super) &'r Redactor);

impl Redact for Cover<'_> {
    fn text(&self, class: Class, value: &str) -> String {
        match class {
            Class::Public | Class::Configured => value.to_owned(),
            Class::Address => address::covered(value, &|part| self.sensitive(part)),
            Class::Sensitive => self.sensitive(value),
            Class::Secret => placeholder(value),
        }
    }

    fn class_of(&self, field: Place, key: Option<&str>, class: Class) -> Class {
        key.and_then(|key| known(field, key)).unwrap_or(class)
    }
}

impl Cover<'_> {
    fn sensitive(&self, value: &str) -> String {
        match self.0.can_hash() {
            true => self.0.hash(value),
            false => placeholder(value),
        }
    }
}

/// The class of what a map of sensitive values has under a name that no credential has.
fn known(field: Place, key: &str) -> Option<Class> {
    match field {
        ("TaskArtifact", "GetterOptions") if key == CHECKSUM => Some(Class::Address),
        ("TaskArtifact", "GetterOptions") if PLAIN.contains(&key) => Some(Class::Configured),
        ("ServiceCheck", "Header")
        | ("TaskArtifact", "GetterHeaders")
        | ("ConsulHttpHeaderModifiers", "Add" | "Set") => {
            let plain = HEADERS.contains(&key.to_ascii_lowercase().as_str());
            plain.then_some(Class::Configured)
        }
        _ => None,
    }
}

fn placeholder(value: &str) -> String {
    format!("{EDGE}{}{EDGE}", hex::encode(Sha256::digest(value)))
}

/// The parts of a text by turns: what is in clear, and what is between the edges of a placeholder.
fn parts(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let clear = [true, false].into_iter().cycle();
    clear.zip(text.split(EDGE))
}

/// Whether all that a value says is covered by placeholders.
pub(super) fn is_covered(value: &Value) -> bool {
    let all = |values: &mut dyn Iterator<Item = &Value>| {
        let mut given = values.filter(|value| !is_zero(value)).peekable();
        given.peek().is_some() && given.all(is_covered)
    };
    match value {
        Value::String(text) => {
            text.contains(EDGE) && parts(text).all(|(clear, part)| !clear || part.is_empty())
        }
        Value::Array(items) => all(&mut items.iter()),
        Value::Object(fields) => all(&mut fields.values()),
        _ => false,
    }
}

/// Puts a word in the place of every placeholder.
pub(super) fn uncover(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(EDGE) => {
            let shown = parts(text).map(|(clear, part)| if clear { part } else { REDACTED });
            *text = shown.collect();
        }
        Value::Array(items) => items.iter_mut().for_each(uncover),
        Value::Object(fields) => fields.values_mut().for_each(uncover),
        _ => {}
    }
}

/// Whether a value says nothing: the zero value of its type.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_events::gojson::List;
    use drover_events::mask::Hidden;
    use drover_events::model::{AclToken, Job, ServiceCheck, Task, TaskArtifact};
    use serde_json::json;

    fn covered<T: serde::Serialize>(value: &T) -> Value {
        let redactor = Redactor::default();
        serde_json::to_value(Hidden::new(value, &Cover(&redactor))).unwrap()
    }

    #[test]
    fn covered_values_differ_as_they_do_and_are_never_shown() {
        let token = |secret: &str| AclToken {
            secret_id: secret.into(),
            name: "ci".into(),
            ..AclToken::default()
        };
        let (one, two) = (covered(&token("one")), covered(&token("two")));
        assert_ne!(one["SecretID"], two["SecretID"]);
        assert_eq!(one, covered(&token("one")));
        assert!(is_covered(&one["SecretID"]) && !is_covered(&one["Name"]));
        assert_eq!(covered(&token(""))["SecretID"], "", "nothing is no secret");
        let mut shown = one;
        uncover(&mut shown);
        assert_eq!(
            (&shown["SecretID"], &shown["Name"]),
            (&json!(REDACTED), &json!("ci"))
        );

        let task = Task {
            config: [("command", serde_json::json!("/bin/server"))].into(),
            env: [("PASSWORD", "hunter2".to_owned())].into(),
            ..Task::default()
        };
        let mut task = covered(&task);
        assert_eq!(task["Config"]["command"], "/bin/server", "who reads it may");
        assert!(is_covered(&task["Env"]), "no key: as a secret");
        let job = Job {
            payload: b"what to do".to_vec().into(),
            meta: [("team", "store".to_owned())].into(),
            ..Job::default()
        };
        let job = covered(&job);
        assert_eq!(job["Payload"], "d2hhdCB0byBkbw==", "who reads it may");
        assert_eq!(job["Meta"], json!({"team": "store"}), "who reads it may");
        uncover(&mut task);
        assert_eq!(task["Env"], json!({"PASSWORD": REDACTED}));
    }

    #[test]
    fn a_specification_is_shown_but_for_what_may_be_a_credential() {
        let list = |text: &str| List::from(vec![text.to_owned()]);
        let header = [
            ("Authorization", list("hunter2")),
            ("Content-Type", list("text/plain")),
        ];
        let check = ServiceCheck {
            args: list("-q"),
            body: "ping".into(),
            header: header.into(),
            ..ServiceCheck::default()
        };
        let mut check = covered(&check);
        let header = &check["Header"]["Authorization"];
        assert!(is_covered(header) && !is_covered(&check["Header"]));
        uncover(&mut check);
        assert_eq!(check["Args"], json!(["-q"]));
        assert_eq!(check["Body"], "ping");
        let header = json!({"Authorization": [REDACTED], "Content-Type": ["text/plain"]});
        assert_eq!(check["Header"], header);

        let artifact = |password: &str| TaskArtifact {
            getter_source: format!("https://me:{password}@host/x?ref=v1&sshkey=hunter2"),
            getter_options: [
                ("checksum", "file:https://me:hunter2@host/sums".to_owned()),
                ("ref", "v1".to_owned()),
                ("sshkey", "hunter2".to_owned()),
            ]
            .into(),
            getter_headers: [("X-Key", "hunter2".to_owned())].into(),
            ..TaskArtifact::default()
        };
        let (mut one, other) = (covered(&artifact("hunter2")), covered(&artifact("hunter3")));
        let source = &one["GetterSource"];
        assert!(*source != other["GetterSource"] && !is_covered(source));
        assert!(is_covered(&one["GetterHeaders"]["X-Key"]));
        uncover(&mut one);
        let source = format!("https://{REDACTED}@host/x?ref=v1&sshkey={REDACTED}");
        assert_eq!(one["GetterSource"], source);
        let checksum = format!("file:https://{REDACTED}@host/sums");
        let options = json!({"checksum": checksum, "ref": "v1", "sshkey": REDACTED});
        assert_eq!(one["GetterOptions"], options);
    }
}
