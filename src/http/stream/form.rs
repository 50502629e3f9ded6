//! How events are framed: Nomad's lines, server-sent events, CloudEvents.

use std::io::Write;

use serde_json::json;

use super::payload::Shown;
use super::selection::Headline;
use crate::error::Refusal;
use crate::history::record::MEDIA_TYPE;
use crate::history::record::numbers::{NAMES, Numbers};
use crate::http::answer::JSON;
use crate::http::query::parse_bool;
use crate::http::request::Request;

/// The type of server-sent events.
const SSE: &str = "text/event-stream";
/// The type of lines that are not Nomad's.
const LINES: &str = "application/x-ndjson";

/// What is sent, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether frames are server-sent events; else each is a line.
    pub(super) sse: bool,
    /// Whether the log's events are sent as CloudEvents; else the stream's in Nomad's form.
    pub(super) cloud: bool,
    /// Whether frames say how far the stream is while nothing happens.
    pub(super) checkpoints: bool,
    /// Whether the caller accepts CloudEvents by their media type.
    pub(super) by_type: bool,
    /// How integers beyond ±2^53 are written.
    pub(super) numbers: Numbers,
}

/// What callers may accept, as this server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    Sse,
    Cloud,
    Lines,
}

/// The type that a caller prefers of those there are; the first of equals. None: any will do.
fn accepted(header: &str) -> Option<Accepted> {
    let mut best: Option<(Accepted, f32)> = None;
    for part in header.split(',') {
        let mut words = part.split(';').map(str::trim);
        let what = match words.next().unwrap_or_default() {
            SSE => Accepted::Sse,
            MEDIA_TYPE => Accepted::Cloud,
            JSON | LINES => Accepted::Lines,
            _ => continue,
        };
        let weight = words.find_map(|word| word.strip_prefix("q="));
        let weight = weight.and_then(|text| text.parse().ok()).unwrap_or(1.0);
        if weight > 0.0 && best.is_none_or(|(_, before)| weight > before) {
            best = Some((what, weight));
        }
    }
    best.map(|(what, _)| what)
}

impl Form {
    /// Reads `format`, `checkpoints` and what the caller accepts.
    ///
    /// # Errors
    /// 400 that names the parameter.
    pub(super) fn read(request: &Request) -> Result<Self, Refusal> {
        let wants = accepted(request.header("accept").unwrap_or_default());
        let (wants_sse, by_type) = (wants == Some(Accepted::Sse), wants == Some(Accepted::Cloud));
        let (sse, cloud) = match request.query.text("format") {
            "" => (wants_sse, by_type),
            "ndjson" | "json" => (false, false),
            "sse" => (true, by_type),
            "cloudevents" => (wants_sse, true),
            other => {
                let text = format!("format: {other:?} is none of ndjson, sse and cloudevents");
                return Err(Refusal::bad_request(text));
            }
        };
        let checkpoints = match request.query.text("checkpoints") {
            "" => sse,
            raw => parse_bool(raw).ok_or_else(|| {
                Refusal::bad_request(format!("checkpoints: {raw:?} is neither true nor false"))
            })?,
        };
        let numbers = request.query.text("numbers");
        let numbers = Numbers::named(numbers).ok_or_else(|| {
            let names = NAMES.join(", ");
            Refusal::bad_request(format!("numbers: {numbers:?} is not one of {names}"))
        })?;
        Ok(Self {
            sse,
            cloud,
            checkpoints,
            by_type,
            numbers,
        })
    }

    pub(super) const fn content_type(self) -> &'static str {
        match (self.sse, self.cloud) {
            (true, _) => SSE,
            (false, true) if self.by_type => MEDIA_TYPE,
            (false, true) => LINES,
            (false, false) => JSON,
        }
    }

    /// What is sent at once, so that the caller sees the stream is open.
    pub(super) const fn greeting(self) -> &'static [u8] {
        match (self.sse, self.cloud) {
            (true, _) => b":\n\n",
            (false, true) => b"\n",
            (false, false) => b"{}\n",
        }
    }

    /// What the first frame begins with: when readers of server-sent events are to come back is
    /// sent together with the first event, for by itself it looks like an event without data to
    /// some.
    pub(super) const fn opening(self) -> &'static [u8] {
        if self.sse { b"retry: 1000\n" } else { b"" }
    }

    /// What is sent while nothing happens, if no checkpoints were requested.
    pub(super) const fn heartbeat(self) -> &'static [u8] {
        match (self.sse, self.cloud) {
            (true, _) => b":\n\n",
            (false, true) => b"\n",
            (false, false) => b"{}\n",
        }
    }

    /// How far the stream is: everything up to `index` was sent. It has no id of its own, so that a
    /// reader that comes back begins behind the last event it has seen, and is sent nothing twice.
    pub(super) fn checkpoint(self, at: &Checkpoint) -> Vec<u8> {
        let body = json!({
            "Index": at.index,
            "Time": at.time,
            "Lag": at.lag,
            "Epoch": hex::encode(at.epoch),
        });
        match self.sse {
            true => format!("event: checkpoint\ndata: {body}\n\n"),
            false => format!("{}\n", json!({ "Checkpoint": body })),
        }
        .into_bytes()
    }

    /// Why the stream ends; nothing where the caller would not understand it.
    pub(super) fn error(self, error: &Refusal) -> Vec<u8> {
        let body = json!({ "Code": crate::net::status(error.code), "Message": error.message });
        match (self.sse, self.cloud || self.checkpoints) {
            (true, _) => format!("event: error\ndata: {body}\n\n").into_bytes(),
            (false, true) => format!("{}\n", json!({ "Error": body })).into_bytes(),
            (false, false) => Vec::new(),
        }
    }
}

/// A place of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpoint {
    /// Everything up to here was sent.
    pub(super) index: u64,
    /// When the last event up to there happened, Unix nanoseconds.
    pub(super) time: i64,
    /// How many events this server knows beyond it.
    pub(super) lag: u64,
    /// The epoch of the log.
    pub(super) epoch: [u8; 16],
}

/// The frame of one index that is being written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IndexFrame {
    open: bool,
}

impl IndexFrame {
    /// Goes on to the next event of the index: writes what stands before it.
    pub(super) fn event(&mut self, form: Form, index: u64, out: &mut Vec<u8>) {
        if self.open {
            out.push(b',');
            return;
        }
        self.open = true;
        if form.sse {
            line(out, format_args!("id: {index}\ndata: "));
        }
        line(out, format_args!("{{\"Index\":{index},\"Events\":["));
    }

    /// Ends the frame, if it was begun.
    pub(super) fn end(&mut self, form: Form, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.open) {
            out.extend_from_slice(if form.sse { b"]}\n\n" } else { b"]}\n" });
        }
    }
}

/// Writes to a buffer, which cannot fail.
pub(super) fn line(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// Writes a text as JSON.
fn quoted(out: &mut Vec<u8>, text: &str) {
    let _ = serde_json::to_writer(out, text);
}

/// Writes one event of the stream: Nomad's fields, the payload last.
///
/// # Errors
/// When the payload has no form in JSON; what was written of the event is taken back.
pub(super) fn event(
    out: &mut Vec<u8>,
    (index, event_type): (u64, &str),
    event: &Headline<'_>,
    payload: &dyn Shown,
) -> Result<(), Refusal> {
    let start = out.len();
    head(out, (index, event_type), event);
    if let Err(error) = payload.write(out) {
        out.truncate(start);
        return Err(error);
    }
    out.push(b'}');
    Ok(())
}

/// Writes an event whose payload cannot be read, and why: it is sent all the same.
pub(super) fn unreadable(
    out: &mut Vec<u8>,
    named: (u64, &str),
    event: &Headline<'_>,
    error: &Refusal,
) {
    head(out, named, event);
    out.extend_from_slice(b"null,\"Unreadable\":");
    quoted(out, &error.message);
    out.push(b'}');
}

fn head(out: &mut Vec<u8>, (index, event_type): (u64, &str), event: &Headline<'_>) {
    let topic = event.topic;
    line(
        out,
        format_args!("{{\"Topic\":\"{topic}\",\"Type\":\"{event_type}\",\"Key\":"),
    );
    let (key, more) = match event.keys.split_first() {
        Some((key, more)) => (key.as_str(), more),
        None => ("", &[][..]),
    };
    quoted(out, key);
    out.extend_from_slice(b",\"Namespace\":");
    quoted(out, event.namespace);
    out.extend_from_slice(b",\"FilterKeys\":");
    match more {
        [] => out.extend_from_slice(b"null"),
        more => {
            for (n, key) in more.iter().enumerate() {
                out.push(if n == 0 { b'[' } else { b',' });
                quoted(out, key);
            }
            out.push(b']');
        }
    }
    line(out, format_args!(",\"Index\":{index},\"Payload\":"));
}

#[cfg(test)]
mod tests {
    use drover_events::{EventKind, Topic};
    use serde_json::Value;

    use super::*;

    const CLOUD: Form = Form {
        sse: true,
        cloud: true,
        checkpoints: true,
        by_type: false,
        numbers: Numbers::Plain,
    };

    #[test]
    fn the_type_that_is_preferred_is_taken() {
        use Accepted::{Cloud, Lines, Sse};
        for (header, wanted) in [
            ("", None),
            ("*/*", None),
            ("text/html", None),
            ("text/event-stream", Some(Sse)),
            ("application/cloudevents+json", Some(Cloud)),
            ("application/json, text/event-stream", Some(Lines)),
            ("application/json;q=0.5, text/event-stream", Some(Sse)),
            (
                "text/event-stream;q=0, application/cloudevents+json; q=0.1",
                Some(Cloud),
            ),
            ("application/x-ndjson", Some(Lines)),
        ] {
            assert_eq!(accepted(header), wanted, "{header}");
        }
    }

    #[test]
    fn a_frame_is_a_line_or_a_server_sent_event() {
        for (sse, wanted) in [
            (false, "{\"Index\":7,\"Events\":[1,2]}\n"),
            (true, "id: 7\ndata: {\"Index\":7,\"Events\":[1,2]}\n\n"),
        ] {
            let form = Form { sse, ..CLOUD };
            let (mut out, mut frame) = (Vec::new(), IndexFrame::default());
            frame.end(form, &mut out);
            for number in [b'1', b'2'] {
                frame.event(form, 7, &mut out);
                out.push(number);
            }
            frame.end(form, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }

    #[test]
    fn an_error_is_told_where_the_caller_understands_it() {
        let error = Refusal::bad_request("no");
        let body = r#"{"Code":400,"Message":"no"}"#;
        let event = format!("event: error\ndata: {body}\n\n");
        let line = format!("{{\"Error\":{body}}}\n");
        for (sse, cloud, checkpoints, wanted) in [
            (true, false, false, &*event),
            (true, true, true, &*event),
            (false, true, false, &*line),
            (false, false, true, &*line),
            (false, false, false, ""),
        ] {
            let form = Form {
                sse,
                cloud,
                checkpoints,
                ..CLOUD
            };
            let reported = String::from_utf8(form.error(&error)).unwrap();
            assert_eq!(reported, wanted, "{form:?}");
        }
    }

    #[test]
    fn an_event_names_its_key_and_what_else_it_is_found_by() {
        for (keys, key, more) in [
            (&["a"][..], "a", Value::Null),
            (&["a", "b\"", "c"][..], "a", json!(["b\"", "c"])),
            (&[][..], "", Value::Null),
        ] {
            let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            let headline = Headline {
                kind: EventKind::JobRegistered,
                topic: Topic::Job,
                namespace: "red",
                keys: &keys,
            };
            let mut out = Vec::new();
            event(&mut out, (7, "JobRegistered"), &headline, &json!(1)).unwrap();
            let reported: Value = serde_json::from_slice(&out).unwrap();
            let wanted = json!({
                "Topic": "Job", "Type": "JobRegistered", "Key": key, "Namespace": "red",
                "FilterKeys": more, "Index": 7, "Payload": 1,
            });
            assert_eq!(reported, wanted);
        }
    }

    #[test]
    fn a_checkpoint_names_index_time_lag_and_epoch() {
        let at = Checkpoint {
            index: 12,
            time: 5,
            lag: 3,
            epoch: [0xab; 16],
        };
        let text = String::from_utf8(CLOUD.checkpoint(&at)).unwrap();
        assert!(text.starts_with("event: checkpoint\ndata: {"), "{text}");
        let lines = Form {
            sse: false,
            ..CLOUD
        };
        let json: serde_json::Value = serde_json::from_slice(&lines.checkpoint(&at)).unwrap();
        let epoch = "ab".repeat(16);
        let wanted = json!({"Index": 12, "Time": 5, "Lag": 3, "Epoch": epoch});
        assert_eq!(json["Checkpoint"], wanted);
    }
}
