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

/// All figures, by section and name, whatever sections and figures there are.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::answer;
    use crate::server::member_shapes::{AgentDescription, AgentStats, ClientStats};
    use serde_json::json;

    #[test]
    fn every_section_that_an_agent_reports_is_read() {
        let client = ClientStats {
            node_id: "8ba85cef".to_owned(),
            ..ClientStats::default()
        };
        let reported = AgentDescription {
            config: json!({"Region": "global"}),
            member: None,
            stats: AgentStats {
                client: Some(client),
                tls: None,
                more: json!({"raft": {"term": "3"}}),
            },
        };
        let reported = serde_json::to_value(reported).unwrap();
        let Figures { stats } = answer::of(reported.clone()).unwrap();
        assert_eq!(stats["raft"]["term"], "3");
        assert_eq!(stats["client"]["node_id"], "8ba85cef");
        // The sections that have a type stand beside the others.
        let same: AgentDescription = answer::of(reported.clone()).unwrap();
        assert_eq!(serde_json::to_value(same).unwrap(), reported);
    }
}
