//! `alloc fs`

use super::super::client::{Client, encode};
use super::super::columns::Table;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::{boolean, number, size, stamp, text};
use super::logs::last_lines;
use super::pick::Named;
use anyhow::{Result, bail};
use serde_json::Value as Json;

/// Flags of `alloc fs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc fs 8ba85cef                         what is in the allocation's directory
  drover alloc fs 8ba85cef alloc/logs/
  drover alloc fs -tail -n 20 8ba85cef server/local/server.conf
  drover alloc fs -f -job web alloc/data/events.ndjson")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it; with -job, the job's ID
    allocation: String,
    /// A file or a directory below the allocation's
    #[arg(default_value = "/")]
    path: String,
    /// Name a job in place of an allocation
    #[arg(long)]
    job: bool,
    /// Only allocations of this group (with -job)
    #[arg(long)]
    group: Option<String>,
    /// Sizes for machines: plain bytes
    #[arg(short = 'H')]
    machine: bool,
    /// Show what the file is, not what is in it
    #[arg(long)]
    stat: bool,
    /// Follow the file as it grows
    #[arg(short = 'f')]
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

/// Lists a directory or prints a file.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let named = Named {
        name: &args.allocation,
        is_job: args.job,
        group: args.group.as_deref(),
    };
    let alloc = named.allocation(&client).await?;
    let place = Place {
        client: &client,
        id: text(&alloc, "ID"),
        namespace: text(&alloc, "Namespace"),
    };
    let found = place.get("stat", &args.path).await?;
    let is_dir = boolean(&found, "IsDir");
    if args.stat || is_dir {
        if is_dir && (args.follow || args.tail) {
            bail!("{:?} is a directory: name a file", args.path);
        }
        let files = match args.stat {
            true => Json::from(vec![found]),
            false => place.get("ls", &args.path).await?,
        };
        out.line(&table(&files, &args));
        return Ok(0);
    }
    print(&place, &args, out).await?;
    Ok(0)
}

/// The files of an allocation.
struct Place<'a> {
    client: &'a Client,
    id: String,
    namespace: String,
}

impl Place<'_> {
    async fn get(&self, verb: &str, path: &str) -> Result<Json> {
        let route = format!("/v1/client/fs/{verb}/{}", encode(&self.id));
        let query = [("path", path), ("namespace", &self.namespace)];
        let answer = self.client.get_json(&route, &query).await;
        answer.map_err(|err| err.context(format!("Error reading {path:?}")))
    }
}

fn table(files: &Json, args: &Args) -> String {
    let mut head = vec!["Mode", "Size", "Modified Time"];
    if args.stat {
        head.push("Content Type");
    }
    head.push("Name");
    let mut table = Table::with_head(head);
    for file in files.as_array().into_iter().flatten() {
        let bytes = u64::try_from(number(file, "Size")).unwrap_or(0);
        let shown = match args.machine {
            true => bytes.to_string(),
            false => size(bytes),
        };
        let mut row = vec![text(file, "FileMode"), shown, stamp(file, "ModTime")];
        if args.stat {
            row.push(text(file, "ContentType"));
        }
        let slash = if boolean(file, "IsDir") { "/" } else { "" };
        let name = text(file, "Name");
        row.push(format!("{}{slash}", name.trim_end_matches('/')));
        table.row(row);
    }
    table.to_string()
}

async fn print(place: &Place<'_>, args: &Args, out: &Out) -> Result<()> {
    let from_end = args.tail || args.lines.is_some() || args.bytes.is_some();
    let lines = args.lines.unwrap_or(10);
    let offset = match args.bytes {
        Some(bytes) => bytes,
        None if from_end => u64::try_from(lines)?.saturating_mul(BYTES_PER_LINE),
        None => 0,
    };
    let offset = offset.to_string();
    let query = [
        ("path", args.path.as_str()),
        ("namespace", place.namespace.as_str()),
        ("origin", if from_end { "end" } else { "start" }),
        ("offset", offset.as_str()),
        ("follow", if args.follow { "true" } else { "false" }),
        ("plain", "true"),
    ];
    let route = format!("/v1/client/fs/stream/{}", encode(&place.id));
    let stream = place.client.stream(&route, &query).await;
    let mut stream = stream.map_err(|err| err.context(format!("Error reading {:?}", args.path)))?;
    let cuts = from_end && args.bytes.is_none();
    let (mut first, mut held) = (true, Vec::new());
    while let Some(chunk) = stream.chunk().await? {
        if cuts && !args.follow {
            held.extend_from_slice(&chunk);
            continue;
        }
        let cut = cuts && std::mem::take(&mut first);
        out.raw(if cut {
            last_lines(&chunk, lines)
        } else {
            &chunk
        });
    }
    out.raw(last_lines(&held, lines));
    Ok(())
}
