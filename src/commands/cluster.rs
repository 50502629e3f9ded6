//! Commands about the cluster itself and its configuration.

use std::collections::BTreeMap;

use drover_events::EventKind;
use drover_events::cluster::*;
use drover_events::model::status::algorithm;
use drover_events::model::{AutopilotConfiguration, SchedulerConfiguration};
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{Reply, TableDigest, View};

use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// This server became leader: the first thing it says.
#[derive(Clone, Debug)]
pub struct ElectLeader {
    /// The announcement of the leader.
    pub leader: LeaderElected,
}

impl Command for ElectLeader {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(self.leader.clone()))
    }
}

/// The cluster gets its identity, unless it has one.
#[derive(Clone, Debug)]
pub struct SetClusterId {
    /// A UUID.
    pub cluster_id: String,
}

impl Command for SetClusterId {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        let known = view.get::<ClusterMetaTable>(())?;
        // The identity is set once and stays; a later proposal changes nothing.
        if known.is_some_and(|known| !known.cluster_id.is_empty()) {
            return Ok(Decision::Nothing(Reply::None));
        }
        let cluster_id = self.cluster_id.clone();
        Ok(Decision::unguarded(ClusterIdSet {
            cluster_id,
            create_time: stamp.now,
        }))
    }
}

/// Every server reads this feature level.
#[derive(Clone, Debug)]
pub struct RaiseBarrier {
    pub level: u32,
    /// What each server reported.
    pub servers: BTreeMap<String, u32>,
}

impl Command for RaiseBarrier {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if let Some((server, level)) = self.servers.iter().find(|(_, level)| **level < self.level) {
            let text = format!("server {server} reads only up to level {level}");
            return Err(Refusal::by_rule(text));
        }
        let known = view.get::<ClusterMetaTable>(())?;
        if known.is_some_and(|known| known.feature_level >= self.level) {
            return Ok(Decision::Nothing(Reply::None));
        }
        let (level, servers) = (self.level, self.servers.clone());
        Ok(Decision::unguarded(VersionBarrierRaised { level, servers }))
    }
}

/// The digests of all tables at an index, as this server has them.
#[derive(Clone, Debug)]
pub struct RecordDigests {
    /// What is recorded.
    pub recorded: DigestRecorded,
}

impl RecordDigests {
    /// The digests of all tables after the event at `at`, reported by one server.
    pub fn of(at: u64, digests: &[TableDigest], server: &str) -> Self {
        let digests = digests.iter();
        Self {
            recorded: DigestRecorded {
                at,
                digests: digests
                    .map(|table| (table.table, table.digest.0.to_vec().into()))
                    .collect(),
                servers: vec![server.to_owned()],
            },
        }
    }
}

impl Command for RecordDigests {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.recorded.at > view.index() {
            return Err(Refusal::by_rule("what has not happened has no digests"));
        }
        Ok(Decision::unguarded(self.recorded.clone()))
    }
}

/// The feature level that brought [`PublisherLagged`] and [`PublisherCaughtUp`].
const LAG_LEVEL: u32 = EventKind::PublisherLagged.since();

/// The publisher of events fell behind. Reported once, and not before every server reads it.
#[derive(Clone, Debug)]
pub struct SayPublisherLags {
    /// What the event holds.
    pub lagged: PublisherLagged,
}

impl Command for SayPublisherLags {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let known = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
        if known.publisher_lagging_since != 0 || known.feature_level < LAG_LEVEL {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(self.lagged.clone()))
    }

    /// The first event that waits to be published.
    fn cause(&self, view: &View) -> Option<u64> {
        Some(self.lagged.published + 1).filter(|index| *index <= view.index())
    }
}

/// The publisher of events has caught up, if it was reported to be behind.
#[derive(Clone, Debug)]
pub struct SayPublisherCaughtUp {
    pub publisher: String,
    /// The last index it has published.
    pub published: u64,
}

impl Command for SayPublisherCaughtUp {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let known = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
        if known.publisher_lagging_since == 0 {
            return Ok(Decision::Nothing(Reply::None));
        }
        Ok(Decision::unguarded(PublisherCaughtUp {
            publisher: self.publisher.clone(),
            published: self.published,
            since: known.publisher_lagging_since,
        }))
    }

    /// The event that reported that it fell behind.
    fn cause(&self, view: &View) -> Option<u64> {
        let known = view.get::<ClusterMetaTable>(()).ok().flatten()?;
        Some(known.publisher_lagging_since).filter(|index| *index > 0)
    }
}

/// The scheduler configuration is set. Its reply is `Reply::Cas`.
#[derive(Clone, Debug)]
pub struct SetSchedulerConfig {
    pub config: SchedulerConfiguration,
    /// Whether only if it is unchanged since its modify index.
    pub cas: bool,
    /// Whether only if no configuration exists yet: what a first leader starts from.
    pub initial: bool,
}

impl Command for SetSchedulerConfig {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let mut config = self.config.clone();
        if config.scheduler_algorithm.is_empty() {
            config.scheduler_algorithm = algorithm::BINPACK.to_owned();
        }
        if !algorithm::ALL.contains(&config.scheduler_algorithm.as_str()) {
            return Err(Refusal::bad_request(format!(
                "invalid scheduler algorithm: {}",
                config.scheduler_algorithm
            )));
        }
        if !self.initial {
            let known = view.get::<SchedulerConfigTable>(())?.unwrap_or_default();
            refuse_preemption(&config, &known)?;
            return Ok(Decision::unguarded(SchedulerConfigured {
                config,
                cas: self.cas,
            }));
        }
        if view.contains::<SchedulerConfigTable>(())? {
            return Ok(Decision::Nothing(Reply::Cas(false)));
        }
        let guards = vec![view.guard::<SchedulerConfigTable>(())?];
        Ok(Decision::guarded(
            SchedulerConfigured { config, cas: false },
            guards,
        ))
    }
}

/// Nothing is preempted in this version: switching it on is refused, so that the operator knows.
/// What a first leader starts from enables it for system jobs, and a caller who changes another
/// setting sends that back as it was.
fn refuse_preemption(
    config: &SchedulerConfiguration,
    known: &SchedulerConfiguration,
) -> Result<(), Refusal> {
    let (set, was) = (&config.preemption_config, &known.preemption_config);
    let switched = [
        (
            "SystemSchedulerEnabled",
            set.system_scheduler_enabled && !was.system_scheduler_enabled,
        ),
        (
            "SysBatchSchedulerEnabled",
            set.sys_batch_scheduler_enabled && !was.sys_batch_scheduler_enabled,
        ),
        (
            "BatchSchedulerEnabled",
            set.batch_scheduler_enabled && !was.batch_scheduler_enabled,
        ),
        (
            "ServiceSchedulerEnabled",
            set.service_scheduler_enabled && !was.service_scheduler_enabled,
        ),
    ];
    match switched.iter().find(|(_, on)| *on) {
        Some((name, _)) => Err(Refusal::bad_request(format!(
            "PreemptionConfig.{name}: preemption is not supported by this version of drover; set \
             it to false"
        ))),
        None => Ok(()),
    }
}

/// The autopilot configuration is set. Its reply is `Reply::Cas`.
#[derive(Clone, Debug)]
pub struct SetAutopilotConfig {
    pub config: AutopilotConfiguration,
    /// Whether only if it is unchanged since its modify index.
    pub cas: bool,
}

impl Command for SetAutopilotConfig {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        Ok(Decision::unguarded(AutopilotConfigured {
            config: self.config.clone(),
            cas: self.cas,
        }))
    }
}
