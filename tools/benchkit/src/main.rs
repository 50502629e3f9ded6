//! Turns the lines of the benchmarks (standard input) into a Markdown table with the goals.

use std::io::BufRead;

use anyhow::Result;
use serde_json::{Map, Value};

/// A goal: the measurement's name, the figure it is about, and the bound.
struct Goal {
    what: &'static str,
    figure: &'static str,
    bound: f64,
}

const fn goal(what: &'static str, figure: &'static str, bound: f64) -> Goal {
    Goal {
        what,
        figure,
        bound,
    }
}

/// Figures that are to be small.
const UPPER: &[&str] = &[
    "seconds",
    "mb",
    "times_floor",
    "p50_us",
    "p99_us",
    "worst_ms",
    "longest_apply_ms",
    "cut_over_ms",
    "kb_each",
    "slowed",
    "workers",
    "over_share_ms",
    "p99_of_alone",
    "of_full",
    "server_grew_mb",
    "client_grew_mb",
];

impl Goal {
    /// Whether a measurement is the one the goal is about; parameters may follow in brackets.
    fn is_of(&self, what: &str) -> bool {
        what == self.what || what.starts_with(&format!("{} (", self.what))
    }

    fn upper(&self) -> bool {
        UPPER.contains(&self.figure)
    }

    fn text(&self) -> String {
        let sign = if self.upper() { "≤" } else { "≥" };
        format!("{} {sign} {}", self.figure, readable(self.bound))
    }

    fn reached(&self, fields: &Map<String, Value>) -> &'static str {
        match fields.get(self.figure).and_then(Value::as_f64) {
            None => "not measured",
            Some(value) if value == self.bound || (value < self.bound) == self.upper() => "yes",
            Some(_) => "no",
        }
    }
}

/// The goals of one server. Rates are lower bounds; times, memory and times the floor are upper ones.
const GOALS: &[Goal] = &[
    goal("append, 1 client", "of_floor", 0.85),
    goal(
        "append, 256 in flight, tree, sealing",
        "per_second",
        150_000.0,
    ),
    goal("commit, 1 writers", "per_second", 4_000.0),
    goal("commit, 256 writers", "per_second", 200_000.0),
    goal("allocations placed, plans of 256", "per_second", 40_000.0),
    goal("allocations placed, plans of 256", "worst_ms", 20.0),
    goal("replay of variables, 300 B", "per_second", 200_000.0),
    goal("replay of evaluations, 300 B", "per_second", 200_000.0),
    goal("merkle leaves", "per_second", 100_000.0),
    goal("verify", "per_second", 666_667.0),
    goal("scan and decode", "per_second", 1_000_000.0),
    goal("decode and fold into tables", "per_second", 300_000.0),
    goal("read as of, one object", "p99_us", 50_000.0),
    goal("read as of, list of 1,000", "p99_us", 50_000.0),
    goal("whole list as of, 1,000 alive", "p99_us", 50_000.0),
    goal("open log and tables", "seconds", 2.0),
    goal("open log and tables", "rss_mb", 300.0),
    goal("fold of variables, 300 B", "per_second", 300_000.0),
    goal("fold of variables, 300 B", "times_batches", 4.0),
    goal("fold of evaluations, 300 B", "per_second", 300_000.0),
    goal("fold of evaluations, 300 B", "times_batches", 4.0),
    goal("right checked, warm", "p50_us", 5.0),
    goal("right checked, cold", "p50_us", 50.0),
    goal("control streams", "mb", 40.0),
    goal("list for one of 50 namespaces", "over_share_ms", 5.0),
    goal("register with ACLs and TLS", "of_plain", 0.85),
    goal("get job with ACLs and TLS", "of_plain", 0.85),
    goal("TLS handshake, resumed", "resumed_share", 1.0),
    goal("TLS handshake, resumed", "of_full", 0.9),
    goal("exec round trip", "p50_us", 2_000.0),
    goal("exec round trip, remote task", "p50_us", 2_000.0),
    goal("1 GiB into an exec, remote task", "server_grew_mb", 64.0),
    goal("1 GiB into an exec, remote task", "client_grew_mb", 64.0),
    goal("logs of a remote task", "mb_per_second", 200.0),
    goal("register, c=32", "per_second", 12_000.0),
    goal("register, c=32", "p99_us", 10_000.0),
    goal("place", "per_second", 20_000.0),
    goal("place, spread", "per_second", 5_000.0),
    goal(
        "place with a volume, 5,000 nodes and 2,000 volumes",
        "of_plain",
        0.7,
    ),
    goal("list allocations", "times_floor", 1.5),
    goal("list allocations", "p50_us", 45_000.0),
    goal("list allocations, gzip", "p50_us", 59_500.0),
    goal("list nodes", "times_floor", 1.5),
    goal("list nodes", "p50_us", 6_000.0),
    goal("list nodes, gzip", "p50_us", 10_000.0),
    goal("page of 100 allocations", "per_second", 10_000.0),
    goal("page of 100 allocations, gzip", "per_second", 4_840.0),
    goal("one job", "of_floor", 0.8),
    goal("one job", "p99_us", 3_000.0),
    goal("one job, gzip", "per_second", 11_300.0),
    goal("put variables", "per_second", 18_000.0),
    goal("get variables", "per_second", 26_000.0),
    goal("create evaluations", "per_second", 20_000.0),
    goal("delete evaluations by filter", "seconds", 0.4),
    goal("delete 1,000,000 evaluations by filter", "seconds", 9.0),
    goal(
        "delete 1,000,000 evaluations by filter",
        "longest_apply_ms",
        20.0,
    ),
    goal("pages of a deletion by filter", "longest_apply_ms", 20.0),
    goal("barrier during the deletion", "p99_us", 1_000_000.0),
    goal("stream, 100 subscribers", "per_second", 100_000.0),
    goal("stream, 100 subscribers", "delivered_share", 1.0),
    goal("stream, 100 subscribers", "slowed", 0.2),
    goal("catch-up, NDJSON", "per_second", 300_000.0),
    goal("catch-up, one key of all", "times_all", 100.0),
    goal("idle subscribers", "kb_each", 12.0),
    goal("events into Kafka, exactly once", "per_second", 100_000.0),
    goal("events into Kafka, exactly once", "of_at_least_once", 0.9),
    goal("append while the tables are built again", "kept", 0.7),
    goal("rebuild beside a server", "cut_over_ms", 50.0),
    goal("resident memory after all", "mb", 400.0),
    goal("kill -9 to ready", "seconds", 1.0),
    goal("agent -dev to running task", "seconds", 0.8),
    goal("agent -dev resident memory", "mb", 50.0),
    goal("volume watcher at rest", "workers", 0.0),
    goal("volume watcher at rest", "mb", 2.0),
    goal("1000 volumes released at once", "seconds", 5.0),
    goal("job stopped to volume claimable", "p99_us", 1_000_000.0),
    goal(
        "placed to running with a volume, over the plugin's time",
        "p99_us",
        300_000.0,
    ),
    goal("place beside a plugin of 60 s", "p99_of_alone", 1.1),
    goal(
        "another plugin's volume comes and goes beside it",
        "p99_of_alone",
        1.1,
    ),
];

fn main() -> Result<()> {
    println!("| work | figures | goal | reached |");
    println!("|---|---|---|---|");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let Some(what) = fields.get("what").and_then(Value::as_str) else {
            continue;
        };
        let figures: Vec<String> = fields
            .iter()
            .filter(|(name, _)| *name != "what")
            .map(|(name, value)| match value.as_f64() {
                Some(number) => format!("{name} {}", readable(number)),
                None => format!("{name} {}", value.as_str().unwrap_or_default()),
            })
            .collect();
        let goals: Vec<&Goal> = GOALS.iter().filter(|goal| goal.is_of(what)).collect();
        let wanted: Vec<String> = goals.iter().map(|goal| goal.text()).collect();
        let reached: Vec<&str> = goals.iter().map(|goal| goal.reached(&fields)).collect();
        let (wanted, reached) = (wanted.join(", "), reached.join(", "));
        println!("| {what} | {} | {wanted} | {reached} |", figures.join(", "));
    }
    Ok(())
}

/// A number with thousands apart.
fn readable(number: f64) -> String {
    if number.fract() != 0.0 {
        return format!("{number}");
    }
    let digits = format!("{}", number.abs());
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number < 0.0 { format!("-{out}") } else { out }
}
