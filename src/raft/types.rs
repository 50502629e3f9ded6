//! openraft's types as drover configures them, and the encoding of Raft's own entries.
//!
//! A payload is opaque bytes: kind ‖ version ‖ rest, encoded once by the leader. Raft's own entries
//! have kinds too; a membership's bytes are a function of the membership alone:
//!
//! format (1) ‖ number of configurations (1), for each: number of voters (u16), their ids (u64,
//! ascending) ‖ number of members (u16), for each, ascending: id (u64), then server id, name,
//! RPC address and HTTP address, each as length (u16) and UTF-8. Numbers are little endian.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use drover_events::{EventKind, RaftPayload};
use drover_projections::Outcome;
use openraft::vote::leader_id_std;
use serde::{Deserialize, Serialize};

const FORMAT: u8 = 1;

/// A server as Raft's membership knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The server's id, a UUID.
    pub id: String,
    pub name: String,
    /// Where other servers reach it.
    pub rpc_addr: String,
    /// Where its HTTP API answers.
    pub http_addr: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.rpc_addr)
    }
}

/// The id that Raft knows a server by: the first eight bytes of its UUID.
pub fn raft_node_id(server_id: &uuid::Uuid) -> u64 {
    u64::from_be_bytes(
        server_id.as_bytes()[..8]
            .try_into()
            .expect("a UUID has 16 bytes"),
    )
}

/// What Raft carries, in a type of this crate: it holds the bytes of [`RaftPayload`], the events'
/// struct that knows their layout, and implements openraft's trait of the same name
/// ([`openraft::entry::RaftPayload`]), which can be implemented for a type of one's own only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload(pub Bytes);

impl Payload {
    pub fn kind_number(&self) -> u16 {
        RaftPayload::number_in(&self.0)
    }
}

impl From<RaftPayload> for Payload {
    fn from(payload: RaftPayload) -> Payload {
        Payload(payload.0)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {} ({} bytes)", self.kind_number(), self.0.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl openraft::entry::RaftPayload for Payload {
    type D = Payload;
    type NodeId = u64;
    type Node = Member;

    fn blank() -> Payload {
        Payload::from(RaftPayload::blank())
    }

    fn with_normal(self, data: Payload) -> Payload {
        data
    }

    fn with_membership(self, membership: Membership) -> Payload {
        Payload::from(RaftPayload::membership(&encode_membership(&membership)))
    }

    fn get_membership(&self) -> Option<Membership> {
        if self.kind_number() != EventKind::RaftMembership as u16 {
            return None;
        }
        decode_membership(RaftPayload(self.0.clone()).rest())
    }
}

/// What apply answers to the proposer of an entry. It never leaves the process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Response {
    /// The entry's index.
    pub index: u64,
    /// What became of it; none for Raft's own entries.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

openraft::declare_raft_types!(
    /// drover's choice of openraft's types.
    pub TypeConfig:
        D = Payload,
        R = Response,
        NodeId = u64,
        Node = Member,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        Payload = Payload,
        AsyncRuntime = openraft::TokioRuntime,
);

/// Raft's membership with our members.
pub(super) type Membership = openraft::Membership<u64, Member>;
/// A term and an index.
pub(super) type LogId = openraft::alias::LogIdOf<TypeConfig>;
pub(super) type Vote = openraft::alias::VoteOf<TypeConfig>;
/// An entry of the log as openraft handles it.
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
/// A membership and where it stands in the log.
pub(super) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;

/// The log id of `index` in `term`.
pub(super) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(leader_id_std::CommittedLeaderId::new(term), index)
}

/// The canonical bytes of a membership.
pub(super) fn encode_membership(m: &Membership) -> Vec<u8> {
    let configs = m.get_joint_config();
    let mut out = vec![FORMAT, u8::try_from(configs.len()).unwrap_or(u8::MAX)];
    for config in configs {
        out.extend_from_slice(&len16(config.len()));
        for id in config {
            out.extend_from_slice(&id.to_le_bytes());
        }
    }
    let nodes: BTreeMap<u64, &Member> = m.nodes().map(|(id, n)| (*id, n)).collect();
    out.extend_from_slice(&len16(nodes.len()));
    for (id, node) in nodes {
        out.extend_from_slice(&id.to_le_bytes());
        for text in [&node.id, &node.name, &node.rpc_addr, &node.http_addr] {
            let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
            out.extend_from_slice(&len16(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
    out
}

fn len16(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes()
}

/// Reads what [`encode_membership`] wrote; `None` for anything else.
pub(super) fn decode_membership(bytes: &[u8]) -> Option<Membership> {
    let mut at = Cursor(bytes);
    if at.take(1)? != [FORMAT] {
        return None;
    }
    let count = at.take(1)?[0];
    let mut configs = Vec::new();
    for _ in 0..count {
        let voters = at.u16()?;
        let ids: Option<BTreeSet<u64>> = (0..voters).map(|_| at.u64()).collect();
        configs.push(ids?);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..at.u16()? {
        let id = at.u64()?;
        let member = Member {
            id: at.text()?,
            name: at.text()?,
            rpc_addr: at.text()?,
            http_addr: at.text()?,
        };
        nodes.insert(id, member);
    }
    if !at.0.is_empty() {
        return None;
    }
    if configs.is_empty() && nodes.is_empty() {
        return Some(Membership::default());
    }
    Membership::new(configs, nodes).ok()
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::entry::RaftPayload as _;

    fn member(n: u64) -> Member {
        Member {
            id: format!("id-{n}"),
            name: format!("server-{n}"),
            rpc_addr: format!("10.0.0.{n}:4647"),
            http_addr: String::new(),
        }
    }

    #[test]
    fn a_membership_has_one_encoding() {
        let configs = vec![BTreeSet::from([3, 1]), BTreeSet::from([1, 2, 3])];
        let nodes: BTreeMap<u64, Member> = (1..5).map(|n| (n, member(n))).collect();
        let m = Membership::new(configs, nodes).unwrap();
        let payload = Payload::blank().with_membership(m.clone());
        assert_eq!(payload.get_membership(), Some(m.clone()));
        assert_eq!(
            encode_membership(&decode_membership(&encode_membership(&m)).unwrap()),
            encode_membership(&m)
        );
        assert_eq!(Payload::blank().get_membership(), None);
    }

    proptest::proptest! {
        #[test]
        fn what_any_bytes_are_read_as_has_one_encoding(
            bytes in proptest::collection::vec(0u8..8, 0..200),
            count in 1_u64..5,
            flips in proptest::collection::vec(
                (proptest::prelude::any::<proptest::sample::Index>(), 0u8..8), 0..4),
        ) {
            let one = (1..=count).map(|n| (n, member(n))).collect::<BTreeMap<_, _>>();
            let all = Membership::new(vec![one.keys().copied().collect()], one).unwrap();
            let mut near = encode_membership(&all);
            for (at, byte) in flips {
                let at = at.index(near.len());
                near[at] ^= byte;
            }
            for bytes in [bytes, near] {
                let Some(read) = decode_membership(&bytes) else { continue };
                let written = encode_membership(&read);
                proptest::prop_assert_eq!(decode_membership(&written), Some(read));
            }
        }
    }
}
