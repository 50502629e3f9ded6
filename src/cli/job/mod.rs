//! The `job` noun.

mod change;
mod diff;
mod dispatch;
pub(super) mod history;
pub(super) mod inspect;
mod lists;
mod periodic;
pub(super) mod plan;
mod restart;
mod restart_batch;
mod run;
mod scale;
mod source;
pub(super) mod status;
mod stop;
mod tag;
pub(super) mod validate;

use super::client::Client;
use super::conn::Conn;
use super::monitor::{Monitor, Wait};
use super::out::Out;
use super::query::find;
use crate::http::answers::{JobListStub, JobRegisterResponse};
use anyhow::Result;
use clap::Subcommand;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Run a new job or update a running one
    Run(run::Args),
    /// Show what a run would change
    Plan(plan::Args),
    /// List jobs, or show one
    Status(status::Args),
    /// Stop a job
    Stop(stop::Args),
    /// Check a job's file without running it
    Validate(validate::Args),
    /// Print a job as the servers hold it
    Inspect(inspect::Args),
    /// Work with periodic jobs
    #[command(subcommand)]
    Periodic(periodic::Verb),
    /// List a job's versions
    History(history::Args),
    /// Go back to an earlier version
    Revert(change::RevertArgs),
    /// Evaluate a job again
    Eval(change::EvalArgs),
    /// Promote the canaries of a job's latest deployment
    Promote(change::PromoteArgs),
    /// Start an instance of a parameterized job
    Dispatch(dispatch::Args),
    /// Change the count of a group
    Scale(scale::Args),
    /// List what scaled a job
    ScalingEvents(scale::EventsArgs),
    /// List a job's allocations
    Allocs(lists::AllocsArgs),
    /// List a job's deployments
    Deployments(lists::DeploymentsArgs),
    /// Restart or replace the allocations of a job, some at a time
    Restart(restart::Args),
    /// Name versions of a job
    #[command(subcommand)]
    Tag(tag::Verb),
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Run(args) => run::run(args, out).await,
        Verb::Plan(args) => plan::run(args, out).await,
        Verb::Status(args) => status::run(args, out).await,
        Verb::Stop(args) => stop::run(args, out).await,
        Verb::Validate(args) => validate::run(args, out).await,
        Verb::Inspect(args) => inspect::run(args, out).await,
        Verb::Periodic(verb) => periodic::run(verb, out).await,
        Verb::History(args) => history::run(args, out).await,
        Verb::Revert(args) => change::revert(args, out).await,
        Verb::Eval(args) => change::eval(args, out).await,
        Verb::Promote(args) => change::promote(args, out).await,
        Verb::Dispatch(args) => dispatch::run(args, out).await,
        Verb::Scale(args) => scale::run(args, out).await,
        Verb::ScalingEvents(args) => scale::events(args, out).await,
        Verb::Allocs(args) => lists::allocs(args, out).await,
        Verb::Deployments(args) => lists::deployments(args, out).await,
        Verb::Restart(args) => restart::run(args, out).await,
        Verb::Tag(verb) => tag::run(verb, out).await,
    }
}

/// A job that was found, and the namespace for requests about it.
struct FoundJob {
    client: Client,
    id: String,
    namespace: String,
}

impl FoundJob {
    /// The only job whose ID begins so.
    async fn new(conn: &Conn, prefix: &str) -> Result<FoundJob> {
        let client = conn.client()?;
        let JobListStub { id, namespace, .. } = find(&client, prefix).await?;
        Ok(FoundJob {
            client,
            id,
            namespace,
        })
    }

    /// The path below the job.
    fn path(&self, suffix: &str) -> String {
        super::query::job_path(&self.id, suffix)
    }

    /// GET below the job.
    async fn get<T: DeserializeOwned>(&self, suffix: &str) -> Result<T> {
        self.client.fetch(&self.path(suffix), &self.scope()).await
    }

    /// Requests a change of the job, and prints its warnings; `failed` is printed where it is
    /// refused.
    async fn change(
        &self,
        suffix: &str,
        body: &Json,
        failed: &'static str,
        out: &Out,
    ) -> Result<JobRegisterResponse> {
        let path = self.path(suffix);
        let done = self.client.put(&path, &self.scope(), body).await;
        let done: JobRegisterResponse = done.map_err(|err| err.context(failed))?;
        let warnings = &done.warnings;
        if !warnings.is_empty() {
            out.line(&format!("Job Warnings:\n{warnings}\n"));
        }
        Ok(done)
    }

    /// Follows the evaluation that a change made, by its id and index, unless the user does not
    /// want to wait for it.
    async fn follow(&self, eval: (&str, u64), wait: &Wait, out: &Out) -> Result<u8> {
        Monitor::new(&self.client, out, wait.verbose, &self.namespace)
            .after(eval, wait.detach)
            .await
    }

    /// The namespace as a parameter.
    fn scope(&self) -> [(&str, &str); 1] {
        [("namespace", self.namespace.as_str())]
    }
}
