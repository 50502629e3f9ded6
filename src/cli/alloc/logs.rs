//! `alloc logs`

use super::super::client::{Client, encode};
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::{Thing, find, job_path};
use super::super::show::{list, number, text};
use anyhow::{Result, bail};
use serde_json::Value as Json;

/// Flags of `alloc logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc logs 8ba85cef
  drover alloc logs -f -stderr 8ba85cef server
  drover alloc logs -tail -n 20 -job web")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it; with -job, the job's ID
    allocation: String,
    /// The task, needed where an allocation has several
    task: Option<String>,
    /// The same as the second argument
    #[arg(long = "task", value_name = "NAME")]
    task_flag: Option<String>,
    /// Only allocations of this group (with -job)
    #[arg(long)]
    group: Option<String>,
    /// Name a job in place of an allocation
    #[arg(long)]
    job: bool,
    /// Standard error in place of standard output
    #[arg(long)]
    stderr: bool,
    /// Standard output (the default)
    #[arg(long)]
    stdout: bool,
    /// Follow the output as it grows
    #[arg(short)]
    follow: bool,
    /// Begin near the end
    #[arg(long)]
    tail: bool,
    /// How many lines from the end
    #[arg(short = 'n', value_name = "LINES")]
    lines: Option<usize>,
    /// How many bytes from the end
    #[arg(short = 'c', value_name = "BYTES")]
    bytes: Option<u64>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// How far from the end lines are looked for, per line.
const BYTES_PER_LINE: u64 = 120;

/// Prints a task's output.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let alloc = allocation(&client, &args).await?;
    let task = pick_task(&alloc, args.task.as_ref().or(args.task_flag.as_ref()))?;
    let id = text(&alloc, "ID");
    let kind = if args.stderr && !args.stdout {
        "stderr"
    } else {
        "stdout"
    };
    let tail = args.tail || args.lines.is_some() || args.bytes.is_some();
    let lines = args.lines.unwrap_or(10);
    let offset = match args.bytes {
        Some(bytes) => bytes,
        None if tail => u64::try_from(lines)?.saturating_mul(BYTES_PER_LINE),
        None => 0,
    };
    let offset = offset.to_string();
    let namespace = text(&alloc, "Namespace");
    let query = [
        ("task", task.as_str()),
        ("type", kind),
        ("follow", if args.follow { "true" } else { "false" }),
        ("plain", "true"),
        ("origin", if tail { "end" } else { "start" }),
        ("offset", offset.as_str()),
        ("namespace", namespace.as_str()),
    ];
    let path = format!("/v1/client/fs/logs/{}", encode(&id));
    let stream = client.stream(&path, &query).await;
    let mut stream = stream.map_err(|err| err.context("Error reading the task's logs"))?;
    let mut cut = tail && args.bytes.is_none();
    let mut held = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        if cut && !args.follow {
            held.extend_from_slice(&chunk);
            continue;
        }
        let chunk = if cut {
            last_lines(&chunk, lines)
        } else {
            &chunk
        };
        cut = false;
        out.raw(chunk);
    }
    out.raw(last_lines(&held, lines));
    Ok(0)
}

fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut found = 0;
    for (i, byte) in body.iter().enumerate().rev() {
        if *byte == b'\n' {
            found += 1;
            if found == lines {
                return &bytes[i + 1..];
            }
        }
    }
    if lines == 0 { &[] } else { bytes }
}

async fn allocation(client: &Client, args: &Args) -> Result<Json> {
    let (id, namespace) = if args.job {
        let job = find(client, Thing::Job, &args.allocation).await?;
        let namespace = text(&job, "Namespace");
        let path = job_path(&text(&job, "ID"), "/allocations");
        let allocs = client.get_json(&path, &[("namespace", &namespace)]).await?;
        let wanted = |a: &&Json| {
            args.group
                .as_ref()
                .is_none_or(|g| text(a, "TaskGroup") == *g)
        };
        let allocs: Vec<&Json> = allocs
            .as_array()
            .into_iter()
            .flatten()
            .filter(wanted)
            .collect();
        let running = allocs
            .iter()
            .filter(|a| text(a, "ClientStatus") == "running");
        let newest = running.max_by_key(|a| number(a, "CreateTime"));
        match newest.or(allocs.iter().max_by_key(|a| number(a, "CreateTime"))) {
            Some(alloc) => (text(alloc, "ID"), namespace),
            None => bail!("No allocations for job {:?} exist", text(&job, "ID")),
        }
    } else {
        let stub = find(client, Thing::Alloc, &args.allocation).await?;
        (text(&stub, "ID"), text(&stub, "Namespace"))
    };
    let alloc = client
        .get_json(
            &format!("/v1/allocation/{id}"),
            &[("namespace", &namespace)],
        )
        .await;
    alloc.map_err(|err| err.context("Error querying allocation"))
}

fn pick_task(alloc: &Json, named: Option<&String>) -> Result<String> {
    let group = text(alloc, "TaskGroup");
    let group = list(&alloc["Job"], "TaskGroups")
        .iter()
        .find(|g| text(g, "Name") == group);
    let tasks: Vec<String> = group
        .map(|g| list(g, "Tasks").iter().map(|t| text(t, "Name")).collect())
        .unwrap_or_default();
    match (named, tasks.as_slice()) {
        (Some(named), tasks) if tasks.is_empty() || tasks.contains(named) => Ok(named.clone()),
        (Some(named), tasks) => bail!(
            "Could not find task named: {named}, found:\n{}",
            tasks.join("\n")
        ),
        (None, [one]) => Ok(one.clone()),
        (None, tasks) => bail!(
            "Allocation {:?} is running the following tasks:\n  * {}\n\nPlease specify the task.",
            text(alloc, "ID"),
            tasks.join("\n  * ")
        ),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_last_lines_are_cut_out() {
        let text = b"a\nb\nc\n";
        for (n, expected) in [
            (0, &b""[..]),
            (1, b"c\n"),
            (2, b"b\nc\n"),
            (9, b"a\nb\nc\n"),
        ] {
            assert_eq!(super::last_lines(text, n), expected);
        }
        assert_eq!(super::last_lines(b"a\nb", 1), b"b");
    }
}
