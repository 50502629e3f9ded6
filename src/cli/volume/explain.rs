//! `volume explain` and `volume history`

use super::super::audit;
use super::super::client::encode;
use super::super::columns::{ColumnTable, pairs};
use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::show::{Format, ago, short};
use super::super::trail::Span;
use crate::http::answers::{Claim, Explained};
use anyhow::{Result, bail};
use drover_events::model::status::VolumeType;

/// Flags of `volume explain`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Its id
    volume: String,
    /// The type of volume: csi, as host volumes have no steps to explain
    #[arg(long = "type", value_name = "TYPE", default_value = "csi")]
    kind: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
}

/// Flags of `volume history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume history database
  drover volume history -oldest -limit 0 database   all of it, from its registration on")]
pub(in crate::cli) struct HistoryArgs {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// Its id
    volume: String,
    /// The type of volume: csi or host
    #[arg(long = "type", value_name = "TYPE", default_value = "csi")]
    kind: String,
    #[command(flatten)]
    span: Span,
    /// Everything: ids in full, long values, fields that always change
    #[arg(long)]
    verbose: bool,
}

/// Shows the holders of a volume, and which step waits for what.
pub(super) async fn run(args: Args, out: &Out) -> Result<u8> {
    match VolumeType::of(&args.kind) {
        Some(VolumeType::Csi) => {}
        Some(VolumeType::Host) => bail!(
            "Error: volume explain is about CSI volumes; `volume status -type host` shows who uses \
             a host volume, and its state"
        ),
        None => bail!(
            "Error: unknown volume type {:?}: it is csi or host",
            args.kind
        ),
    }
    let client = args.conn.client()?;
    let path = format!("/v1/volume/csi/{}/explain", encode(&args.volume));
    let failed = "Error querying volume";
    let found = args
        .format
        .ask::<Explained>(&client, (&path, &[]), failed, out);
    let Some(found) = found.await? else {
        return Ok(0);
    };
    let used_as = used_as(&found.access_mode, &found.attachment_mode);
    out.line(&pairs(&[
        ("ID", found.id),
        ("Namespace", found.namespace),
        ("Plugin ID", found.plugin_id),
        ("Schedulable", found.schedulable.to_string()),
        ("Used As", used_as),
        ("In Short", found.says),
    ]));
    let claims = &found.claims;
    if claims.is_empty() {
        return Ok(0);
    }
    out.head("Claims");
    let head = [
        "Alloc ID", "Job ID", "Node", "Access", "Alloc", "State", "Since",
    ];
    let mut table = ColumnTable::new(head);
    for claim in claims {
        table.row([
            short(&claim.allocation_id, args.verbose),
            claim.job_id.clone(),
            match claim.node_name.as_str() {
                "" => short(&claim.node_id, args.verbose),
                name => name.to_owned(),
            },
            claim.mode.clone(),
            claim.client_status.clone(),
            claim.state.clone(),
            ago(claim.since, client.now()),
        ]);
    }
    out.line(&table.to_string());
    for claim in claims.iter().filter(|claim| !claim.waits_for.is_empty()) {
        out.line(&why(claim, (args.verbose, client.now())));
    }
    Ok(0)
}

/// What a claim waits for, and why it still does.
fn why(claim: &Claim, (verbose, now): (bool, i64)) -> String {
    let who = match claim.allocation_id.as_str() {
        "" => "it".to_owned(),
        alloc => short(alloc, verbose),
    };
    let (waits, against) = (&claim.waits_for, &claim.hindered_by);
    match (against.is_empty(), claim.hindered_since) {
        (true, _) => format!("{who} waits for {waits}"),
        (false, 0) => format!("{who} waits for {waits}: {against}"),
        (false, since) => {
            let (tries, since) = (claim.tries, ago(since, now));
            format!("{who} waits for {waits}: {against} (tries: {tries}, first {since})")
        }
    }
}

fn used_as(access: &str, attachment: &str) -> String {
    match access {
        "" => String::new(),
        access => format!("{attachment}, {access}"),
    }
}

/// Shows everything that ever happened to a volume.
pub(super) async fn history(args: HistoryArgs, out: &Out) -> Result<u8> {
    let object_type = match VolumeType::of(&args.kind) {
        Some(VolumeType::Csi) => "csi-volume",
        Some(VolumeType::Host) => "host-volume",
        None => bail!(
            "Error: unknown volume type {:?}: it is csi or host",
            args.kind
        ),
    };
    let of = audit::Of {
        conn: args.conn,
        format: args.format,
        object_type: object_type.to_owned(),
        id: args.volume,
        span: args.span,
        verbose: args.verbose,
    };
    audit::of(of, out).await
}
