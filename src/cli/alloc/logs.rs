//! `alloc logs`

use super::super::client::encode;
use super::super::out::Out;
use super::pick::pick_task;
use super::tail::{Tail, TailTarget};
use anyhow::Result;

/// Flags of `alloc logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover alloc logs 8ba85cef
  drover alloc logs -f -stderr 8ba85cef server
  drover alloc logs -tail -n 20 -job web")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    place: TailTarget,
    /// The task, needed where an allocation has several
    task: Option<String>,
    /// The same as the second argument
    #[arg(long = "task", value_name = "NAME")]
    task_flag: Option<String>,
    /// Standard error in place of standard output
    #[arg(long)]
    stderr: bool,
    /// Standard output (the default)
    #[arg(long)]
    stdout: bool,
    #[command(flatten)]
    tail: Tail,
}

/// Prints a task's output.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let (client, alloc) = args.place.find().await?;
    let named = args.task.as_deref().or(args.task_flag.as_deref());
    let task = pick_task(&alloc, named, &args.place.shown(&alloc))?;
    let kind = if args.stderr && !args.stdout {
        "stderr"
    } else {
        "stdout"
    };
    let from = args.tail.query_of_log();
    let mut query = vec![
        ("task", task.as_str()),
        ("type", kind),
        ("namespace", alloc.namespace.as_str()),
    ];
    query.extend(from.iter().map(|(name, value)| (*name, value.as_str())));
    let path = format!("/v1/client/fs/logs/{}", encode(&alloc.id));
    let stream = client.stream(&path, &query).await;
    let stream = stream.map_err(|err| err.context("Error reading the task's logs"))?;
    args.tail.print(stream, out).await?;
    Ok(0)
}
