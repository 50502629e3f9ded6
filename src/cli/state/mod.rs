//! The `state` noun: the state of the cluster as a whole, now and then.

pub(super) mod at;

use super::changes::row;
use super::conn::Conn;
use super::out::Out;
use super::show::Format;
use super::trail::{TrailPage, given, print_pages};
use crate::history::audit::RowChange;
use anyhow::Result;
use at::AtArgs;
use clap::Subcommand;

/// What can be done with states.
#[derive(Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub(super) enum Verb {
    /// Make the whole state of an earlier index from the log
    At(AtArgs),
    /// Show the rows that differ between two moments, field by field
    Diff(Box<DiffArgs>),
}

/// Rows requested at a time.
const PAGE: usize = 500;

/// Flags of `state diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover state diff -from -10m              what is other than ten minutes ago
  drover state diff -from 812 -to 900       between two events
  drover state diff -from -1h -table jobs,nodes -brief")]
pub(super) struct DiffArgs {
    #[command(flatten)]
    conn: Conn,
    #[command(flatten)]
    format: Format,
    /// The one state: an index, an RFC 3339 time, or so long ago (-5m)
    #[arg(long, value_name = "MOMENT")]
    from: String,
    /// The other; now by default
    #[arg(
        long,
        value_name = "MOMENT",
        default_value = "",
        hide_default_value = true
    )]
    to: String,
    /// Only these tables, with commas between
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true
    )]
    table: String,
    /// Rows at most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
    /// Leave out the fields
    #[arg(long)]
    brief: bool,
    /// Long values and fields that always change as well
    #[arg(long)]
    verbose: bool,
}

/// Runs a verb.
pub(super) async fn run(verb: Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::At(args) => at::run(args, out).await,
        Verb::Diff(args) => diff(*args, out).await,
    }
}

async fn diff(args: DiffArgs, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let page = async |rows: usize, token: &str| {
        let rows = rows.to_string();
        let query = given([
            ("from", args.from.as_str()),
            ("to", args.to.as_str()),
            ("table", args.table.as_str()),
            ("diff", if args.brief { "false" } else { "" }),
            ("per_page", rows.as_str()),
            ("next_token", token),
        ]);
        let reply = client.get("/v1/state/diff", &query).await;
        TrailPage::of(reply.map_err(|err| err.context("Error comparing states"))?)
    };
    let show = |change: RowChange| {
        let lines = row(&change, args.verbose, "");
        lines.iter().for_each(|line| out.line(line));
    };
    let printed = print_pages((args.limit, PAGE), (&args.format, out), page, show).await?;
    if args.format.is_given() {
        return Ok(0);
    }
    if printed.entries == 0 {
        out.line("No rows differ");
    } else if !printed.next.is_empty() {
        let shown = printed.entries;
        out.line(&format!(
            "\nMore rows differ than the {shown} above; -limit 0 shows all."
        ));
    }
    Ok(0)
}
