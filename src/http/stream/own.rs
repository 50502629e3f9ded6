//! Events that Nomad is silent about: the log's event itself is the payload, without secrets.

use drover_events::mask::{Hidden, NoSecrets};
use drover_events::{Event, EventKind, Recorded, Topic};
use serde::{Serialize, Serializer};

use crate::history::record::Payload;

/// The payload of such an event.
pub(super) struct OwnPayload(Recorded);

impl Serialize for OwnPayload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0.envelope {
            Some(envelope) => Hidden::new(&Payload(&envelope.event), &NoSecrets).serialize(to),
            None => to.serialize_unit(),
        }
    }
}

/// Topic, namespace, keys and payload of an event that Nomad is silent about; none for others.
pub(super) fn of(event: Recorded) -> Option<(EventKind, Topic, String, Vec<String>, OwnPayload)> {
    let (kind, topic) = (event.kind, event.kind.own_topic()?);
    let (namespace, keys) = match &event.envelope {
        Some(envelope) => place(&envelope.event),
        None => Default::default(),
    };
    let keys = if keys.is_empty() {
        vec![String::new()]
    } else {
        keys
    };
    Some((kind, topic, namespace, keys, OwnPayload(event)))
}

/// The namespace, the key and the filter keys.
fn place(event: &Event) -> (String, Vec<String>) {
    let of_job = |namespace: &String, job: &String| (namespace.clone(), vec![job.clone()]);
    let global = |keys: Vec<String>| (String::new(), keys);
    match event {
        Event::LeaderElected(event) => global(vec![event.server_id.clone(), event.name.clone()]),
        Event::ClusterIdSet(event) => global(vec![event.cluster_id.clone()]),
        Event::ClusterRestored(event) => global(vec![event.epoch.clone()]),
        Event::SchedulerConfigured(_) => global(vec!["scheduler".to_owned()]),
        Event::AutopilotConfigured(_) => global(vec!["autopilot".to_owned()]),
        Event::NamespacesUpserted(event) => {
            let names = event.namespaces.iter().map(|space| space.name.clone());
            global(names.collect())
        }
        Event::NamespacesDeleted(event) => global(event.names.clone()),
        Event::JobStabilityUpdated(event) => of_job(&event.namespace, &event.job_id),
        Event::JobVersionTagged(event) => of_job(&event.namespace, &event.job_id),
        Event::PeriodicJobLaunched(event) => of_job(&event.namespace, &event.job_id),
        Event::ScalingEventRecorded(event) => of_job(&event.namespace, &event.job_id),
        Event::EvalsDeleted(event) => {
            let ids = event.eval_ids.iter().chain(&event.alloc_ids);
            global(ids.cloned().collect())
        }
        Event::DeploymentsDeleted(event) => global(event.ids.clone()),
        Event::CsiPluginDeleted(event) => global(vec![event.id.clone()]),
        Event::RootKeyUpserted(event) => global(vec![event.key.key_id.clone()]),
        Event::RootKeyDeleted(event) => global(vec![event.key_id.clone()]),
        Event::AclBootstrapped(event) => global(vec![event.token.token.accessor_id.clone()]),
        Event::OneTimeTokensUpserted(event) => global(vec![event.token.accessor_id.clone()]),
        Event::OneTimeTokensDeleted(event) => global(event.accessor_ids.clone()),
        Event::PublisherLagged(event) => global(vec![event.publisher.clone()]),
        Event::PublisherCaughtUp(event) => global(vec![event.publisher.clone()]),
        Event::HostVolumeClaimReleased(event) => global(vec![event.claim_id.clone()]),
        _ => global(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_golden::samples;

    #[test]
    fn ev_02_every_silent_kind_has_an_event_of_its_own() {
        let mut reported = 0;
        for kind in EventKind::ALL {
            let Some(body) = samples::body(*kind, kind.version()) else {
                continue;
            };
            let event = drover_migrations::decode(&body).unwrap();
            let own = of(event);
            assert_eq!(own.is_some(), kind.own_topic().is_some(), "{kind}");
            let Some((_, _, _, keys, payload)) = own else {
                continue;
            };
            assert!(!keys.is_empty(), "{kind}");
            let json = serde_json::to_value(&payload).unwrap();
            assert_eq!(json.is_null(), kind.is_raft_own(), "{kind}");
            for secret in ["/Token/Secret/Hash", "/Secret/Hash", "/Secret/Ciphertext"] {
                let found = json.pointer(secret).and_then(|text| text.as_str());
                assert!(found.is_none_or(str::is_empty), "{kind} {secret}");
            }
            reported += 1;
        }
        assert_eq!(reported, 28);
    }

    #[test]
    fn ev_02_an_event_of_its_own_is_found_by_what_it_is_about() {
        use drover_events::cluster::{ClusterIdSet, PublisherLagged};
        use drover_events::csi::CsiPluginDeleted;
        use drover_events::job::{JobStabilityUpdated, JobVersionTagged};
        let of_job = ("ns", "job");
        let events: [(Event, (&str, &str)); 5] = [
            (
                JobStabilityUpdated {
                    namespace: "ns".into(),
                    job_id: "job".into(),
                    ..JobStabilityUpdated::default()
                }
                .into(),
                of_job,
            ),
            (
                JobVersionTagged {
                    namespace: "ns".into(),
                    job_id: "job".into(),
                    ..JobVersionTagged::default()
                }
                .into(),
                of_job,
            ),
            (
                ClusterIdSet {
                    cluster_id: "c".into(),
                    ..ClusterIdSet::default()
                }
                .into(),
                ("", "c"),
            ),
            (CsiPluginDeleted { id: "p".into() }.into(), ("", "p")),
            (
                PublisherLagged {
                    publisher: "kafka".into(),
                    ..PublisherLagged::default()
                }
                .into(),
                ("", "kafka"),
            ),
        ];
        for (event, (namespace, key)) in events {
            let (found, keys) = place(&event);
            assert_eq!((found.as_str(), keys), (namespace, vec![key.to_owned()]));
        }
    }

    #[test]
    fn no_event_of_our_own_shows_a_secret() {
        for event in crate::history::record::canary::events() {
            let kind = event.kind;
            let Some((.., payload)) = of(event) else {
                continue;
            };
            let text = serde_json::to_string(&payload).unwrap();
            let shown = text.contains(crate::history::record::canary::SECRET);
            assert!(!shown, "{kind}: {text}");
        }
    }
}
