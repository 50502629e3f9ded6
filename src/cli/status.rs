//! `status`: the jobs and what lags behind the log, or the one thing that an id begins with.

use super::answer;
use super::client::{Client, is_status};
use super::conn::{Conn, PastConnection};
use super::out::Out;
use super::reactors::{Reactors, published};
use super::show::Format;
use super::{alloc, deployment, eval, job, node};
use crate::http::answers::{JobListStub, SearchResponse};
use crate::server::member_shapes::AgentDescription;
use anyhow::{Result, bail};
use serde_json::{Value as Json, json};

/// Flags of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover status                all jobs, and how far behind Kafka is where events go there
  drover status web            the job, evaluation, allocation, node or deployment of this id
  drover status -json | jq .EventPublisher.Lag

Kafka is a line only where this server leads and publishes (event_publisher.kafka).")]
pub(super) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// What an id or a job's name begins with
    id: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Shows the cluster or one thing of it.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let Some(id) = args.id else {
        return cluster(&args.conn, &client, &args.format, out).await;
    };
    let (conn, format, verbose) = (args.conn, args.format, args.verbose);
    match context(&client, &id).await? {
        "jobs" => job::status::run(job::status::Args::of(conn, format, id, verbose), out).await,
        "evals" => eval::status::run(eval::status::Args::of(conn, format, id, verbose), out).await,
        "deployment" => {
            let args = deployment::status::Args::of(conn, format, id, verbose);
            deployment::status::run(args, out).await
        }
        "allocs" => {
            alloc::status::run(alloc::status::Args::of(conn, format, id, verbose), out).await
        }
        _ => {
            let args = node::Args::of(conn, format, id, verbose);
            node::run(node::Verb::Status(args), out).await
        }
    }
}

async fn cluster(conn: &Conn, client: &Client, format: &Format, out: &Out) -> Result<u8> {
    let jobs = client.fetch("/v1/jobs", &[]).await;
    let jobs: Json = jobs.map_err(|err| err.context("Error querying jobs"))?;
    let publisher = match conn.at.as_str() {
        "" => publisher(client).await?,
        // How it fares is known of now alone.
        _ => Json::Null,
    };
    if format.print(&json!({ "Jobs": jobs, "EventPublisher": publisher }), out)? {
        return Ok(0);
    }
    client.report_moment(out);
    let jobs: Vec<JobListStub> = answer::of(jobs)?;
    out.line(&job::status::job_list(&jobs, conn.namespace == "*"));
    if !publisher.is_null() {
        out.line(&format!("\n{}", published(&publisher)?));
    }
    if conn.at.is_empty()
        && let Some(warning) = ending(client).await?
    {
        out.line(&format!("\nWARNING: {warning}"));
    }
    Ok(0)
}

/// What the agent says of certificates of its own that end soon.
async fn ending(client: &Client) -> Result<Option<String>> {
    match client
        .fetch::<AgentDescription>("/v1/agent/self", &[])
        .await
    {
        Ok(agent) => Ok(agent.stats.tls.and_then(|tls| tls.warning)),
        // A token that may see jobs need not see agents.
        Err(err) if is_status(&err, 403) || is_status(&err, 404) => Ok(None),
        Err(err) => Err(err),
    }
}

/// The status of the publisher of events; null where none runs.
async fn publisher(client: &Client) -> Result<Json> {
    let answer: Reactors = match client.fetch("/v1/operator/reactors", &[]).await {
        Ok(answer) => answer,
        // A token that may see jobs need not be an operator's, and Nomad servers have no such
        // route.
        Err(err) if is_status(&err, 403) || is_status(&err, 404) => return Ok(Json::Null),
        Err(err) => return Err(err.context("Error querying reactors")),
    };
    Ok(answer.publisher().cloned().unwrap_or_default())
}

/// What can be shown, and how the search calls it.
const SHOWN: [&str; 5] = ["jobs", "evals", "allocs", "nodes", "deployment"];

/// Where something with this prefix is: the only place, or the one with exactly this id.
async fn context(client: &Client, id: &str) -> Result<&'static str> {
    let requested = json!({ "Prefix": id, "Context": "all" });
    let found = client.read("/v1/search", &[], &requested).await;
    let found = found.map_err(|err| err.context(format!("Error searching for {id:?}")))?;
    let found: SearchResponse = found.read()?;
    let ids = |place: &str| found.matches.get(place).map_or(&[][..], |ids| &ids[..]);
    if let Some(place) = SHOWN
        .into_iter()
        .find(|place| ids(place).iter().any(|one| one == id))
    {
        return Ok(place);
    }
    let places = SHOWN.into_iter().filter(|place| !ids(place).is_empty());
    match places.collect::<Vec<_>>()[..] {
        [] => bail!("Nothing begins with {id:?}; see drover job status and drover node status"),
        [place] => Ok(place),
        ref places => bail!("{id:?} begins {}; use more of the id", places.join(" and ")),
    }
}
