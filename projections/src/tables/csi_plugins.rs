//! `csi_plugins`: CSI plugins, as their allocations and nodes report them.

use drover_events::Topic;
use drover_events::model::CsiPlugin;

use crate::table::{StreamKey, Table};

/// The table.
pub struct CsiPlugins;

impl Table for CsiPlugins {
    const ID: u16 = 17;
    const NAME: &'static str = "csi_plugins";
    type Key = String;
    type Row = CsiPlugin;

    fn key(row: &CsiPlugin) -> String {
        row.id.clone()
    }

    fn stream(row: &CsiPlugin) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::CsiPlugin, "", &row.id, &[&row.id]))
    }
}
