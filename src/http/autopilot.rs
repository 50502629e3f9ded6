//! The servers' own care: its settings and their health.

use drover_events::gojson::List;
use drover_events::model::{AutopilotConfiguration, ServerHealth};
use drover_projections::Reply;
use drover_projections::tables::autopilot_config::AutopilotConfigTable;

use super::answer::Answer;
use super::front::Read;
use super::gate::Write;
use super::ignored;
use super::list::storage;
use crate::commands::cluster::SetAutopilotConfig;
use crate::error::Refusal;
use crate::server::Server;

drover_events::wire! {
    /// The health of the servers together.
    pub(crate) struct HealthReply {
        healthy: bool = "Healthy",
        failure_tolerance: i64 = "FailureTolerance",
        servers: List<ServerHealth> = "Servers",
        leader: String = "Leader",
        voters: List<String> = "Voters",
    }
}

/// `GET /v1/operator/autopilot/configuration`: what an operator set, else what the server was
/// configured with.
pub(super) fn configuration(read: &Read<'_>) -> Result<Answer, Refusal> {
    let set = read.view.get::<AutopilotConfigTable>(()).map_err(storage)?;
    let config = set.unwrap_or_else(|| read.api.server.autopilot());
    Answer::json(&config)
}

/// `PUT /v1/operator/autopilot/configuration`: whether it was taken.
pub(super) async fn configure(write: Write) -> Result<Answer, Refusal> {
    let mut config: AutopilotConfiguration = write.json().await?;
    check(&config)?;
    write
        .request
        .query
        .ignore(without_effect(&config, &write.api.server.autopilot()));
    let cas: Option<u64> = write.request.query.number("cas")?;
    config.modify_index = cas.unwrap_or_default();
    let cas = cas.is_some();
    let done = write.submit(SetAutopilotConfig { config, cas }).await?;
    Answer::json(&!matches!(done.reply, Reply::Cas(false)))
}

/// What belongs to Nomad Enterprise is refused, as it is in a configuration.
fn check(config: &AutopilotConfiguration) -> Result<(), Refusal> {
    for (name, wanted) in [
        ("EnableRedundancyZones", config.enable_redundancy_zones),
        ("DisableUpgradeMigration", config.disable_upgrade_migration),
        ("EnableCustomUpgrades", config.enable_custom_upgrades),
    ] {
        if wanted {
            let text = format!(
                "{name} is not supported by this version of drover: it belongs to an edition that \
                 drover is not; set it to false"
            );
            return Err(Refusal::bad_request(text));
        }
    }
    Ok(())
}

/// What is kept and has no effect: there is one server, which nothing is to be done about.
fn without_effect(
    config: &AutopilotConfiguration,
    own: &AutopilotConfiguration,
) -> impl Iterator<Item = String> {
    let changed = [
        (
            "LastContactThreshold",
            config.last_contact_threshold != own.last_contact_threshold,
        ),
        (
            "ServerStabilizationTime",
            config.server_stabilization_time != own.server_stabilization_time,
        ),
        (
            "CleanupDeadServers",
            config.cleanup_dead_servers != own.cleanup_dead_servers,
        ),
        (
            "MaxTrailingLogs",
            config.max_trailing_logs != own.max_trailing_logs,
        ),
        ("MinQuorum", config.min_quorum != own.min_quorum),
    ];
    let changed = changed.into_iter().filter(|(_, changed)| *changed);
    changed.map(|(name, _)| ignored::field(name))
}

/// `GET /v1/operator/autopilot/health`: 429 while something is wrong.
pub(super) fn health(read: &Read<'_>) -> Result<Answer, Refusal> {
    let agent = &read.api.server;
    let servers = agent.servers_health();
    let voters: Vec<String> = servers
        .iter()
        .filter(|server| server.voter)
        .map(|server| server.id.clone())
        .collect();
    let (healthy, tolerance) = Server::well(&servers);
    let leader = servers.iter().find(|server| server.leader);
    let answer = HealthReply {
        healthy,
        failure_tolerance: i64::try_from(tolerance).unwrap_or(i64::MAX),
        leader: leader.map(|server| server.id.clone()).unwrap_or_default(),
        voters: voters.into(),
        servers: servers.into(),
    };
    let status = if answer.healthy { 200 } else { 429 };
    Ok(Answer::json(&answer)?.status(status))
}
