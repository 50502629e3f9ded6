//! JSON Schemas of the events. Not Nomad's.

use drover_events::EventKind;

use super::answer::Answer;
use super::front::Read;
use crate::error::ApiError;
use crate::record::schema;

/// `GET /v1/schema/events`: all kinds, their versions, and where the schema of each is.
pub(super) fn index(_: &Read<'_>) -> Result<Answer, ApiError> {
    Answer::json(&schema::index())
}

/// `GET /v1/schema/events/:kind[?version=N]`: the schema of a kind's document as it is written
/// today, or of the payload that an older version has in the log.
pub(super) fn kind(read: &Read<'_>) -> Result<Answer, ApiError> {
    let name = read.request.segment(3)?;
    let kind = EventKind::from_name(&name)
        .ok_or_else(|| ApiError::not_found(format!("{name:?} is no kind of event")))?;
    let version = read.request.query.number("version")?;
    let schema = match version.filter(|version| *version != kind.version()) {
        None => schema::document(kind),
        Some(version) => schema::former(kind, version).ok_or_else(|| {
            let newest = kind.version();
            ApiError::bad_request(format!(
                "version: {kind} never had version {version}, its newest is {newest}"
            ))
        })?,
    };
    Answer::json(&schema)
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod tests;
