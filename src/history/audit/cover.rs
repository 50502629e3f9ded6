//! How confidential values are compared: shown as exports show them, and yet told apart.
//!
//! The class of a field decides, as everywhere. What a task is configured to do is shown: who may
//! read the audit trail may read the job. A sensitive value is its hash. A secret one, and a
//! sensitive one where nothing can be hashed, becomes a mark that differs as the values do, so that
//! a change is seen; marks live in memory only, and [`uncover`] takes them out.

use drover_events::class::Class;
use drover_events::mask::Hide;
use drover_projections::hex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::history::record::Redactor;
use crate::history::record::redact::REDACTED;

/// What a mark begins with.
const MARK: char = '\0';

/// Covers the values of rows that are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover<'r>(pub(super) &'r Redactor);

impl Hide for Cover<'_> {
    fn text(&self, class: Class, value: &str) -> String {
        match class {
            Class::Public | Class::Configured => value.to_owned(),
            Class::Sensitive if self.0.can_hash() => self.0.hash(value),
            Class::Sensitive | Class::Secret => mark(value),
        }
    }
}

fn mark(value: &str) -> String {
    format!("{MARK}{}", hex(&Sha256::digest(value)))
}

/// Whether all that a value says is covered by marks.
pub(super) fn is_covered(value: &Value) -> bool {
    let all = |values: &mut dyn Iterator<Item = &Value>| {
        let mut told = values.filter(|value| !is_zero(value)).peekable();
        told.peek().is_some() && told.all(is_covered)
    };
    match value {
        Value::String(text) => text.starts_with(MARK),
        Value::Array(items) => all(&mut items.iter()),
        Value::Object(fields) => all(&mut fields.values()),
        _ => false,
    }
}

/// Puts a word in the place of every mark.
pub(super) fn uncover(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(MARK) => REDACTED.clone_into(text),
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
    use drover_events::mask::Hidden;
    use drover_events::model::{AclToken, Job, Task};
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
            meta: [("token", "x".to_owned())].into(),
            ..Job::default()
        };
        let job = covered(&job);
        assert_eq!(job["Payload"], "d2hhdCB0byBkbw==", "who reads it may");
        assert!(is_covered(&job["Meta"]));
        uncover(&mut task);
        assert_eq!(task["Env"], json!({"PASSWORD": REDACTED}));
    }
}
