//! `job history`

use super::super::columns::pairs;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::{Thing, find, job_path};
use super::super::show::{Format, boolean, list, number, pretty, text, time};
use anyhow::{Result, bail};

/// Flags of `job history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job history web
  drover job history -p web          with what each version changed")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// The job's ID or a prefix of it
    job: String,
    /// Show what each version changed
    #[arg(short = 'p')]
    diffs: bool,
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
    let stub = find(&client, Thing::Job, &args.job).await?;
    let namespace = text(&stub, "Namespace");
    let diffs = args.diffs.to_string();
    let query = [("namespace", namespace.as_str()), ("diffs", diffs.as_str())];
    let answer = client
        .get_json(&job_path(&text(&stub, "ID"), "/versions"), &query)
        .await?;
    let mut versions = list(&answer, "Versions").to_vec();
    if let Some(version) = args.version {
        let wanted = i64::try_from(version)?;
        versions.retain(|v| number(v, "Version") == wanted);
        if versions.is_empty() {
            bail!("job {:?} has no version {version}", args.job);
        }
    }
    let all = serde_json::Value::Array(versions.clone());
    if args.format.print(&all, out)? {
        return Ok(0);
    }
    if args.full {
        out.line(&pretty(&all));
        return Ok(0);
    }
    for (i, job) in versions.iter().enumerate() {
        let mut rows = vec![
            ("Version", number(job, "Version").to_string()),
            ("Stable", boolean(job, "Stable").to_string()),
            ("Submit Date", time(number(job, "SubmitTime"))),
        ];
        if !job["VersionTag"].is_null() {
            rows.push(("Tag Name", text(&job["VersionTag"], "Name")));
            rows.push(("Tag Description", text(&job["VersionTag"], "Description")));
        }
        let diff = &answer["Diffs"][i];
        if args.diffs && !diff.is_null() {
            rows.push((
                "Diff",
                format!("{} {:?}", text(diff, "Type"), text(diff, "ID")),
            ));
        }
        if i > 0 {
            out.line("");
        }
        out.line(&pairs(&rows));
    }
    Ok(0)
}
