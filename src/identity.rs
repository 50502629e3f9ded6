//! Who a request comes from: what the one authentication step yields.
//!
//! Every request passes authentication before anything else. Its [`Identity`] is used for
//! authorisation, becomes the actor of the events the request causes, and labels metrics. Nothing
//! here looks at policies: that is the ACL's work.

use drover_events::actor::{Actor, ActorKind};

/// The caller of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The caller as it is written into events.
    pub actor: Actor,
    /// Whether the caller may do everything: ACLs are off, or the token is a management token.
    pub management: bool,
}

impl Identity {
    /// A caller without a token while ACLs are off: nobody in particular, allowed everything.
    pub fn anonymous(addr: impl Into<String>) -> Self {
        let actor = Actor {
            kind: ActorKind::Anonymous,
            addr: addr.into(),
            ..Actor::default()
        };
        Self {
            actor,
            management: true,
        }
    }

    /// A part of this server that acts by itself, such as a reactor.
    pub fn server(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            actor: Actor::server(id, name),
            management: true,
        }
    }

    /// A client node, known by its secret.
    pub fn node(id: impl Into<String>, addr: impl Into<String>) -> Self {
        Self {
            actor: Actor::node(id, addr),
            management: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_no_manager() {
        assert!(Identity::anonymous("127.0.0.1").management);
        assert!(!Identity::node("n", "127.0.0.1").management);
        assert_eq!(Identity::server("s", "core-gc").actor.name, "core-gc");
    }
}
