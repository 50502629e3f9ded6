//! `job history`: the versions of a job, and by whom, when and why each was made.
//!
//! Versions come from the job's row; actors and reasons from the audit trail, which also knows jobs
//! that are long gone.

use super::super::answer::{self, unreadable};
use super::super::changes::{AuditEntry, who};
use super::super::client::{Client, is_status};
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::query::{find, job_path};
use super::super::show::{Format, pretty, time};
use super::diff::job_diff;
use crate::history::audit::Field;
use crate::http::answers::JobListStub;
use anyhow::{Result, bail};
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::model::{Job, JobDiff};
use serde::Deserialize;
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
    conn: PastConnection,
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

/// The versions of a job, the newest first, and what is different between them where that was
/// requested.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Versions<V> {
    pub(super) versions: Vec<V>,
    /// As they came.
    diffs: Vec<Json>,
}

/// What distinguishes a version from the others: all else of it may be for another release to read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Numbered {
    pub(super) version: u64,
    version_tag: Option<Tag>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Tag {
    name: String,
}

impl Numbered {
    /// That of a job as it came.
    pub(super) fn of(job: &Json) -> Result<Self> {
        answer::of(job.clone())
    }

    /// Whether it has this tag.
    pub(super) fn is_tagged(&self, name: &str) -> bool {
        self.version_tag
            .as_ref()
            .is_some_and(|tag| tag.name == name)
    }
}

/// A version that is shown.
struct Version {
    /// None where it does not say so.
    number: Option<u64>,
    /// The job as it came.
    raw: Json,
    /// What is different, as it came.
    diff: Option<Json>,
}

/// Lists versions.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let JobListStub { id, namespace, .. } = match find(&client, &args.job).await {
        Ok(stub) => stub,
        Err(missing) => {
            let events = trail(&client, &args.job, &args.conn.namespace).await?;
            if events.is_empty() {
                return Err(missing);
            }
            return gone(&args, events, out);
        }
    };
    let mut versions = args.versions(&client, &id, &namespace).await?;
    if let Some(version) = args.version {
        versions.retain(|one| one.number == Some(version));
        if versions.is_empty() {
            bail!("job {:?} has no version {version}", args.job);
        }
    }
    if args.full || args.format.is_given() {
        let all: Json = versions.into_iter().map(|one| one.raw).collect();
        if !args.format.print(&all, out)? {
            out.exact(&pretty(&all));
        }
        return Ok(0);
    }
    let events = reported(trail(&client, &id, &namespace).await?);
    for (i, version) in versions.into_iter().enumerate() {
        if i > 0 {
            out.line("");
        }
        version.show(&events, out);
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

    /// The versions, each with its difference. Without a base it belongs to the version it leads
    /// to, and the oldest has none; with one, the base itself has none.
    async fn versions(&self, client: &Client, id: &str, namespace: &str) -> Result<Vec<Version>> {
        let base = self.base();
        let diffs = (self.diffs || base.is_some()).to_string();
        let mut query = vec![("namespace", namespace), ("diffs", diffs.as_str())];
        query.extend(base.iter().map(|(name, value)| (*name, value.as_str())));
        let found = client.fetch(&job_path(id, "/versions"), &query).await;
        let Versions { versions, diffs } = found?;
        let mut diffs = diffs.into_iter();
        let pair = |raw: Json| {
            let own = Numbered::of(&raw).ok();
            let diff = match own.as_ref().is_some_and(|own| self.is_base(own)) {
                true => None,
                false => diffs.next(),
            };
            let number = own.map(|own| own.version);
            Version { number, raw, diff }
        };
        Ok(versions.into_iter().map(pair).collect())
    }

    /// Whether a version is the one that the others are compared with.
    fn is_base(&self, own: &Numbered) -> bool {
        match (&self.diff_tag, self.diff_version) {
            (Some(tag), _) => own.is_tagged(tag),
            (None, Some(version)) => own.version == version,
            (None, None) => false,
        }
    }
}

impl Version {
    /// Prints the version; in place of a part that cannot be read, that it is unreadable.
    fn show(self, events: &[AuditEntry], out: &Out) {
        match answer::of::<Job>(self.raw) {
            Ok(job) => out.line(&pairs(&rows(&job, events))),
            Err(error) => {
                let number = self.number.map(|number| number.to_string());
                let rows = [("Version", number.unwrap_or_default())];
                out.line(&format!("{}\n{}", pairs(&rows), unreadable(&error)));
            }
        }
        let Some(diff) = self.diff else {
            return;
        };
        let reported = match answer::of::<JobDiff>(diff) {
            Ok(diff) => job_diff(&diff, None, false),
            Err(error) => unreadable(&error),
        };
        out.line(&format!("Diff:\n{reported}"));
    }
}

/// What is shown of a version; its author is in the event that registered it.
fn rows(job: &Job, events: &[AuditEntry]) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("Version", job.version.to_string()),
        ("Stable", job.stable.to_string()),
        ("Submit Date", time(job.submit_time)),
    ];
    let registered = job.job_modify_index;
    if let Some(event) = events.iter().find(|event| event.index == registered) {
        rows.push(("Submitted By", who(event.actor.as_ref())));
        rows.push(("Index", registered.to_string()));
        rows.push(("Request ID", event.request_id.clone()));
    }
    if let Some(tag) = &job.version_tag {
        rows.push(("Tag Name", tag.name.clone()));
        rows.push(("Tag Description", tag.description.clone()));
    }
    rows
}

/// Prints what happened to a job that is gone.
fn gone(args: &Args, events: Vec<Json>, out: &Out) -> Result<u8> {
    if args.format.is_given() {
        args.format.print(&Json::from(events), out)?;
        return Ok(0);
    }
    out.line(&format!(
        "Job {:?} is gone. What happened to it:\n",
        args.job
    ));
    out.line(&table(&reported(events)));
    Ok(0)
}

/// Events as they are shown to people.
fn reported(events: Vec<Json>) -> Vec<AuditEntry> {
    events.into_iter().map(AuditEntry::reported).collect()
}

/// The events that changed a job, oldest first; none if it never existed, or where the caller may
/// not read them.
async fn trail(client: &Client, id: &str, namespace: &str) -> Result<Vec<Json>> {
    let namespace = if namespace.is_empty() {
        DEFAULT_NAMESPACE
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
        events.extend(reply.read::<Vec<Json>>()?);
        token = reply.next_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(events)
}

fn table(events: &[AuditEntry]) -> String {
    let mut table = ColumnTable::new([
        "Index",
        "Time",
        "Kind",
        "By",
        "Version",
        "Status",
        "Because Of",
    ]);
    for event in events {
        let changes = event.changes.iter();
        let changes = changes.filter(|change| change.table == "jobs");
        let fields: Vec<&Field> = changes.flat_map(|change| &change.fields).collect();
        let became = |path: &str| match fields.iter().find(|field| field.path == path) {
            None => "-".to_owned(),
            Some(field) => match &field.after {
                None => "gone".to_owned(),
                Some(Json::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            },
        };
        let cause = event.cause.map(|cause| cause.to_string());
        table.row([
            event.index.to_string(),
            time(event.time),
            event.kind.clone(),
            who(event.actor.as_ref()),
            became("Version"),
            became("Status"),
            cause.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.to_string()
}
