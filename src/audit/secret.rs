//! Which fields are secret: their change is told, their value is not.

use drover_events::EventKind;
use serde_json::Value;

/// What stands for a secret inside a larger value.
pub(super) const HIDDEN: &str = "(secret)";

/// Names that are secret wherever they occur: secrets and tokens by value, as hash or ciphertext.
const EVERYWHERE: [&str; 14] = [
    "SecretID",
    "OneTimeSecretID",
    "OIDCClientSecret",
    "ClientSecret",
    "PrivateKey",
    "PemKey",
    "Secret",
    "Secrets",
    "LeaderACL",
    "ConsulToken",
    "VaultToken",
    "NomadToken",
    "Items",
    "MountOptions",
];

/// Which names are secret in a row or a payload.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Secrets {
    more: &'static [&'static str],
}

impl Secrets {
    /// Those of a table's rows.
    pub(super) fn of_table(name: &str) -> Self {
        let more: &[&str] = match name {
            "variables" => &["Data"],
            // What a job was submitted with may name passwords.
            "job_submissions" => &["Variables", "VariableFlags"],
            _ => &[],
        };
        Self { more }
    }

    /// Those of a kind's payload.
    pub(super) fn of_kind(kind: EventKind) -> Self {
        let more: &[&str] = match kind {
            EventKind::VariableApplied => &["Data"],
            EventKind::JobRegistered => &["Variables", "VariableFlags"],
            _ => &[],
        };
        Self { more }
    }

    /// Whether a field's value is never shown.
    pub(super) fn hides(self, name: &str) -> bool {
        EVERYWHERE.contains(&name) || self.more.contains(&name)
    }

    /// Takes the secrets out of a value.
    pub(super) fn cover(self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    if self.hides(name) && !is_zero(value) {
                        *value = Value::from(HIDDEN);
                    } else {
                        self.cover(value);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.cover(item)),
            _ => {}
        }
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
    use serde_json::json;

    #[test]
    fn secrets_are_covered_at_any_depth_and_empty_ones_left() {
        let mut value = json!({
            "Name": "a", "SecretID": "s3cr3t", "Data": "plain",
            "Deep": [{"PrivateKey": {"PemKey": "x"}}, {"SecretID": ""}],
        });
        Secrets::default().cover(&mut value);
        assert_eq!(
            value,
            json!({
                "Name": "a", "SecretID": HIDDEN, "Data": "plain",
                "Deep": [{"PrivateKey": HIDDEN}, {"SecretID": ""}],
            })
        );
        let mut value = json!({"Path": "p", "Data": "Y2lwaGVy"});
        Secrets::of_table("variables").cover(&mut value);
        assert_eq!(value, json!({"Path": "p", "Data": HIDDEN}));
    }
}
