//! What users request of a client directly: files, logs, figures, commands, restarts and signals of
//! its allocations (MOD-23). Functions only; routes, query parameters and permissions are the
//! front's.

pub mod alloc;
pub mod exec;
pub mod fs;
pub mod host;
pub mod logs;
mod shape;

use std::sync::Arc;

use serde::Serialize;

use super::agent::Client;
use super::alloc_runner::{AllocControl, AllocRunner, ControlError};
use drover_error::{Code, Refusal};

/// A piece of a followed file; an empty one says that the stream is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FileFrame {
    /// Where in the file the data ends.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The bytes, base64 in JSON.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "base64")]
    pub data: Vec<u8>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// `file truncated` or `file deleted`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file_event: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn base64<S: serde::Serializer>(data: &[u8], out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&drover_events::gojson::Base64::encode(data))
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// This far from the start.
    #[default]
    Start,
    /// This far before the end.
    End,
}

impl Origin {
    /// Reads `start`, `end`, or nothing for the start.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "" | "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            _ => Err(Refusal::bad_request("origin must be start or end")),
        }
    }
}

/// The runner of an allocation that is here.
///
/// # Errors
/// 404 with Nomad's text.
pub fn runner(client: &Client, alloc: &str) -> Result<Arc<dyn AllocRunner>, Refusal> {
    client
        .runner(alloc)
        .ok_or_else(|| Refusal::not_found(format!("Unknown allocation {alloc:?}")))
}

fn control(runner: &Arc<dyn AllocRunner>) -> Result<&dyn AllocControl, Refusal> {
    runner.control().ok_or_else(|| {
        Refusal::new(
            Code::NotImplemented,
            "this allocation is simulated: it has no files",
        )
    })
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let code = match &error {
            ControlError::UnknownTask(_) => Code::BadRequest,
            ControlError::NotRunning | ControlError::Refused(_) => Code::Refused,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of a file or a log, byte by byte as Nomad's clients read it.
    #[test]
    fn mod_18_pieces_of_a_stream_are_written_as_nomad_does() {
        let json = |frame: &FileFrame| serde_json::to_string(frame).unwrap();
        assert_eq!(
            json(&FileFrame::default()),
            "{}",
            "one that says it is alive"
        );
        let piece = FileFrame {
            offset: 5,
            data: b"h\xffllo".to_vec(),
            file: "web.stdout.0".to_owned(),
            ..FileFrame::default()
        };
        assert_eq!(
            json(&piece),
            r#"{"Offset":5,"Data":"aP9sbG8=","File":"web.stdout.0"}"#
        );
        let event = FileFrame {
            file: "f".to_owned(),
            file_event: "file deleted".to_owned(),
            ..FileFrame::default()
        };
        assert_eq!(json(&event), r#"{"File":"f","FileEvent":"file deleted"}"#);
        assert_eq!(Origin::parse("").unwrap(), Origin::Start);
        assert_eq!(Origin::parse("end").unwrap(), Origin::End);
        assert!(Origin::parse("middle").is_err());
    }
}
