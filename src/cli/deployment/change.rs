//! `deployment promote`, `fail`, `pause`, `resume` and `unblock`.

use super::super::client::Client;
use super::super::conn::Conn;
use super::super::monitor::{Monitor, Wait};
use super::super::out::Out;
use super::super::query::find;
use super::super::show::short;
use crate::http::answers::DeploymentUpdateResponse;
use anyhow::Result;
use drover_events::model::Deployment;
use serde_json::{Value as Json, json};

/// Flags of `deployment fail`, `resume` and `unblock`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The deployment's id or a prefix of it
    deployment: String,
}

/// Flags of `deployment pause`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct PauseArgs {
    #[command(flatten)]
    conn: Conn,
    /// The deployment's id or a prefix of it
    deployment: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `deployment promote`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover deployment promote 8ba85cef
  drover deployment promote -group api 8ba85cef     and leave other groups' canaries as they are")]
pub(in crate::cli) struct PromoteArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The deployment's id or a prefix of it
    deployment: String,
    /// Only this group's canaries; may be repeated
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
}

/// A deployment that is to be changed.
struct Target {
    client: Client,
    id: String,
    namespace: String,
}

impl Target {
    async fn find(conn: &Conn, prefix: &str) -> Result<Target> {
        let client = conn.client()?;
        let Deployment { id, namespace, .. } = find(&client, prefix).await?;
        Ok(Target {
            client,
            id,
            namespace,
        })
    }

    async fn put(&self, verb: &str, more: Json) -> Result<DeploymentUpdateResponse> {
        let mut body = json!({ "DeploymentID": self.id });
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let path = format!("/v1/deployment/{verb}/{}", self.id);
        let query = [("namespace", self.namespace.as_str())];
        self.client.put(&path, &query, &body).await
    }

    fn monitor<'a>(&'a self, out: &'a Out, wait: &Wait) -> Monitor<'a> {
        Monitor::new(&self.client, out, wait.verbose, &self.namespace)
    }
}

/// The evaluation that a change made.
fn made(done: &DeploymentUpdateResponse) -> (&str, u64) {
    (&done.eval_id, done.eval_create_index)
}

/// Promotes canaries of all groups or of those named, and follows what comes of it.
pub(in crate::cli) async fn promote(
    (client, namespace): (&Client, &str),
    id: &str,
    groups: &[String],
    wait: &Wait,
    out: &Out,
) -> Result<u8> {
    let body = json!({ "DeploymentID": id, "All": groups.is_empty(), "Groups": groups });
    let path = format!("/v1/deployment/promote/{id}");
    let done = client.put(&path, &[("namespace", namespace)], &body).await;
    let done = done.map_err(|err| err.context("Error promoting deployment"))?;
    Monitor::new(client, out, wait.verbose, namespace)
        .after(made(&done), wait.detach)
        .await
}

/// `deployment promote`.
pub(super) async fn run_promote(args: PromoteArgs, out: &Out) -> Result<u8> {
    let target = Target::find(&args.conn, &args.deployment).await?;
    let place = (&target.client, target.namespace.as_str());
    promote(place, &target.id, &args.group, &args.wait, out).await
}

/// `deployment fail`: that it failed is what was wanted.
pub(super) async fn fail(args: Args, out: &Out) -> Result<u8> {
    let target = Target::find(&args.conn, &args.deployment).await?;
    let done = target.put("fail", Json::Null).await;
    let done = done.map_err(|err| err.context("Error failing deployment"))?;
    let shown = short(&target.id, args.wait.verbose);
    let reverted = match done.reverted_job_version {
        Some(version) => format!(". Auto-reverted to job version {version}."),
        None => String::new(),
    };
    out.line(&format!("Deployment {shown:?} failed{reverted}"));
    let monitor = target.monitor(out, &args.wait).evaluations_only();
    monitor.after(made(&done), args.wait.detach).await
}

/// `deployment pause`.
pub(super) async fn pause(args: PauseArgs, out: &Out) -> Result<u8> {
    let target = Target::find(&args.conn, &args.deployment).await?;
    let done = target.put("pause", json!({ "Pause": true })).await;
    done.map_err(|err| err.context("Error pausing deployment"))?;
    let shown = short(&target.id, args.verbose);
    out.line(&format!("Deployment {shown:?} paused"));
    Ok(0)
}

/// `deployment resume`.
pub(super) async fn resume(args: Args, out: &Out) -> Result<u8> {
    let target = Target::find(&args.conn, &args.deployment).await?;
    let done = target.put("pause", json!({ "Pause": false })).await;
    let done = done.map_err(|err| err.context("Error resuming deployment"))?;
    let shown = short(&target.id, args.wait.verbose);
    out.line(&format!("Deployment {shown:?} resumed"));
    let monitor = target.monitor(out, &args.wait);
    monitor.after(made(&done), args.wait.detach).await
}

/// `deployment unblock`.
pub(super) async fn unblock(args: Args, out: &Out) -> Result<u8> {
    let target = Target::find(&args.conn, &args.deployment).await?;
    let done = target.put("unblock", Json::Null).await;
    let done = done.map_err(|err| err.context("Error unblocking deployment"))?;
    let shown = short(&target.id, args.wait.verbose);
    out.line(&format!("Deployment {shown:?} unblocked"));
    let monitor = target.monitor(out, &args.wait);
    monitor.after(made(&done), args.wait.detach).await
}
