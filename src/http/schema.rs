//! JSON Schemas of the events. Not Nomad's.

use drover_events::EventKind;

use super::answer::Answer;
use super::front::Read;
use crate::error::Refusal;
use crate::history::record::numbers::{NAMES, Numbers};
use crate::history::record::schema;

/// `GET /v1/schema/events`: all kinds, their versions, and where the schema of each is.
pub(super) fn index(_: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&schema::index())
}

/// `GET /v1/schema/events/:kind[?version=N][&numbers=strings]`: the schema of a kind's document as
/// it is written today, or of the payload that an older version has in the log.
pub(super) fn kind(read: &Read<'_>) -> Result<Answer, Refusal> {
    let name = read.request.segment(3)?;
    let kind = EventKind::from_name(&name)
        .ok_or_else(|| Refusal::not_found(format!("{name:?} is no kind of event")))?;
    let version = read.request.query.number("version")?;
    let schema = match version.filter(|version| *version != kind.version()) {
        None => schema::document(kind),
        Some(version) => schema::former(kind, version).ok_or_else(|| {
            let newest = kind.version();
            Refusal::bad_request(format!(
                "version: {kind} never had version {version}, its newest is {newest}"
            ))
        })?,
    };
    numbered(read, schema)
}

/// `GET /v1/schema/stream`: the schema of a line of the event stream in its default form.
pub(super) fn stream(read: &Read<'_>) -> Result<Answer, Refusal> {
    numbered(read, super::stream::schema::line())
}

/// The schema as it is with `numbers` as the caller reads them.
fn numbered(read: &Read<'_>, schema: serde_json::Value) -> Result<Answer, Refusal> {
    let name = read.request.query.text("numbers");
    match Numbers::named(name) {
        Some(Numbers::Plain) => Answer::json(&schema),
        Some(Numbers::Strings) => Answer::json(&schema::with_strings(schema)),
        None => {
            let names = NAMES.join(", ");
            let text = format!("numbers: {name:?} is not one of {names}");
            Err(Refusal::bad_request(text))
        }
    }
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
