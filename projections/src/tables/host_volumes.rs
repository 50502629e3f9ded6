//! `host_volumes`: host volumes that the cluster manages.

use drover_events::Topic;
use drover_events::model::HostVolume;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is (namespace, id).
pub struct HostVolumes;

impl Table for HostVolumes {
    const ID: u16 = 18;
    const NAME: &'static str = "host_volumes";
    type Key = (String, Id);
    type Row = HostVolume;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<HostVolumesByName>(),
        IndexDef::of::<HostVolumesByNode>(),
        IndexDef::of::<HostVolumesByPool>(),
    ];
    const POSTED: &'static [usize] = &[1, 2];

    fn key(row: &HostVolume) -> (String, Id) {
        (row.namespace.clone(), Id::new(row.id.as_str()))
    }

    fn stream(row: &HostVolume) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::HostVolume,
            &row.namespace,
            &row.id,
            &[&row.id, &row.name, &row.plugin_id],
        ))
    }
}

/// The volumes of a name in a namespace, one per node.
pub struct HostVolumesByName;

impl Index for HostVolumesByName {
    type Table = HostVolumes;
    const NO: u8 = 1;
    const NAME: &'static str = "name";
    type Group = (String, String);
    type Order = ();

    fn entries(row: &HostVolume, out: &mut Entries) {
        out.add::<Self>((&row.namespace, &row.name), ());
    }
}

/// The volumes of a node.
pub struct HostVolumesByNode;

impl Index for HostVolumesByNode {
    type Table = HostVolumes;
    const NO: u8 = 2;
    const NAME: &'static str = "node_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &HostVolume, out: &mut Entries) {
        out.add::<Self>(&row.node_id, ());
    }
}

/// The volumes of a node pool.
pub struct HostVolumesByPool;

impl Index for HostVolumesByPool {
    type Table = HostVolumes;
    const NO: u8 = 3;
    const NAME: &'static str = "node_pool";
    type Group = String;
    type Order = ();

    fn entries(row: &HostVolume, out: &mut Entries) {
        out.add::<Self>(&row.node_pool, ());
    }
}
