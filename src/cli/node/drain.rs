//! `node drain`: moving everything off a node, and watching how it goes.

use crate::cli::answer;
use crate::cli::client::{Client, Stream};
use crate::cli::conn::Conn;
use crate::cli::node::named;
use crate::cli::out::Out;
use crate::cli::show::{counted, now, pretty, time};
use crate::cli::stream::EventFrame;
use crate::http::answers::NodeDrainUpdateResponse;
use crate::jobspec::duration;
use anyhow::{Context, Result, bail};
use drover_events::model::status::{self as words, ClientStatus, DrainStatus};
use drover_events::model::{Allocation, DrainStrategy, Node};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const HOUR: i64 = 3_600_000_000_000;

/// Flags of `node drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover node drain -enable -yes 8ba85cef            move everything off, and watch it
  drover node drain -enable -deadline 10m -self      what is left after ten minutes is stopped
  drover node drain -enable -force -detach 8ba85cef  stop everything there at once
  drover node drain -disable 8ba85cef                call the drain off; the node is eligible again
  drover node drain -monitor 8ba85cef                watch a drain that is going on

The drain goes on when watching stops.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The node's id or a prefix of it
    node: Option<String>,
    /// Begin a drain, or change the one there is
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Call off a drain
    #[arg(long)]
    disable: bool,
    /// When what is left is stopped (1h unless another is given)
    #[arg(long, value_name = "DURATION")]
    deadline: Option<String>,
    /// Stop everything at once
    #[arg(long)]
    force: bool,
    /// Wait for as long as it takes
    #[arg(long)]
    no_deadline: bool,
    /// Leave allocations of system jobs where they are
    #[arg(long)]
    ignore_system: bool,
    /// With -disable: the node still takes no new allocations
    #[arg(long)]
    keep_ineligible: bool,
    /// The node of the agent that is called
    #[arg(long = "self", conflicts_with = "node")]
    own: bool,
    /// Do not watch
    #[arg(long)]
    detach: bool,
    /// Watch a drain that is going on
    #[arg(long)]
    monitor: bool,
    /// Answer yes to every question
    #[arg(long)]
    yes: bool,
    /// With -enable or -disable: print the API's answer as JSON and do not watch
    #[arg(long)]
    json: bool,
    /// A message that says why, kept with the drain
    #[arg(short = 'm', value_name = "MESSAGE")]
    message: Option<String>,
    /// An entry that is kept with the drain; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
}

impl Args {
    fn check(&self) -> Result<()> {
        if self.monitor && !self.enable && !self.disable {
            return Ok(());
        }
        if self.enable == self.disable {
            bail!("Either the '-enable' or '-disable' flag must be set, unless using '-monitor'");
        }
        let times = [self.deadline.is_some(), self.force, self.no_deadline];
        if times.iter().filter(|given| **given).count() > 1 {
            bail!("The -deadline, -force, and -no-deadline flags are mutually exclusive");
        }
        if self.disable && (times.contains(&true) || self.ignore_system) {
            bail!(
                "-disable can't be combined with flags configuring drain strategy\n\
                 (-deadline, -force, -no-deadline, -ignore-system)"
            );
        }
        if self.enable && self.keep_ineligible {
            bail!("-enable can't be combined with -keep-ineligible");
        }
        Ok(())
    }

    /// The drain's deadline in nanoseconds; -1: stop everything at once, 0: no deadline.
    fn deadline(&self) -> Result<i64> {
        if self.force {
            return Ok(-1);
        }
        if self.no_deadline {
            return Ok(0);
        }
        let Some(text) = &self.deadline else {
            return Ok(HOUR);
        };
        let time =
            duration::parse(text).with_context(|| format!("Failed to parse deadline {text:?}"))?;
        if time <= 0 {
            bail!("A positive drain duration must be given");
        }
        Ok(time)
    }

    fn meta(&self) -> Map<String, Json> {
        let mut meta = Map::new();
        if let Some(message) = &self.message {
            let key = if self.enable {
                "message"
            } else {
                "cancel_message"
            };
            meta.insert(key.to_owned(), message.clone().into());
        }
        for pair in self.meta.iter().filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            meta.insert(key.to_owned(), value.into());
        }
        meta
    }

    fn body(&self, id: &str) -> Result<Json> {
        let spec = if self.enable {
            json!({ "Deadline": self.deadline()?, "IgnoreSystemJobs": self.ignore_system })
        } else {
            Json::Null
        };
        Ok(json!({
            "NodeID": id,
            "DrainSpec": spec,
            "MarkEligible": self.disable && !self.keep_ineligible,
            "Meta": self.meta(),
        }))
    }
}

/// Sets a drain, calls it off, or watches one.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    args.check()?;
    let client = args.conn.client()?;
    let id = named(&client, args.node.as_deref(), args.own).await?.id;
    if !args.enable && !args.disable {
        return watch_only(&client, &id, out).await;
    }
    let body = args.body(&id)?;
    let exact = args.own || args.node.as_deref() == Some(id.as_str());
    if !args.yes && !exact {
        let verb = if args.enable { "enable" } else { "disable" };
        let question =
            format!("Are you sure you want to {verb} drain mode for node {id:?}? [y/N] ");
        match out.ask(&question).as_str() {
            "y" => {}
            "" | "n" | "N" | "no" => {
                out.line("Canceling drain toggle");
                return Ok(0);
            }
            _ => {
                out.line("For confirmation, an exact 'y' is required.");
                return Ok(0);
            }
        }
    }
    let path = format!("/v1/node/{id}/drain");
    let answer = client.put(&path, &[], &body).await;
    let answer: Json = answer.context("Error updating drain specification")?;
    if args.json {
        out.exact(&pretty(&answer));
        return Ok(0);
    }
    if args.disable {
        out.line(&format!("Node {id:?} drain strategy unset"));
        return Ok(0);
    }
    if args.detach {
        out.line(&format!("Node {id:?} drain strategy set"));
        return Ok(0);
    }
    say(
        out,
        "Ctrl-C to stop monitoring: will not cancel the node drain",
    );
    say(out, &format!("Node {id:?} drain strategy set"));
    let ignored = args.ignore_system;
    let answer: NodeDrainUpdateResponse = answer::of(answer)?;
    Watch::new(&client, out, &id, ignored)
        .follow(answer.node_modify_index)
        .await
}

async fn watch_only(client: &Client, id: &str, out: &Out) -> Result<u8> {
    let node = client.fetch(&format!("/v1/node/{id}"), &[]).await;
    let node: Node = node.context("Error querying node info")?;
    let Some(strategy) = node.drain_strategy else {
        out.line(&format!("No drain strategy set for node {id}"));
        return Ok(0);
    };
    say(
        out,
        &format!("Monitoring node {id:?}: Ctrl-C to detach monitoring"),
    );
    Watch::new(client, out, id, strategy.ignore_system_jobs)
        .follow(node.modify_index)
        .await
}

/// What a drain that is complete left: it may have left out allocations of system jobs, and it ends
/// some time after its deadline whatever still runs.
fn remaining(node: &str, running: &[String]) -> String {
    if running.is_empty() {
        return format!("All allocations on node {node:?} have stopped");
    }
    let count = counted(running.len(), "allocation");
    format!(
        "{count} on node {node:?} not stopped: {}",
        running.join(", ")
    )
}

fn say(out: &Out, text: &str) {
    out.line(&format!("{}: {text}", time(now())));
}

/// What was seen of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AllocStatus {
    status: String,
    stops: bool,
    moves: bool,
}

impl AllocStatus {
    fn of(alloc: &Allocation) -> Self {
        Self {
            status: alloc.client_status.clone(),
            stops: alloc.desired_status != words::desired::RUN,
            moves: alloc.desired_transition.migrate.unwrap_or(false),
        }
    }

    fn ended(&self) -> bool {
        ClientStatus::of(&self.status).is_some_and(ClientStatus::is_terminal)
    }
}

/// Whether an allocation comes with its job, and that is a system job.
fn is_system(alloc: &Allocation) -> bool {
    let job = alloc.job.as_ref();
    job.is_some_and(|job| job.r#type == words::job_type::SYSTEM)
}

/// Follows one drain on the event stream.
struct Watch<'a> {
    client: &'a Client,
    out: &'a Out,
    id: String,
    ignore_system: bool,
    seen: BTreeMap<String, AllocStatus>,
    /// Allocations of system jobs: what the stream sends of an allocation names no type of job.
    system: BTreeSet<String>,
    strategy: Option<DrainStrategy>,
}

/// How a drain ended.
enum End {
    Complete,
    Cancelled,
}

impl<'a> Watch<'a> {
    fn new(client: &'a Client, out: &'a Out, id: &str, ignore_system: bool) -> Self {
        Self {
            client,
            out,
            id: id.to_owned(),
            ignore_system,
            seen: BTreeMap::new(),
            system: BTreeSet::new(),
            strategy: None,
        }
    }

    fn say(&self, text: &str) {
        say(self.out, text);
    }

    async fn stream(&self, topic: &str, filter: &str, from: u64) -> Result<Stream> {
        let index = from.max(1).to_string();
        let mut query = vec![
            ("index", index.as_str()),
            ("namespace", "*"),
            ("topic", topic),
        ];
        if !filter.is_empty() {
            query.push(("filter", filter));
        }
        let stream = self.client.stream("/v1/event/stream", &query).await;
        stream.context("Error following the event stream")
    }

    /// Prints what happens from an index on, until the drain has ended.
    async fn follow(mut self, from: u64) -> Result<u8> {
        let of_node = format!("Allocation.NodeID == \"{}\"", self.id);
        let mut allocs = self.stream("Allocation", &of_node, from).await?;
        let mut nodes = self.stream(&format!("Node:{}", self.id), "", from).await?;
        self.note_initial(from).await?;
        let end = loop {
            let frame = tokio::select! {
                frame = allocs.frame() => frame?,
                frame = nodes.frame() => frame?,
            };
            let Some(frame) = frame else {
                bail!("The event stream ended; the drain goes on");
            };
            if let Some(end) = self.report(frame) {
                break end;
            }
        };
        match end {
            End::Cancelled => self.say(&format!("Drain canceled for node {}", self.id)),
            End::Complete => {
                let running = self.rest().await?;
                self.say(&format!("Drain complete for node {}", self.id));
                self.say(&remaining(&self.id, &running));
            }
        }
        Ok(0)
    }

    /// Notes, before the first event, which allocations are system jobs' and the status of those
    /// not modified since `from`.
    async fn note_initial(&mut self, from: u64) -> Result<()> {
        for alloc in self.allocs().await? {
            if is_system(&alloc) {
                self.system.insert(alloc.id.clone());
            }
            if alloc.modify_index < from {
                let seen = AllocStatus::of(&alloc);
                self.seen.insert(alloc.id, seen);
            }
        }
        Ok(())
    }

    async fn allocs(&self) -> Result<Vec<Allocation>> {
        let path = format!("/v1/node/{}/allocations", self.id);
        let allocs = self.client.fetch(&path, &[("namespace", "*")]).await;
        allocs.context("Error querying allocations")
    }

    /// Prints what ended in the same moment as the drain, which the other stream has yet to send.
    /// The ids of the allocations that have not stopped.
    async fn rest(&mut self) -> Result<Vec<String>> {
        let mut running = Vec::new();
        for alloc in self.allocs().await? {
            self.report_alloc(&alloc);
            if !AllocStatus::of(&alloc).ended() {
                running.push(alloc.id);
            }
        }
        Ok(running)
    }

    fn report(&mut self, frame: EventFrame) -> Option<End> {
        let mut end = None;
        for event in frame.events {
            if let Some(alloc) = event.payload.allocation {
                self.report_alloc(&alloc);
            }
            if let Some(node) = event.payload.node {
                end = end.or_else(|| self.report_node(node));
            }
        }
        end
    }

    fn report_alloc(&mut self, alloc: &Allocation) {
        let id = &alloc.id;
        if self.ignore_system && (self.system.contains(id) || is_system(alloc)) {
            return;
        }
        let new = AllocStatus::of(alloc);
        let Some(old) = self.seen.insert(id.clone(), new.clone()) else {
            if !new.ended() && new.moves {
                self.say(&format!("Alloc {id:?} marked for migration"));
            }
            return;
        };
        if new.moves && !old.moves {
            self.say(&format!("Alloc {id:?} marked for migration"));
        }
        if new.stops && !old.stops {
            self.say(&format!("Alloc {id:?} draining"));
        }
        if new.status != old.status {
            self.say(&format!(
                "Alloc {id:?} status {} -> {}",
                old.status, new.status
            ));
        }
    }

    fn report_node(&mut self, node: Node) -> Option<End> {
        let Some(strategy) = node.drain_strategy else {
            let last = node.last_drain.unwrap_or_default();
            return Some(match DrainStatus::of(&last.status) {
                Some(DrainStatus::Complete) => End::Complete,
                Some(DrainStatus::Draining | DrainStatus::Canceled) | None => End::Cancelled,
            });
        };
        if self.strategy.as_ref().is_some_and(|old| *old != strategy) {
            self.say(&format!("Node {:?} drain strategy updated", self.id));
        }
        self.ignore_system = strategy.ignore_system_jobs;
        self.strategy = Some(strategy);
        if node.status == words::node::DOWN {
            self.say(&format!("Node {:?} is down", self.id));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_drain_names_what_has_not_stopped() {
        let ids = ["a".to_owned(), "b".to_owned()];
        for (running, wanted) in [
            (0, "All allocations on node \"n\" have stopped"),
            (1, "1 allocation on node \"n\" not stopped: a"),
            (2, "2 allocations on node \"n\" not stopped: a, b"),
        ] {
            assert_eq!(remaining("n", &ids[..running]), wanted);
        }
    }
}
