//! `job history`: the versions of a job, and who made each, when, and why.
//!
//! Versions come from the job's row; who and why from the audit trail, which also knows jobs that
//! are long gone.

use super::super::changes::who;
use super::super::client::{Client, is_status};
use super::super::columns::{Table, pairs};
use super::super::conn::Past;
use super::super::out::Out;
use super::super::query::{Thing, find, job_path};
use super::super::show::{Format, boolean, list, number, pretty, text, time};
use super::diff::job_diff;
use anyhow::{Result, bail};
use serde_json::Value as Json;

/// Flags of `job history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job history web
  drover job history -p web          with what each version changed
  drover job history -changes web    every event that changed the job, stops and statuses as well

A job that is gone is shown from the audit trail; drover audit job ID shows it field by field.")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
    #[command(flatten)]
    format: Format,
    /// The job's ID or a prefix of it
    job: String,
    /// Show what each version changed
    #[arg(short = 'p')]
    diffs: bool,
    /// List every event that changed the job
    #[arg(long)]
    changes: bool,
    /// Compare every version with the one of this tag
    #[arg(long, value_name = "NAME", conflicts_with = "diff_version")]
    diff_tag: Option<String>,
    /// Compare every version with this one
    #[arg(long, value_name = "N")]
    diff_version: Option<u64>,
    /// Print whole jobs
    #[arg(long)]
    full: bool,
    /// Only this version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// Lists versions.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let stub = match find(&client, Thing::Job, &args.job).await {
        Ok(stub) => stub,
        Err(missing) => {
            let events = trail(&client, &args.job, &args.conn.namespace).await?;
            if events.is_empty() {
                return Err(missing);
            }
            return gone(&args, &events, out);
        }
    };
    let namespace = text(&stub, "Namespace");
    let answer = args
        .versions(&client, &text(&stub, "ID"), &namespace)
        .await?;
    let mut versions = args.paired(&answer);
    if let Some(version) = args.version {
        let wanted = i64::try_from(version)?;
        versions.retain(|(job, _)| number(job, "Version") == wanted);
        if versions.is_empty() {
            bail!("job {:?} has no version {version}", args.job);
        }
    }
    let all: Json = versions.iter().map(|(job, _)| (*job).clone()).collect();
    if args.format.print(&all, out)? {
        return Ok(0);
    }
    if args.full {
        out.line(&pretty(&all));
        return Ok(0);
    }
    let events = trail(&client, &text(&stub, "ID"), &namespace).await?;
    for (i, (job, diff)) in versions.iter().enumerate() {
        let rows = rows(job, &events);
        if i > 0 {
            out.line("");
        }
        out.line(&pairs(&rows));
        if let Some(diff) = diff {
            out.line(&format!("Diff:\n{}", job_diff(diff, &Json::Null, false)));
        }
    }
    if args.changes {
        out.head("Changes");
        out.line(&table(&events));
    }
    Ok(0)
}

impl Args {
    /// What versions are compared with, if with one of them.
    fn base(&self) -> Option<(&'static str, String)> {
        let tag = self.diff_tag.clone().map(|tag| ("diff_tag", tag));
        let version = self.diff_version.map(|n| ("diff_version", n.to_string()));
        tag.or(version)
    }

    async fn versions(&self, client: &Client, id: &str, namespace: &str) -> Result<Json> {
        let base = self.base();
        let diffs = (self.diffs || base.is_some()).to_string();
        let mut query = vec![("namespace", namespace), ("diffs", diffs.as_str())];
        query.extend(base.iter().map(|(name, value)| (*name, value.as_str())));
        client.get_json(&job_path(id, "/versions"), &query).await
    }

    /// The versions, each with its difference. Without a base it belongs to the version it leads
    /// to, and the oldest has none; with one, the base itself has none.
    fn paired<'a>(&self, answer: &'a Json) -> Vec<(&'a Json, Option<&'a Json>)> {
        let is_base = |job: &Json| match (&self.diff_tag, self.diff_version) {
            (Some(tag), _) => text(&job["VersionTag"], "Name") == *tag,
            (None, Some(version)) => u64::try_from(number(job, "Version")) == Ok(version),
            (None, None) => false,
        };
        let mut diffs = list(answer, "Diffs").iter();
        let pair = |job| match is_base(job) {
            true => (job, None),
            false => (job, diffs.next()),
        };
        list(answer, "Versions").iter().map(pair).collect()
    }
}

/// What is told of a version; who made it is in the event that registered it.
fn rows(job: &Json, events: &[Json]) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("Version", number(job, "Version").to_string()),
        ("Stable", boolean(job, "Stable").to_string()),
        ("Submit Date", time(number(job, "SubmitTime"))),
    ];
    let registered = number(job, "JobModifyIndex");
    if let Some(event) = events.iter().find(|e| number(e, "Index") == registered) {
        rows.push(("Submitted By", who(event)));
        rows.push(("Index", registered.to_string()));
        rows.push(("Request ID", text(event, "RequestID")));
    }
    if !job["VersionTag"].is_null() {
        rows.push(("Tag Name", text(&job["VersionTag"], "Name")));
        rows.push(("Tag Description", text(&job["VersionTag"], "Description")));
    }
    rows
}

/// Tells a job that is gone.
fn gone(args: &Args, events: &[Json], out: &Out) -> Result<u8> {
    if args.format.print(&Json::from(events.to_vec()), out)? {
        return Ok(0);
    }
    out.line(&format!(
        "Job {:?} is gone. What happened to it:\n",
        args.job
    ));
    out.line(&table(events));
    Ok(0)
}

/// The events that changed a job, oldest first; none if it never was, or where nobody may ask.
async fn trail(client: &Client, id: &str, namespace: &str) -> Result<Vec<Json>> {
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    let (mut events, mut token) = (Vec::new(), String::new());
    loop {
        let mut query = vec![
            ("type", "job"),
            ("id", id),
            ("namespace", namespace),
            ("outcome", "applied"),
            ("per_page", "500"),
        ];
        if !token.is_empty() {
            query.push(("next_token", token.as_str()));
        }
        let reply = match client.get("/v1/audit", &query).await {
            Ok(reply) => reply,
            Err(err) if [400, 403, 404].iter().any(|code| is_status(&err, *code)) => break,
            Err(err) => return Err(err.context("Error reading the audit trail")),
        };
        events.extend(reply.json()?.as_array().cloned().unwrap_or_default());
        token = reply.next_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(events)
}

fn table(events: &[Json]) -> String {
    let mut table = Table::new([
        "Index",
        "Time",
        "Kind",
        "By",
        "Version",
        "Status",
        "Because Of",
    ]);
    for event in events {
        let fields = list(event, "Changes")
            .iter()
            .filter(|c| text(c, "Table") == "jobs");
        let fields: Vec<&Json> = fields.flat_map(|change| list(change, "Fields")).collect();
        let became = |path: &str| match fields.iter().find(|f| text(f, "Path") == path) {
            Some(field) if field["After"].is_null() => "gone".to_owned(),
            Some(field) => text(field, "After"),
            None => "-".to_owned(),
        };
        table.row([
            number(event, "Index").to_string(),
            time(number(event, "Time")),
            text(event, "Kind"),
            who(event),
            became("Version"),
            became("Status"),
            match event["Cause"].is_null() {
                true => "-".to_owned(),
                false => number(event, "Cause").to_string(),
            },
        ]);
    }
    table.to_string()
}
