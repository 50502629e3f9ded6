//! Samples about the cluster itself.

use drover_events::cluster::*;
use drover_events::model::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::id;

pub(super) fn event(kind: EventKind) -> Option<Event> {
    Some(match kind {
        EventKind::LeaderElected => LeaderElected {
            server_id: id(1),
            name: "s1.global".into(),
            addr: "192.0.2.1:4647".into(),
            level: 1,
            version: "0.1.0".into(),
        }
        .into(),
        EventKind::VersionBarrierRaised => VersionBarrierRaised {
            level: 2,
            servers: [(id(1), 2)].into(),
        }
        .into(),
        EventKind::ClusterIdSet => ClusterIdSet {
            cluster_id: id(2),
            create_time: TIME,
        }
        .into(),
        EventKind::ClusterRestored => ClusterRestored {
            former_epoch: "e1".into(),
            former_size: 99,
            former_root: vec![0xab; 32],
            base_index: 4711,
            epoch: "e2".into(),
        }
        .into(),
        EventKind::DigestRecorded => DigestRecorded {
            at: 4096,
            digests: [(3, serde_bytes::ByteBuf::from(vec![0xcd; 32]))].into(),
            servers: vec![id(1)],
        }
        .into(),
        EventKind::PublisherLagged => PublisherLagged {
            publisher: "kafka".into(),
            published: 4000,
            behind: 711,
            age: 12_345_678_901,
            reason: "publishing: Local: Message timed out".into(),
        }
        .into(),
        EventKind::PublisherCaughtUp => PublisherCaughtUp {
            publisher: "kafka".into(),
            published: 4710,
            since: 4702,
        }
        .into(),
        EventKind::SchedulerConfigured => {
            let config = SchedulerConfiguration {
                scheduler_algorithm: "spread".into(),
                pause_eval_broker: true,
                modify_index: 12,
                ..Default::default()
            };
            SchedulerConfigured { config, cas: true }.into()
        }
        EventKind::AutopilotConfigured => {
            let config = AutopilotConfiguration {
                cleanup_dead_servers: true,
                max_trailing_logs: 250,
                ..Default::default()
            };
            AutopilotConfigured { config, cas: false }.into()
        }
        _ => return None,
    })
}
