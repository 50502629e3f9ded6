//! `job scale` and `job scaling-events`

use super::super::columns::ColumnTable;
use super::super::conn::{Conn, PastConnection};
use super::super::monitor::Wait;
use super::super::out::Out;
use super::super::show::{short, time};
use super::FoundJob;
use crate::http::answers::JobScaleStatus;
use anyhow::{Result, bail};
use drover_events::model::{Job, ScalingEvent};
use serde_json::json;

/// Flags of `job scale`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job scale web 5              a job with one group
  drover job scale web frontend 5
  drover job scale -check-index 42 web frontend 5")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    wait: Wait,
    /// The job's ID or a prefix of it
    job: String,
    /// The group, where the job has several, and the count
    #[arg(required = true, num_args = 1..=2, value_name = "[GROUP] COUNT")]
    wanted: Vec<String>,
    /// Scale only if the job's modify index is this
    #[arg(
        long,
        value_name = "INDEX",
        default_value_t = 0,
        hide_default_value = true
    )]
    check_index: u64,
}

/// Flags of `job scaling-events`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct EventsArgs {
    #[command(flatten)]
    conn: PastConnection,
    /// The job's ID or a prefix of it
    job: String,
    /// Show errors, messages and full ids as well
    #[arg(long)]
    verbose: bool,
}

/// Changes a count.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let (group, count) = match args.wanted.as_slice() {
        [count] => (None, count),
        [group, count, ..] => (Some(group.clone()), count),
        [] => bail!("Name a count"),
    };
    let Ok(count) = count.parse::<u64>() else {
        bail!("Failed to read the count {count:?}: it takes a number from 0 on");
    };
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let group = match group {
        Some(group) => group,
        None => only_group(&job).await?,
    };
    let target = json!({ "Namespace": job.namespace, "Job": job.id, "Group": group });
    let body = json!({
        "Count": count,
        "Target": target,
        "Message": "submitted using the drover CLI",
        "JobModifyIndex": args.check_index,
    });
    let failed = "Error submitting scaling request";
    let done = job.change("/scale", &body, failed, out).await?;
    let eval = (done.eval_id.as_str(), done.eval_create_index);
    job.follow(eval, &args.wait, out).await
}

/// The group of a job that has one.
async fn only_group(job: &FoundJob) -> Result<String> {
    let found = job.get::<Job>("").await;
    let found = found.map_err(|err| err.context("Error querying job"))?;
    match &found.task_groups[..] {
        [group] => Ok(group.name.clone()),
        groups => {
            let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
            bail!(
                "Job {:?} has several groups: {}. Name one: drover job scale {} GROUP COUNT",
                job.id,
                names.join(", "),
                job.id
            )
        }
    }
}

/// Lists what scaled a job, the newest first.
pub(super) async fn events(args: EventsArgs, out: &Out) -> Result<u8> {
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let status = job.get::<JobScaleStatus>("/scale").await;
    let status = status.map_err(|err| err.context("Error listing scaling events"))?;
    let groups = status.task_groups.iter();
    let mut events: Vec<(&String, &ScalingEvent)> = groups
        .flat_map(|(name, group)| group.events.iter().map(move |event| (name, event)))
        .collect();
    job.client.report_moment(out);
    if events.is_empty() {
        out.line("No events found");
        return Ok(0);
    }
    events.sort_by_key(|(_, event)| std::cmp::Reverse(event.time));
    let mut head = vec!["Task Group", "Count", "PrevCount"];
    if args.verbose {
        head.push("Error");
    }
    head.push("Date");
    if args.verbose {
        head.extend(["Eval ID", "Message"]);
    }
    let mut table = ColumnTable::with_head(head);
    for (group, event) in events {
        let count = match event.count {
            Some(count) => count.to_string(),
            None => "-".to_owned(),
        };
        let before = event.previous_count.to_string();
        let mut row = vec![group.clone(), count, before];
        if args.verbose {
            row.push(event.error.to_string());
        }
        row.push(time(event.time));
        if args.verbose {
            let eval = event.eval_id.as_deref().unwrap_or_default();
            row.extend([short(eval, true), event.message.clone()]);
        }
        table.row(row);
    }
    out.line(&table.to_string());
    Ok(0)
}
