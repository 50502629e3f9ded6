//! `alloc fs`

use super::super::client::{Client, encode};
use super::super::columns::ColumnTable;
use super::super::out::Out;
use super::super::show::{size, stamp};
use super::tail::{Tail, TailTarget};
use anyhow::{Result, bail};
use drover_events::gojson::Time;
use serde::Deserialize;
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
    place: TailTarget,
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
    let found: Listed = files.get("stat", &args.path).await?;
    let is_dir = found.is_dir;
    if args.stat || is_dir {
        if is_dir && (args.tail.follow || args.tail.tail) {
            bail!("{:?} is a directory: name a file", args.path);
        }
        let all = match args.stat {
            true => vec![found],
            false => files.get("ls", &args.path).await?,
        };
        out.line(&table(&all, (args.machine, args.stat)));
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

/// A file, as far as it is shown. When it was changed is the text that came: files have times that
/// nothing else here has.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Listed {
    name: String,
    is_dir: bool,
    size: i64,
    file_mode: String,
    mod_time: String,
    content_type: String,
}

/// When a file was changed; what is no time that is reckoned with here is shown as it came.
fn changed(text: &str) -> String {
    match Time::parse(text) {
        Some(time) => stamp(time.nanos()),
        None if text.is_empty() => stamp(0),
        None => text.to_owned(),
    }
}

fn table(files: &[Listed], (machine, whole): (bool, bool)) -> String {
    let mut head = vec!["Mode", "Size", "Modified Time"];
    if whole {
        head.push("Content Type");
    }
    head.push("Name");
    let mut table = ColumnTable::with_head(head);
    for file in files {
        let bytes = u64::try_from(file.size).unwrap_or(0);
        let shown = match machine {
            true => bytes.to_string(),
            false => size(bytes),
        };
        let modified = changed(&file.mod_time);
        let mut row = vec![file.file_mode.clone(), shown, modified];
        if whole {
            row.push(file.content_type.clone());
        }
        let slash = if file.is_dir { "/" } else { "" };
        row.push(format!("{}{slash}", file.name.trim_end_matches('/')));
        table.row(row);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::answer;
    use serde_json::json;

    #[test]
    fn a_file_of_any_time_is_listed() {
        let files: Vec<Listed> = answer::of(json!([
            {"Name": "far", "Size": 7, "FileMode": "-rw-r--r--",
                "ModTime": "2500-01-01T00:00:00Z"},
            {"Name": "none", "IsDir": true, "ModTime": null},
            {"Name": "now", "ModTime": "2026-01-02T03:04:05.678Z"},
        ]))
        .unwrap();
        let reported = table(&files, (true, false));
        let lines: Vec<&str> = reported.lines().collect();
        assert!(lines[1].contains(" 2500-01-01T00:00:00Z "), "{reported}");
        assert!(lines[2].contains("N/A"), "{reported}");
        assert!(lines[2].ends_with("none/"), "{reported}");
        assert!(lines[3].contains("2026-01-0"), "{reported}");
    }
}
