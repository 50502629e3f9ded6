//! `alloc logs`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::text;
use super::pick::{Named, pick_task};
use anyhow::Result;

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
    let named = Named {
        name: &args.allocation,
        is_job: args.job,
        group: args.group.as_deref(),
    };
    let alloc = named.allocation(&client).await?;
    let task = pick_task(&alloc, args.task.as_deref().or(args.task_flag.as_deref()))?;
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

/// The last lines of a text.
pub(super) fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
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
