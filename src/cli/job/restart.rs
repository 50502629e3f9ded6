//! `job restart`: the allocations of a job, some at a time.

use super::super::conn::Conn;
use super::super::monitor::Monitor;
use super::super::out::Out;
use super::super::show::{counted, short};
use super::FoundJob;
use super::restart_batch::{How, replace, restart};
use anyhow::{Context, Result, bail};
use drover_events::model::status as words;
use drover_events::model::{AllocListStub, Job};
use std::time::Duration;

/// Flags of `job restart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job restart web                            running tasks, one allocation after the other
  drover job restart -batch-size 25% -batch-wait 30s web
  drover job restart -reschedule -group api web     by stopping allocations and waiting for others
  drover job restart -all-tasks -yes web            and tasks that ended, as those of prestart")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The job's ID or a prefix of it
    job: String,
    /// Only allocations of this group; may be repeated
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Only this task; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all_tasks", "reschedule"])]
    task: Vec<String>,
    /// Tasks that ended as well
    #[arg(long, conflicts_with = "reschedule")]
    all_tasks: bool,
    /// Stop allocations, and wait until others run in their place
    #[arg(long)]
    reschedule: bool,
    /// With -reschedule: do not wait for shutdown delays
    #[arg(long, requires = "reschedule")]
    no_shutdown_delay: bool,
    /// How many at a time: a number, or a share of all such as 25%
    #[arg(long, value_name = "N", default_value = "1")]
    batch_size: String,
    /// How long to wait between batches, such as 30s, or ask
    #[arg(long, value_name = "TIME", default_value = "0s")]
    batch_wait: String,
    /// What to do where one cannot be restarted: ask, or fail
    #[arg(long, value_name = "WHAT")]
    on_error: Option<OnError>,
    /// Answer yes to every question
    #[arg(long)]
    yes: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// What to do where an allocation cannot be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnError {
    /// Ask whether to go on
    Ask,
    /// End
    Fail,
}

/// The pause between batches.
enum Pause {
    For(Duration),
    Ask,
}

/// Restarts a job.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    let pause = pause(&args.batch_wait)?;
    let job = FoundJob::new(&args.conn, &args.job).await?;
    let shown = job.get("").await;
    let shown: Job = shown.map_err(|err| err.context("Error querying job"))?;
    if args.reschedule && shown.r#type.starts_with("sys") {
        bail!("Jobs of type {} are not rescheduled", shown.r#type);
    }
    let allocs = job.get("/allocations").await;
    let allocs = allocs.map_err(|err| err.context("Error listing allocations"))?;
    let allocs = wanted(&args, allocs, &shown)?;
    if allocs.is_empty() {
        out.line("No allocations to restart");
        return Ok(0);
    }
    let at_a_time = batch(&args.batch_size, allocs.len())?;
    let how = match args.reschedule {
        true => "replaced",
        false => "restarted",
    };
    let question = format!(
        "{} of job {:?} will be {how}, {at_a_time} at a time. Go on? [y/N] ",
        counted(allocs.len(), "allocation"),
        job.id
    );
    if !args.yes && !is_yes(&out.ask(&question)) {
        out.line("Job restart canceled");
        return Ok(0);
    }
    let monitor = Monitor::new(&job.client, out, args.verbose, &job.namespace);
    let count = counted(allocs.len(), "allocation");
    monitor.header(&format!("Restarting {count}"));
    let code = batches(&args, (&job, &monitor), (&allocs, at_a_time), &pause, out).await?;
    monitor.header(match code {
        0 => "Job restarted",
        _ => "Job restart ended early",
    });
    Ok(code)
}

async fn batches(
    args: &Args,
    (job, monitor): (&FoundJob, &Monitor<'_>),
    (allocs, at_a_time): (&[AllocListStub], usize),
    pause: &Pause,
    out: &Out,
) -> Result<u8> {
    let ask = match args.on_error {
        Some(given) => given == OnError::Ask && !args.yes,
        None => !args.yes,
    };
    let how = How {
        tasks: &args.task,
        all_tasks: args.all_tasks,
        no_shutdown_delay: args.no_shutdown_delay,
    };
    let all = allocs.len().div_ceil(at_a_time);
    for (number, batch) in allocs.chunks(at_a_time).enumerate() {
        if number > 0 && !go_on(pause, (number, all), monitor, out).await {
            return Ok(1);
        }
        for alloc in batch {
            let done = match args.reschedule {
                true => replace(job, monitor, alloc, &how).await,
                false => restart(job, monitor, alloc, &how).await,
            };
            let Err(error) = done else {
                continue;
            };
            let shown = short(&alloc.id, args.verbose);
            out.error(&format!("Error restarting allocation {shown:?}: {error:#}"));
            if !ask || !is_yes(&out.ask("Go on with the others? [y/N] ")) {
                return Ok(1);
            }
        }
    }
    Ok(0)
}

/// Waits before a batch; returns whether to continue.
async fn go_on(
    pause: &Pause,
    (done, all): (usize, usize),
    monitor: &Monitor<'_>,
    out: &Out,
) -> bool {
    match pause {
        Pause::For(time) if time.is_zero() => true,
        Pause::For(time) => {
            monitor.say(&format!("Waiting {time:?} before the next batch"));
            tokio::time::sleep(*time).await;
            true
        }
        Pause::Ask => is_yes(&out.ask(&format!("Batch {done} of {all} is done. Go on? [y/N] "))),
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer, "y" | "Y" | "yes")
}

/// The allocations that are to be restarted, the oldest first.
fn wanted(args: &Args, allocs: Vec<AllocListStub>, job: &Job) -> Result<Vec<AllocListStub>> {
    for name in &args.group {
        if job.task_group(name).is_none() {
            bail!("Job {:?} has no group {name:?}", job.id);
        }
    }
    for name in &args.task {
        let mut groups = job.task_groups.iter();
        if !groups.any(|group| group.task(name).is_some()) {
            bail!("Job {:?} has no task {name:?}", job.id);
        }
    }
    let mut found = allocs;
    found.retain(|alloc| {
        let has_task = |name: &String| alloc.task_states.contains_key(name);
        alloc.desired_status == words::desired::RUN
            && alloc.client_status == words::client::RUNNING
            && (args.group.is_empty() || args.group.contains(&alloc.task_group))
            && (args.task.is_empty() || args.task.iter().any(has_task))
    });
    found.sort_by_key(|alloc| alloc.create_index);
    Ok(found)
}

/// How many of so many are one batch.
fn batch(size: &str, all: usize) -> Result<usize> {
    let (digits, is_share) = match size.strip_suffix('%') {
        Some(digits) => (digits, true),
        None => (size, false),
    };
    let number: usize = digits
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .with_context(|| {
            format!("-batch-size {size:?} is neither a number above 0 nor a share such as 25%")
        })?;
    match is_share {
        true if number > 100 => bail!("-batch-size {size:?} is more than all"),
        true => Ok((all * number / 100).max(1)),
        false => Ok(number),
    }
}

fn pause(text: &str) -> Result<Pause> {
    if text == "ask" {
        return Ok(Pause::Ask);
    }
    let nanos = drover_events::gojson::parse_duration(text);
    let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
    let nanos = nanos.with_context(|| {
        format!("-batch-wait {text:?} is neither a duration such as 30s nor ask")
    })?;
    Ok(Pause::For(Duration::from_nanos(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_number_or_a_share() {
        for (size, all, expected) in [
            ("1", 9, 1),
            ("4", 9, 4),
            ("25%", 9, 2),
            ("1%", 9, 1),
            ("100%", 9, 9),
        ] {
            assert_eq!(batch(size, all).unwrap(), expected, "{size}");
        }
        for bad in ["0", "", "0%", "-1", "many", "101%"] {
            assert!(batch(bad, 9).is_err(), "{bad}");
        }
        assert!(matches!(pause("ask").unwrap(), Pause::Ask));
        assert!(matches!(pause("1m").unwrap(), Pause::For(time) if time.as_secs() == 60));
        assert!(pause("-1m").is_err() && pause("soon").is_err());
    }
}
