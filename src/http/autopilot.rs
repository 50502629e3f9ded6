//! The servers' own care: its settings and their health.

use drover_events::gojson::List;
use drover_events::model::{AutopilotConfiguration, ServerHealth};
use drover_projections::Reply;
use drover_projections::tables::autopilot_config::AutopilotConfig;

use super::answer::Answer;
use super::front::{Read, Write};
use super::list::storage;
use crate::commands::cluster::SetAutopilotConfig;
use crate::error::ApiError;

drover_events::wire! {
    /// The health of the servers together.
    struct HealthReply {
        healthy: bool = "Healthy",
        failure_tolerance: i64 = "FailureTolerance",
        servers: List<ServerHealth> = "Servers",
        leader: String = "Leader",
        voters: List<String> = "Voters",
    }
}

/// `GET /v1/operator/autopilot/configuration`: what an operator set, else what the server was
/// configured with.
pub(super) fn configuration(read: &Read<'_>) -> Result<Answer, ApiError> {
    let set = read.view.get::<AutopilotConfig>(()).map_err(storage)?;
    let config = set.unwrap_or_else(|| read.api.agent.autopilot());
    Answer::json(&config)
}

/// `PUT /v1/operator/autopilot/configuration`: whether it was taken.
pub(super) async fn configure(write: Write) -> Result<Answer, ApiError> {
    let mut config: AutopilotConfiguration = write.json().await?;
    let cas: Option<u64> = write.request.query.number("cas")?;
    config.modify_index = cas.unwrap_or_default();
    let cas = cas.is_some();
    let done = write.submit(SetAutopilotConfig { config, cas }).await?;
    Answer::json(&!matches!(done.reply, Reply::Cas(false)))
}

/// `GET /v1/operator/autopilot/health`: 429 while something is wrong.
pub(super) fn health(read: &Read<'_>) -> Result<Answer, ApiError> {
    let agent = &read.api.agent;
    let servers = agent.servers_health();
    let voters: Vec<String> = servers
        .iter()
        .filter(|server| server.voter)
        .map(|server| server.id.clone())
        .collect();
    let sound = servers.iter().filter(|s| s.voter && s.healthy).count();
    let majority = voters.len() / 2 + 1;
    let leader = servers.iter().find(|server| server.leader);
    let answer = HealthReply {
        healthy: leader.is_some() && servers.iter().all(|server| server.healthy),
        failure_tolerance: i64::try_from(sound.saturating_sub(majority)).unwrap_or(i64::MAX),
        leader: leader.map(|server| server.id.clone()).unwrap_or_default(),
        voters: voters.into(),
        servers: servers.into(),
    };
    let status = if answer.healthy { 200 } else { 429 };
    Ok(Answer::json(&answer)?.status(status))
}
