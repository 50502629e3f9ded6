//! `alloc restart`, `alloc signal` and `alloc stop`

use super::super::conn::Conn;
use super::super::monitor::{Monitor, Wait};
use super::super::out::Out;
use super::super::query::find;
use super::pick::{NamedAlloc, checked_task};
use crate::http::answers::StopResponse;
use anyhow::{Result, bail};
use drover_events::model::AllocListStub;
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};

/// Whom a request is about that names no task.
const ALL_THAT_RUN: &str = "all tasks that run";

/// Which tasks are changed.
#[derive(Debug, clap::Args)]
struct Tasks {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it
    allocation: String,
    /// Only this task
    task: Option<String>,
    /// The same as the second argument
    #[arg(long = "task", value_name = "NAME")]
    task_flag: Option<String>,
    /// Print what was requested of which allocation
    #[arg(long)]
    verbose: bool,
}

impl Tasks {
    fn named(&self) -> Option<&str> {
        self.task.as_deref().or(self.task_flag.as_deref())
    }

    /// Requests something of the allocation's node, for `all` where no task is named.
    async fn ask(
        &self,
        (verb, all, failed): (&str, &str, &'static str),
        body: impl Fn(&str) -> Json,
        out: &Out,
    ) -> Result<u8> {
        let client = self.conn.client()?;
        let named = NamedAlloc {
            name: &self.allocation,
            is_job: false,
            group: None,
        };
        let alloc = named.allocation(&client).await?;
        let task = checked_task(&alloc, self.named())?.unwrap_or_default();
        let id = &alloc.id;
        let path = format!("/v1/client/allocation/{id}/{verb}");
        let scope = [("namespace", alloc.namespace.as_str())];
        let done = client.put::<IgnoredAny>(&path, &scope, &body(&task)).await;
        done.map_err(|err| err.context(failed))?;
        if self.verbose {
            let of = match task.as_str() {
                "" => all.to_owned(),
                task => format!("task {task:?}"),
            };
            out.line(&format!("Requested {verb} of {of} of allocation {id:?}"));
        }
        Ok(0)
    }
}

/// Flags of `alloc restart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc restart 8ba85cef              the tasks that run
  drover alloc restart 8ba85cef server       one task
  drover alloc restart -all-tasks 8ba85cef   and those that ended")]
pub(in crate::cli) struct RestartArgs {
    #[command(flatten)]
    of: Tasks,
    /// Tasks that ended as well
    #[arg(long)]
    all_tasks: bool,
}

/// Flags of `alloc signal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc signal -s SIGHUP 8ba85cef server")]
pub(in crate::cli) struct SignalArgs {
    #[command(flatten)]
    of: Tasks,
    /// The signal
    #[arg(short = 's', value_name = "SIGNAL", default_value = "SIGKILL")]
    signal: String,
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

/// Restarts tasks.
pub(super) async fn restart(args: RestartArgs, out: &Out) -> Result<u8> {
    if args.all_tasks && args.of.named().is_some() {
        bail!("The -all-tasks option is not allowed when restarting a specific task.");
    }
    let body = |task: &str| json!({ "TaskName": task, "AllTasks": args.all_tasks });
    let all = match args.all_tasks {
        true => "all tasks",
        false => ALL_THAT_RUN,
    };
    let verb = ("restart", all, "Failed to restart allocation");
    args.of.ask(verb, body, out).await
}

/// Sends a signal.
pub(super) async fn signal(args: SignalArgs, out: &Out) -> Result<u8> {
    let body = |task: &str| json!({ "Task": task, "Signal": args.signal });
    let verb = ("signal", ALL_THAT_RUN, "Error signalling allocation");
    args.of.ask(verb, body, out).await
}

/// Stops an allocation and follows what takes its place.
pub(super) async fn stop(args: StopArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let AllocListStub { id, namespace, .. } = find(&client, &args.allocation).await?;
    let mut query = vec![("namespace", namespace.as_str())];
    if args.no_shutdown_delay {
        query.push(("no_shutdown_delay", "true"));
    }
    let path = format!("/v1/allocation/{id}/stop");
    let done = client.put(&path, &query, &json!({})).await;
    let done: StopResponse = done.map_err(|err| err.context("Error stopping allocation"))?;
    if args.wait.detach {
        out.line(&done.eval_id);
        return Ok(0);
    }
    Monitor::new(&client, out, args.wait.verbose, &namespace)
        .after((&done.eval_id, 0), false)
        .await
}
