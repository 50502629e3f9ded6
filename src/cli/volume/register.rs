//! `volume register` and `volume create`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::{number, short, text};
use super::super::spec::source;
use super::spec::{Spec, parse};
use anyhow::{Result, bail};
use drover_events::model::status::{VolumeType, host_volume};
use serde_json::{Value as Json, json};

/// Flags of `volume register` and `volume create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume init
  drover volume register volume.hcl
  drover volume init -type host && drover volume create volume.hcl
                                             a directory on a node that will do")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Conn,
    /// The file that describes it, HCL or JSON; - reads standard input
    input: String,
    /// The id of a volume that is changed, in the place of the file's
    #[arg(long, default_value = "", hide_default_value = true)]
    id: String,
    /// Accepted for Nomad's sake
    #[arg(long, hide = true)]
    policy_override: bool,
    /// Do not wait until a new host volume is ready; a CSI volume is when this returns
    #[arg(long)]
    detach: bool,
    /// Show the full id of a new host volume
    #[arg(long)]
    verbose: bool,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// It is there.
    Register,
    /// It has to be made.
    Create,
}

/// Registers or makes a volume.
pub(super) async fn run(args: Args, how: How, out: &Out) -> Result<u8> {
    let Spec { kind, mut volume } = parse(&args.input, &source(&args.input)?)?;
    if !args.id.is_empty() {
        volume["ID"] = Json::String(args.id.clone());
    }
    match kind {
        VolumeType::Host => host(&args, how, volume, out).await,
        VolumeType::Csi => csi(&args, how, volume, out).await,
    }
}

async fn csi(args: &Args, how: How, volume: Json, out: &Out) -> Result<u8> {
    let id = text(&volume, "ID");
    if id.is_empty() {
        bail!("Error: the volume definition has no id");
    }
    let namespace = text(&volume, "Namespace");
    let query: &[(&str, &str)] = match namespace.as_str() {
        "" => &[],
        name => &[("namespace", name)],
    };
    let (path, verb) = match how {
        How::Register => (format!("/v1/volume/csi/{}", encode(&id)), "registering"),
        How::Create => (format!("/v1/volume/csi/{}/create", encode(&id)), "creating"),
    };
    let mut body = json!({ "Volumes": [volume] });
    if args.policy_override {
        // Servers say in their warnings what they do not act on.
        body["PolicyOverride"] = Json::Bool(true);
    }
    let done = args.conn.client()?.put(&path, query, &body).await;
    let done = done.map_err(|err| err.context(format!("Error {verb} volume")))?;
    match how {
        How::Register => out.line(&format!("Volume {id:?} registered")),
        How::Create => {
            for made in done["Volumes"].as_array().into_iter().flatten() {
                let (external, id) = (text(made, "ExternalID"), text(made, "ID"));
                out.line(&format!("Created external volume {external} with ID {id}"));
            }
        }
    }
    let warnings = text(&done, "Warnings");
    if !warnings.is_empty() {
        out.line(&format!("Volume Warnings:\n{warnings}"));
    }
    Ok(0)
}

async fn host(args: &Args, how: How, volume: Json, out: &Out) -> Result<u8> {
    let (path, verb, done_word) = match how {
        How::Register => ("/v1/volume/host/register", "registering", "Registered"),
        How::Create => ("/v1/volume/host/create", "creating", "Created"),
    };
    let body = json!({ "Volume": volume, "PolicyOverride": args.policy_override });
    let done = args.conn.client()?.put(path, &[], &body).await;
    let done = done.map_err(|err| err.context(format!("Error {verb} volume")))?;
    let made = &done["Volume"];
    let (name, id) = (text(made, "Name"), text(made, "ID"));
    out.line(&format!("{done_word} host volume {name} with ID {id}"));
    let warnings = text(&done, "Warnings");
    if !warnings.is_empty() {
        out.line(&format!("Volume Warnings:\n{warnings}"));
    }
    if how == How::Create && !args.detach {
        wait(args, made, out).await?;
    }
    Ok(0)
}

/// Waits until the node of a host volume has it.
async fn wait(args: &Args, made: &Json, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let id = text(made, "ID");
    let path = format!("/v1/volume/host/{}", encode(&id));
    let namespace = text(made, "Namespace");
    let mut volume = made.clone();
    while text(&volume, "State") == host_volume::PENDING {
        let index = number(&volume, "ModifyIndex").to_string();
        let query = [
            ("index", index.as_str()),
            ("wait", "60s"),
            ("namespace", namespace.as_str()),
        ];
        volume = client.get_json(&path, &query).await?;
    }
    let (shown, state) = (short(&id, args.verbose), text(&volume, "State"));
    out.line(&format!("Host volume {shown} is {state}"));
    Ok(())
}
