//! `trace`: what an event, a request or a thing came from, and all that followed.

use super::answer;
use super::changes::{Who, who};
use super::conn::PastConnection;
use super::out::{Out, one_line};
use super::show::{Format, refused, short, time};
use super::trail::say_kept_since;
use crate::history::audit::Touched;
use anyhow::Result;
use serde::Deserialize;
use serde_json::Value as Json;

/// Flags of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover trace 812                an event, by its index
  drover trace 8ba85cef           an allocation, evaluation or deployment, by its id
  drover trace web                a job: what its last registration brought
  drover trace job:cafe           where an id could mean several: alloc:, eval:, deployment:, job:,
                                  event:, request:

The tree begins with what started it all, usually somebody's command. A + is the time since then.")]
pub(super) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// An index, a request's id, a job, or (the beginning of) an id
    id: String,
    /// Show full ids and all tasks' messages
    #[arg(long)]
    verbose: bool,
}

/// A cause chain, as the audit trail reports it; its events are read one by one, so that one that
/// cannot be read does not end it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TraceTree {
    /// The type of the requested object, and its whole id.
    r#type: String,
    #[serde(rename = "ID")]
    id: String,
    /// The indexes of the requested events.
    focus: Vec<u64>,
    /// Whether more followed than is listed.
    truncated: bool,
    /// Whether something is left out because it is damaged.
    damaged: bool,
    /// The first events, as they came.
    roots: Vec<Json>,
}

/// An event; what followed from it is read beside it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TraceNode {
    index: u64,
    /// Unix nanoseconds.
    time: i64,
    /// Nanoseconds since the first event of the chain.
    elapsed: i64,
    kind: String,
    actor: Option<Who>,
    /// Why it was refused; empty where it was not.
    refused: String,
    /// Whether what followed is listed elsewhere.
    again: bool,
    /// What it touched, and how much more.
    things: Vec<Touched>,
    more_things: u64,
}

impl TraceNode {
    /// An event, and what followed from it, as that came. For an event that cannot be read, its
    /// index and that it is unreadable: what followed may well be readable.
    fn reported(mut raw: Json) -> (Self, Vec<Json>) {
        let index = answer::index(&raw).unwrap_or_default();
        let children = raw.get_mut("Children").map(Json::take);
        let children = match children {
            Some(Json::Array(all)) => all,
            _ => Vec::new(),
        };
        let node = answer::of(raw).unwrap_or_else(|error| Self {
            index,
            kind: answer::unreadable(&error),
            actor: Some(Who::unknown()),
            ..Self::default()
        });
        (node, children)
    }
}

/// Prints a cause chain.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let query = [("id", args.id.as_str())];
    let reply = client.get("/v1/audit/trace", &query).await;
    let reply = reply.map_err(|err| err.context("Error tracing"))?;
    let Some(tree) = args.format.take::<TraceTree>(&reply, out)? else {
        return Ok(0);
    };
    out.line(&format!("{} {}", tree.r#type, tree.id));
    let printer = Printer {
        out,
        verbose: args.verbose,
        focus: tree.focus,
    };
    for root in tree.roots {
        out.line("");
        printer.node(root, "", "");
    }
    if tree.truncated {
        out.line("\nMore followed than is shown here; trace one of the events above.");
    }
    if tree.damaged {
        out.line("\nSomething of it is damaged, and what followed from that is not shown.");
    }
    say_kept_since(reply.kept_since.as_ref(), out);
    Ok(0)
}

struct Printer<'a> {
    out: &'a Out,
    verbose: bool,
    focus: Vec<u64>,
}

impl Printer<'_> {
    /// Prints an event behind `head`, and what belongs to it behind `rest`.
    fn node(&self, raw: Json, head: &str, rest: &str) {
        let (node, children) = TraceNode::reported(raw);
        let (index, kind) = (node.index, &node.kind);
        let star = if self.focus.contains(&index) { "*" } else { "" };
        let when = match node.elapsed {
            0 if rest.is_empty() => time(node.time),
            elapsed => format!("+{}", span(elapsed)),
        };
        let by = who(node.actor.as_ref());
        let mut line = format!("{head}{index}{star}  {when}  {kind}  by {by}");
        if !node.refused.is_empty() {
            line += &format!("  {}", refused(&node.refused));
        }
        if node.again {
            line += "  (what followed is shown above)";
        }
        self.out.line(&one_line(&line));
        let stem = if children.is_empty() { " " } else { "│" };
        for thing in &node.things {
            self.thing(thing, node.time - node.elapsed, rest, stem);
        }
        let more = node.more_things;
        if more > 0 {
            self.out.line(&format!("{rest}{stem}   and {more} more"));
        }
        let count = children.len();
        for (at, child) in children.into_iter().enumerate() {
            let last = at + 1 == count;
            let (branch, below) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            self.node(child, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }

    fn thing(&self, thing: &Touched, begun: i64, rest: &str, stem: &str) {
        let kind = &*thing.kind;
        // Ids are cut, names are not.
        let is_id = matches!(kind, "evaluation" | "allocation" | "deployment" | "node");
        let id = short(&thing.id, self.verbose || !is_id);
        let what = &thing.what;
        let line = format!("{rest}{stem}   {kind} {id}: {what}");
        self.out.line(&one_line(&line));
        for task in &thing.tasks {
            let since = span(task.time - begun);
            let (name, kind) = (&task.task, &task.kind);
            let mut line = format!("{rest}{stem}      +{since}  task {name}: {kind}");
            if self.verbose && !task.message.is_empty() {
                line += &format!(" ({})", task.message);
            }
            self.out.line(&one_line(&line));
        }
    }
}

/// A span of time with three digits that matter.
fn span(ns: i64) -> String {
    let (ms, seconds) = (ns / 1_000_000, ns / 1_000_000_000);
    match seconds {
        _ if ms < 1_000 => format!("{ms}ms"),
        0..100 => format!("{}.{:02}s", seconds, ms % 1_000 / 10),
        100..6_000 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::audit::{Node, Tree};
    use drover_events::{Actor, ActorKind};
    use serde_json::json;

    fn node() -> Node {
        Node {
            index: 8,
            time: 5,
            elapsed: 4,
            kind: "JobRegistered",
            actor: Some(Actor {
                kind: ActorKind::Token,
                name: "deploy".to_owned(),
                ..Actor::default()
            }),
            request_id: "request".to_owned(),
            link: "cause",
            rejected: Some("it has jobs".to_owned()),
            again: true,
            things: vec![Touched {
                kind: "job".into(),
                ..Touched::default()
            }],
            more_things: 3,
            children: Vec::new(),
        }
    }

    #[test]
    fn every_field_of_a_chain_that_the_audit_trail_reports_is_read() {
        let reported = Tree {
            kind: "event",
            id: "8".to_owned(),
            focus: vec![8],
            truncated: true,
            damaged: true,
            roots: vec![Node {
                children: vec![node()],
                ..node()
            }],
        };
        let TraceTree {
            r#type,
            id,
            focus,
            truncated,
            damaged,
            mut roots,
        } = answer::of(serde_json::to_value(reported).unwrap()).unwrap();
        assert_eq!((&*r#type, &*id, focus), ("event", "8", vec![8]));
        assert!(truncated && damaged);
        assert_eq!(answer::index(&roots[0]), Some(8));
        let (root, mut children) = TraceNode::reported(roots.remove(0));
        let (child, none) = TraceNode::reported(children.remove(0));
        assert_eq!((roots.len(), children.len(), none.len()), (0, 0, 0));
        for read in [root, child] {
            let TraceNode {
                index,
                time,
                elapsed,
                kind,
                actor,
                refused,
                again,
                things,
                more_things,
            } = read;
            assert_eq!((index, time, elapsed, more_things), (8, 5, 4, 3));
            assert_eq!((&*kind, &*refused), ("JobRegistered", "it has jobs"));
            assert_eq!((again, things), (true, node().things));
            assert_eq!(who(actor.as_ref()), "token deploy");
        }
    }

    #[test]
    fn what_followed_from_an_event_that_cannot_be_read_is_kept() {
        let child = json!({"Index": 9, "Kind": "JobEvaluated", "Actor": {"kind": "robot"}});
        let (node, children) = TraceNode::reported(json!({
            "Index": 8, "Kind": "JobRegistered", "Time": "soon", "Children": [child],
        }));
        assert_eq!(node.index, 8);
        let reported = "unreadable: Time: invalid type";
        assert!(node.kind.starts_with(reported), "{}", node.kind);
        let all: Vec<(TraceNode, Vec<Json>)> =
            children.into_iter().map(TraceNode::reported).collect();
        let [(child, none)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(child.kind, "JobEvaluated");
        assert_eq!(who(child.actor.as_ref()), "robot");
        assert!(none.is_empty());
    }

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_234, "1.23s"),
            (100_000, "1m40s"),
            (7_260_000, "2h01m"),
        ] {
            assert_eq!(span(ms * 1_000_000), text);
        }
    }
}
