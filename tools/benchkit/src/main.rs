//! Turns the lines of the benchmarks (standard input) into a Markdown table with the goals.

use std::io::BufRead;

use anyhow::Result;
use serde_json::Value;

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
    goal("replay of variables, 300 B", "per_second", 200_000.0),
    goal("register, c=32", "per_second", 12_000.0),
    goal("place", "per_second", 20_000.0),
    goal("place, spread", "per_second", 5_000.0),
    goal("list allocations", "times_floor", 1.5),
    goal("list nodes", "times_floor", 1.5),
    goal("page of 100 allocations", "per_second", 10_000.0),
    goal("one job", "of_floor", 0.8),
    goal("put variables", "per_second", 18_000.0),
    goal("get variables", "per_second", 26_000.0),
    goal("create evaluations", "per_second", 20_000.0),
    goal("delete evaluations by filter", "seconds", 0.4),
    goal("delete a million evaluations by filter", "seconds", 9.0),
    goal("stream, 100 subscribers", "per_second", 100_000.0),
    goal("resident memory after all", "mb", 400.0),
    goal("kill -9 to ready", "seconds", 1.0),
    goal("agent -dev to running task", "seconds", 0.8),
    goal("agent -dev resident memory", "mb", 50.0),
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
        let goal = GOALS
            .iter()
            .find(|goal| what == goal.what || what.starts_with(&format!("{} (", goal.what)));
        let (wanted, reached) = match goal {
            None => (String::new(), String::new()),
            Some(goal) => {
                let upper = matches!(goal.figure, "seconds" | "mb" | "times_floor");
                let sign = if upper { "≤" } else { "≥" };
                let reached = match fields.get(goal.figure).and_then(Value::as_f64) {
                    None => "not measured",
                    Some(value) if (value <= goal.bound) == upper => "yes",
                    Some(_) => "no",
                };
                let wanted = format!("{} {sign} {}", goal.figure, readable(goal.bound));
                (wanted, reached.to_owned())
            }
        };
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
