//! Cause chains: from anything that happened to what it came from and what followed.
//!
//! An event names its cause where there was one. Where it names none (a client reports, a watcher
//! acts by itself), it belongs to the event that created the thing it is about. The tree begins at
//! the first of the chain, usually a user's command.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::Actor;
use serde::Serialize;

use super::chain::{Chain, LinkKind};
use super::resolve::ResolvedQuestion;
use super::touched::{Touched, touched};
use super::updates_by_cause::jobs_of;
use super::{AuditError, Trail};

/// Things shown of one event at most.
const THINGS: usize = 32;

/// A cause chain, from its first event on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tree {
    /// What the id names: `event`, `request`, `evaluation`, `allocation`, `deployment` or `job`.
    #[serde(rename = "Type")]
    pub kind: &'static str,
    /// Its whole id.
    #[serde(rename = "ID")]
    pub id: String,
    /// The indexes of the events that the id names.
    pub focus: Vec<u64>,
    /// Whether more events followed than are shown.
    pub truncated: bool,
    /// Whether something is damaged, and what it would have led to is not shown.
    pub damaged: bool,
    /// The first events: usually one.
    pub roots: Vec<Node>,
}

/// An event with what followed from it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Node {
    pub index: u64,
    /// Unix nanoseconds.
    pub time: i64,
    /// Nanoseconds since the first event of the chain.
    pub elapsed: i64,
    pub kind: &'static str,
    /// Who did it; absent for Raft's own entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// The request it belongs to.
    #[serde(rename = "RequestID")]
    pub request_id: String,
    /// How it belongs to the event above it: `cause` as it says itself, `thing` because it is about
    /// a thing that followed from that event; empty for the first.
    pub link: &'static str,
    /// Why it was rejected; none where it was applied.
    #[serde(rename = "Refused", skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
    /// Whether it is shown elsewhere in the tree with all that followed: an event of several causes
    /// stands under each of them, and what came of it under the first.
    #[serde(skip_serializing_if = "is_false")]
    pub again: bool,
    /// What it touched.
    pub things: Vec<Touched>,
    /// How many more things it touched.
    #[serde(skip_serializing_if = "is_none")]
    pub more_things: usize,
    /// What followed.
    pub children: Vec<Node>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The cause chain of an event (its index), a request, an evaluation, an allocation, a deployment
/// (the beginning of an id will do) or a job of the namespace. `event:`, `request:`, `eval:`,
/// `alloc:`, `deployment:` or `job:` before it says which.
///
/// # Errors
/// Nothing of that name, several, or what cannot be read.
pub fn trace(trail: &Trail<'_>, id: &str, namespace: &str) -> Result<Tree, AuditError> {
    let question = super::resolve::resolve(trail, id, namespace)?;
    let mut chain = Chain::default();
    let mut roots = BTreeSet::new();
    for begin in question.begins.iter() {
        roots.extend(super::chain::roots(trail, *begin, &question.rows)?);
    }
    chain.follow(trail, &roots)?;
    let parents = chain.parents();
    let kept = kept(&parents, &question);
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut roots = Vec::new();
    for index in &kept {
        let above = parents.get(index).map_or(&[][..], Vec::as_slice);
        for (parent, _) in above.iter().filter(|(parent, _)| kept.contains(parent)) {
            children.entry(*parent).or_default().push(*index);
        }
        if above.is_empty() {
            roots.push(*index);
        }
    }
    let mut build = Build {
        trail,
        chain: &chain,
        parents: &parents,
        children: &children,
        rows: &question.rows,
        shown: BTreeSet::new(),
        nodes: 0,
        cut: false,
    };
    let mut focus = question.focus;
    if !trail.shows_all() {
        focus.retain(|index| chain.holds(*index));
    }
    let roots = roots
        .into_iter()
        .map(|root| build.node(root, None, None, 0))
        .collect::<Result<_, _>>()?;
    Ok(Tree {
        kind: question.kind,
        id: question.id,
        focus: focus.into_iter().collect(),
        truncated: chain.truncated || build.cut,
        damaged: trail.is_damaged(),
        roots,
    })
}

type Parents = BTreeMap<u64, Vec<(u64, LinkKind)>>;

/// The events that the id names, all before them in the chain, and where wanted all after.
fn kept(parents: &Parents, question: &ResolvedQuestion) -> BTreeSet<u64> {
    let mut kept: BTreeSet<u64> = match question.whole {
        true => parents.keys().copied().collect(),
        false => question.focus.iter().copied().collect(),
    };
    kept.retain(|index| parents.contains_key(index));
    if question.descendants {
        // Parents come before their children.
        for (index, above) in parents {
            if above.iter().any(|(parent, _)| kept.contains(parent)) {
                kept.insert(*index);
            }
        }
    }
    let mut waiting: Vec<u64> = kept.iter().copied().collect();
    while let Some(index) = waiting.pop() {
        for (parent, _) in parents.get(&index).into_iter().flatten() {
            if kept.insert(*parent) {
                waiting.push(*parent);
            }
        }
    }
    kept
}

/// Deeper than any chain of causes that is shown.
const DEEPEST: usize = 200;
/// More than the events of any chain that is shown, each under all its causes.
const NODES: usize = 10_000;

struct Build<'a> {
    trail: &'a Trail<'a>,
    chain: &'a Chain,
    parents: &'a Parents,
    children: &'a BTreeMap<u64, Vec<u64>>,
    rows: &'a [super::object::RowKey],
    /// The events that were shown; with the event they stand under for gathered updates, which
    /// differ by it.
    shown: BTreeSet<(u64, Option<u64>)>,
    nodes: usize,
    cut: bool,
}

impl Build<'_> {
    /// What an event touched as it belongs to `above`, and how much more.
    fn things(&self, index: u64, above: Option<u64>) -> Result<(Vec<Touched>, usize), AuditError> {
        let view = self.trail.view();
        let (mut changes, damaged) = self.trail.readable_changes(index)?;
        // The rows of the question come first.
        let is_in_rows =
            |table: u16, key: &[u8]| self.rows.iter().any(|r| r.0 == table && r.1 == key);
        changes.sort_by_key(|change| !is_in_rows(change.table, &change.key));
        let damaged = damaged.map(|_| Touched::unreadable("event", index.to_string()));
        let (mut things, mut more) = (Vec::from_iter(damaged), 0);
        let updates = self.chain.updates(index);
        for change in &changes {
            if let Some(updates) = updates
                && !updates.contains(self.trail, change, above)?
            {
                continue;
            }
            if things.len() >= THINGS {
                more += 1;
            } else if let Some(thing) = touched(view, change)? {
                things.push(thing);
            }
        }
        Ok((things, more))
    }

    /// The node of an event as it belongs to `above`: of updates that were gathered into one event
    /// those that followed from it, and what came of them.
    fn node(
        &mut self,
        index: u64,
        above: Option<u64>,
        begun: Option<i64>,
        depth: usize,
    ) -> Result<Node, AuditError> {
        let event = self.trail.named_event(index)?;
        let (event, kind) = event.map_or((None, ""), |(event, kind)| (Some(event), kind));
        let time = event.as_ref().map_or(0, |event| event.time);
        let begun = begun.unwrap_or(time);
        let updates = self.chain.updates(index);
        let again = !self.shown.insert((index, updates.and(above)));
        self.nodes += 1;
        let (things, more_things) = match again {
            true => (Vec::new(), 0),
            false => self.things(index, above)?,
        };
        let below = self.children.get(&index).map_or(&[][..], Vec::as_slice);
        let mut children = Vec::with_capacity(below.len());
        for child in below.iter().filter(|_| !again) {
            if depth >= DEEPEST || self.nodes >= NODES {
                self.cut = true;
                break;
            }
            if let (Some(updates), Some(above)) = (updates, above)
                && !updates.leads_to(above, &jobs_of(self.trail, *child)?)
            {
                continue;
            }
            children.push(self.node(*child, Some(index), Some(begun), depth + 1)?);
        }
        let envelope = event.and_then(|event| event.envelope);
        Ok(Node {
            index,
            time,
            elapsed: time - begun,
            kind,
            request_id: envelope
                .as_ref()
                .map(|e| e.request_id.clone())
                .unwrap_or_default(),
            actor: envelope.map(|envelope| envelope.actor),
            link: match self.parents.get(&index).and_then(|all| all.first()) {
                Some((_, LinkKind::Cause)) => "cause",
                Some((_, LinkKind::Thing)) => "thing",
                None => "",
            },
            rejected: self.trail.rejection(index)?,
            again,
            things,
            more_things,
            children,
        })
    }
}
