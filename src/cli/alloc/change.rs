//! `alloc restart`, `alloc signal` and `alloc stop`

use super::super::conn::Conn;
use super::super::monitor::{Monitor, Wait};
use super::super::out::Out;
use super::super::query::{Thing, find};
use super::super::show::text;
use super::pick::{Named, checked_task};
use anyhow::{Result, bail};
use serde_json::json;

/// Flags of `alloc restart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc restart 8ba85cef              the tasks that run
  drover alloc restart 8ba85cef server       one task
  drover alloc restart -all-tasks 8ba85cef   and those that ended")]
pub(in crate::cli) struct RestartArgs {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Only this task
    task: Option<String>,
    /// The same as the second argument
    #[arg(long = "task", value_name = "NAME")]
    task_flag: Option<String>,
    /// Tasks that ended as well
    #[arg(long)]
    all_tasks: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `alloc signal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc signal -s SIGHUP 8ba85cef server")]
pub(in crate::cli) struct SignalArgs {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Only this task
    task: Option<String>,
    /// The same as the second argument
    #[arg(long = "task", value_name = "NAME")]
    task_flag: Option<String>,
    /// The signal
    #[arg(short = 's', value_name = "SIGNAL", default_value = "SIGKILL")]
    signal: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `alloc stop`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct StopArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Do not wait for shutdown delays
    #[arg(long)]
    no_shutdown_delay: bool,
}

fn by_id(allocation: &str) -> Named<'_> {
    Named {
        name: allocation,
        is_job: false,
        group: None,
    }
}

/// Restarts tasks.
pub(super) async fn restart(args: RestartArgs, _: &Out) -> Result<u8> {
    let task = args.task.as_deref().or(args.task_flag.as_deref());
    if args.all_tasks && task.is_some() {
        bail!("The -all-tasks option is not allowed when restarting a specific task.");
    }
    let client = args.conn.client()?;
    let alloc = by_id(&args.allocation).allocation(&client).await?;
    let task = checked_task(&alloc, task)?;
    let namespace = text(&alloc, "Namespace");
    let path = format!("/v1/client/allocation/{}/restart", text(&alloc, "ID"));
    let body = json!({ "TaskName": task.unwrap_or_default(), "AllTasks": args.all_tasks });
    let done = client.put(&path, &[("namespace", &namespace)], &body).await;
    done.map_err(|err| err.context("Failed to restart allocation"))?;
    Ok(0)
}

/// Sends a signal.
pub(super) async fn signal(args: SignalArgs, _: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let alloc = by_id(&args.allocation).allocation(&client).await?;
    let task = args.task.as_deref().or(args.task_flag.as_deref());
    let task = checked_task(&alloc, task)?;
    let namespace = text(&alloc, "Namespace");
    let path = format!("/v1/client/allocation/{}/signal", text(&alloc, "ID"));
    let body = json!({ "Task": task.unwrap_or_default(), "Signal": args.signal });
    let done = client.put(&path, &[("namespace", &namespace)], &body).await;
    done.map_err(|err| err.context("Error signalling allocation"))?;
    Ok(0)
}

/// Stops an allocation and follows what takes its place.
pub(super) async fn stop(args: StopArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = find(&client, Thing::Alloc, &args.allocation).await?;
    let (id, namespace) = (text(&stub, "ID"), text(&stub, "Namespace"));
    let mut query = vec![("namespace", namespace.as_str())];
    if args.no_shutdown_delay {
        query.push(("no_shutdown_delay", "true"));
    }
    let path = format!("/v1/allocation/{id}/stop");
    let done = client.put(&path, &query, &json!({})).await;
    let done = done.map_err(|err| err.context("Error stopping allocation"))?;
    if args.wait.detach {
        out.line(&text(&done, "EvalID"));
        return Ok(0);
    }
    Monitor::new(&client, out, args.wait.verbose, &namespace)
        .after(&done, false)
        .await
}
