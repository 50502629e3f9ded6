//! Follows an evaluation on the event stream; [`deployment`] follows the deployment it makes.

pub(super) mod deployment;

use super::client::Client;
use super::out::Out;
use super::placement;
use super::query::job_path;
use super::show::{list, now, number, short, text, time};
use super::stream::Stream;
use anyhow::{Context, Result};
use deployment::Progress;
use drover_events::model::status::{EvalStatus, desired, job as job_status, trigger};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Watches one evaluation after another until there is nothing to wait for.
pub(super) struct Monitor<'a> {
    pub(super) client: &'a Client,
    pub(super) out: &'a Out,
    pub(super) verbose: bool,
    namespace: String,
    seen: BTreeMap<String, String>,
    pub(super) progress: Progress,
    deployments: bool,
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
            "default"
        } else {
            namespace
        };
        Monitor {
            client,
            out,
            verbose,
            namespace: namespace.to_owned(),
            seen: BTreeMap::new(),
            progress: Progress::default(),
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

    /// Follows the evaluation that the answer to a change names, or only names it; nothing where
    /// none was made.
    pub(super) async fn after(mut self, answer: &Json, detach: bool) -> Result<u8> {
        let eval = text(answer, "EvalID");
        if eval.is_empty() {
            return Ok(0);
        }
        if detach {
            self.out.line(&format!("Evaluation ID: {eval}"));
            return Ok(0);
        }
        self.follow(&eval, number(answer, "EvalCreateIndex")).await
    }

    pub(super) fn header(&self, text: &str) {
        self.out.line(&format!("==> {}: {text}", time(now())));
    }

    pub(super) fn say(&self, text: &str) {
        self.out.line(&format!("    {}: {text}", time(now())));
    }

    pub(super) async fn get(&self, path: &str) -> Result<Json> {
        self.client
            .get_json(path, &[("namespace", &self.namespace)])
            .await
    }

    /// Follows an evaluation that was created at `index`; 0 for one that may be older.
    pub(super) async fn follow(&mut self, eval_id: &str, index: i64) -> Result<u8> {
        let (mut id, mut from) = (eval_id.to_owned(), index);
        loop {
            self.header(&format!(
                "Monitoring evaluation {:?}",
                short(&id, self.verbose)
            ));
            let eval = self.one(&id, from).await?;
            let status = text(&eval, "Status");
            let known = EvalStatus::of(&status);
            match known {
                Some(EvalStatus::Failed | EvalStatus::Canceled) => {
                    let why = text(&eval, "StatusDescription");
                    self.header(&format!(
                        "Evaluation {:?} finished with status {status:?}",
                        short(&id, self.verbose)
                    ));
                    self.say(&format!("{why:?}"));
                }
                Some(EvalStatus::Complete | EvalStatus::Blocked | EvalStatus::Pending) | None => {
                    match placement::failed(&eval) {
                        true => self.tell_failures(&eval, &status),
                        false => self.header(&format!(
                            "Evaluation {:?} finished with status {status:?}",
                            short(&id, self.verbose)
                        )),
                    }
                }
            }
            let next = text(&eval, "NextEval");
            if !next.is_empty() {
                let wait = crate::jobspec::duration::format(number(&eval, "Wait"));
                self.say(&format!(
                    "Monitoring next evaluation {:?} in {wait}",
                    short(&next, self.verbose)
                ));
                (id, from) = (next, number(&eval, "ModifyIndex"));
                continue;
            }
            let deployment = text(&eval, "DeploymentID");
            let follows = self.deployments && !deployment.is_empty();
            if known == Some(EvalStatus::Complete) && follows && !placement::failed(&eval) {
                return self
                    .deployment(&deployment, number(&eval, "ModifyIndex"))
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
    pub(super) async fn end_of(&self, job: &str, index: i64) -> Result<u8> {
        let path = job_path(job, "");
        let mut stream = self.stream(job, index).await?;
        while text(&self.get(&path).await?, "Status") != job_status::DEAD {
            let more = stream.json_line().await?;
            more.context("Error following the event stream: it ended")?;
        }
        let summary = self.get(&job_path(job, "/summary")).await?;
        let of = |name: &str| -> i64 {
            let groups = summary["Summary"].as_object().into_iter().flatten();
            groups.map(|(_, group)| number(group, name)).sum()
        };
        let (complete, failed) = (of("Complete"), of("Failed") + of("Lost"));
        self.header(&format!(
            "Job {job:?} is over: {complete} complete, {failed} failed"
        ));
        Ok(u8::from(failed > 0))
    }

    fn tell_failures(&self, eval: &Json, status: &str) {
        let id = short(&text(eval, "ID"), self.verbose);
        self.header(&format!(
            "Evaluation {id:?} finished with status {status:?} but failed to place all allocations:"
        ));
        for line in placement::failed_groups(&eval["FailedTGAllocs"]) {
            self.say(&line);
        }
        let blocked = text(eval, "BlockedEval");
        if !blocked.is_empty() {
            let blocked = short(&blocked, self.verbose);
            self.say(&format!(
                "Evaluation {blocked:?} waiting for additional capacity to place remainder"
            ));
        }
    }

    /// One evaluation until it is done, telling of its allocations meanwhile.
    async fn one(&mut self, id: &str, from: i64) -> Result<Json> {
        let path = format!("/v1/evaluation/{id}");
        let mut eval = self.get(&path).await.context("Error reading evaluation")?;
        let job = text(&eval, "JobID");
        match text(&eval, "TriggeredBy").as_str() {
            trigger::NODE_UPDATE => self.say(&format!(
                "Evaluation triggered by node {:?}",
                short(&text(&eval, "NodeID"), self.verbose)
            )),
            _ => self.say(&format!("Evaluation triggered by job {job:?}")),
        }
        let mut deployment = String::new();
        let mut last = text(&eval, "Status");
        self.tell_deployment(&eval, &mut deployment);
        if !done(&last) {
            let from = if from > 0 {
                from
            } else {
                number(&eval, "CreateIndex")
            };
            let mut stream = self.stream(&job, from).await?;
            while !done(&last) {
                let Some(frame) = stream.json_line().await? else {
                    break;
                };
                for event in list(&frame, "Events") {
                    if text(event, "Topic") == "Allocation" {
                        self.tell_alloc(&event["Payload"]["Allocation"], Some(&eval));
                    }
                    let changed = &event["Payload"]["Evaluation"];
                    if text(event, "Topic") != "Evaluation" || text(changed, "ID") != id {
                        continue;
                    }
                    eval = changed.clone();
                    let status = text(&eval, "Status");
                    self.tell_deployment(&eval, &mut deployment);
                    if status != last {
                        self.say(&format!(
                            "Evaluation status changed: {last:?} -> {status:?}"
                        ));
                        last = status;
                    }
                }
            }
        }
        // The stream may carry less than the row, and an evaluation that was done already told
        // nothing.
        eval = self.get(&path).await.unwrap_or(eval);
        self.tell_deployment(&eval, &mut deployment);
        let allocs = self.get(&format!("{path}/allocations")).await?;
        for alloc in allocs.as_array().into_iter().flatten() {
            self.tell_alloc(alloc, Some(&eval));
        }
        let status = text(&eval, "Status");
        if status != last {
            self.say(&format!(
                "Evaluation status changed: {last:?} -> {status:?}"
            ));
        }
        Ok(eval)
    }

    pub(super) async fn stream(&self, job: &str, from: i64) -> Result<Stream> {
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

    fn tell_deployment(&self, eval: &Json, known: &mut String) {
        let id = text(eval, "DeploymentID");
        if !id.is_empty() && *known != id {
            self.say(&format!(
                "Evaluation within deployment: {:?}",
                short(&id, self.verbose)
            ));
            *known = id;
        }
    }

    /// Tells of an allocation; one that `eval` found there was updated in place.
    pub(super) fn tell_alloc(&mut self, alloc: &Json, eval: Option<&Json>) {
        let id = text(alloc, "ID");
        let created = number(alloc, "CreateIndex");
        let is_new = match eval {
            Some(eval) => {
                text(alloc, "EvalID") == text(eval, "ID") && created >= number(eval, "CreateIndex")
            }
            None => created == number(alloc, "ModifyIndex"),
        };
        let status = text(alloc, "ClientStatus");
        if id.is_empty() {
            return;
        }
        let shown = short(&id, self.verbose);
        match self.seen.get(&id) {
            None if is_new => {
                let (node, group) = (
                    short(&text(alloc, "NodeID"), self.verbose),
                    text(alloc, "TaskGroup"),
                );
                self.say(&format!(
                    "Allocation {shown:?} created: node {node:?}, group {group:?}"
                ));
            }
            None if text(alloc, "DesiredStatus") == desired::RUN => {
                let (node, group) = (
                    short(&text(alloc, "NodeID"), self.verbose),
                    text(alloc, "TaskGroup"),
                );
                self.say(&format!(
                    "Allocation {shown:?} modified: node {node:?}, group {group:?}"
                ));
            }
            Some(old) if *old != status => {
                let why = text(alloc, "ClientDescription");
                let why = if why.is_empty() {
                    why
                } else {
                    format!(" ({why})")
                };
                self.say(&format!(
                    "Allocation {shown:?} status changed: {old:?} -> {status:?}{why}"
                ));
            }
            _ => {}
        }
        self.seen.insert(id, status);
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
