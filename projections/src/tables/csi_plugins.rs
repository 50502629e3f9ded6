//! `csi_plugins`: CSI plugins, as nodes report them and jobs ask for them.
//!
//! A row holds counts. Where the plugin runs is in the rows of its nodes and is joined when it is
//! read ([`crate::query::csi::plugin`]): five thousand nodes that report a plugin write five
//! thousand small rows, not one of five thousand parts.

use drover_events::Topic;
use drover_events::model::CsiPlugin;

use crate::engine::table::{StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct CsiPlugins;

drover_events::wire! {
    /// A plugin without what its nodes say of it, and how many of them there are, healthy or not.
    pub struct CsiPluginRow {
        plugin: CsiPlugin = "Plugin",
        controllers: i64 = "Controllers",
        nodes: i64 = "Nodes",
        /// A controller has reported what it can.
        reported: bool = "Told",
        /// Its controllers can attach volumes to nodes.
        attaches: bool = "Attaches",
    }
}

impl Table for CsiPlugins {
    const ID: u16 = 17;
    const NAME: &'static str = "csi_plugins";
    type Key = String;
    type Row = CsiPluginRow;

    fn key(row: &CsiPluginRow) -> String {
        row.plugin.id.clone()
    }

    fn stream(row: &CsiPluginRow) -> Option<StreamKey<'_>> {
        let id = &row.plugin.id;
        Some(StreamKey::new(Topic::CsiPlugin, "", id, &[id]))
    }
}
