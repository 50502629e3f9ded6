//! `trace`: what an event, a request or a thing came from, and all that followed.

use super::changes::who;
use super::conn::Past;
use super::out::Out;
use super::show::{Format, list, number, short, text, time};
use super::trail::say_kept_since;
use anyhow::Result;
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
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// An index, a request's id, a job, or (the beginning of) an id
    id: String,
    /// Show full ids and all tasks' messages
    #[arg(long)]
    verbose: bool,
}

/// Prints a cause chain.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let query = [("id", args.id.as_str())];
    let reply = client.get("/v1/audit/trace", &query).await;
    let reply = reply.map_err(|err| err.context("Error tracing"))?;
    let (tree, kept_since) = (reply.json()?, reply.kept_since);
    if args.format.print(&tree, out)? {
        return Ok(0);
    }
    out.line(&format!("{} {}", text(&tree, "Type"), text(&tree, "ID")));
    let mut printer = Printer {
        out,
        verbose: args.verbose,
        focus: list(&tree, "Focus")
            .iter()
            .filter_map(Json::as_i64)
            .collect(),
    };
    for root in list(&tree, "Roots") {
        out.line("");
        printer.node(root, "", "");
    }
    if tree["Truncated"].as_bool().unwrap_or(false) {
        out.line("\nMore followed than is shown here; trace one of the events above.");
    }
    say_kept_since(kept_since.as_ref(), out);
    Ok(0)
}

struct Printer<'a> {
    out: &'a Out,
    verbose: bool,
    focus: Vec<i64>,
}

impl Printer<'_> {
    /// Prints an event behind `head`, and what belongs to it behind `rest`.
    fn node(&mut self, node: &Json, head: &str, rest: &str) {
        let index = number(node, "Index");
        let mark = if self.focus.contains(&index) { "*" } else { "" };
        let when = match number(node, "Elapsed") {
            0 if rest.is_empty() => time(number(node, "Time")),
            elapsed => format!("+{}", span(elapsed)),
        };
        let (kind, by) = (text(node, "Kind"), who(node));
        let mut line = format!("{head}{index}{mark}  {when}  {kind}  by {by}");
        if !text(node, "Refused").is_empty() {
            line += &format!("  REFUSED: {}", text(node, "Refused"));
        }
        if node["Again"].as_bool().unwrap_or(false) {
            line += "  (what followed is shown above)";
        }
        self.out.line(&line);
        let children = list(node, "Children");
        let stem = if children.is_empty() { " " } else { "│" };
        for thing in list(node, "Things") {
            self.thing(
                thing,
                number(node, "Time") - number(node, "Elapsed"),
                rest,
                stem,
            );
        }
        let more = number(node, "MoreThings");
        if more > 0 {
            self.out.line(&format!("{rest}{stem}   and {more} more"));
        }
        for (at, child) in children.iter().enumerate() {
            let last = at + 1 == children.len();
            let (branch, below) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            self.node(child, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }

    fn thing(&self, thing: &Json, begun: i64, rest: &str, stem: &str) {
        let id = text(thing, "ID");
        // Ids are cut, names are not.
        let is_id = matches!(
            text(thing, "Type").as_str(),
            "evaluation" | "allocation" | "deployment" | "node"
        );
        let id = short(&id, self.verbose || !is_id);
        let kind = text(thing, "Type");
        self.out.line(&format!(
            "{rest}{stem}   {kind} {id}: {}",
            text(thing, "What")
        ));
        for task in list(thing, "Tasks") {
            let since = span(number(task, "Time") - begun);
            let (name, kind) = (text(task, "Task"), text(task, "Type"));
            let mut line = format!("{rest}{stem}      +{since}  task {name}: {kind}");
            if self.verbose && !text(task, "Message").is_empty() {
                line += &format!(" ({})", text(task, "Message"));
            }
            self.out.line(&line);
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
