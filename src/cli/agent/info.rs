//! `agent-info`: the figures of the agent that is asked.

use crate::cli::conn::Conn;
use crate::cli::out::Out;
use crate::cli::show::Format;
use anyhow::Result;

/// Flags of `agent-info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
}

/// Prints the figures, section by section.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let failed = "Error querying agent info";
    let Some(agent) = args
        .format
        .ask(&client, ("/v1/agent/self", &[]), failed, out)
        .await?
    else {
        return Ok(0);
    };
    let mut sections: Vec<_> = agent["stats"].as_object().into_iter().flatten().collect();
    sections.sort_by_key(|(name, _)| name.as_str());
    for (name, figures) in sections {
        out.line(name);
        let mut figures: Vec<_> = figures.as_object().into_iter().flatten().collect();
        figures.sort_by_key(|(name, _)| name.as_str());
        for (name, figure) in figures {
            let figure = figure
                .as_str()
                .map_or_else(|| figure.to_string(), str::to_owned);
            out.line(&format!("  {name} = {figure}"));
        }
    }
    Ok(0)
}
