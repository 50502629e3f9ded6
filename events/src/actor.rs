//! Who caused an event.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What sort of caller an actor is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A caller without a token, or any caller while ACLs are off.
    #[default]
    Anonymous,
    /// An ACL token.
    Token,
    /// A running allocation, by its workload identity.
    Workload,
    /// A client node.
    Node,
    /// A server: a reactor, or the leader itself.
    Server,
}

impl ActorKind {
    /// The name it has in documents, filters and headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Token => "token",
            Self::Workload => "workload",
            Self::Node => "node",
            Self::Server => "server",
        }
    }
}

/// Who did it, as far as was known at that time; replay never asks again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Actor {
    /// The sort of caller.
    pub kind: ActorKind,
    /// The token's accessor id, the node's or server's id, the allocation's id; empty if anonymous.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// A name to show: the token's name, the reactor, the task.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The names of the roles the caller had then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The names of the policies the caller had then, directly or by its roles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// The remote address, without the port.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub addr: String,
}

impl JsonSchema for ActorKind {
    fn schema_name() -> Cow<'static, str> {
        "ActorKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What sort of caller an actor is.",
            "enum": ["anonymous", "token", "workload", "node", "server"],
        })
    }
}

crate::described! {
    Actor: "Who did it, as far as was known at that time." {
        "kind": ActorKind = "The sort of caller.",
        "id": String [omit] = "The token's accessor id, the node's, server's or allocation's id.",
        "name": String [omit] = "A name to show: the token's name, the reactor, the task.",
        "roles": Vec<String> [omit] = "The roles the caller had then.",
        "policies": Vec<String> [omit] = "The policies the caller had then.",
        "addr": String [omit] = "The remote address, without the port.",
    }
}

impl Actor {
    /// A part of a server that acts by itself, such as a reactor.
    pub fn server(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: ActorKind::Server,
            id: id.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// A client node.
    pub fn node(id: impl Into<String>, addr: impl Into<String>) -> Self {
        Self {
            kind: ActorKind::Node,
            id: id.into(),
            addr: addr.into(),
            ..Self::default()
        }
    }
}
