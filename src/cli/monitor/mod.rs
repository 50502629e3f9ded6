//! Follows an evaluation on the event stream; [`deployment`] follows the deployment it makes.

pub(super) mod deployment;

use super::client::Client;
use super::out::Out;
use super::placement;
use super::query::job_path;
use super::show::{now, short, time};
use super::stream::Stream;
use anyhow::{Context, Result};
use deployment::DeploymentProgress;
use drover_events::model::status::{self as words, EvalStatus};
use drover_events::model::{AllocListStub, Allocation, Evaluation, Job, JobSummary};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// Watches one evaluation after another until there is nothing to wait for.
pub(super) struct Monitor<'a> {
    pub(super) client: &'a Client,
    pub(super) out: &'a Out,
    pub(super) verbose: bool,
    namespace: String,
    seen: BTreeMap<String, String>,
    pub(super) progress: DeploymentProgress,
    deployments: bool,
}

/// What the event stream or a list reports of an allocation.
pub(super) struct AllocReport<'a> {
    id: &'a str,
    eval_id: &'a str,
    node_id: &'a str,
    task_group: &'a str,
    desired_status: &'a str,
    client_status: &'a str,
    client_description: &'a str,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a Allocation> for AllocReport<'a> {
    fn from(alloc: &'a Allocation) -> Self {
        Self {
            id: &alloc.id,
            eval_id: &alloc.eval_id,
            node_id: &alloc.node_id,
            task_group: &alloc.task_group,
            desired_status: &alloc.desired_status,
            client_status: &alloc.client_status,
            client_description: &alloc.client_description,
            create_index: alloc.create_index,
            modify_index: alloc.modify_index,
        }
    }
}

impl<'a> From<&'a AllocListStub> for AllocReport<'a> {
    fn from(stub: &'a AllocListStub) -> Self {
        Self {
            id: &stub.id,
            eval_id: &stub.eval_id,
            node_id: &stub.node_id,
            task_group: &stub.task_group,
            desired_status: &stub.desired_status,
            client_status: &stub.client_status,
            client_description: &stub.client_description,
            create_index: stub.create_index,
            modify_index: stub.modify_index,
        }
    }
}

/// Whether to wait for what follows from a change, and how to show it.
#[derive(Debug, clap::Args)]
pub(super) struct Wait {
    /// Do not wait for the evaluation
    #[arg(long)]
    pub(super) detach: bool,
    /// Show full ids
    #[arg(long)]
    pub(super) verbose: bool,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(
        client: &'a Client,
        out: &'a Out,
        verbose: bool,
        namespace: &str,
    ) -> Monitor<'a> {
        let namespace = if namespace.is_empty() {
            words::DEFAULT_NAMESPACE
        } else {
            namespace
        };
        Monitor {
            client,
            out,
            verbose,
            namespace: namespace.to_owned(),
            seen: BTreeMap::new(),
            progress: DeploymentProgress::default(),
            deployments: true,
        }
    }

    /// One that is done when the evaluation is: a deployment that was failed by hand is what was
    /// wanted.
    pub(super) fn evaluations_only(mut self) -> Monitor<'a> {
        self.deployments = false;
        self
    }

    /// One that reports the progress of a deployment no more often than so.
    pub(super) fn paced(mut self, pause: Duration) -> Monitor<'a> {
        self.progress.pause = pause;
        self
    }

    /// Follows the evaluation that a change made, whose id and index are in its answer, or only
    /// names it; nothing where none was made.
    pub(super) async fn after(mut self, (eval, index): (&str, u64), detach: bool) -> Result<u8> {
        if eval.is_empty() {
            return Ok(0);
        }
        if detach {
            self.out.line(&format!("Evaluation ID: {eval}"));
            return Ok(0);
        }
        self.follow(eval, index).await
    }

    pub(super) fn header(&self, text: &str) {
        self.out.line(&format!("==> {}: {text}", time(now())));
    }

    pub(super) fn say(&self, text: &str) {
        self.out.line(&format!("    {}: {text}", time(now())));
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.client
            .fetch(path, &[("namespace", &self.namespace)])
            .await
    }

    /// Follows an evaluation that was created at `index`; 0 for one that may be older.
    pub(super) async fn follow(&mut self, eval_id: &str, index: u64) -> Result<u8> {
        let (mut id, mut from) = (eval_id.to_owned(), index);
        loop {
            self.header(&format!(
                "Monitoring evaluation {:?}",
                short(&id, self.verbose)
            ));
            let eval = self.one(&id, from).await?;
            let status = &eval.status;
            let known = EvalStatus::of(status);
            match known {
                Some(EvalStatus::Failed | EvalStatus::Canceled) => {
                    let why = &eval.status_description;
                    self.header(&format!(
                        "Evaluation {:?} finished with status {status:?}",
                        short(&id, self.verbose)
                    ));
                    self.say(&format!("{why:?}"));
                }
                Some(EvalStatus::Complete | EvalStatus::Blocked | EvalStatus::Pending) | None
                    if placement::failed(&eval) =>
                {
                    self.report_failures(&eval);
                }
                Some(EvalStatus::Complete | EvalStatus::Blocked | EvalStatus::Pending) | None => {
                    self.header(&format!(
                        "Evaluation {:?} finished with status {status:?}",
                        short(&id, self.verbose)
                    ))
                }
            }
            if !eval.next_eval.is_empty() {
                let wait = crate::jobspec::duration::format(eval.wait);
                self.say(&format!(
                    "Monitoring next evaluation {:?} in {wait}",
                    short(&eval.next_eval, self.verbose)
                ));
                (id, from) = (eval.next_eval, eval.modify_index);
                continue;
            }
            let follows = self.deployments && !eval.deployment_id.is_empty();
            if known == Some(EvalStatus::Complete) && follows && !placement::failed(&eval) {
                return self
                    .deployment(&eval.deployment_id, eval.modify_index)
                    .await;
            }
            return Ok(match known {
                Some(EvalStatus::Failed | EvalStatus::Canceled) => 2,
                Some(EvalStatus::Complete | EvalStatus::Blocked | EvalStatus::Pending) | None => {
                    2 * u8::from(placement::failed(&eval))
                }
            });
        }
    }

    /// Waits until a job that was registered at `index` is dead; 1 where something of it failed.
    pub(super) async fn end_of(&self, job: &str, index: u64) -> Result<u8> {
        let path = job_path(job, "");
        let mut stream = self.stream(job, index).await?;
        while self.get::<Job>(&path).await?.status != words::job::DEAD {
            let more = stream.frame().await?;
            more.context("Error following the event stream: it ended")?;
        }
        let summary: JobSummary = self.get(&job_path(job, "/summary")).await?;
        let (mut complete, mut failed) = (0, 0);
        for group in summary.summary.values() {
            complete += group.complete;
            failed += group.failed + group.lost;
        }
        self.header(&format!(
            "Job {job:?} is over: {complete} complete, {failed} failed"
        ));
        Ok(u8::from(failed > 0))
    }

    fn report_failures(&self, eval: &Evaluation) {
        let (id, status) = (short(&eval.id, self.verbose), &eval.status);
        self.header(&format!(
            "Evaluation {id:?} finished with status {status:?} but failed to place all allocations:"
        ));
        for line in placement::failed_groups(&eval.failed_tg_allocs) {
            self.say(&line);
        }
        if !eval.blocked_eval.is_empty() {
            let blocked = short(&eval.blocked_eval, self.verbose);
            self.say(&format!(
                "Evaluation {blocked:?} waiting for additional capacity to place remainder"
            ));
        }
    }

    /// One evaluation until it is done, with reports on its allocations meanwhile.
    async fn one(&mut self, id: &str, from: u64) -> Result<Evaluation> {
        let path = format!("/v1/evaluation/{id}");
        let eval = self.get(&path).await;
        let mut eval: Evaluation = eval.context("Error reading evaluation")?;
        let job = eval.job_id.clone();
        match eval.triggered_by.as_str() {
            words::trigger::NODE_UPDATE => self.say(&format!(
                "Evaluation triggered by node {:?}",
                short(&eval.node_id, self.verbose)
            )),
            _ => self.say(&format!("Evaluation triggered by job {job:?}")),
        }
        let mut deployment = String::new();
        let mut last = eval.status.clone();
        self.report_deployment(&eval, &mut deployment);
        if !done(&last) {
            let from = if from > 0 { from } else { eval.create_index };
            let mut stream = self.stream(&job, from).await?;
            while !done(&last) {
                let Some(frame) = stream.frame().await? else {
                    break;
                };
                for event in frame.events {
                    if let Some(alloc) = &event.payload.allocation {
                        self.report_alloc(&alloc.into(), Some(&eval));
                    }
                    let changed = event.payload.evaluation;
                    let Some(changed) = changed.filter(|changed| changed.id == id) else {
                        continue;
                    };
                    eval = changed;
                    self.report_deployment(&eval, &mut deployment);
                    self.report_status(&eval, &mut last);
                }
            }
        }
        // The stream may carry less than the row, and an evaluation that was done already sent
        // nothing.
        eval = self.get(&path).await.unwrap_or(eval);
        self.report_deployment(&eval, &mut deployment);
        let allocs: Vec<AllocListStub> = self.get(&format!("{path}/allocations")).await?;
        for alloc in &allocs {
            self.report_alloc(&alloc.into(), Some(&eval));
        }
        self.report_status(&eval, &mut last);
        Ok(eval)
    }

    pub(super) async fn stream(&self, job: &str, from: u64) -> Result<Stream> {
        let topics: Vec<String> = ["Evaluation", "Allocation", "Deployment"]
            .map(|t| format!("{t}:{job}"))
            .into();
        let index = from.max(1).to_string();
        let mut query = vec![
            ("index", index.as_str()),
            ("namespace", self.namespace.as_str()),
        ];
        query.extend(topics.iter().map(|t| ("topic", t.as_str())));
        self.client
            .stream("/v1/event/stream", &query)
            .await
            .context("Error following the event stream")
    }

    fn report_deployment(&self, eval: &Evaluation, known: &mut String) {
        let id = &eval.deployment_id;
        if !id.is_empty() && *known != *id {
            self.say(&format!(
                "Evaluation within deployment: {:?}",
                short(id, self.verbose)
            ));
            known.clone_from(id);
        }
    }

    fn report_status(&self, eval: &Evaluation, last: &mut String) {
        let status = &eval.status;
        if *status != *last {
            self.say(&format!(
                "Evaluation status changed: {last:?} -> {status:?}"
            ));
            last.clone_from(status);
        }
    }

    /// Reports an allocation; one that is older than `eval` was updated in place.
    pub(super) fn report_alloc(&mut self, alloc: &AllocReport<'_>, eval: Option<&Evaluation>) {
        let is_new = match eval {
            Some(eval) => alloc.eval_id == eval.id && alloc.create_index >= eval.create_index,
            None => alloc.create_index == alloc.modify_index,
        };
        let status = alloc.client_status;
        if alloc.id.is_empty() {
            return;
        }
        let shown = short(alloc.id, self.verbose);
        let (node, group) = (short(alloc.node_id, self.verbose), alloc.task_group);
        match self.seen.get(alloc.id) {
            None if is_new => self.say(&format!(
                "Allocation {shown:?} created: node {node:?}, group {group:?}"
            )),
            None if alloc.desired_status == words::desired::RUN => self.say(&format!(
                "Allocation {shown:?} modified: node {node:?}, group {group:?}"
            )),
            Some(old) if *old != status => {
                let why = match alloc.client_description {
                    "" => String::new(),
                    why => format!(" ({why})"),
                };
                self.say(&format!(
                    "Allocation {shown:?} status changed: {old:?} -> {status:?}{why}"
                ));
            }
            _ => {}
        }
        self.seen.insert(alloc.id.to_owned(), status.to_owned());
    }
}

fn done(status: &str) -> bool {
    match EvalStatus::of(status) {
        Some(
            EvalStatus::Complete | EvalStatus::Failed | EvalStatus::Canceled | EvalStatus::Blocked,
        ) => true,
        Some(EvalStatus::Pending) | None => false,
    }
}
