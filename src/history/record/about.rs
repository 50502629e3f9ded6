//! What an event is about: the objects that it names, and the one namespace, job, allocation and
//! node it concerns, where there is exactly one.
//!
//! It is read from the payload alone, so it is the same live, in exports and long after the objects
//! are gone. A client's report names allocations and nodes only; their jobs stand in the plan that
//! placed them.

use drover_events::model::{Deployment, Evaluation, Job, ServiceRegistration};
use drover_events::plan::PlanApplied;
use drover_events::{Event, Topic};

/// One object that an event names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// The topic of such objects.
    pub topic: Topic,
    /// Its namespace, as far as the event says; else empty.
    pub namespace: &'a str,
    /// Its id or name.
    pub id: &'a str,
}

/// None, one, or several different values.
#[derive(Clone, Copy, Debug, Default)]
enum Single<'a> {
    #[default]
    None,
    One(&'a str),
    Several,
}

impl<'a> Single<'a> {
    fn add(&mut self, value: &'a str) {
        *self = match *self {
            _ if value.is_empty() => return,
            Self::None => Self::One(value),
            Self::One(known) if known == value => return,
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    fn get(self) -> Option<&'a str> {
        match self {
            Self::One(value) => Some(value),
            Self::None | Self::Several => None,
        }
    }
}

/// What an event is about.
#[derive(Clone, Debug, Default)]
pub struct About<'a> {
    /// The objects, the main one first.
    pub objects: Vec<Object<'a>>,
    namespace: Single<'a>,
    job: Single<'a>,
    alloc: Single<'a>,
    node: Single<'a>,
}

impl<'a> About<'a> {
    /// What a payload says.
    pub fn of(event: &'a Event) -> Self {
        let mut about = Self::default();
        about.cluster(event);
        about.nodes(event);
        about.jobs(event);
        about.access(event);
        about.volumes(event);
        about
    }

    /// The namespace; none where there is none or several.
    pub fn namespace(&self) -> Option<&'a str> {
        self.namespace.get()
    }

    /// The job's id; none where there is none or several.
    pub fn job_id(&self) -> Option<&'a str> {
        self.job.get()
    }

    /// The allocation's id; none where there is none or several.
    pub fn alloc_id(&self) -> Option<&'a str> {
        self.alloc.get()
    }

    /// The node's id; none where there is none or several.
    pub fn node_id(&self) -> Option<&'a str> {
        self.node.get()
    }

    /// The main object as `Topic/namespace/id`, or `Topic/id` where it has no namespace.
    pub fn subject(&self) -> Option<String> {
        let first = self.objects.first()?;
        Some(match first.namespace {
            "" => format!("{}/{}", first.topic, first.id),
            namespace => format!("{}/{namespace}/{}", first.topic, first.id),
        })
    }

    fn add(&mut self, topic: Topic, namespace: &'a str, id: &'a str) {
        self.namespace.add(namespace);
        let object = Object {
            topic,
            namespace,
            id,
        };
        if !id.is_empty() && !self.objects.contains(&object) {
            self.objects.push(object);
        }
    }

    /// Objects without a namespace.
    fn all(&mut self, topic: Topic, ids: impl IntoIterator<Item = &'a String>) {
        ids.into_iter().for_each(|id| self.add(topic, "", id));
    }

    fn job(&mut self, topic: Topic, namespace: &'a str, id: &'a str) {
        self.add(topic, namespace, id);
        self.job.add(id);
    }

    fn whole_job(&mut self, job: &'a Job) {
        self.job(Topic::Job, &job.namespace, &job.id);
    }

    fn allocs(&mut self, ids: impl IntoIterator<Item = &'a String>) {
        for id in ids {
            self.add(Topic::Allocation, "", id);
            self.alloc.add(id);
        }
    }

    fn node(&mut self, id: &'a str) {
        self.add(Topic::Node, "", id);
        self.node.add(id);
    }

    fn evals(&mut self, evals: impl IntoIterator<Item = &'a Evaluation>) {
        for eval in evals {
            self.add(Topic::Evaluation, &eval.namespace, &eval.id);
            self.job.add(&eval.job_id);
        }
    }

    fn deployment(&mut self, deployment: &'a Deployment) {
        let Deployment { namespace, id, .. } = deployment;
        self.add(Topic::Deployment, namespace, id);
        self.job.add(&deployment.job_id);
    }

    fn service(&mut self, service: &'a ServiceRegistration) {
        self.add(Topic::Service, &service.namespace, &service.id);
        self.job.add(&service.job_id);
        self.alloc.add(&service.alloc_id);
        self.node.add(&service.node_id);
    }

    fn cluster(&mut self, event: &'a Event) {
        match event {
            Event::LeaderElected(e) => self.add(Topic::Cluster, "", &e.server_id),
            Event::ClusterIdSet(e) => self.add(Topic::Cluster, "", &e.cluster_id),
            Event::ClusterRestored(e) => self.add(Topic::Cluster, "", &e.epoch),
            Event::PublisherLagged(e) => self.add(Topic::Cluster, "", &e.publisher),
            Event::PublisherCaughtUp(e) => self.add(Topic::Cluster, "", &e.publisher),
            Event::SchedulerConfigured(_) => self.add(Topic::Configuration, "", "scheduler"),
            Event::AutopilotConfigured(_) => self.add(Topic::Configuration, "", "autopilot"),
            Event::RootKeyUpserted(e) => self.add(Topic::RootKey, "", &e.key.key_id),
            Event::RootKeyDeleted(e) => self.add(Topic::RootKey, "", &e.key_id),
            Event::NamespacesUpserted(e) => {
                for space in &e.namespaces {
                    self.add(Topic::Namespace, "", &space.name);
                    self.namespace.add(&space.name);
                }
            }
            Event::NamespacesDeleted(e) => {
                for name in &e.names {
                    self.add(Topic::Namespace, "", name);
                    self.namespace.add(name);
                }
            }
            Event::VariableApplied(e) => self.add(Topic::Variable, &e.var.namespace, &e.var.path),
            _ => {}
        }
    }

    fn nodes(&mut self, event: &'a Event) {
        match event {
            Event::NodeRegistered(e) => {
                self.node(&e.node.id);
                self.evals(&e.evals);
            }
            Event::NodesDeregistered(e) => {
                e.node_ids.iter().for_each(|id| self.node(id));
                self.evals(&e.evals);
            }
            Event::NodeStatusUpdated(e) => {
                self.node(&e.node_id);
                self.evals(&e.evals);
            }
            Event::NodeDrainUpdated(e) => {
                e.updates.keys().for_each(|id| self.node(id));
                self.evals(&e.evals);
            }
            Event::NodeEligibilityUpdated(e) => {
                self.node(&e.node_id);
                self.evals(&e.evals);
            }
            Event::NodeEventsUpserted(e) => e.events.keys().for_each(|id| self.node(id)),
            Event::NodePoolsUpserted(e) => {
                self.all(Topic::NodePool, e.node_pools.iter().map(|pool| &pool.name));
            }
            Event::NodePoolsDeleted(e) => self.all(Topic::NodePool, &e.names),
            Event::ServiceRegistrationsUpserted(e) => {
                e.services.iter().for_each(|service| self.service(service));
            }
            Event::ServiceRegistrationsDeleted(e) => {
                for key in &e.services {
                    self.add(Topic::Service, &key.namespace, &key.id);
                }
                if !e.node_id.is_empty() {
                    self.node(&e.node_id);
                }
            }
            _ => {}
        }
    }

    fn jobs(&mut self, event: &'a Event) {
        match event {
            Event::JobRegistered(e) => {
                self.whole_job(&e.job);
                self.evals(&e.eval);
                e.deployment.iter().for_each(|one| self.deployment(one));
            }
            Event::JobDeregistered(e) => {
                self.job(Topic::Job, &e.namespace, &e.job_id);
                self.evals(&e.eval);
            }
            Event::JobsDeregistered(e) => {
                for job in &e.jobs {
                    self.job(Topic::Job, &job.namespace, &job.job_id);
                }
                self.evals(&e.evals);
            }
            Event::JobStabilityUpdated(e) => self.job(Topic::Job, &e.namespace, &e.job_id),
            Event::JobVersionTagged(e) => self.job(Topic::Job, &e.namespace, &e.job_id),
            Event::PeriodicJobLaunched(e) => self.job(Topic::Job, &e.namespace, &e.job_id),
            Event::ScalingEventRecorded(e) => self.job(Topic::Job, &e.namespace, &e.job_id),
            Event::EvalsUpserted(e) => self.evals(&e.evals),
            Event::EvalsDeleted(e) => {
                self.all(Topic::Evaluation, &e.eval_ids);
                self.allocs(&e.alloc_ids);
            }
            Event::PlanApplied(e) => self.plan(e),
            Event::AllocsUpdatedByClient(e) => {
                self.allocs(e.updates.iter().map(|update| &update.id));
                e.nodes.iter().for_each(|id| self.node(id));
                self.evals(&e.evals);
            }
            Event::AllocsDesiredTransitionUpdated(e) => {
                self.allocs(e.transitions.keys());
                self.evals(&e.evals);
            }
            Event::DeploymentStatusUpdated(e) => {
                self.add(Topic::Deployment, "", &e.update.deployment_id);
                e.job.iter().for_each(|job| self.whole_job(job));
                self.evals(&e.eval);
            }
            Event::DeploymentPromoted(e) => {
                self.add(Topic::Deployment, "", &e.deployment_id);
                self.evals(&e.eval);
            }
            Event::DeploymentAllocHealthUpdated(e) => {
                self.add(Topic::Deployment, "", &e.deployment_id);
                self.allocs(e.healthy.iter().chain(&e.unhealthy));
                e.job.iter().for_each(|job| self.whole_job(job));
                self.evals(&e.eval);
            }
            Event::DeploymentsDeleted(e) => self.all(Topic::Deployment, &e.ids),
            _ => {}
        }
    }

    /// The evaluation a plan is of, and the job: follow-ups may be of others that were preempted.
    fn plan(&mut self, plan: &'a PlanApplied) {
        self.add(Topic::Evaluation, "", &plan.eval_id);
        for placed in &plan.placed {
            let alloc = &placed.alloc;
            self.add(Topic::Allocation, &alloc.namespace, &alloc.id);
            self.job.add(&alloc.job_id);
            self.alloc.add(&alloc.id);
            self.node.add(&alloc.node_id);
        }
        self.allocs(plan.stopped.iter().map(|stopped| &stopped.id));
        self.allocs(plan.preempted.iter().map(|preempted| &preempted.id));
        plan.deployment.iter().for_each(|one| self.deployment(one));
        let updates = plan.deployment_updates.iter();
        self.all(
            Topic::Deployment,
            updates.map(|update| &update.deployment_id),
        );
        for eval in &plan.evals {
            self.add(Topic::Evaluation, &eval.namespace, &eval.id);
        }
        self.all(Topic::Node, &plan.ineligible_nodes);
    }

    fn access(&mut self, event: &'a Event) {
        match event {
            Event::AclPoliciesUpserted(e) => {
                self.all(Topic::AclPolicy, e.policies.iter().map(|one| &one.name));
            }
            Event::AclPoliciesDeleted(e) => self.all(Topic::AclPolicy, &e.names),
            Event::AclTokensUpserted(e) => {
                let ids = e.tokens.iter().map(|one| &one.token.accessor_id);
                self.all(Topic::AclToken, ids);
            }
            Event::AclTokensDeleted(e) => self.all(Topic::AclToken, &e.accessor_ids),
            Event::AclBootstrapped(e) => {
                self.add(Topic::AclBootstrap, "", &e.token.token.accessor_id);
            }
            Event::AclRolesUpserted(e) => {
                self.all(Topic::AclRole, e.roles.iter().map(|one| &one.id));
            }
            Event::AclRolesDeleted(e) => self.all(Topic::AclRole, &e.ids),
            Event::AclAuthMethodsUpserted(e) => {
                let names = e.auth_methods.iter().map(|one| &one.name);
                self.all(Topic::AclAuthMethod, names);
            }
            Event::AclAuthMethodsDeleted(e) => self.all(Topic::AclAuthMethod, &e.names),
            Event::AclBindingRulesUpserted(e) => {
                let ids = e.binding_rules.iter().map(|one| &one.id);
                self.all(Topic::AclBindingRule, ids);
            }
            Event::AclBindingRulesDeleted(e) => self.all(Topic::AclBindingRule, &e.ids),
            Event::OneTimeTokensUpserted(e) => {
                self.add(Topic::OneTimeToken, "", &e.token.accessor_id);
            }
            Event::OneTimeTokensDeleted(e) => self.all(Topic::OneTimeToken, &e.accessor_ids),
            _ => {}
        }
    }

    fn volumes(&mut self, event: &'a Event) {
        match event {
            Event::CsiVolumesRegistered(e) => {
                for volume in &e.volumes {
                    self.add(Topic::CsiVolume, &volume.namespace, &volume.id);
                }
            }
            Event::CsiVolumeDeregistered(e) => {
                for id in &e.volume_ids {
                    self.add(Topic::CsiVolume, &e.namespace, id);
                }
            }
            Event::CsiVolumeClaimed(e) => self.claim(e),
            Event::CsiVolumeClaimsApplied(e) => e.claims.iter().for_each(|one| self.claim(one)),
            Event::CsiPluginDeleted(e) => self.add(Topic::CsiPlugin, "", &e.id),
            Event::HostVolumeRegistered(e) => {
                self.add(Topic::HostVolume, &e.volume.namespace, &e.volume.id);
                self.node.add(&e.volume.node_id);
            }
            Event::HostVolumeDeleted(e) => self.add(Topic::HostVolume, &e.namespace, &e.volume_id),
            Event::HostVolumeClaimReleased(e) => {
                self.add(Topic::HostVolumeClaim, "", &e.claim_id);
            }
            _ => {}
        }
    }

    fn claim(&mut self, claim: &'a drover_events::csi::CsiVolumeClaimed) {
        self.add(Topic::CsiVolume, &claim.namespace, &claim.volume_id);
        self.alloc.add(&claim.allocation_id);
        self.node.add(&claim.node_id);
    }
}

#[cfg(test)]
mod tests {
    use drover_events::EventKind;
    use drover_golden::samples;
    use serde_json::Value;

    use super::*;
    use crate::history::record::Payload;

    /// Kinds that are about no object of their own, or may be a rule.
    const NOTHING: [EventKind; 5] = [
        EventKind::EvalsDeleted,
        EventKind::VersionBarrierRaised,
        EventKind::DigestRecorded,
        EventKind::JobSummariesReconciled,
        EventKind::OneTimeTokensExpired,
    ];

    #[test]
    fn every_kind_says_what_it_is_about() {
        let mut silent = Vec::new();
        for kind in EventKind::ALL {
            let body = samples::body(*kind, kind.version()).expect("every kind has a sample");
            let event = drover_migrations::decode(&body).expect("it decodes");
            let Some(envelope) = &event.envelope else {
                continue;
            };
            if About::of(&envelope.event).subject().is_none() {
                silent.push(*kind);
            }
        }
        silent.sort_unstable_by_key(|kind| kind.number());
        let mut wanted = NOTHING;
        wanted.sort_unstable_by_key(|kind| kind.number());
        assert_eq!(silent, wanted);
    }

    /// What stands in a field that is tried.
    const OWN: &str = "its-own";

    /// The one namespace, job, allocation and node of an event.
    fn singles<'a>(about: &About<'a>) -> [Option<&'a str>; 4] {
        [
            about.namespace(),
            about.job_id(),
            about.alloc_id(),
            about.node_id(),
        ]
    }

    /// Which of them a place in a payload names, by the name of the field.
    fn named(place: &str) -> Option<usize> {
        let name = place.rsplit('/').next()?;
        match name {
            "Namespace" => Some(0),
            "JobID" => Some(1),
            "AllocID" | "AllocationID" => Some(2),
            "NodeID" => Some(3),
            _ if place == "/Job/ID" => Some(1),
            _ if place == "/Node/ID" => Some(3),
            _ => None,
        }
    }

    /// Where a payload has such names.
    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields
                .iter()
                .for_each(|(name, field)| places(field, &format!("{at}/{name}"), found)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(number, item)| places(item, &format!("{at}/{number}"), found)),
            Value::String(_) if named(at).is_some() => found.push(at.to_owned()),
            _ => {}
        }
    }

    /// An event whose payload has the tried text in these places.
    fn tried(kind: EventKind, payload: &Value, places: &[&String]) -> Event {
        let mut payload = payload.clone();
        for place in places {
            *payload.pointer_mut(place).expect("it is there") = OWN.into();
        }
        let event = Event::deserialize_payload(kind, payload);
        event.unwrap_or_else(|error| panic!("{kind}: {error}"))
    }

    /// What an event is not about, though its payload names it, and why.
    const OTHERS: [(EventKind, &str, &str); 3] = [
        (
            EventKind::JobRegistered,
            "/Submission/Namespace",
            "apply writes the job's own there",
        ),
        (
            EventKind::JobRegistered,
            "/Submission/JobID",
            "apply writes the job's own there",
        ),
        (
            EventKind::PlanApplied,
            "/Evals/0/JobID",
            "a follow-up may be of another job, of which something was preempted",
        ),
    ];

    #[test]
    fn every_namespace_job_allocation_and_node_that_a_payload_names_counts() {
        let (mut counted, mut others) = (0, 0);
        for kind in EventKind::ALL {
            let body = samples::body(*kind, kind.version()).expect("every kind has a sample");
            let event = drover_migrations::decode(&body).expect("it decodes");
            let Some(envelope) = &event.envelope else {
                continue;
            };
            let payload = serde_json::to_value(Payload(&envelope.event)).expect("JSON");
            let before = singles(&About::of(&envelope.event));
            let mut found = Vec::new();
            places(&payload, "", &mut found);
            let is_other =
                |place: &str| OTHERS.iter().any(|(of, at, _)| of == kind && *at == place);
            others += found.iter().filter(|place| is_other(place)).count();
            for place in &found {
                let event = tried(*kind, &payload, &[place]);
                let mut after = singles(&About::of(&event));
                if !is_other(place) {
                    let of = named(place).expect("a name");
                    // Another one in another place is one too many.
                    let one = after[of].is_none_or(|one| one == OWN);
                    assert!(one && after[of] != before[of], "{kind} {place}: {after:?}");
                    after[of] = before[of];
                    counted += 1;
                }
                assert_eq!(after, before, "{kind} {place}");
            }
            found.retain(|place| !is_other(place));
            let mut all = before;
            for place in &found {
                all[named(place).expect("a name")] = Some(OWN);
            }
            let event = tried(*kind, &payload, &found.iter().collect::<Vec<_>>());
            assert_eq!(singles(&About::of(&event)), all, "{kind}");
        }
        assert!(counted > 60, "{counted}");
        assert_eq!(others, OTHERS.len(), "one is gone, or counts");
    }

    #[test]
    fn of_several_jobs_none_is_the_one() {
        let eval = |job: &str, id: &str| Evaluation {
            id: id.to_owned(),
            namespace: "eu".to_owned(),
            job_id: job.to_owned(),
            ..Evaluation::default()
        };
        let of = |evals: Vec<Evaluation>| -> Event {
            drover_events::eval::EvalsUpserted {
                evals,
                ..Default::default()
            }
            .into()
        };
        let (one, two) = (
            of(vec![eval("web", "e1"), eval("web", "e2")]),
            of(vec![eval("web", "e1"), eval("db", "e2")]),
        );
        let (one, two) = (About::of(&one), About::of(&two));
        assert_eq!((one.namespace(), one.job_id()), (Some("eu"), Some("web")));
        assert_eq!((two.namespace(), two.job_id()), (Some("eu"), None));
        assert_eq!(two.objects.len(), 2);
        assert_eq!(one.subject().as_deref(), Some("Evaluation/eu/e1"));
    }
}
