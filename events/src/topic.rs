//! What the event stream is divided into, and what each kind says there.

use std::fmt;

/// A topic of the event stream; the text is what subscribers name (`Job:example`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Topic {
    /// Job rows.
    Job = 1,
    /// Evaluation rows.
    Evaluation = 2,
    /// Allocation rows.
    Allocation = 3,
    /// Deployment rows.
    Deployment = 4,
    /// Node rows, without their secret.
    Node = 5,
    /// Node pool rows.
    NodePool = 6,
    /// Service registrations.
    Service = 7,
    /// ACL tokens, without their secret.
    AclToken = 8,
    /// ACL policies.
    AclPolicy = 9,
    /// ACL roles.
    AclRole = 10,
    /// Sign-in methods, without their secrets.
    AclAuthMethod = 11,
    /// Binding rules of sign-in methods.
    AclBindingRule = 12,
    /// Host volumes.
    HostVolume = 13,
    /// CSI volumes.
    CsiVolume = 14,
    /// CSI plugins.
    CsiPlugin = 15,
    /// Variables: their metadata, never their items.
    Variable = 16,
    /// What operators do to the cluster itself.
    Operator = 17,
}

impl Topic {
    /// Every topic, in the order of its number.
    pub const ALL: &'static [Topic] = &[
        Topic::Job,
        Topic::Evaluation,
        Topic::Allocation,
        Topic::Deployment,
        Topic::Node,
        Topic::NodePool,
        Topic::Service,
        Topic::AclToken,
        Topic::AclPolicy,
        Topic::AclRole,
        Topic::AclAuthMethod,
        Topic::AclBindingRule,
        Topic::HostVolume,
        Topic::CsiVolume,
        Topic::CsiPlugin,
        Topic::Variable,
        Topic::Operator,
    ];

    /// The stored number; never reused.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The topic with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|topic| topic.number() == number)
    }

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::Evaluation => "Evaluation",
            Self::Allocation => "Allocation",
            Self::Deployment => "Deployment",
            Self::Node => "Node",
            Self::NodePool => "NodePool",
            Self::Service => "Service",
            Self::AclToken => "ACLToken",
            Self::AclPolicy => "ACLPolicy",
            Self::AclRole => "ACLRole",
            Self::AclAuthMethod => "ACLAuthMethod",
            Self::AclBindingRule => "ACLBindingRule",
            Self::HostVolume => "HostVolume",
            Self::CsiVolume => "CSIVolume",
            Self::CsiPlugin => "CSIPlugin",
            Self::Variable => "Variable",
            Self::Operator => "Operator",
        }
    }

    /// The topic a subscriber names.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|topic| topic.name() == name)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a kind says on the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// Each changed row of these topics becomes an event of this type.
    Event {
        /// The type field, the same for every row the event changed (EV-01).
        event_type: &'static str,
        /// The topics whose rows the event may change.
        topics: &'static [Topic],
    },
    /// Nothing is published, on purpose (EV-02).
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ev_01_topics_keep_their_numbers_and_names() {
        for (position, topic) in Topic::ALL.iter().enumerate() {
            assert_eq!(usize::from(topic.number()), position + 1);
            assert_eq!(Topic::from_number(topic.number()), Some(*topic));
            assert_eq!(Topic::from_name(topic.name()), Some(*topic));
        }
        assert_eq!(Topic::from_number(0), None);
        assert_eq!(
            Topic::from_name("job"),
            None,
            "topics are matched by their exact name"
        );
    }
}
