use std::path::Path;

use drover_events::cluster::VersionBarrierRaised;
use drover_events::model::CsiInfo;
use drover_events::node::NodeRegistered;
use drover_projections::canonical::Canonical;
use drover_projections::key::Key as _;
use drover_projections::maintenance::{FamilyPart, Maintenance, RawChange};
use drover_projections::tables::csi_plugins::CsiPluginRow;
use drover_projections::{DatabaseOptions, Table};
use drover_testkit::fixtures;

use super::super::{CoreGc, GcSettings};
use super::*;
use crate::base::clock::Clock;
use crate::error::Code;
use crate::reactors::testing::{Direct, Fault, Faulty, spoil};

const STRAY: &str = "stray";
const USED: &str = "used";

fn context(direct: &Arc<Direct>) -> Context {
    Context {
        projections: Arc::clone(&direct.projections),
        proposer: direct.clone(),
        clock: Clock::default(),
    }
}

/// A row that nothing stands for, as another version may have left it.
fn leave(database: &Path, id: &str) {
    let db = Maintenance::open(database, &DatabaseOptions::dev()).unwrap();
    let header = db.header().unwrap().unwrap_or_default();
    let mut row = CsiPluginRow::default();
    row.plugin.id = id.to_owned();
    let mut key = CsiPlugins::ID.to_be_bytes().to_vec();
    key.extend_from_slice(&CsiPlugins::key(&row).to_bytes());
    // The format of rows, the index, no entries of indexes.
    let mut value = vec![1];
    value.extend(1_u64.to_le_bytes());
    value.push(0);
    value.extend_from_slice(Canonical::default().encode(&row).unwrap());
    db.write(&[RawChange::Put(FamilyPart::Rows, key, value)], &header)
        .unwrap();
}

/// A state with a plugin that a node reports, and one that is left over.
fn with_stray() -> Arc<Direct> {
    let direct = Direct::new();
    direct.apply(VersionBarrierRaised {
        level: drover_migrations::FEATURE_LEVEL,
        ..VersionBarrierRaised::default()
    });
    let mut node = fixtures::node(1);
    let info = CsiInfo {
        plugin_id: USED.into(),
        ..CsiInfo::default()
    };
    node.csi_node_plugins = [(USED, info)].into();
    direct.apply(NodeRegistered {
        node: Box::new(node),
        ..NodeRegistered::default()
    });
    direct.reopened(|database| leave(database, STRAY))
}

fn known(direct: &Direct) -> Vec<String> {
    let view = direct.projections.view();
    let rows = view.scan::<CsiPlugins>(Scan::all());
    rows.map(|row| row.unwrap().plugin.id).collect()
}

#[tokio::test]
async fn plg_03_a_plugin_left_over_is_collected_and_one_in_use_is_kept() {
    let direct = with_stray();
    assert_eq!(known(&direct), [STRAY, USED]);
    let index = direct.projections.applied_index();
    let gc = CoreGc::new(GcSettings::default().forced());
    let mut each = Each::default();
    gc.collect(&context(&direct), &mut each).await.unwrap();
    assert_eq!((known(&direct), each.failed()), (vec![USED.to_owned()], 0));
    assert_eq!(direct.projections.applied_index(), index + 1);
    gc.collect(&context(&direct), &mut each).await.unwrap();
    let after = direct.projections.applied_index();
    assert_eq!(after, index + 1, "one in use is not even tried");
}

#[tokio::test]
async fn plg_03_a_plugin_that_cannot_be_read_keeps_no_other_from_being_collected() {
    let direct = with_stray().reopened(|database| {
        leave(database, "worse");
        spoil::<CsiPlugins>(database, &STRAY.to_owned());
    });
    let gc = CoreGc::new(GcSettings::default().forced());
    let mut each = Each::default();
    gc.collect(&context(&direct), &mut each).await.unwrap();
    let view = direct.projections.view();
    let there = |id| view.modify_index::<CsiPlugins>(id).unwrap().is_some();
    assert_eq!([STRAY, "worse", USED].map(there), [true, false, true]);
    assert_eq!(each.failed(), 1);
}

#[tokio::test]
async fn plugins_left_over_go_whichever_of_them_cannot() {
    let codes = [
        Code::Refused,
        Code::Internal,
        Code::Conflict,
        Code::NotFound,
    ];
    for fault in codes.map(Fault::Error).into_iter().chain([Fault::Panic]) {
        let direct = with_stray().reopened(|database| {
            leave(database, "stray-1");
            leave(database, "stray-2");
        });
        let faulty = Faulty::new(&direct, "stray-1", fault);
        let context = Context {
            proposer: faulty.clone(),
            ..context(&direct)
        };
        let gc = CoreGc::new(GcSettings::default().forced());
        let mut each = Each::default();
        gc.collect(&context, &mut each).await.unwrap();
        assert_eq!(known(&direct), ["stray-1", USED], "{fault:?}");
        assert_eq!(each.failed(), 1, "{fault:?}");
        faulty.heal();
        gc.collect(&context, &mut each).await.unwrap();
        assert_eq!(known(&direct), [USED], "it has its turn again");
    }
}

#[tokio::test]
async fn plg_03_one_that_came_into_use_meanwhile_is_kept_and_that_is_no_failure() {
    let direct = with_stray();
    let mut each = Each::default();
    for id in [USED, "gone"] {
        let removed = remove(&context(&direct), id.to_owned(), &mut each).await;
        removed.unwrap();
    }
    assert_eq!((known(&direct).len(), each.failed()), (2, 0));
    let refused = direct.command(&DeleteCsiPlugin { id: USED.into() });
    assert_eq!(refused.unwrap_err().message, "plugin in use");
}
