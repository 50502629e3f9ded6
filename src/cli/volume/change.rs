//! `volume deregister`, `volume delete` and `volume detach`

use super::super::client::encode;
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::query::find;
use super::{external, status};
use crate::http::answers::NodeListStub;
use anyhow::{Result, bail};
use drover_events::model::status::VolumeType;
use hyper::Method;
use serde::de::IgnoredAny;

/// Flags of `volume deregister`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume deregister database
  drover volume deregister -force database   also with claims, if no live allocation holds one;
                                             nothing is unmounted (see volume detach)")]
pub(in crate::cli) struct DeregisterArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its id
    volume: String,
    /// Also with claims of allocations that have ended
    #[arg(long)]
    force: bool,
}

/// Flags of `volume delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume delete database
  drover volume delete -type host 4b7a2c11          a prefix of its id is enough
  drover volume delete -type host -force 4b7a2c11   also when its node is gone for good")]
pub(in crate::cli) struct DeleteArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its id; of a host volume a prefix of it
    volume: String,
    /// Of a CSI volume: a secret for the plugin, as key=value; may be repeated
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    secrets: Vec<String>,
    /// The type of volume: csi or host
    #[arg(long = "type", value_name = "TYPE", default_value = "csi")]
    kind: String,
    /// Of a host volume: also when its node is gone
    #[arg(long)]
    force: bool,
}

/// Flags of `volume detach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume detach database 4b7a2c11          what has ended there and is not given back
  drover volume detach -force database 4b7a2c11   also where nobody is known to have it, as after
                                                  an attach that its plugin did too late")]
pub(in crate::cli) struct DetachArgs {
    #[command(flatten)]
    conn: Conn,
    /// Its id
    volume: String,
    /// The node's id or a prefix of it
    node: String,
    /// Also where nobody claims it there: its plugin is called nevertheless
    #[arg(long)]
    force: bool,
}

/// Forgets a volume.
pub(super) async fn deregister(args: DeregisterArgs, out: &Out) -> Result<u8> {
    let path = format!("/v1/volume/csi/{}", encode(&args.volume));
    let force = if args.force { "true" } else { "false" };
    let done = args
        .conn
        .client()?
        .delete::<IgnoredAny>(&path, &[("force", force)], None)
        .await;
    done.map_err(|err| err.context("Error deregistering volume"))?;
    out.line(&format!(
        "Successfully deregistered volume {:?}!",
        args.volume
    ));
    Ok(0)
}

/// Deletes a volume.
pub(super) async fn delete(args: DeleteArgs, out: &Out) -> Result<u8> {
    // A flag without effect is refused, so that it is not taken for done.
    match VolumeType::of(&args.kind) {
        Some(VolumeType::Csi) if args.force => bail!(
            "Error: -force is about host volumes; a CSI volume that is not in use is forgotten \
             with: volume deregister -force {}",
            args.volume
        ),
        Some(VolumeType::Host) if !args.secrets.is_empty() => {
            bail!("Error: -secret is about CSI volumes: host volumes have no secrets")
        }
        Some(VolumeType::Csi | VolumeType::Host) | None => {}
    }
    let client = args.conn.client()?;
    let done = match VolumeType::of(&args.kind) {
        Some(VolumeType::Csi) => {
            let path = format!("/v1/volume/csi/{}/delete", encode(&args.volume));
            external::with_secrets(&client, (Method::DELETE, &path), &args.secrets).await
        }
        Some(VolumeType::Host) => {
            let force = if args.force { "true" } else { "false" };
            let id = status::host_id(&client, &args.volume).await?;
            let path = format!("/v1/volume/host/{}", encode(&id));
            client.delete(&path, &[("force", force)], None).await
        }
        None => bail!(
            "Error: unknown volume type {:?}: it is csi or host",
            args.kind
        ),
    };
    done.map_err(|err| err.context("Error deleting volume"))?;
    out.line(&format!("Successfully deleted volume {:?}!", args.volume));
    Ok(0)
}

/// Detaches a volume from a node.
pub(super) async fn detach(args: DetachArgs, _out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    // A node that is not there any more has only its full id left.
    let node = match args.node.len() {
        36 => args.node.clone(),
        _ => find::<NodeListStub>(&client, &args.node).await?.id,
    };
    let path = format!("/v1/volume/csi/{}/detach", encode(&args.volume));
    let force = if args.force { "true" } else { "false" };
    let params = [("node", node.as_str()), ("force", force)];
    let done = client.delete::<IgnoredAny>(&path, &params, None).await;
    done.map_err(|err| err.context("Error detaching volume"))?;
    Ok(0)
}
