//! The same document as a CloudEvent 1.0 in JSON: attributes that brokers and routers know, with
//! the [`Document`] as its data.
//!
//! `source` names the log (its epoch) and `id` the index in it: together they are unique for ever,
//! and the same event has them wherever it is sent from.

use drover_projections::hex;
use serde::{Serialize, Serializer};

use super::Document;

/// The version of the specification.
const SPEC: &str = "1.0";
/// What a type begins with; the kind's name follows.
const TYPE: &str = "io.drover.";

/// A document as a CloudEvent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CloudEvent<'a> {
    specversion: &'static str,
    #[serde(serialize_with = "text")]
    id: u64,
    #[serde(serialize_with = "source")]
    source: [u8; 16],
    #[serde(rename = "type", serialize_with = "kind")]
    kind: &'static str,
    #[serde(serialize_with = "time", skip_serializing_if = "is_none")]
    time: i64,
    /// The index again, in the form of the extension for sequences: it sorts as text.
    #[serde(serialize_with = "sequence")]
    sequence: u64,
    datacontenttype: &'static str,
    data: Document<'a>,
}

impl<'a> CloudEvent<'a> {
    /// The document of an event in the log with this epoch.
    pub fn of(data: Document<'a>, epoch: [u8; 16]) -> Self {
        Self {
            specversion: SPEC,
            id: data.index,
            source: epoch,
            kind: data.kind,
            time: data.time,
            sequence: data.index,
            datacontenttype: "application/json",
            data,
        }
    }
}

// serde gives these by reference.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
fn is_none(time: &i64) -> bool {
    *time == 0
}

fn text<S: Serializer>(index: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(index)
}

fn sequence<S: Serializer>(index: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{index:020}"))
}

fn source<S: Serializer>(epoch: &[u8; 16], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("drover/{}", hex(epoch)))
}

fn kind<S: Serializer>(name: &&'static str, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{TYPE}{name}"))
}

fn time<S: Serializer>(nanos: &i64, to: S) -> Result<S::Ok, S::Error> {
    let time = jiff::Timestamp::from_nanosecond((*nanos).into()).unwrap_or_default();
    to.collect_str(&time)
}

#[cfg(test)]
mod tests {
    use drover_events::EventKind;
    use drover_migrations::golden::samples;
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_event_has_the_attributes_of_the_specification() {
        let mut timed = 0;
        for kind in EventKind::ALL {
            let Some(body) = samples::body(*kind, kind.version()) else {
                continue;
            };
            let event = drover_migrations::decode(&body).unwrap();
            let document = Document::of(&event);
            let text = serde_json::to_string(&CloudEvent::of(document, [0xab; 16])).unwrap();
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["specversion"], "1.0");
            assert_eq!(json["source"], format!("drover/{}", "ab".repeat(16)));
            assert_eq!(json["id"], event.index.to_string());
            assert_eq!(json["type"], format!("io.drover.{kind}"));
            assert_eq!(json["data"]["Index"], event.index);
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
}
