//! `alloc fs`

use super::super::client::{Client, encode};
use super::super::columns::Table;
use super::super::out::Out;
use super::super::show::{size, stamp};
use super::tail::{Place, Tail};
use anyhow::{Result, bail};
use drover_events::model::AllocFileInfo;
use serde::de::DeserializeOwned;

/// Flags of `alloc fs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc fs 8ba85cef                         what is in the allocation's directory
  drover alloc fs 8ba85cef alloc/logs/
  drover alloc fs -tail -n 20 8ba85cef server/local/server.conf
  drover alloc fs -f -job web alloc/data/events.ndjson")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    place: Place,
    /// A file or a directory below the allocation's
    #[arg(default_value = "/")]
    path: String,
    /// Sizes for machines: plain bytes
    #[arg(short = 'H')]
    machine: bool,
    /// Show what the file is, not what is in it
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    tail: Tail,
}

/// Lists a directory or prints a file.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let (client, alloc) = args.place.find().await?;
    let files = Files {
        client: &client,
        called: match args.place.verbose {
            true => format!(" of allocation {:?}", args.place.shown(&alloc)),
            false => String::new(),
        },
        id: alloc.id,
        namespace: alloc.namespace,
    };
    let found: AllocFileInfo = files.get("stat", &args.path).await?;
    let is_dir = found.is_dir;
    if args.stat || is_dir {
        if is_dir && (args.tail.follow || args.tail.tail) {
            bail!("{:?} is a directory: name a file", args.path);
        }
        let all = match args.stat {
            true => vec![found],
            false => files.get("ls", &args.path).await?,
        };
        out.line(&table(&all, &args));
        return Ok(0);
    }
    files.print(&args, out).await?;
    Ok(0)
}

/// The files of an allocation.
struct Files<'a> {
    client: &'a Client,
    id: String,
    namespace: String,
    /// How messages call the allocation.
    called: String,
}

impl Files<'_> {
    async fn get<T: DeserializeOwned>(&self, verb: &str, path: &str) -> Result<T> {
        let route = format!("/v1/client/fs/{verb}/{}", encode(&self.id));
        let query = [("path", path), ("namespace", &self.namespace)];
        let answer = self.client.fetch(&route, &query).await;
        answer.map_err(|err| err.context(self.unread(path)))
    }

    fn unread(&self, path: &str) -> String {
        format!("Error reading {path:?}{}", self.called)
    }

    async fn print(&self, args: &Args, out: &Out) -> Result<()> {
        let from = args.tail.query();
        let mut query = vec![
            ("path", args.path.as_str()),
            ("namespace", self.namespace.as_str()),
        ];
        query.extend(from.iter().map(|(name, value)| (*name, value.as_str())));
        let route = format!("/v1/client/fs/stream/{}", encode(&self.id));
        let stream = self.client.stream(&route, &query).await;
        let stream = stream.map_err(|err| err.context(self.unread(&args.path)))?;
        args.tail.print(stream, out).await
    }
}

fn table(files: &[AllocFileInfo], args: &Args) -> String {
    let mut head = vec!["Mode", "Size", "Modified Time"];
    if args.stat {
        head.push("Content Type");
    }
    head.push("Name");
    let mut table = Table::with_head(head);
    for file in files {
        let bytes = u64::try_from(file.size).unwrap_or(0);
        let shown = match args.machine {
            true => bytes.to_string(),
            false => size(bytes),
        };
        let modified = stamp(file.mod_time.nanos());
        let mut row = vec![file.file_mode.clone(), shown, modified];
        if args.stat {
            row.push(file.content_type.clone());
        }
        let slash = if file.is_dir { "/" } else { "" };
        row.push(format!("{}{slash}", file.name.trim_end_matches('/')));
        table.row(row);
    }
    table.to_string()
}
