//! `audit requests`: requests to a server that change nothing but matter.

use std::path::{Path, PathBuf};

use crate::base::clock::Moment;
use crate::cli::changes::{Who, who};
use crate::cli::client::{Client, PastRetention};
use crate::cli::conn::Conn;
use crate::cli::log::export::moment;
use crate::cli::out::{Out, one_line};
use crate::cli::show::{Format, counted, time};
use crate::cli::trail::{Span, TrailPage, given};
use crate::log::ReadOnlyLog;
use crate::requests::{Class, Ran, RequestQuery, Session, beginning, list};
use anyhow::{Context, Result};
use serde::Deserialize;

/// Requests fetched at a time.
const PAGE: usize = 500;

/// Flags of `audit requests`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover audit requests                          the newest ones the called server received
  drover audit requests -class secret -since -1h
  drover audit requests -path /v1/var/db -actor 10.0.0.7
  drover audit requests -class denied -json
  drover audit requests -data-dir /var/lib/drover   from the files, with or without a server

Classes: secret (reads of variables, tokens, keys, raw events, backups, profiles of the process),
files (files and logs of allocations), exec, control (restarts, signals, metadata of a node, its
servers, reloads, work on the tables), login, audit (reads of the audit trail), denied. Each server
keeps the requests that it received itself.
A request with no end yet is still being answered, as is the one that lists them, or the server died
meanwhile. What cannot be written is refused or counted as the agent's audit { delivery_guarantee }
says. How much is kept is set by server { retention { requests { bytes age events } } }; where
something was dropped, the list says since when there is a record.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// secret, files, exec, control, login, audit or denied
    #[arg(long, default_value = "", hide_default_value = true)]
    class: String,
    /// Only from this actor: its kind, name, address, or the beginning of its id
    #[arg(long, default_value = "", hide_default_value = true)]
    actor: String,
    /// Only requests whose path begins so
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    path: String,
    #[command(flatten)]
    span: Span,
    /// Read the files of this data directory instead of calling an agent
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Prints the requests that the options select.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let source = RequestSource::open(&args)?;
    let page = async |rows, token: &str| source.page(&args, rows, token).await;
    let show = |entry: RequestEntry| out.line(&line(&entry));
    let form = (&args.format, out);
    args.span.print(PAGE, form, page, show).await?;
    match source.damage() {
        Some(damage) => {
            out.error(&format!("The request log is damaged: {damage}"));
            Ok(1)
        }
        None => Ok(0),
    }
}

/// Where requests are read from.
enum RequestSource {
    Agent(Box<Client>),
    Files(Box<ReadOnlyLog>),
}

impl RequestSource {
    fn open(args: &Args) -> Result<Self> {
        let Some(data_dir) = &args.data_dir else {
            return Ok(Self::Agent(Box::new(args.conn.client()?)));
        };
        let dir = requests_dir(data_dir);
        let log = ReadOnlyLog::open(&dir)
            .with_context(|| format!("Error reading the request log in {}", dir.display()))?;
        Ok(Self::Files(Box::new(log)))
    }

    fn damage(&self) -> Option<String> {
        match self {
            Self::Agent(_) => None,
            Self::Files(log) => log.damage().map(ToString::to_string),
        }
    }

    async fn page(&self, args: &Args, rows: usize, token: &str) -> Result<TrailPage> {
        match self {
            Self::Agent(client) => fetch_page(client, args, rows, token).await,
            Self::Files(log) => {
                let listing = list(&**log, &request_query(args, rows, token)?);
                let listing = listing.context("Error reading the request log")?;
                let entries = listing.entries.iter().map(serde_json::to_value);
                let next = listing.next.map(|next| next.to_string());
                let first = beginning(&**log).context("Error reading the request log")?;
                Ok(TrailPage {
                    entries: entries.collect::<Result<_, _>>()?,
                    next: next.unwrap_or_default(),
                    kept_since: first.map(|(_, since)| PastRetention {
                        since,
                        former: String::new(),
                    }),
                })
            }
        }
    }
}

/// The request log below a data directory, or the directory itself.
fn requests_dir(data_dir: &Path) -> PathBuf {
    let inner =
        ["server/requests", "client/requests", "requests"].map(|inner| data_dir.join(inner));
    let found = inner.into_iter().find(|dir| dir.is_dir());
    found.unwrap_or_else(|| data_dir.to_owned())
}

async fn fetch_page(client: &Client, args: &Args, rows: usize, token: &str) -> Result<TrailPage> {
    let rows = rows.to_string();
    let given = given([
        ("class", args.class.as_str()),
        ("actor", args.actor.as_str()),
        ("path", args.path.as_str()),
        ("since", args.span.since.as_str()),
        ("until", args.span.until.as_str()),
        ("reverse", args.span.reverse()),
        ("per_page", rows.as_str()),
        ("next_token", token),
    ]);
    let reply = client.get("/v1/audit/requests", &given).await;
    TrailPage::of(reply.context("Error reading the request log")?)
}

fn request_query(args: &Args, rows: usize, token: &str) -> Result<RequestQuery> {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let class = given(&args.class).map(|name| {
        Class::from_name(&name).with_context(|| {
            let known = Class::ALL.map(Class::name).join(", ");
            format!("-class {name:?} is none of {known}")
        })
    });
    let mut requested = RequestQuery {
        class: class.transpose()?,
        actor: given(&args.actor),
        path: given(&args.path),
        newest_first: !args.span.oldest,
        limit: rows,
        ..RequestQuery::default()
    };
    match given(&args.span.since).map(|text| moment("since", &text)) {
        Some(Ok(Moment::Index(index))) => requested.from = index,
        Some(Ok(Moment::Time(time))) => requested.since = Some(time),
        Some(Err(error)) => return Err(error),
        None => {}
    }
    match given(&args.span.until).map(|text| moment("until", &text)) {
        Some(Ok(Moment::Index(index))) => requested.to = Some(index),
        Some(Ok(Moment::Time(time))) => requested.until = Some(time),
        Some(Err(error)) => return Err(error),
        None => {}
    }
    if let Ok(token) = token.parse::<u64>() {
        match requested.newest_first {
            true => requested.to = Some(token),
            false => requested.from = token,
        }
    }
    Ok(requested)
}

/// A request as servers list it: its class may be one that this command does not know.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RequestEntry {
    index: u64,
    /// Unix nanoseconds.
    time: i64,
    class: String,
    method: String,
    path: String,
    actor: Option<Who>,
    /// The command that it ran.
    ran: Option<Ran>,
    /// The addresses of the servers that it gave a client.
    servers: Vec<String>,
    complete: bool,
    /// 0 where it has no answer.
    status: u16,
    /// Nanoseconds.
    took: i64,
    /// What came of the command.
    session: Option<Session>,
}

/// A request on one line: when, who, what, and how it ended.
fn line(entry: &RequestEntry) -> String {
    let end = match (entry.complete, entry.status) {
        (true, 0) => "given up".to_owned(),
        (true, status) => {
            let millis = entry.took.div_euclid(1_000_000);
            format!("{status} in {millis}ms")
        }
        (false, _) => "no end yet".to_owned(),
    };
    let ran = match &entry.ran {
        Some(Ran { task, command, .. }) => {
            let session = entry.session.as_ref().map(came_of);
            let session = session.unwrap_or_default();
            format!("{session}: {command:?} beside {task}")
        }
        None if !entry.servers.is_empty() => {
            let servers = entry.servers.iter().map(|server| format!("{server:?}"));
            format!(": {}", servers.collect::<Vec<_>>().join(", "))
        }
        None => String::new(),
    };
    one_line(&format!(
        "{:>8}  {}  {:<6}  {} {}  by {}  {end}{ran}",
        entry.index,
        time(entry.time),
        entry.class,
        entry.method,
        entry.path,
        who(entry.actor.as_ref()),
    ))
}

/// What came of a command.
fn came_of(session: &Session) -> String {
    let code = match session.exit_code {
        Some(code) => format!("exit {code}"),
        None => "killed".to_owned(),
    };
    let (bytes_in, bytes_out) = (counted(session.bytes_in, "byte"), session.bytes_out);
    format!(", {code}, {bytes_in} in, {bytes_out} out")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::answer;
    use crate::requests::{LeftOut, Received, RequestLogEntry};
    use drover_events::{Actor, ActorKind};
    use serde_json::json;

    #[test]
    fn every_field_of_a_request_that_a_server_lists_is_read() {
        let was = Ran {
            task: "web".to_owned(),
            ..Ran::default()
        };
        let ended = Session {
            exit_code: Some(7),
            ..Session::default()
        };
        let received = Received {
            class: Class::Exec,
            request_id: "request".to_owned(),
            method: "GET".to_owned(),
            path: "/v1/jobs".to_owned(),
            namespace: "red".to_owned(),
            actor: Actor {
                kind: ActorKind::Token,
                name: "deploy".to_owned(),
                ..Actor::default()
            },
            trace: String::new(),
            ran: Some(was.clone()),
            servers: vec!["b:4647".to_owned()],
            left_out: LeftOut::new(),
        };
        let reported = RequestLogEntry {
            index: 7,
            time: 5,
            received,
            complete: true,
            status: 101,
            took: 3,
            session: Some(ended),
        };
        let reported = serde_json::to_value(reported).unwrap();
        assert_eq!(answer::index(&reported), Some(7));
        let RequestEntry {
            index,
            time,
            class,
            method,
            path,
            actor,
            ran,
            servers,
            complete,
            status,
            took,
            session,
        } = answer::of(reported).unwrap();
        assert_eq!((index, time, took, status, complete), (7, 5, 3, 101, true));
        assert_eq!([&*class, &*method, &*path], ["exec", "GET", "/v1/jobs"]);
        assert_eq!(who(actor.as_ref()), "token deploy");
        assert_eq!((ran, session), (Some(was), Some(ended)));
        assert_eq!(servers, ["b:4647"]);
    }

    #[test]
    fn a_line_says_how_a_request_ended() {
        let entry = json!({
            "Index": 7, "Time": 0, "Class": "secret", "Method": "GET", "Path": "/v1/var/a",
            "Actor": {"kind": "token", "name": "deploy"},
            "Complete": true, "Status": 200, "Took": 3_400_000,
        });
        let mut entry: RequestEntry = answer::of(entry).unwrap();
        assert!(line(&entry).ends_with("GET /v1/var/a  by token deploy  200 in 3ms"));
        let ran = json!({"Task": "web", "Command": ["ls", "-l a"], "Tty": true});
        entry.ran = answer::of(ran).unwrap();
        let session = json!({"BytesIn": 3, "BytesOut": 5, "ExitCode": 7});
        entry.session = answer::of(session).unwrap();
        let wanted = "200 in 3ms, exit 7, 3 bytes in, 5 out: [\"ls\", \"-l a\"] beside web";
        assert!(line(&entry).ends_with(wanted), "{}", line(&entry));
        entry.session = answer::of(json!({"BytesIn": 3, "BytesOut": 5})).unwrap();
        assert!(line(&entry).contains(", killed, 3 bytes in"));
        entry.session = answer::of(json!({"BytesIn": 1, "BytesOut": 5})).unwrap();
        assert!(line(&entry).contains(", killed, 1 byte in, 5 out"));
        entry.ran = None;
        entry.servers = vec!["10.0.0.1:4647".to_owned(), "b:4647".to_owned()];
        let wanted = r#"200 in 3ms: "10.0.0.1:4647", "b:4647""#;
        assert!(line(&entry).ends_with(wanted), "{}", line(&entry));
        entry.servers.clear();
        entry.status = 0;
        assert!(line(&entry).ends_with("given up"));
        entry.complete = false;
        assert!(line(&entry).ends_with("no end yet"));
    }

    #[test]
    fn a_request_of_a_stranger_is_one_line_that_does_nothing_to_the_terminal() {
        let entry = json!({
            "Index": 7, "Time": 0, "Class": "control", "Method": "PUT", "Path": "/v1/a\r",
            "Actor": {"name": "me\n       8  root"},
            "Servers": ["a\u{1b}[2J\n       9", "b, c"],
        });
        let mut entry: RequestEntry = answer::of(entry).unwrap();
        let shown = line(&entry);
        assert!(!shown.contains(char::is_control), "{shown:?}");
        let servers = r#": "a\u{1b}[2J\n       9", "b, c""#;
        assert!(shown.ends_with(servers), "{shown}");
        let ran = json!({"Task": "web\n       9", "Command": ["ls\n"], "Tty": true});
        entry.ran = answer::of(ran).unwrap();
        let shown = line(&entry);
        assert!(!shown.contains(char::is_control), "{shown:?}");
    }
}
