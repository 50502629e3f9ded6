//! `agent-info`: the figures of the agent that answers.

use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::show::Format;
use anyhow::Result;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Flags of `agent-info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
}

/// What an agent says of itself, as far as commands act on it; its names are in lower case.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct About {
    pub(in crate::cli) stats: AgentStats,
}

/// Some of the figures.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct AgentStats {
    pub(in crate::cli) client: OwnClient,
    pub(in crate::cli) tls: Certificates,
}

/// The client of the agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct OwnClient {
    /// Empty where the agent runs none.
    pub(in crate::cli) node_id: String,
}

/// The agent's own certificates.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Certificates {
    /// What to do where one ends soon.
    pub(in crate::cli) warning: Option<String>,
}

/// All figures, by section and name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Figures {
    stats: BTreeMap<String, BTreeMap<String, Json>>,
}

/// Prints the figures, section by section.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying agent info";
    let agent = args
        .format
        .ask::<Figures>(&client, ("/v1/agent/self", &[]), failed, out);
    let Some(agent) = agent.await? else {
        return Ok(0);
    };
    for (name, figures) in &agent.stats {
        out.line(name);
        for (name, figure) in figures {
            let figure = figure
                .as_str()
                .map_or_else(|| figure.to_string(), str::to_owned);
            out.line(&format!("  {name} = {figure}"));
        }
    }
    Ok(0)
}
