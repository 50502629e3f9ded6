//! `operator debug`: what a remote supporter wants to see of a cluster, in one archive.

mod agents;
mod capture;
mod store;

use super::conn::Conn;
use super::out::Out;
use super::show::counted;
use crate::base::version::VERSION;
use agents::Agents;
use anyhow::{Result, bail};
use capture::Capture;
use drover_events::gojson::parse_duration;
use jiff::Timestamp;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use store::Store;

/// Flags of `operator debug`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover operator debug
  drover operator debug -duration 30s -interval 5s -log-level trace
  drover operator debug -node-id 8ba85cef,1d3ae1a7 -server-id leader -pprof-duration 5s
  drover operator debug -event-topic Job,Allocation:web -output /tmp

For its duration it follows the logs and samples the processor time of the agents, and looks at the
state of the cluster again and again. What may be a secret is left out: tokens, environments,
configurations of tasks, templates, payloads. What cannot be had is named in index.json with the
reason. Ctrl-C ends it early; what is there by then is kept.

Rights that it needs: agent:write, node:read, operator:read and read-job; the list of Raft peers
needs a management token.")]
pub(super) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// How long to look
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    duration: Duration,
    /// How often the state of the cluster is looked at
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    interval: Duration,
    /// The least level of the logs: trace, debug, info, warn or error
    #[arg(long, value_name = "LEVEL", default_value = "DEBUG")]
    log_level: String,
    /// Source file and line in each record of the logs
    #[arg(long)]
    log_include_location: bool,
    /// Also what the agents' journals hold of so long before
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    log_lookback: Option<Duration>,
    /// Also the files that the agents log to (log_file)
    #[arg(long, conflicts_with = "log_lookback")]
    log_file_export: bool,
    /// The most clients to look at; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_nodes: usize,
    /// Only clients of this class
    #[arg(
        long,
        value_name = "CLASS",
        default_value = "",
        hide_default_value = true
    )]
    node_class: String,
    /// The clients: ids or what they begin with, with commas between them; all, or none
    #[arg(long, value_name = "IDS", default_value = "all", value_delimiter = ',')]
    node_id: Vec<String>,
    /// The servers: names, with commas between them; all, leader, or none
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "all",
        value_delimiter = ','
    )]
    server_id: Vec<String>,
    /// Any server may answer
    #[arg(long)]
    stale: bool,
    /// Write a directory in this one, and no archive
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// How long processor time is sampled, up to 5m; 0s for not at all
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pprof_duration: Duration,
    /// How often; by default as often as the state is looked at
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pprof_interval: Option<Duration>,
    /// Also the events of these topics, with commas between them: Topic or Topic:key, all
    #[arg(long, value_name = "TOPICS", value_delimiter = ',')]
    event_topic: Vec<String>,
    /// Begin with the event of this index
    #[arg(long, value_name = "INDEX", requires = "event_topic")]
    event_index: Option<u64>,
    /// Name every file as it is written
    #[arg(long)]
    verbose: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let nanos = parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.ok_or("it takes a duration: 500ms, 30s, 2m")?;
    Ok(Duration::from_nanos(nanos))
}

/// The longest profile that an agent makes.
const LONGEST_PROFILE: Duration = Duration::from_secs(crate::diagnostics::profile::LONGEST);

impl Args {
    fn check(&self) -> Result<()> {
        if self.interval.is_zero() || self.interval > self.duration {
            bail!("-interval must be above zero and at most -duration");
        }
        if self.pprof_interval.is_some_and(|every| every.is_zero()) {
            bail!("-pprof-interval must be above zero");
        }
        if self.pprof_duration > LONGEST_PROFILE || self.pprof_duration > self.duration {
            bail!("-pprof-duration must be at most -duration, and 5m");
        }
        Ok(())
    }
}

/// Captures, until the time is over or the user interrupts it.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    args.check()?;
    let client = args.conn.client()?;
    let began = Timestamp::now();
    let name = format!("nomad-debug-{}", began.strftime("%Y-%m-%d-%H%M%SZ"));
    out.line("Starting debugger...\n");
    let agents = Agents::find(&client, &args).await?;
    let store = Store::begin(
        &name,
        args.output.as_deref(),
        args.verbose.then(|| out.clone()),
    )?;
    report(&args, &agents, out);
    let capture = Capture {
        client,
        args,
        agents,
        store,
        out,
    };
    let done = tokio::select! {
        done = capture.run() => done.map(|()| false),
        _ = tokio::signal::ctrl_c() => Ok(true),
    };
    let Capture {
        store,
        args,
        agents,
        ..
    } = capture;
    let (early, failed) = match done {
        Ok(early) => (early, None),
        Err(error) => (true, Some(error)),
    };
    if early && failed.is_none() {
        out.line("Interrupted: what is there is kept");
    }
    let head = json!({
        "Version": format!("drover v{VERSION}"),
        "Began": began.to_string(),
        "Ended": Timestamp::now().to_string(),
        "Early": early,
        "Duration": format!("{:?}", args.duration),
        "Interval": format!("{:?}", args.interval),
        "Region": args.conn.region,
        "Servers": agents.servers(),
        "Clients": agents.clients(),
    });
    let missing = store.missing_count();
    let place = store.finish(head, args.output.is_some())?;
    if let Some(error) = failed {
        return Err(error.context(format!("Error capturing; what is there is in {place}")));
    }
    if missing > 0 {
        let missing = counted(missing, "file");
        out.line(&format!("{missing} could not be had: index.json says why"));
    }
    match args.output {
        Some(_) => out.line(&format!("Created debug directory: {place}")),
        None => out.line(&format!("Created debug archive: {place}")),
    }
    Ok(0)
}

/// What will be looked at.
fn report(args: &Args, agents: &Agents, out: &Out) {
    let all = |names: Vec<String>| format!("({}) {names:?}", names.len());
    let rows = [
        ("Version", format!("drover v{VERSION}")),
        ("Region", args.conn.region.clone()),
        ("Namespace", args.conn.namespace.clone()),
        ("Servers", all(agents.servers())),
        ("Clients", all(agents.clients())),
        ("Interval", format!("{:?}", args.interval)),
        ("Duration", format!("{:?}", args.duration)),
        ("Profiles", format!("{:?} each", args.pprof_duration)),
    ];
    out.line(&super::columns::pairs(&rows));
    out.line("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_rest() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "x", "-1s", "10"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
