//! `csi_volumes`: CSI volumes and the claims on them.

use std::collections::BTreeSet;

use drover_events::Topic;
use drover_events::csi::{CsiVolumeClaimed, as_sealed};
use drover_events::gojson::Map;
use drover_events::model::CsiVolume;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

/// The table; its key is (namespace, id) (EV-17).
pub struct CsiVolumes;

drover_events::wire! {
    /// A volume as registered, and its claims by allocation.
    pub struct CsiVolumeRow {
        volume: CsiVolume = "Volume",
        read_claims: Map<CsiVolumeClaimed> = "ReadClaims",
        write_claims: Map<CsiVolumeClaimed> = "WriteClaims",
        past_claims: Map<CsiVolumeClaimed> = "PastClaims",
        /// Since when it is being deleted at its provider, Unix nanoseconds; 0 where it is not.
        deleting: i64 = "Deleting" omit,
        /// Since when it is larger at its provider than a node has made it, Unix nanoseconds; 0
        /// where no node has to do anything.
        node_expansion: i64 = "NodeExpansion" omit,
    }
}

impl Table for CsiVolumes {
    const ID: u16 = 16;
    const NAME: &'static str = "csi_volumes";
    type Key = (String, String);
    type Row = CsiVolumeRow;
    const INDEXES: &'static [IndexDef<Self>] = &[
        IndexDef::of::<CsiVolumesByPlugin>(),
        IndexDef::of::<CsiVolumesByKey>(),
    ];
    const POSTED: &'static [usize] = &[1];

    fn key(row: &CsiVolumeRow) -> (String, String) {
        (row.volume.namespace.clone(), row.volume.id.clone())
    }

    fn stream(row: &CsiVolumeRow) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(
            Topic::CsiVolume,
            &row.volume.namespace,
            &row.volume.id,
            &[&row.volume.id, &row.volume.name, &row.volume.plugin_id],
        ))
    }
}

/// The volumes of a plugin (EV-17).
pub struct CsiVolumesByPlugin;

impl Index for CsiVolumesByPlugin {
    type Table = CsiVolumes;
    const NO: u8 = 1;
    const NAME: &'static str = "plugin_id";
    type Group = String;
    type Order = ();

    fn entries(row: &CsiVolumeRow, out: &mut Entries) {
        out.add::<Self>(&row.volume.plugin_id, ());
    }
}

/// The volumes with a secret that this key sealed (KR-04).
pub struct CsiVolumesByKey;

impl Index for CsiVolumesByKey {
    type Table = CsiVolumes;
    const NO: u8 = 2;
    const NAME: &'static str = "key_id";
    type Group = Id;
    type Order = ();

    fn entries(row: &CsiVolumeRow, out: &mut Entries) {
        let keys = row.volume.secrets.values();
        let keys: BTreeSet<_> = keys
            .filter_map(|secret| Some(as_sealed(secret)?.0))
            .collect();
        for key in keys {
            out.add::<Self>(key, ());
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::CsiVolume;

    use super::*;

    #[test]
    fn ns_02_the_same_id_in_two_namespaces_is_two_volumes() {
        let row = |namespace: &str| CsiVolumeRow {
            volume: CsiVolume {
                id: "data".into(),
                namespace: namespace.into(),
                ..CsiVolume::default()
            },
            ..CsiVolumeRow::default()
        };
        let (one, other) = (CsiVolumes::key(&row("a")), CsiVolumes::key(&row("b")));
        assert_ne!(one, other);
        assert_eq!(one, ("a".to_owned(), "data".to_owned()));
    }
}
