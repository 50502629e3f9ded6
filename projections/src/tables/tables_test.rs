//! What must hold for every table there is.

use std::sync::Arc;

use crate::engine::canonical::Canonical;
use crate::engine::db::Family;
use crate::engine::maintenance::HEADER;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::table::Table;
use crate::engine::txn::{Ctx, Txn};
use crate::store::snapshot::{self, Manifest, TableManifest};
use crate::store::writer::GuardedEntry;
use crate::tables::*;
use crate::{DatabaseOptions, Position, Projections, Scan, View};
use drover_events::{EventId, EventKind, Guard, Topic};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Calls a generic function for every table; a table missing here fails
/// `every_table_is_listed_here`.
macro_rules! for_every_table {
    ($call:ident($($arg:expr),*)) => {
        for_every_table!(@ $call ($($arg),*) TableIndexes, Nodes, NodeStates, NodePools, NodeUses,
            Jobs, JobVersions, JobSummaries, JobSubmissions, PeriodicLaunches, Deployments, Evals,
            Allocs, AllocJobs, AllocJobCounts, CsiVolumes, CsiPlugins, HostVolumes,
            HostVolumeClaims, AclPolicies, AclTokens, OneTimeTokens, AclRoles, AuthMethods,
            BindingRules, Namespaces, Services, Variables, VariableQuotas, RootKeys,
            ScalingPolicies, ScalingEvents, SchedulerConfigTable, AutopilotConfigTable,
            ClusterMetaTable)
    };
    (@ $call:ident $args:tt $($table:ident),*) => {
        $(for_every_table!(@@ $call $table $args);)*
    };
    (@@ $call:ident $table:ident ($($arg:expr),*)) => {
        $call::<$table>($($arg),*)
    };
}

fn list<T: Table>(ids: &mut Vec<u16>) {
    ids.push(T::ID);
}

#[test]
fn every_table_is_listed_here() {
    let mut ids = Vec::new();
    for_every_table!(list(&mut ids));
    let registered: Vec<_> = registry().tables().map(TableInfo::id).collect();
    assert_eq!(ids, registered);
}

fn default_is_zero<T: Table>()
where
    T::Row: PartialEq,
{
    let row = T::Row::default();
    let mut canonical = Canonical::default();
    let bytes = canonical.encode(&row).unwrap().to_vec();
    let back: T::Row = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(back, row, "{}: the default row comes back", T::NAME);
    let empty: T::Row = rmp_serde::from_slice(&[0x80]).unwrap();
    assert_eq!(empty, row, "{}: absent fields are zero", T::NAME);
    let mut numbers: Vec<_> = T::INDEXES.iter().map(|index| index.no).collect();
    numbers.dedup();
    assert_eq!(
        numbers.len(),
        T::INDEXES.len(),
        "{}: index numbers",
        T::NAME
    );
    assert!(numbers.is_sorted() && !numbers.contains(&0));
}

#[test]
fn zero_fields_are_left_out_of_every_table_and_come_back() {
    for_every_table!(default_is_zero());
}

fn list_topic<T: Table>(topics: &mut Vec<(&'static str, Topic)>) {
    let row = T::Row::default();
    let topic = T::stream(&row).map(|stream| stream.topic);
    topics.extend(topic.map(|topic| (T::NAME, topic)));
}

#[test]
fn changes_of_rows_are_published_under_the_topic_of_their_table() {
    let mut topics = Vec::new();
    for_every_table!(list_topic(&mut topics));
    let known = [
        ("nodes", Topic::Node),
        ("node_states", Topic::Node),
        ("node_pools", Topic::NodePool),
        ("jobs", Topic::Job),
        ("deployments", Topic::Deployment),
        ("evals", Topic::Evaluation),
        ("allocs", Topic::Allocation),
        ("csi_volumes", Topic::CsiVolume),
        ("csi_plugins", Topic::CsiPlugin),
        ("host_volumes", Topic::HostVolume),
        ("acl_policies", Topic::AclPolicy),
        ("acl_tokens", Topic::AclToken),
        ("acl_roles", Topic::AclRole),
        ("auth_methods", Topic::AclAuthMethod),
        ("binding_rules", Topic::AclBindingRule),
        ("services", Topic::Service),
        ("variables", Topic::Variable),
    ];
    assert_eq!(topics, known);
}

struct FillAll;

fn put_default<T: Table>(txn: &mut Txn<'_>) {
    if T::ID != TableIndexes::ID {
        txn.put::<T>(T::Row::default()).unwrap();
    }
}

impl GuardedEntry for FillAll {
    fn ctx(&self) -> Ctx {
        Ctx {
            index: 7,
            term: 2,
            time: 9,
            id: EventId::ZERO,
            kind: EventKind::ClusterIdSet,
        }
    }

    fn guards(&self) -> &[Guard] {
        &[]
    }

    fn run(&self, txn: &mut Txn<'_>, _: &Ctx) -> Result<Reply, Refused> {
        for_every_table!(put_default(txn));
        Ok(Reply::None)
    }
}

fn filled() -> (tempfile::TempDir, Arc<Projections>) {
    let dir = tempfile::tempdir().unwrap();
    let (projections, mut writer) =
        Projections::open(dir.path().join("db"), DatabaseOptions::dev()).unwrap();
    writer.apply_batch(&[FillAll]).unwrap();
    (dir, projections)
}

fn same_rows<T: Table>(a: &View, b: &View)
where
    T::Row: PartialEq,
{
    let rows = |view: &View| -> Vec<T::Row> {
        let rows = view.scan::<T>(Scan::all());
        rows.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(rows(a), rows(b), "{}", T::NAME);
    assert!(!rows(b).is_empty(), "{} has a row to carry over", T::NAME);
    assert_eq!(a.table_index::<T>(), b.table_index::<T>());
}

#[test]
fn ev_05_every_table_survives_a_snapshot() {
    let (dir, full) = filled();
    let files = dir.path().join("snapshot");
    let manifest = full
        .view()
        .write_snapshot(&files, 512, &|_| Ok(()))
        .unwrap();
    assert!(manifest.tables.iter().all(|table| table.rows > 0));
    let (other, mut writer) =
        Projections::open(dir.path().join("other"), DatabaseOptions::dev()).unwrap();
    let mut header = rocksdb::WriteBatch::default();
    let database = other.database();
    let meta = database.family(Family::Meta);
    header.put_cf(meta, HEADER, b"version 1");
    database.write(header).unwrap();
    let position = writer.install(&files).unwrap();
    let kept = database.get(Family::Meta, HEADER).unwrap();
    assert_eq!(
        kept.as_deref(),
        Some(&b"version 1"[..]),
        "the schema is this database's own"
    );
    drop(kept);
    drop(database);
    let former = full.view().position();
    let floor = former.index;
    assert_eq!(
        position,
        Position { floor, ..former },
        "its past begins here"
    );
    assert_eq!(other.view().digests(), full.view().digests());
    for_every_table!(same_rows(&full.view(), &other.view()));
    for table in other.view().digests() {
        assert_eq!(
            table.digest,
            other.view().digest_of_rows(table.table).unwrap()
        );
    }
    // It is on disk, and the next entry follows.
    assert_eq!(other.flushed().unwrap().index, 7);
    assert_eq!(other.applied_index(), 7);
    drop((other, writer));
    let (again, _writer) =
        Projections::open(dir.path().join("other"), DatabaseOptions::dev()).unwrap();
    assert_eq!(again.view().digests(), full.view().digests());
}

#[test]
fn a_snapshot_is_written_only_as_long_as_there_is_space() {
    let (dir, full) = filled();
    let write = |name: &str, looks: usize| {
        let left = std::cell::Cell::new(looks);
        let fits = |_: u64| -> std::io::Result<()> {
            let less = left.get().checked_sub(1);
            left.set(less.ok_or(std::io::ErrorKind::StorageFull)?);
            Ok(())
        };
        let files = dir.path().join(name);
        let written = full.view().write_snapshot(&files, 512, &fits);
        (written, std::fs::read_dir(&files).unwrap().count())
    };
    let whole = write("whole", usize::MAX).0.unwrap();
    assert!(!whole.files.is_empty() && full.snapshot_bytes() > 0);
    for looks in 0..whole.files.len() {
        let (cut, files) = write(&format!("cut-{looks}"), looks);
        let error = cut.unwrap_err();
        assert!(error.is_out_of_space(), "{error}");
        assert!(files <= looks, "{files} files were begun, {looks} allowed");
    }
}

fn edit(dir: &std::path::Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = snapshot::read_manifest(dir).unwrap();
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    std::fs::write(dir.join("manifest.json"), text).unwrap();
}

#[test]
fn a_snapshot_that_is_not_what_it_says_is_refused() {
    let (dir, full) = filled();
    let files = dir.path().join("snapshot");
    full.view()
        .write_snapshot(&files, 1 << 20, &|_| Ok(()))
        .unwrap();
    let path = dir.path().join("other");
    let (other, mut writer) = Projections::open(&path, DatabaseOptions::dev()).unwrap();
    edit(&files, |manifest| drop(manifest.tables.pop()));
    assert!(writer.install(&files).is_err(), "a table has rows");
    edit(&files, |manifest| {
        let id = u16::MAX;
        manifest.tables.push(TableManifest {
            id,
            name: "later".to_owned(),
            ..TableManifest::default()
        });
    });
    let error = writer.install(&files).unwrap_err().to_string();
    assert!(error.contains("later (65535) is not known"), "{error}");
    full.view()
        .write_snapshot(&files, 1 << 20, &|_| Ok(()))
        .unwrap();
    edit(&files, |manifest| {
        manifest.tables[3].digest = "00".repeat(32)
    });
    let error = writer.install(&files).unwrap_err().to_string();
    assert!(error.contains("node_pools"), "{error}");
    let manifest = full
        .view()
        .write_snapshot(&files, 1 << 20, &|_| Ok(()))
        .unwrap();
    for file in manifest.files {
        let path = files.join(&file.name);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = writer.install(&files).unwrap_err();
        assert!(error.is_damage(), "{}: {error}", file.name);
        bytes[100] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
    }
    std::fs::write(files.join("manifest.json"), "{").unwrap();
    assert!(writer.install(&files).unwrap_err().is_damage());
    drop((other, writer));
    // What was taken in is not believed after a restart either.
    let (other, _writer) = Projections::open(&path, DatabaseOptions::dev()).unwrap();
    assert_eq!(other.applied_index(), 0);
    assert_eq!(other.view().scan::<Nodes>(Scan::all()).count(), 0);
}

#[test]
fn a_table_that_is_younger_than_a_snapshot_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _writer) = Projections::open(dir.path().join("old"), DatabaseOptions::dev()).unwrap();
    let files = dir.path().join("snapshot");
    old.view()
        .write_snapshot(&files, 1 << 20, &|_| Ok(()))
        .unwrap();
    edit(&files, |manifest| drop(manifest.tables.remove(3)));
    let (other, mut writer) =
        Projections::open(dir.path().join("other"), DatabaseOptions::dev()).unwrap();
    writer.install(&files).unwrap();
    assert_eq!(other.view().digests(), old.view().digests());
}

/// What an event of these tests does.
#[derive(Clone, Debug)]
enum Act {
    Alloc { id: u8, job: u8, deployment: u8 },
    Eval { id: u8, job: u8, deployment: u8 },
    Job { id: u8 },
    Remove { id: u8 },
}

struct Acts(u64, Vec<Act>);

impl GuardedEntry for Acts {
    fn ctx(&self) -> Ctx {
        Ctx {
            index: self.0,
            kind: EventKind::PlanApplied,
            ..FillAll.ctx()
        }
    }

    fn guards(&self) -> &[Guard] {
        &[]
    }

    fn run(&self, txn: &mut Txn<'_>, ctx: &Ctx) -> Result<Reply, Refused> {
        let deployed = |number: u8| match number {
            0 => String::new(),
            number => format!("d{number}"),
        };
        for act in &self.1 {
            match *act {
                Act::Alloc {
                    id,
                    job,
                    deployment,
                } => {
                    let alloc = drover_events::model::Allocation {
                        id: format!("a{id}"),
                        namespace: "default".into(),
                        job_id: format!("j{job}"),
                        deployment_id: deployed(deployment),
                        create_index: ctx.index,
                        ..Default::default()
                    };
                    let row = allocs::AllocRow {
                        alloc,
                        ..Default::default()
                    };
                    txn.put::<Allocs>(row)?;
                }
                Act::Eval {
                    id,
                    job,
                    deployment,
                } => txn.put::<Evals>(drover_events::model::Evaluation {
                    id: format!("e{id}"),
                    namespace: "default".into(),
                    job_id: format!("j{job}"),
                    deployment_id: deployed(deployment),
                    ..Default::default()
                })?,
                Act::Job { id } => txn.put::<Jobs>(drover_events::model::Job {
                    id: format!("j{id}"),
                    namespace: "default".into(),
                    ..Default::default()
                })?,
                Act::Remove { id } => {
                    txn.delete::<Allocs>(format!("a{id}"))?;
                    txn.delete::<Evals>(format!("e{id}"))?;
                    txn.delete::<Jobs>(("default", format!("j{id}")))?;
                }
            }
        }
        Ok(Reply::None)
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..4_u8, 0..3_u8, 0..3_u8).prop_map(|(id, job, deployment)| Act::Alloc {
            id,
            job,
            deployment
        }),
        (0..4_u8, 0..3_u8, 0..3_u8).prop_map(|(id, job, deployment)| Act::Eval {
            id,
            job,
            deployment
        }),
        (0..3_u8).prop_map(|id| Act::Job { id }),
        (0..4_u8).prop_map(|id| Act::Remove { id }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_filtered_subscription_finds_every_change_of_its_key(
        acts in proptest::collection::vec(proptest::collection::vec(act(), 0..4), 1..20),
        first in 1..20_u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (projections, mut writer) =
            Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
        for (at, acts) in acts.into_iter().enumerate() {
            writer.apply_batch(&[Acts(at as u64 + 1, acts)]).unwrap();
        }
        let view = projections.view();
        for topic in [Topic::Allocation, Topic::Evaluation, Topic::Job] {
            for key in ["a0", "e1", "j0", "j1", "j2", "d1", "d2"] {
                let given: BTreeSet<u64> = view
                    .changes(first)
                    .flat_map(|event| event.unwrap())
                    .filter(|change| change.topic == Some(topic))
                    .filter(|change| change.stream_keys.iter().any(|own| own == key))
                    .map(|change| change.index)
                    .collect();
                let keys = [(topic, "default", key)];
                let (found, _) = view.first_positions(&keys, first, usize::MAX).unwrap();
                prop_assert!(found.is_superset(&given), "{topic} {key}: {given:?} in {found:?}");
                prop_assert!(found.iter().all(|index| *index >= first));
            }
        }
    }
}
