//! The event of variables: one operation, which apply decides (VAR-01, VAR-02).

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::gojson::Zero;
use crate::model::VariableEncrypted;
use crate::wire;

/// What is done with a variable; the names are those of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VarOp {
    /// Write it, whatever is there.
    #[default]
    #[serde(rename = "set")]
    Set,
    /// Write it if it is unchanged since the index the caller knows; 0: if it is absent (VAR-04).
    #[serde(rename = "cas")]
    Cas,
    /// Remove it, whatever is there.
    #[serde(rename = "delete")]
    Delete,
    /// Remove it if it is unchanged since the index the caller knows.
    #[serde(rename = "delete-cas")]
    DeleteCas,
    /// Take its lock.
    #[serde(rename = "lock-acquire")]
    LockAcquire,
    /// Give its lock back.
    #[serde(rename = "lock-release")]
    LockRelease,
}

impl VarOp {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Cas => "cas",
            Self::Delete => "delete",
            Self::DeleteCas => "delete-cas",
            Self::LockAcquire => "lock-acquire",
            Self::LockRelease => "lock-release",
        }
    }
}

impl JsonSchema for VarOp {
    fn schema_name() -> Cow<'static, str> {
        "VarOp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What is done with a variable.",
            "enum": ["set", "cas", "delete", "delete-cas", "lock-acquire", "lock-release"],
        })
    }
}

impl Zero for VarOp {
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

wire! {
    /// One operation on one variable. Its items are ciphertext already (VAR-07); the index of a
    /// check-and-set is the variable's modify index.
    pub struct VariableApplied {
        op: VarOp = "Op",
        var: VariableEncrypted = "Var",
        /// The most bytes the variables of its namespace may have then; 0: any number (VAR-05).
        quota: u64 = "Quota",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Event, EventKind};

    #[test]
    fn var_06_an_operation_of_a_later_version_is_refused_by_name_and_nothing_is_taken() {
        let payload = |op: &str| {
            let payload = json!({"Op": op, "Var": {"Path": "a", "Namespace": "default"}});
            let bytes = rmp_serde::to_vec_named(&payload).unwrap();
            Event::decode_payload(EventKind::VariableApplied, &bytes)
        };
        assert!(payload("cas").is_ok(), "{:?}", payload("cas"));
        let refused = payload("soft-delete").unwrap_err();
        let reported = format!("{refused:?} {refused}");
        assert!(reported.contains("soft-delete"), "{reported}");
    }
}
