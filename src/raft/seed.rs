//! A log that was not written by Raft, made one that Raft can continue.
//!
//! What openraft needs beside entries are the vote and the committed position. A lone server, the
//! only voter of the log's last membership, is given a vote for itself in the last term; when it
//! starts, it starts an election in the next term.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::{BodyParts, EventKind};

use super::log_store::{encode_vote, position};
use super::types::{
    Member, Membership, Vote, decode_membership, encode_membership, log_id, raft_node_id,
};
use crate::log::{LogEngine, LogError};

/// Reads an epoch's id from the 32 hexadecimal digits in which it is shown.
pub fn epoch_id(text: &str) -> Option<[u8; 16]> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| number.to_be_bytes())
}

/// Tracks which server is the only voter while the entries of a log go by, to write its vote at the
/// end.
#[derive(Debug, Default)]
pub struct Seed {
    /// The id of the only voter of the last membership; none where there are several, or none yet.
    sole_voter: Option<String>,
}

impl Seed {
    /// Looks at an entry: the last membership is the one in force.
    pub fn note(&mut self, parts: BodyParts<'_>) {
        if parts.kind == EventKind::RaftMembership.number() {
            self.sole_voter = lone_member(parts.rest).map(|member| member.id);
        }
    }

    /// Reports to the log that all up to this index and term is committed.
    pub fn commit(&self, log: &LogEngine, (index, term): (u64, u64)) {
        log.commit(index, position(&log_id(term, index)));
    }

    /// Writes the vote, if the membership names a lone server, and waits for the disk; answers that
    /// server's id.
    ///
    /// # Errors
    /// A failed write.
    pub fn finalize(&self, log: &LogEngine, term: u64) -> Result<Option<String>, LogError> {
        let id = self.sole_voter.as_ref().and_then(|id| id.parse().ok());
        if let Some(id) = id {
            let vote = Vote::new(term, raft_node_id(&id));
            log.save_vote(encode_vote(&vote), Box::new(|_| ()))?;
        }
        log.sync()?;
        Ok(self.sole_voter.clone())
    }
}

/// Makes an empty log the one of a lone server whose state ends just before the log's first index:
/// writes that position and the vote. What is appended next has index `first` and this term.
///
/// # Errors
/// A log that has stopped.
pub fn begin(log: &LogEngine, (first, term): (u64, u64), member: &Member) -> Result<(), LogError> {
    let before = first.saturating_sub(1);
    log.purge(before, position(&log_id(term, before)), Box::new(|_| ()))?;
    let number = member.id.parse().map_or(0, |id| raft_node_id(&id));
    log.save_vote(encode_vote(&Vote::new(term, number)), Box::new(|_| ()))
}

/// The canonical bytes of the membership of a lone server.
pub fn lone_membership(member: &Member) -> Vec<u8> {
    let number = member.id.parse().map_or(0, |id| raft_node_id(&id));
    let nodes: BTreeMap<u64, Member> = [(number, member.clone())].into();
    let voters = vec![BTreeSet::from([number])];
    let membership = Membership::new(voters, nodes);
    encode_membership(&membership.unwrap_or_default())
}

/// The only voter of a membership, if there is exactly one.
pub fn lone_member(membership: &[u8]) -> Option<Member> {
    let membership = decode_membership(membership)?;
    let voters: Vec<u64> = membership.voter_ids().collect();
    let [voter] = voters.as_slice() else {
        return None;
    };
    membership.get_node(voter).cloned()
}
