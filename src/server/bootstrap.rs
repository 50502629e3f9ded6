//! What a new leader says first: that it leads, and, in a new cluster, what a cluster begins with.

use drover_events::Event;
use drover_events::cluster::{
    ClusterIdSet, LeaderElected, SchedulerConfigured, VersionBarrierRaised,
};
use drover_events::model::SchedulerConfiguration;
use drover_projections::View;
use drover_projections::tables::cluster_meta::{ClusterMeta, ClusterMetas};
use drover_projections::tables::scheduler_config::SchedulerConfig;

use super::Myself;

/// The first events of a leader, in order. They depend on the view alone, and on who leads.
///
/// A lone server raises the feature level to its own; a cluster waits until every member reports it.
pub(super) fn first_events(
    view: &View,
    me: &Myself,
    configured: &SchedulerConfiguration,
    lone: bool,
) -> Vec<Event> {
    let meta: ClusterMeta = view
        .get::<ClusterMetas>(())
        .ok()
        .flatten()
        .unwrap_or_default();
    let level = drover_migrations::FEATURE_LEVEL;
    let mut events: Vec<Event> = Vec::with_capacity(4);
    if lone && meta.feature_level < level {
        let servers = [(me.id.clone(), level)].into();
        events.push(VersionBarrierRaised { level, servers }.into());
    }
    events.push(
        LeaderElected {
            server_id: me.id.clone(),
            name: me.name.clone(),
            addr: me.rpc_addr.clone(),
            level,
            version: super::VERSION.to_owned(),
        }
        .into(),
    );
    if meta.cluster_id.is_empty() {
        let cluster_id = uuid::Uuid::new_v4().to_string();
        let create_time = crate::clock::unix_nanos();
        events.push(
            ClusterIdSet {
                cluster_id,
                create_time,
            }
            .into(),
        );
    }
    if matches!(view.get::<SchedulerConfig>(()), Ok(None)) {
        events.push(
            SchedulerConfigured {
                config: configured.clone(),
                cas: false,
            }
            .into(),
        );
    }
    events
}
