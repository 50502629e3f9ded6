//! What is written of a request, and how.
//!
//! A body has the header of the cluster's log: index (u64 LE) ‖ term (u64 LE, 0) ‖ kind (u16 LE)
//! ‖ version (u16 LE), then a MessagePack map. The kinds are this log's own and never change.

use bytes::Bytes;
use drover_events::Actor;
use serde::{Deserialize, Serialize};

use super::LeftOut;

/// The kind of a [`Received`], far from those of events.
pub(super) const RECEIVED: u16 = 60_001;
/// The kind of a [`Completed`].
pub(super) const COMPLETED: u16 = 60_002;
/// The version of both.
const VERSION: u16 = 1;
/// index ‖ term ‖ kind ‖ version.
const HEADER: usize = 20;
/// Longest path that is kept, bytes; a longer one is cut.
const LONGEST_PATH: usize = 4_096;
/// Longest of the other texts that a caller chooses, bytes.
const LONGEST_TEXT: usize = 256;

/// Why a request matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It reads a secret, or looks into a process that has some.
    Secret,
    /// It reads files or logs of an allocation.
    Files,
    /// It runs a command inside an allocation.
    Exec,
    /// It changes what no event names a caller of: what runs on a node, past the jobs, a node's
    /// metadata, the settings an agent goes by, or how it keeps its tables.
    Control,
    /// A user signs in, or trades one token for another.
    Login,
    /// It reads the audit trail.
    Audit,
    /// It was denied.
    Denied,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 7] = [
        Self::Secret,
        Self::Files,
        Self::Exec,
        Self::Control,
        Self::Login,
        Self::Audit,
        Self::Denied,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Files => "files",
            Self::Exec => "exec",
            Self::Control => "control",
            Self::Login => "login",
            Self::Audit => "audit",
            Self::Denied => "denied",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// A request that was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Received {
    /// Why it matters.
    pub class: Class,
    #[serde(rename = "RequestID")]
    pub request_id: String,
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The namespace it names.
    pub namespace: String,
    /// The caller it is from.
    pub actor: Actor,
    /// W3C trace parent, if it has one.
    pub trace: String,
    /// The command that it runs beside a task, if the request is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Ran>,
    /// The addresses of the servers that it gives a client, if the request is for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// For a denial: how many denials of strangers were not written since the last that was, by
    /// their addresses.
    #[serde(default, skip_serializing_if = "LeftOut::is_empty")]
    pub left_out: LeftOut,
}

/// A command that is run beside a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ran {
    pub task: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether it runs on a terminal.
    pub tty: bool,
}

impl Ran {
    /// The same with long texts cut.
    fn cut(&self, cut: impl Fn(&str, usize) -> String) -> Self {
        Self {
            task: cut(&self.task, LONGEST_TEXT),
            command: cut_words(&self.command, &cut),
            tty: self.tty,
        }
    }
}

/// As many of the words as fit into what is kept of a path.
fn cut_words(words: &[String], cut: impl Fn(&str, usize) -> String) -> Vec<String> {
    let mut left = LONGEST_PATH;
    let mut kept = Vec::new();
    for word in words {
        if left == 0 {
            kept.push("…".to_owned());
            break;
        }
        kept.push(cut(word, left));
        left = left.saturating_sub(word.len().max(1));
    }
    kept
}

impl Received {
    /// The same with long texts cut: what a caller chooses must not keep a request out of the log.
    pub(super) fn cut(&self) -> Self {
        let cut = |text: &str, most: usize| match text.len() <= most {
            true => text.to_owned(),
            false => format!("{}…", &text[..text.floor_char_boundary(most)]),
        };
        Self {
            class: self.class,
            request_id: cut(&self.request_id, LONGEST_TEXT),
            method: cut(&self.method, LONGEST_TEXT),
            path: cut(&self.path, LONGEST_PATH),
            namespace: cut(&self.namespace, LONGEST_TEXT),
            actor: self.actor.clone(),
            trace: cut(&self.trace, LONGEST_TEXT),
            ran: self.ran.as_ref().map(|ran| ran.cut(cut)),
            servers: cut_words(&self.servers, cut),
            left_out: self.left_out.clone(),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Completed {
    /// The index of its [`Received`].
    pub received: u64,
    /// When that was written, Unix nanoseconds: an index may be used again after a full disk.
    pub received_time: i64,
    /// The status of the answer; 0 where there was none: the caller left, or the handler failed.
    pub status: u16,
    /// Nanoseconds it took.
    pub took: i64,
    /// What came of a command that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// What came of a command that ran beside a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Session {
    /// Bytes that it was given.
    pub bytes_in: u64,
    /// Bytes that it wrote and that were sent.
    pub bytes_out: u64,
    /// Its exit code; none where it was killed because its caller left or lost the right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The body at this place of the log.
pub(super) fn body<T: Serialize>(index: u64, kind: u16, record: &T) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&0_u64.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    rmp_serde::encode::write_named(&mut out, record)
        .expect("texts and numbers always encode, and a vector takes all");
    out.into()
}

/// What a body holds; none where it is no record of this version.
pub(super) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    let (header, record) = body.split_at_checked(HEADER)?;
    let version = header.last_chunk::<2>().copied().map(u16::from_le_bytes);
    if version != Some(VERSION) {
        return None;
    }
    rmp_serde::from_slice(record).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_just_fits_is_kept_whole_and_one_byte_more_is_cut() {
        for (more, end) in [(0, ""), (1, "…")] {
            let received = Received {
                class: Class::Secret,
                request_id: String::new(),
                method: "GET".to_owned(),
                path: "x".repeat(LONGEST_PATH + more),
                namespace: "x".repeat(LONGEST_TEXT + more),
                actor: Actor::default(),
                trace: String::new(),
                ran: None,
                servers: Vec::new(),
                left_out: LeftOut::new(),
            };
            let kept = received.cut();
            assert_eq!(kept.path, "x".repeat(LONGEST_PATH) + end);
            assert_eq!(kept.namespace, "x".repeat(LONGEST_TEXT) + end);
        }
    }
}
