//! What operators look after: Raft, the scheduler's settings, keys, digests, reactors.

use drover_events::model::SchedulerConfiguration;
use drover_projections::tables::root_keys::RootKeys;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{Reply, Scan};
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::front::Read;
use super::gate::Write;
use super::list::storage;
use super::pieces::Pieces;
use crate::commands::cluster::SetSchedulerConfig;
use crate::error::Refusal;
use crate::server::Agreed;

/// `GET /v1/operator/raft/configuration`.
pub(super) fn raft_configuration(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.raft_configuration())
}

drover_events::wire! {
    /// The scheduler's settings.
    pub(crate) struct SchedulerConfigurationResponse {
        scheduler_config: Option<SchedulerConfiguration> = "SchedulerConfig",
        index: u64 = "Index",
        last_contact: i64 = "LastContact",
        known_leader: bool = "KnownLeader",
        next_token: String = "NextToken",
    }
}

/// `GET /v1/operator/scheduler/configuration`.
pub(super) fn scheduler_configuration(read: &Read<'_>) -> Result<Answer, Refusal> {
    let config = read.view.get::<SchedulerConfigTable>(()).map_err(storage)?;
    let index = config.as_ref().map_or(0, |c| c.modify_index);
    let answer = SchedulerConfigurationResponse {
        scheduler_config: config,
        index,
        known_leader: read.api.server.leader_address().is_some(),
        ..SchedulerConfigurationResponse::default()
    };
    Ok(Answer::json(&answer)?.at(index))
}

drover_events::wire! {
    /// Whether the settings were taken.
    pub(crate) struct SchedulerSetResponse {
        updated: bool = "Updated",
        index: u64 = "Index",
    }
}

/// `PUT /v1/operator/scheduler/configuration`.
pub(super) async fn configure_scheduler(write: Write) -> Result<Answer, Refusal> {
    let mut config: SchedulerConfiguration = write.json().await?;
    let cas: Option<u64> = write.request.query.number("cas")?;
    config.modify_index = cas.unwrap_or_default();
    let command = SetSchedulerConfig {
        config,
        cas: cas.is_some(),
        initial: false,
    };
    let done = write.submit(command).await?;
    let updated = !matches!(done.reply, Reply::Cas(false));
    let answer = SchedulerSetResponse {
        updated,
        index: done.index,
    };
    Ok(Answer::json(&answer)?.written(done.index))
}

/// `GET /v1/operator/keyring/keys`.
pub(super) fn keys(read: &Read<'_>) -> Result<Answer, Refusal> {
    let mut pieces = Pieces::default();
    for key in read.view.rows::<RootKeys>(Scan::all()).of_route() {
        pieces.push(&key.map_err(storage)?.meta)?;
    }
    Ok(Answer::pieces(pieces.finish()).at(read.view.table_index::<RootKeys>()))
}

/// The digests of the tables, as of an index.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct DigestsResponse {
    /// The index that is applied.
    pub(crate) index: u64,
    /// Whether they are what the cluster recorded.
    pub(crate) recorded: Agreed,
    pub(crate) tables: Vec<HeldDigest>,
}

/// The digest of a table.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct HeldDigest {
    /// Over its rows, in hexadecimal digits.
    pub(crate) digest: String,
    /// The index of its last change.
    pub(crate) index: u64,
    pub(crate) name: String,
    /// The constant `Table::ID`.
    pub(crate) table: u16,
}

/// `GET /v1/operator/digests`: index and digest per table, from one view.
pub(super) fn digests(read: &Read<'_>) -> Result<Answer, Refusal> {
    let digests = match read.view.is_past() {
        false => read.view.unfiltered().digests(),
        true => read
            .view
            .unfiltered()
            .digests_at(read.view.index())
            .map_err(storage)?
            .ok_or_else(|| {
                let every = drover_projections::DIGEST_EVERY;
                let text = format!("digests of the past are kept at every {every}th index");
                Refusal::bad_request(text)
            })?,
    };
    let tables = digests.into_iter().map(|table| HeldDigest {
        digest: table.digest.to_hex(),
        index: read.view.last_changed_at(table.table),
        name: table.name.to_owned(),
        table: table.table,
    });
    let index = read.view.index();
    let answer = DigestsResponse {
        index,
        recorded: read.api.server.agreed(),
        tables: tables.collect(),
    };
    Ok(Answer::json(&answer)?.at(index))
}

/// `GET /v1/operator/reactors`.
pub(super) fn reactors(read: &Read<'_>) -> Result<Answer, Refusal> {
    Answer::json(&read.api.server.reactors())
}

/// `GET /.well-known/jwks.json`: the public halves, kept also for keys that are gone.
pub(super) fn jwks(read: &Read<'_>) -> Result<Answer, Refusal> {
    // A program that checks a signature needs them: every caller sees them.
    let keys = read.view.rows::<RootKeys>(Scan::all());
    let keys = keys.seen_by(|_, _| true).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(storage)?;
    let halves = keys
        .iter()
        .map(|k| (k.meta.key_id.as_str(), &*k.public_key));
    let answer = Answer::json(&crate::keyring::Jwks::new(halves))?;
    Ok(answer.header("cache-control", "max-age=3600"))
}
