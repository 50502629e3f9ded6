//! `volume init`

use super::super::out::Out;
use super::super::spec::write_example;
use anyhow::{Result, bail};
use drover_events::model::status::VolumeType;

/// Flags of `volume init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover volume init
  drover volume init -type host -json volume.json")]
pub(in crate::cli) struct Args {
    /// The file to write; volume.hcl or volume.json by default
    file: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// The type of volume: csi or host
    #[arg(long = "type", value_name = "TYPE", default_value = "csi")]
    kind: String,
}

/// Writes an example.
pub(super) fn run(args: &Args, out: &Out) -> Result<u8> {
    let texts = match VolumeType::of(&args.kind) {
        Some(VolumeType::Csi) => ("volume", CSI_HCL, CSI_JSON),
        Some(VolumeType::Host) => ("volume", HOST_HCL, HOST_JSON),
        None => bail!(
            "Error: unknown volume type {:?}: it is csi or host",
            args.kind
        ),
    };
    let form = if args.json { "json" } else { "hcl" };
    let file = write_example(args.file.as_deref(), form, texts)?;
    out.line(&format!("Example volume specification written to {file}"));
    Ok(0)
}

pub(super) const CSI_HCL: &str = r#"id        = "ebs_prod_db1"
name      = "database"
type      = "csi"
plugin_id = "plugin_id"

# The volume's own name at its provider, for `volume register`.
# external_id = "vol-23452345"

# What a new volume is made of, for `volume create`.
# snapshot_id = "snap-12345"
# clone_id    = "vol-abcdef"
capacity_min = "10GiB"
capacity_max = "20G"

# Ways in which jobs may use it; at least one.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# How it is mounted, where a job says nothing else.
mount_options {
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}

# Where it has to be, and where it should be.
# topology_request {
#   required {
#     topology {
#       segments {
#         rack = "R1"
#       }
#     }
#   }
# }

# Sent to the plugin with each call; kept encrypted and never shown.
secrets {
  example_secret = "xyzzy"
}

parameters {
  skuname = "Premium_LRS"
}

context {}
"#;

const CSI_JSON: &str = r#"{
  "id": "ebs_prod_db1",
  "name": "database",
  "type": "csi",
  "plugin_id": "plugin_id",
  "capacity_min": "10GiB",
  "capacity_max": "20G",
  "capability": [
    {
      "access_mode": "single-node-writer",
      "attachment_mode": "file-system"
    }
  ],
  "mount_options": {
    "fs_type": "ext4",
    "mount_flags": ["noatime"]
  },
  "secrets": {
    "example_secret": "xyzzy"
  },
  "parameters": {
    "skuname": "Premium_LRS"
  },
  "context": {}
}
"#;

const HOST_HCL: &str = r#"name      = "database"
type      = "host"
plugin_id = "mkdir"

# Where it is made: a pool, or one node.
# node_pool = "default"
# node_id   = "f6faa5c1-0000-4000-8000-000000000000"

capacity_min = "10GiB"
capacity_max = "20G"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# Which nodes will do.
# constraint {
#   attribute = "${attr.kernel.name}"
#   value     = "linux"
# }

# Handed to the plugin.
parameters {}
"#;

const HOST_JSON: &str = r#"{
  "name": "database",
  "type": "host",
  "plugin_id": "mkdir",
  "capacity_min": "10GiB",
  "capacity_max": "20G",
  "capability": [
    {
      "access_mode": "single-node-writer",
      "attachment_mode": "file-system"
    }
  ],
  "parameters": {}
}
"#;
