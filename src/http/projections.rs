//! The tables of the agent that is called: what they hold, compared with the log, built again
//! beside those in use. None of it is Nomad's.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::front::Read;
use super::gate::Write;
use crate::error::{Code, Refusal, chain};
use crate::history::rebuild::{OnlineSettings, RebuildError};
use crate::server::Server;
use crate::table_reads::offload;

/// MiB that a rebuild may hold in memory at most.
const MEMORY_MOST: usize = 1024;

fn failed(error: RebuildError) -> Refusal {
    let text = chain(&error);
    match error.is_out_of_space() {
        true => Refusal::new(Code::Unavailable, text),
        false => Refusal::internal(text),
    }
}

/// The bounds of a rebuild or a comparison.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
struct RebuildRequest {
    /// Entries a second at most; 0: as fast as it can without being in the way.
    rate: u64,
    /// MiB held in memory.
    memory: Option<usize>,
    /// Whether the old tables go away after the switch.
    discard_old: bool,
    /// Whether it switches even to something else than what is in use, or was signed.
    force: bool,
}

async fn settings(write: &Write) -> Result<OnlineSettings, Refusal> {
    let requests: RebuildRequest = write.json_or_default().await?;
    let defaults = OnlineSettings::default();
    let memory = match requests.memory {
        None => defaults.memory,
        Some(mib) if (1..=MEMORY_MOST).contains(&mib) => mib << 20,
        Some(mib) => {
            let text = format!("Memory {mib}: between 1 and {MEMORY_MOST} MiB are possible");
            return Err(Refusal::bad_request(text));
        }
    };
    Ok(OnlineSettings {
        memory,
        rate: Some(requests.rate).filter(|rate| *rate > 0),
        discard_old: requests.discard_old,
        force: requests.force,
        ..defaults
    })
}

fn begun(server: &Server, begun: std::io::Result<bool>) -> Result<Answer, Refusal> {
    match begun {
        Ok(true) => Answer::json(&server.rebuild_status()),
        Ok(false) => Err(Refusal::new(
            Code::Conflict,
            "the tables are being rebuilt or verified already",
        )),
        Err(error) => Err(Refusal::internal(format!(
            "no thread can be started: {error}"
        ))),
    }
}

/// `GET /v1/operator/projections`: rows, bytes, index and digest of every table.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let server = &read.api.server;
    Answer::json(&offload(|| server.tables()).map_err(failed)?)
}

/// `GET /v1/operator/projections/{rebuild,verify}`: how far what was begun is, or was.
pub(super) fn status(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.rebuild_status())
}

/// `PUT /v1/operator/projections/rebuild`: builds the tables again and switches.
pub(super) async fn rebuild(write: Write) -> Result<Answer, Refusal> {
    let (server, settings) = (&write.api.server, settings(&write).await?);
    begun(server, server.begin_rebuild(settings))
}

/// `PUT /v1/operator/projections/verify`: compares the tables with the log.
pub(super) async fn verify(write: Write) -> Result<Answer, Refusal> {
    let (server, settings) = (&write.api.server, settings(&write).await?);
    begun(server, server.begin_check(settings))
}

/// `DELETE /v1/operator/projections/{rebuild,verify}`: stops what was begun.
pub(super) async fn cancel(write: Write) -> Result<Answer, Refusal> {
    let server = &write.api.server;
    server.cancel_rebuild();
    Answer::json(&server.rebuild_status())
}

/// How many databases were removed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Discarded {
    pub(crate) removed: usize,
}

/// `DELETE /v1/operator/projections/kept`: removes the retired databases.
pub(super) async fn discard(write: Write) -> Result<Answer, Refusal> {
    let server = &write.api.server;
    let removed = offload(|| server.discard_tables()).map_err(failed)?;
    Answer::json(&Discarded { removed })
}
