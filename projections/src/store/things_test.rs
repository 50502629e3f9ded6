//! Tables of their own for tests of the engine, and events that change them.

use drover_events::{EventId, EventKind, Guard, Topic};
use serde::{Deserialize, Serialize};

use crate::engine::key::Id;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::table::{Entries, History, Index, IndexDef, StreamKey, Table};
use crate::engine::txn::{Ctx, Txn};
use crate::store::writer::GuardedEntry;
use crate::tables::{NodeUses, Registry, TableIndexes, TableInfo};

pub(crate) struct Things;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Thing {
    pub(crate) id: String,
    pub(crate) space: String,
    pub(crate) color: String,
    pub(crate) size: u64,
}

impl Table for Things {
    const ID: u16 = 40;
    const NAME: &'static str = "things";
    type Key = Id;
    type Row = Thing;
    const INDEXES: &'static [IndexDef<Self>] =
        &[IndexDef::of::<BySpace>(), IndexDef::of::<ByColor>()];
    const POSTED: &'static [usize] = &[0];

    fn key(row: &Thing) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &Thing) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::Job,
            &row.space,
            &row.id,
            &[&row.color],
        ))
    }
}

pub(crate) struct BySpace;

impl Index for BySpace {
    type Table = Things;
    const NO: u8 = 1;
    const NAME: &'static str = "space";
    type Group = String;
    type Order = u64;
    const WATCHED: bool = true;

    fn entries(row: &Thing, out: &mut Entries) {
        out.add::<Self>(&row.space, row.size);
    }
}

pub(crate) struct ByColor;

impl Index for ByColor {
    type Table = Things;
    const NO: u8 = 2;
    const NAME: &'static str = "color";
    type Group = String;
    type Order = ();

    fn entries(row: &Thing, out: &mut Entries) {
        if !row.color.is_empty() {
            out.add::<Self>(&row.color, ());
        }
    }
}

pub(crate) struct Counters;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counter {
    pub(crate) space: String,
    pub(crate) count: u64,
}

impl Table for Counters {
    const ID: u16 = 41;
    const NAME: &'static str = "counters";
    type Key = String;
    type Row = Counter;
    const HISTORY: History = History::Derived;

    fn key(row: &Counter) -> String {
        row.space.clone()
    }
}

pub(crate) static TABLES: Registry = Registry::new(&[
    TableInfo::of::<TableIndexes>(),
    TableInfo::of::<NodeUses>(),
    TableInfo::of::<Things>(),
    TableInfo::of::<Counters>(),
]);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(Thing),
    Delete(String),
    Rule(String),
    Count(String),
    Refuse,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) index: u64,
    pub(crate) ops: Vec<Op>,
    pub(crate) guards: Vec<Guard>,
}

impl GuardedEntry for Step {
    fn ctx(&self) -> Ctx {
        Ctx {
            index: self.index,
            term: 1,
            time: self.index.cast_signed() * 1_000,
            id: EventId::ZERO,
            kind: EventKind::JobRegistered,
        }
    }

    fn guards(&self) -> &[Guard] {
        &self.guards
    }

    fn run(&self, txn: &mut Txn<'_>, _: &Ctx) -> Result<Reply, Refused> {
        for op in &self.ops {
            match op {
                Op::Put(thing) => txn.put::<Things>(thing.clone())?,
                Op::Delete(id) => drop(txn.delete::<Things>(id.as_str())?),
                Op::Rule(space) => {
                    let ids: Vec<String> = txn
                        .by_index::<BySpace>(space.as_str())
                        .map(|thing| thing.map(|thing| thing.id.clone()))
                        .collect::<Result<_, _>>()?;
                    for id in ids {
                        txn.delete_by_rule::<Things>(id.as_str())?;
                    }
                }
                Op::Count(space) => {
                    let count = txn.by_index::<BySpace>(space.as_str()).count() as u64;
                    let space = space.clone();
                    txn.put::<Counters>(Counter { space, count })?;
                }
                Op::Refuse => return Err(Refused::because("refused half-way")),
            }
        }
        Ok(Reply::None)
    }
}
