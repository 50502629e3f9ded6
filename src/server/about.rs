//! What a server says about itself: leader, peers, members, health, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::{DurationText, GoTime};
use drover_events::model::{AutopilotConfiguration, RaftServer, ServerHealth};
use serde_json::{Value, json};

use super::Server;
use super::member_shapes::{
    AgentDescription, AgentStats, CertificateStats, ClientStats, RaftConfigurationResponse,
    ServerMember, ServerMembersResponse,
};
use crate::base::version::{NOMAD_VERSION, VERSION};
use crate::config::Config;
use crate::gate::Owed;
use crate::log::LogEngine;
use crate::net::tls::Expiry;
use crate::raft::Leadership;
use crate::rpc::leader_locator::{LeaderLocation, LeaderLocator};

/// Raft's protocol version as Nomad counts it.
const RAFT_PROTOCOL: &str = "3";

/// A configuration as `/v1/agent/self` shows it: with the version of what runs with it.
pub fn described(config: &Config) -> Value {
    let mut all = config.describe();
    all["Version"] = json!({
        "BuildDate": null,
        "Revision": "",
        "Version": NOMAD_VERSION,
        "VersionMetadata": "",
        "VersionPrerelease": "",
    });
    all
}

impl Server {
    /// How long this server has run.
    pub fn uptime(&self) -> std::time::Duration {
        self.started.elapsed()
    }

    /// The member entry of one server, as the gossip pool would show it.
    fn member(&self, member: &crate::raft::Member) -> ServerMember {
        let (host, port) = split(&member.rpc_addr);
        let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let tags: BTreeMap<String, String> = [
            tag("role", "nomad"),
            tag("dc", &self.config.datacenter),
            tag("build", NOMAD_VERSION),
            tag("revision", ""),
            tag("drover", VERSION),
            tag("id", &member.id),
            tag("bootstrap", "1"),
            tag("expect", "1"),
            tag("region", &self.config.region),
            tag("raft_vsn", RAFT_PROTOCOL),
            tag("rpc_addr", &host),
            tag("port", &port.to_string()),
            tag("vsn", "1"),
        ]
        .into();
        ServerMember {
            name: member.name.clone(),
            addr: host,
            // Where servers find one another; calls go to the port in the tags.
            port: self.config.ports.serf,
            tags: tags.into(),
            status: "alive".to_owned(),
            protocol_min: 1,
            protocol_max: 5,
            protocol_cur: 2,
            delegate_min: 2,
            delegate_max: 5,
            delegate_cur: 4,
        }
    }

    /// `stats` of `/v1/agent/self`: everything as text, as Nomad shows it.
    fn stats(&self) -> AgentStats {
        let (term, last, applied) = self.raft.progress();
        let state = if self.leads() { "Leader" } else { "Follower" };
        let leader = self
            .leader()
            .map(|leader| leader.rpc_addr)
            .unwrap_or_default();
        let counts = self.projections.stats().unwrap_or_default();
        let more = json!({
            "nomad": {
                "bootstrap": "true",
                "known_regions": "1",
                "leader": self.leads().to_string(),
                "leader_addr": leader,
                "server": "true",
            },
            "raft": {
                "applied_index": applied.to_string(),
                "commit_index": applied.to_string(),
                "last_contact": "0",
                "last_log_index": last.to_string(),
                "num_peers": self.raft.members().len().saturating_sub(1).to_string(),
                "protocol_version": RAFT_PROTOCOL,
                "state": state,
                "term": term.to_string(),
            },
            "projections": {
                "applied": counts.applied.to_string(),
                "flushed": counts.flushed.to_string(),
                "rows": counts.rows.to_string(),
                "bytes": counts.files.to_string(),
            },
            "requests": self.requests_stats(),
            "runtime": {
                "arch": std::env::consts::ARCH,
                "kernel.name": std::env::consts::OS,
                "version": VERSION,
            },
        });
        let client = self.client.get().map(|client| ClientStats {
            node_id: client.node_id(),
            known_servers: self.peers().join(","),
            num_allocations: client.alloc_ids().len().to_string(),
            ..ClientStats::default()
        });
        AgentStats {
            client,
            tls: tls_stats(&self.expiries()),
            more,
        }
    }
}

impl Server {
    /// What became of the requests that had to be written down.
    fn requests_stats(&self) -> Value {
        let requests = &self.requests;
        let guarantee = match requests.is_on() {
            true => requests.guarantee().name(),
            false => "off",
        };
        let (first, records) = requests.records().map_or((0, 0), |log| log.bounds());
        json!({
            "delivery_guarantee": guarantee,
            "first": first.to_string(),
            "records": records.to_string(),
            "lost": requests.lost().to_string(),
            "broken": requests.broken().unwrap_or_default(),
        })
    }
}

/// What the agent knows about itself and its cluster, beyond the replicated state.
impl Server {
    /// The leader's RPC address (`ip:port`); none while there is no leader.
    pub fn leader_address(&self) -> Option<String> {
        self.leader().map(|leader| leader.rpc_addr)
    }

    /// The RPC addresses of the servers, sorted.
    pub fn peers(&self) -> Vec<String> {
        let members = self.raft.members();
        let mut peers: Vec<_> = members
            .into_iter()
            .map(|(_, member, _)| member.rpc_addr)
            .collect();
        peers.sort();
        peers
    }

    /// Milliseconds since the last message of the leader, 0 on the leader.
    pub fn last_contact(&self) -> u64 {
        0
    }

    /// The members of the Raft group.
    pub fn raft_configuration(&self) -> RaftConfigurationResponse {
        let leader = self.leader().map(|leader| leader.id);
        let servers: Vec<RaftServer> = self
            .raft
            .members()
            .into_iter()
            .map(|(_, member, voter)| RaftServer {
                leader: leader.as_ref() == Some(&member.id),
                id: member.id,
                node: member.name,
                address: member.rpc_addr,
                voter,
                raft_protocol: RAFT_PROTOCOL.to_owned(),
            })
            .collect();
        let index = self.projections.view().position().membership;
        RaftConfigurationResponse {
            servers: servers.into(),
            index,
        }
    }

    /// Autopilot's settings as this server was configured.
    pub fn autopilot(&self) -> AutopilotConfiguration {
        let set = &self.config.autopilot;
        let text = |duration: std::time::Duration| {
            DurationText(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
        };
        AutopilotConfiguration {
            last_contact_threshold: text(set.last_contact_threshold),
            server_stabilization_time: text(set.server_stabilization_time),
            cleanup_dead_servers: set.cleanup_dead_servers,
            max_trailing_logs: set.max_trailing_logs,
            min_quorum: set.min_quorum,
            ..AutopilotConfiguration::default()
        }
    }

    /// How the servers are.
    pub fn servers_health(&self) -> Vec<ServerHealth> {
        let leader = self.leader().map(|leader| leader.id);
        let (term, last, _) = self.raft.progress();
        let up = i64::try_from(self.uptime().as_nanos()).unwrap_or_default();
        let since = (crate::base::clock::unix_nanos() - up) / 1_000_000_000 * 1_000_000_000;
        let members = self.raft.members().into_iter();
        let health = members.map(|(_, member, voter)| ServerHealth {
            leader: leader.as_ref() == Some(&member.id),
            healthy: leader.is_some(),
            id: member.id,
            name: member.name,
            address: member.rpc_addr,
            serf_status: "alive".to_owned(),
            version: NOMAD_VERSION.to_owned(),
            last_term: term,
            last_index: last,
            voter,
            stable_since: GoTime(since),
            ..ServerHealth::default()
        });
        health.collect()
    }

    /// Whether servers are well together, and how many voters they can lose and still have a
    /// leader.
    pub fn well(servers: &[ServerHealth]) -> (bool, usize) {
        let voters = servers.iter().filter(|server| server.voter).count();
        let sound = servers
            .iter()
            .filter(|one| one.voter && one.healthy)
            .count();
        let led = servers.iter().any(|server| server.leader);
        let healthy = led && servers.iter().all(|server| server.healthy);
        (healthy, sound.saturating_sub(voters / 2 + 1))
    }

    /// Where the server is that leads, its address for RPC, as far as this one knows.
    pub fn whoever_leads(&self) -> LeaderLocator {
        LeaderLocator::watched(self.raft.leadership(), |leadership| match leadership {
            Leadership::Unknown => LeaderLocation::Unknown,
            Leadership::Following(leader) => LeaderLocation::There(leader.rpc_addr.clone()),
            Leadership::Elected | Leadership::Leading { .. } => LeaderLocation::Here,
        })
    }

    /// Where the other servers of the cluster are, their addresses for RPC.
    pub fn other_servers(&self) -> Box<dyn Fn() -> Vec<String> + Send + Sync> {
        let (raft, me) = (Arc::clone(&self.raft), self.me.number);
        Box::new(move || {
            let members = raft.members().into_iter();
            let others = members.filter(|(number, ..)| *number != me);
            others.map(|(_, member, _)| member.rpc_addr).collect()
        })
    }

    /// The members of the gossip pool.
    pub fn members(&self) -> ServerMembersResponse {
        let members: Vec<_> = self
            .raft
            .members()
            .iter()
            .map(|(_, member, _)| self.member(member))
            .collect();
        ServerMembersResponse {
            server_name: self.config.node_name(),
            server_region: self.config.region.clone(),
            server_dc: self.config.datacenter.clone(),
            members: members.into(),
        }
    }

    /// `config`, `member` and `stats` as `/v1/agent/self` shows them, secrets left out.
    pub fn describe(&self) -> Value {
        let description = AgentDescription {
            config: described(&self.configured()),
            member: Some(self.member(&self.me.member())),
            stats: self.stats(),
        };
        serde_json::to_value(description).unwrap_or_default()
    }

    /// The configuration as it is now: some of it may have been reloaded.
    pub fn configured(&self) -> Arc<Config> {
        let around = self.around.get();
        around.map_or_else(|| Arc::clone(&self.config), |around| around.config())
    }

    /// Has the agent read its configuration anew; answers which settings need a restart.
    ///
    /// # Errors
    /// Why all stays as it was.
    pub fn reload(&self) -> Result<Vec<String>, String> {
        match self.around.get() {
            Some(around) => around.reload(),
            None => Err("this server has no agent that could reload".to_owned()),
        }
    }

    /// When the certificates of this agent end; none in clear text.
    pub(super) fn expiries(&self) -> Vec<Expiry> {
        let around = self.around.get();
        around.map(|around| around.expiries()).unwrap_or_default()
    }

    /// The state of every reactor.
    pub fn reactors(&self) -> Value {
        serde_json::to_value(self.activity.status()).unwrap_or_default()
    }

    /// The state of one reactor, without a look at scheduling; null where none of this name ran.
    pub fn reactor(&self, name: &str) -> Value {
        let known = self.activity.reactors().remove(name);
        serde_json::to_value(known).unwrap_or_default()
    }

    /// The client of this agent; none without one.
    pub fn client(&self) -> Option<Arc<crate::client::agent::Client>> {
        self.client.get().map(Arc::clone)
    }

    /// Whether a client runs in this agent and knows a server; none without a client.
    pub fn client_health(&self) -> Option<Result<(), String>> {
        self.client.get().map(|client| client.health())
    }

    /// Whether this server can read and write, and knows a leader.
    pub fn server_health(&self) -> Result<(), String> {
        if let Some(parked) = self.raft.parked() {
            return Err(parked.to_string());
        }
        if let Some(fault) = self.raft.fault() {
            return Err(fault);
        }
        if let Some(fault) = self.agreement.fault() {
            return Err(fault);
        }
        if let Some(why) = self.requests.broken() {
            let lost = self.requests.lost();
            let text = format!("the request log cannot be written (records lost: {lost}): {why}");
            return Err(text);
        }
        match self.leader() {
            Some(_) => Ok(()),
            None => Err("No cluster leader".to_owned()),
        }
    }

    /// The metrics in Prometheus' text form.
    pub fn prometheus(&self) -> String {
        self.observe();
        self.telemetry.prometheus()
    }

    /// The metrics as a summary.
    pub fn metrics(&self) -> Value {
        self.observe();
        serde_json::to_value(self.telemetry.summary()).unwrap_or_default()
    }
}

/// When certificates end, and what to do where that is soon; none without any.
fn tls_stats(expiries: &[Expiry]) -> Option<CertificateStats> {
    let now = jiff::Timestamp::now().as_second();
    let ends = |expiry: &Expiry| {
        (
            format!("{}.expires", expiry.setting),
            Value::from(expiry.moment()),
        )
    };
    let warnings: Vec<_> = expiries.iter().filter_map(|one| one.warning(now)).collect();
    (!expiries.is_empty()).then(|| CertificateStats {
        warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
        expires: expiries.iter().map(ends).collect(),
    })
}

/// Host and port of `host:port`.
fn split(addr: &str) -> (String, u16) {
    let (host, port) = addr.rsplit_once(':').unwrap_or((addr, ""));
    (
        host.trim_matches(['[', ']']).to_owned(),
        port.parse().unwrap_or(0),
    )
}

/// What the tables must have before a token is looked up in them: what the log has now.
pub(super) fn owed(log: &Arc<LogEngine>) -> Owed {
    let log = Arc::clone(log);
    let written = move || log.bounds().1.saturating_sub(1);
    Owed {
        begun: written(),
        written: Box::new(written),
    }
}
