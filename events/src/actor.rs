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
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Anonymous,
        Self::Token,
        Self::Workload,
        Self::Node,
        Self::Server,
    ];

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

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

/// The fewest characters of an id that name an actor.
const SHORTEST: usize = 4;

/// Who did it, as far as was known at that time; replay never looks it up again.
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
            "enum": ActorKind::ALL.map(ActorKind::name),
        })
    }
}

crate::impl_json_schema! {
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
    /// Whether a text means this actor: its kind (`node`), its name, its address, its id or the
    /// beginning of it, or its kind and one of the others (`token:ci`).
    pub fn is_called(&self, text: &str) -> bool {
        let called = |text: &str| {
            !text.is_empty()
                && (text == self.name
                    || text == self.addr
                    || text == self.id
                    || (text.len() >= SHORTEST && self.id.starts_with(text)))
        };
        let of_kind = || {
            let rest = text.strip_prefix(self.kind.name())?;
            rest.strip_prefix(':')
        };
        text == self.kind.name() || called(text) || of_kind().is_some_and(called)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_called_by_what_is_known_of_it() {
        let token = Actor {
            kind: ActorKind::Token,
            id: "0b156e3e-bb39".to_owned(),
            name: "deploy".to_owned(),
            addr: "10.0.0.7".to_owned(),
            ..Actor::default()
        };
        let node = Actor::node("4711aa", "fd00::7");
        let nobody = Actor::default();
        for (text, wanted) in [
            ("token", [true, false, false]),
            ("node", [false, true, false]),
            ("anonymous", [false, false, true]),
            ("deploy", [true, false, false]),
            ("dep", [false; 3]),
            ("10.0.0.7", [true, false, false]),
            ("10.0.0", [false; 3]),
            ("0b156e3e-bb39", [true, false, false]),
            ("0b15", [true, false, false]),
            ("0b1", [false; 3]),
            ("0b156e3e-bb39-1", [false; 3]),
            ("token:deploy", [true, false, false]),
            ("token:0b15", [true, false, false]),
            ("token:10.0.0.7", [true, false, false]),
            ("node:4711aa", [false, true, false]),
            ("node:4711", [false, true, false]),
            ("node:fd00::7", [false, true, false]),
            ("server:4711aa", [false; 3]),
            ("token:", [false; 3]),
            ("anonymous:", [false; 3]),
            ("Token", [false; 3]),
            ("", [false; 3]),
        ] {
            let got = [&token, &node, &nobody].map(|actor| actor.is_called(text));
            assert_eq!(got, wanted, "{text:?}");
        }
    }
}
