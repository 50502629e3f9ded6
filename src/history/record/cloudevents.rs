//! The same document as a CloudEvent 1.0 in JSON: attributes that brokers and routers know, with
//! the [`Document`] as its data.
//!
//! `source` names the log (its epoch) and `id` the index in it (`index.part` of an event that is
//! split into pieces): together they are unique for ever, and the same event has them wherever it
//! is sent from. `subject` is the main object, `dataschema` where its schema is served,
//! `traceparent` that of the request; `namespace`, `actor`, `cause` and `outcome` are extensions.

use drover_events::{Actor, EventKind};
use serde::Serialize;

use super::about::About;
use super::{Document, schema};

/// The type of a CloudEvent in JSON.
pub const MEDIA_TYPE: &str = "application/cloudevents+json";
/// The version of the specification.
const SPEC: &str = "1.0";
/// What a type begins with; the kind's name follows.
const TYPE: &str = "io.drover.";

/// A document as a CloudEvent.
#[derive(Clone, Debug, Serialize)]
pub struct CloudEvent<'a> {
    #[serde(flatten)]
    attributes: Attributes<'a>,
    data: Document<'a>,
}

/// What a CloudEvent has beside its data.
#[derive(Clone, Debug, Serialize)]
pub struct Attributes<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// The index again, in the form of the extension for sequences: it sorts as text.
    sequence: String,
    datacontenttype: &'static str,
    dataschema: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// Those of a document of the log with this epoch; `base` is the address of an agent, where
    /// schemas are served.
    pub fn of(data: &Document<'a>, epoch: [u8; 16], base: &str) -> Self {
        let about = data
            .payload
            .map(|payload| About::of(payload.0))
            .unwrap_or_default();
        let time = jiff::Timestamp::from_nanosecond(data.time.into()).ok();
        let path = EventKind::from_name(data.kind).map(schema::route);
        Self {
            specversion: SPEC,
            id: match data.part {
                Some(part) => format!("{}.{}", data.index, part.number),
                None => data.index.to_string(),
            },
            source: format!("drover/{}", hex::encode(epoch)),
            kind: format!("{TYPE}{}", data.kind),
            subject: match data.part {
                Some(part) => Some(format!("{}/{}", part.topic, part.key)),
                None => about.subject(),
            },
            time: time.filter(|_| data.time != 0).map(|time| time.to_string()),
            sequence: format!("{:020}", data.index),
            datacontenttype: "application/json",
            dataschema: format!(
                "{}{}?version={}",
                base.trim_end_matches('/'),
                path.unwrap_or_default(),
                data.version
            ),
            namespace: about.namespace(),
            actor: data.actor.map(called),
            cause: data.cause.map(|cause| cause.to_string()),
            outcome: data.outcome,
            traceparent: data.trace,
        }
    }

    /// The attributes by name, as the binary binding of Kafka has them in headers.
    pub fn each(&self, mut take: impl FnMut(&'static str, &str)) {
        for (name, value) in [
            ("ce_specversion", self.specversion),
            ("ce_id", &self.id),
            ("ce_source", &self.source),
            ("ce_type", &self.kind),
            ("ce_sequence", &self.sequence),
            ("ce_dataschema", &self.dataschema),
        ] {
            take(name, value);
        }
        for (name, value) in [
            ("ce_subject", self.subject.as_deref()),
            ("ce_time", self.time.as_deref()),
            ("ce_namespace", self.namespace),
            ("ce_actor", self.actor.as_deref()),
            ("ce_cause", self.cause.as_deref()),
            ("ce_outcome", self.outcome),
            ("ce_traceparent", self.traceparent),
        ] {
            if let Some(value) = value {
                take(name, value);
            }
        }
    }
}

/// An actor as filters call it: its kind, and its id where it has one.
fn called(actor: &Actor) -> String {
    match actor.id.as_str() {
        "" => actor.kind.name().to_owned(),
        id => format!("{}:{id}", actor.kind.name()),
    }
}

impl<'a> CloudEvent<'a> {
    /// The document of an event in the log with this epoch; `base` is the address of an agent.
    pub fn of(data: Document<'a>, epoch: [u8; 16], base: &str) -> Self {
        Self {
            attributes: Attributes::of(&data, epoch, base),
            data,
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_events::EventKind;
    use drover_golden::samples;
    use serde_json::Value;

    use super::*;

    const BASE: &str = "http://10.0.0.7:4646";

    #[test]
    fn an_event_has_the_attributes_of_the_specification() {
        let mut timed = 0;
        for kind in EventKind::ALL {
            let Some(body) = samples::body(*kind, kind.version()) else {
                continue;
            };
            let event = drover_migrations::decode(&body).unwrap();
            let document = Document::of(&event);
            let text = serde_json::to_string(&CloudEvent::of(document, [0xab; 16], BASE)).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["specversion"], "1.0");
            assert_eq!(json["source"], format!("drover/{}", "ab".repeat(16)));
            assert_eq!(json["id"], event.index.to_string());
            assert_eq!(json["type"], format!("io.drover.{kind}"));
            assert_eq!(json["data"]["Index"], event.index);
            let version = kind.version();
            let schema = format!("{BASE}/v1/schema/events/{kind}?version={version}");
            assert_eq!(json["dataschema"], schema);
            let attributes = json
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| *name != "data");
            for (name, value) in attributes {
                let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
                assert!(name.len() <= 20 && name.bytes().all(plain), "{name}");
                assert!(
                    value.as_str().is_some_and(|text| !text.is_empty()),
                    "{kind} {name}"
                );
            }
            match event.time {
                0 => assert!(json.get("time").is_none(), "{kind}"),
                time => {
                    let shown: jiff::Timestamp = json["time"].as_str().unwrap().parse().unwrap();
                    assert_eq!(shown.as_nanosecond(), i128::from(time));
                    timed += 1;
                }
            }
        }
        assert!(timed > 10);
    }

    #[test]
    fn routers_are_told_of_whom_where_by_whom_and_why() {
        let kind = EventKind::JobRegistered;
        let body = samples::body(kind, kind.version()).unwrap();
        let mut event = drover_migrations::decode(&body).unwrap();
        let envelope = event.envelope.as_mut().unwrap();
        envelope.actor = Actor::node("4711", "::1");
        envelope.cause = Some(41);
        envelope.trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
        let mut job = drover_events::model::Job::default();
        (job.namespace, job.id) = ("eu".to_owned(), "web".to_owned());
        let registered = drover_events::job::JobRegistered {
            job: job.into(),
            ..Default::default()
        };
        envelope.event = registered.into();
        let document = Document::of(&event);
        let json = serde_json::to_value(CloudEvent::of(document, [0; 16], BASE)).unwrap();
        for (name, wanted) in [
            ("subject", "Job/eu/web"),
            ("namespace", "eu"),
            ("actor", "node:4711"),
            ("cause", "41"),
            ("traceparent", document.trace.unwrap()),
        ] {
            assert_eq!(json[name], wanted, "{name}");
        }
        let mut headers = std::collections::BTreeMap::new();
        let attributes = Attributes::of(&document, [0; 16], BASE);
        attributes.each(|name, value| {
            headers.insert(name, value.to_owned());
        });
        for (name, value) in json.as_object().unwrap() {
            let header = headers.get(format!("ce_{name}").as_str());
            // The content type has a header of its own, whatever is bound.
            if name != "data" && name != "datacontenttype" {
                assert_eq!(header.map(String::as_str), value.as_str(), "{name}");
            }
        }
    }
}
