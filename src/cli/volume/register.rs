//! `volume register` and `volume create`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::short;
use super::super::spec::{read, source};
use super::spec::{Spec, parse};
use crate::http::answers::{CreateResponse, HostVolumeResponse, RegisterResponse};
use anyhow::{Context, Result, bail};
use drover_events::model::HostVolume;
use drover_events::model::status::{self as words, VolumeType};
use serde::Deserialize;
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
    /// The id of a volume that is changed, in place of the file's
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

/// What is requested.
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

/// The part of a definition of a CSI volume that says where it belongs; the rest is for the servers
/// to read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Named {
    #[serde(rename = "ID")]
    id: String,
    namespace: String,
}

async fn csi(args: &Args, how: How, volume: Json, out: &Out) -> Result<u8> {
    let Named { id, namespace } = read(&volume).context("Error reading the volume definition")?;
    if id.is_empty() {
        bail!("Error: the volume definition has no id");
    }
    let query: &[(&str, &str)] = match namespace.as_str() {
        "" => &[],
        name => &[("namespace", name)],
    };
    let (path, verb) = match how {
        How::Register => (format!("/v1/volume/csi/{}", encode(&id)), "registering"),
        How::Create => (format!("/v1/volume/csi/{}/create", encode(&id)), "creating"),
    };
    // Servers say in their warnings what they do not act on.
    let body = match args.policy_override {
        true => json!({ "Volumes": [volume], "PolicyOverride": true }),
        false => json!({ "Volumes": [volume] }),
    };
    let client = args.conn.client()?;
    let failed = |err: anyhow::Error| err.context(format!("Error {verb} volume"));
    let warnings = match how {
        How::Register => {
            let done = client.put::<RegisterResponse>(&path, query, &body).await;
            let done = done.map_err(failed)?;
            out.line(&format!("Volume {id:?} registered"));
            done.warnings
        }
        How::Create => {
            let done = client.put::<CreateResponse>(&path, query, &body).await;
            let done = done.map_err(failed)?;
            for made in &done.volumes {
                let (external, id) = (&made.external_id, &made.id);
                out.line(&format!("Created external volume {external} with ID {id}"));
            }
            done.warnings
        }
    };
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
    let done: HostVolumeResponse =
        done.map_err(|err| err.context(format!("Error {verb} volume")))?;
    let made = done.volume.unwrap_or_default();
    let (name, id) = (&made.name, &made.id);
    out.line(&format!("{done_word} host volume {name} with ID {id}"));
    if !done.warnings.is_empty() {
        out.line(&format!("Volume Warnings:\n{}", done.warnings));
    }
    if how == How::Create && !args.detach {
        wait(args, made, out).await?;
    }
    Ok(0)
}

/// Waits until the node of a host volume has it.
async fn wait(args: &Args, mut volume: HostVolume, out: &Out) -> Result<()> {
    let client = args.conn.client()?;
    let path = format!("/v1/volume/host/{}", encode(&volume.id));
    let namespace = volume.namespace.clone();
    while volume.state == words::host_volume::PENDING {
        let index = volume.modify_index.to_string();
        let query = [
            ("index", index.as_str()),
            ("wait", "60s"),
            ("namespace", namespace.as_str()),
        ];
        volume = client.fetch(&path, &query).await?;
    }
    let (shown, state) = (short(&volume.id, args.verbose), &volume.state);
    out.line(&format!("Host volume {shown} is {state}"));
    Ok(())
}
