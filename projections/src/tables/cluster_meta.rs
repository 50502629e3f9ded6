//! `cluster_meta`: what the cluster knows of itself: one row.

use crate::engine::table::Table;

#[allow(missing_docs, reason = "the module says it")]
pub struct ClusterMetaTable;

drover_events::wire! {
    /// The cluster's identity, its feature level, its last leader, and, while the publisher of
    /// events is behind, at which index that was reported and what it had published then. At which
    /// index ACLs were bootstrapped last; 0: never.
    pub struct ClusterMeta {
        cluster_id: String = "ClusterID",
        create_time: i64 = "CreateTime",
        feature_level: u32 = "FeatureLevel",
        leader_id: String = "LeaderID",
        leader_name: String = "LeaderName",
        leader_addr: String = "LeaderAddr",
        leader_since: u64 = "LeaderSince",
        epoch: String = "Epoch",
        publisher_lagging_since: u64 = "PublisherLaggingSince",
        publisher_position: u64 = "PublisherPublished",
        acl_bootstrap_index: u64 = "ACLBootstrapIndex",
    }
}

impl Table for ClusterMetaTable {
    const ID: u16 = 35;
    const NAME: &'static str = "cluster_meta";
    type Key = ();
    type Row = ClusterMeta;

    fn key(_row: &ClusterMeta) {}
}
