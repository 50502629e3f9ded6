//! Follows an evaluation, and the deployment it belongs to, on the event stream.

use super::client::{Client, Stream, is_status};
use super::columns::{Table, pairs};
use super::out::Out;
use super::placement;
use super::show::{boolean, list, now, number, short, stamp, text, time};
use anyhow::{Context, Result};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Watches one evaluation after another until there is nothing to wait for.
pub(super) struct Monitor<'a> {
    client: &'a Client,
    out: &'a Out,
    verbose: bool,
    namespace: String,
    seen: BTreeMap<String, String>,
    progress: BTreeMap<String, String>,
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
            progress: BTreeMap::new(),
        }
    }

    fn header(&self, text: &str) {
        self.out.line(&format!("==> {}: {text}", time(now())));
    }

    fn say(&self, text: &str) {
        self.out.line(&format!("    {}: {text}", time(now())));
    }

    async fn get(&self, path: &str) -> Result<Json> {
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
            match status.as_str() {
                "failed" | "canceled" => {
                    let why = text(&eval, "StatusDescription");
                    self.header(&format!(
                        "Evaluation {:?} finished with status {status:?}",
                        short(&id, self.verbose)
                    ));
                    self.say(&format!("{why:?}"));
                }
                _ if placement::failed(&eval) => self.tell_failures(&eval, &status),
                _ => self.header(&format!(
                    "Evaluation {:?} finished with status {status:?}",
                    short(&id, self.verbose)
                )),
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
            if status == "complete" && !deployment.is_empty() && !placement::failed(&eval) {
                return self
                    .deployment(&deployment, number(&eval, "ModifyIndex"))
                    .await;
            }
            return Ok(match status.as_str() {
                "failed" | "canceled" => 2,
                _ if placement::failed(&eval) => 2,
                _ => 0,
            });
        }
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
            "node-update" => self.say(&format!(
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

    async fn stream(&self, job: &str, from: i64) -> Result<Stream> {
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
    fn tell_alloc(&mut self, alloc: &Json, eval: Option<&Json>) {
        let id = text(alloc, "ID");
        let is_new = eval.is_some_and(|eval| {
            text(alloc, "EvalID") == text(eval, "ID")
                && number(alloc, "CreateIndex") >= number(eval, "CreateIndex")
        });
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
            None if text(alloc, "DesiredStatus") == "run" => {
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

    /// A deployment until it is settled.
    pub(super) async fn deployment(&mut self, id: &str, from: i64) -> Result<u8> {
        let path = format!("/v1/deployment/{id}");
        let mut deployment = match self.get(&path).await {
            Ok(found) => found,
            Err(err) if is_status(&err, 404) => return Ok(0),
            Err(err) => return Err(err.context("Error reading deployment")),
        };
        self.header(&format!(
            "Monitoring deployment {:?}",
            short(id, self.verbose)
        ));
        let job = text(&deployment, "JobID");
        if !settled(&deployment) {
            let mut stream = self
                .stream(&job, from.max(number(&deployment, "CreateIndex")))
                .await?;
            while !settled(&deployment) {
                let Some(frame) = stream.json_line().await? else {
                    break;
                };
                for event in list(&frame, "Events") {
                    if text(event, "Topic") == "Allocation" {
                        self.tell_alloc(&event["Payload"]["Allocation"], None);
                    }
                    let changed = &event["Payload"]["Deployment"];
                    if text(changed, "ID") == id {
                        deployment = changed.clone();
                        self.tell_progress(&deployment);
                    }
                }
            }
        }
        let deployment = self.get(&path).await.unwrap_or(deployment);
        let status = text(&deployment, "Status");
        self.say(&format!(
            "Deployment {:?} {status}",
            short(id, self.verbose)
        ));
        self.out
            .line(&format!("\n{}", deployment_text(&deployment, self.verbose)));
        Ok(u8::from(status != "successful"))
    }

    fn tell_progress(&mut self, deployment: &Json) {
        let states = deployment["TaskGroups"].as_object().into_iter().flatten();
        for (name, state) in states {
            let line = format!(
                "Group {name:?}: desired {}, placed {}, healthy {}, unhealthy {}",
                number(state, "DesiredTotal"),
                number(state, "PlacedAllocs"),
                number(state, "HealthyAllocs"),
                number(state, "UnhealthyAllocs"),
            );
            if self.progress.get(name) != Some(&line) {
                self.say(&line);
                self.progress.insert(name.clone(), line);
            }
        }
    }
}

fn done(status: &str) -> bool {
    matches!(status, "complete" | "failed" | "canceled" | "blocked")
}

/// Whether nothing more happens to a deployment by itself.
fn settled(deployment: &Json) -> bool {
    let status = text(deployment, "Status");
    let by_hand = text(deployment, "StatusDescription").contains("requires manual promotion")
        && deployment["TaskGroups"]
            .as_object()
            .into_iter()
            .flatten()
            .all(|(_, s)| {
                number(s, "DesiredCanaries") == 0
                    || number(s, "HealthyAllocs") >= number(s, "DesiredCanaries")
            });
    !matches!(
        status.as_str(),
        "running" | "pending" | "blocked" | "unblocking" | "initializing"
    ) || by_hand
}

/// A deployment's fields and its table.
pub(super) fn deployment_text(deployment: &Json, verbose: bool) -> String {
    let mut out = pairs(&[
        ("ID", short(&text(deployment, "ID"), verbose)),
        ("Job ID", text(deployment, "JobID")),
        ("Job Version", number(deployment, "JobVersion").to_string()),
        ("Status", text(deployment, "Status")),
        ("Description", text(deployment, "StatusDescription")),
    ]);
    let states: Vec<(&String, &Json)> = deployment["TaskGroups"]
        .as_object()
        .into_iter()
        .flatten()
        .collect();
    if states.is_empty() {
        return out;
    }
    let canaries = states.iter().any(|(_, s)| number(s, "DesiredCanaries") > 0);
    let reverts = states.iter().any(|(_, s)| boolean(s, "AutoRevert"));
    let mut head = vec!["Task Group"];
    if reverts {
        head.push("Auto Revert");
    }
    if canaries {
        head.push("Promoted");
    }
    head.push("Desired");
    if canaries {
        head.push("Canaries");
    }
    head.extend(["Placed", "Healthy", "Unhealthy", "Progress Deadline"]);
    let mut table = Table::with_head(head);
    for (name, state) in states {
        let mut row = vec![name.clone()];
        if reverts {
            row.push(boolean(state, "AutoRevert").to_string());
        }
        if canaries {
            let wanted = number(state, "DesiredCanaries") > 0;
            row.push(if wanted {
                boolean(state, "Promoted").to_string()
            } else {
                "N/A".to_owned()
            });
        }
        row.push(number(state, "DesiredTotal").to_string());
        if canaries {
            row.push(number(state, "DesiredCanaries").to_string());
        }
        row.extend(
            ["PlacedAllocs", "HealthyAllocs", "UnhealthyAllocs"]
                .map(|k| number(state, k).to_string()),
        );
        row.push(stamp(state, "RequireProgressBy"));
        table.row(row);
    }
    out.push_str(&format!("\n\nDeployed\n{table}"));
    out
}
