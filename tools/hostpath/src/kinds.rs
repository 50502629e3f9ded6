//! What ways to use a volume mean, and which go together.

use drover_csi::proto::VolumeCapability;
use drover_csi::proto::volume_capability::AccessType;
use drover_csi::proto::volume_capability::access_mode::Mode;
use tonic::Status;

use crate::state::{Kind, Use};

/// Whether several nodes may use the volume at once.
pub(crate) fn is_of_many_nodes(access: &str) -> bool {
    access.starts_with("MULTI_NODE")
}

/// Whether only one path of a node may have the volume.
pub(crate) fn is_of_one_path(access: &str) -> bool {
    access == Mode::SingleNodeSingleWriter.as_str_name()
}

/// Whether it allows no writer.
pub(crate) fn is_for_readers(access: &str) -> bool {
    access.ends_with("READER_ONLY")
}

/// A way to use a volume, as it is kept.
pub(crate) fn used(capability: &VolumeCapability) -> Use {
    let mode = capability.access_mode.as_ref().map(|access| access.mode());
    let mut used = Use {
        access: mode.unwrap_or(Mode::Unknown).as_str_name().to_owned(),
        ..Use::default()
    };
    if let Some(AccessType::Mount(mount)) = &capability.access_type {
        used.fs_type = mount.fs_type.clone();
        used.flags = mount.mount_flags.clone();
    }
    used
}

/// What a volume is used as.
pub(crate) fn kind(capability: &VolumeCapability) -> Result<Kind, Status> {
    match (&capability.access_type, &capability.access_mode) {
        (None, _) => Err(Status::invalid_argument("neither a folder nor a device")),
        (_, None) => Err(Status::invalid_argument("no access mode")),
        (_, Some(access)) if access.mode() == Mode::Unknown => {
            Err(Status::invalid_argument("an unknown access mode"))
        }
        (Some(AccessType::Block(_)), _) => Ok(Kind::Device),
        (Some(AccessType::Mount(_)), _) => Ok(Kind::Folder),
    }
}

/// The kind of use that a call requests, which every call has to name.
pub(crate) fn wanted(given: Option<&VolumeCapability>, is: Kind) -> Result<Use, Status> {
    let given = given.ok_or_else(|| Status::invalid_argument("no volume capability"))?;
    match kind(given)? == is {
        true => Ok(used(given)),
        false => Err(Status::invalid_argument(match is {
            Kind::Folder => "the volume is a folder",
            Kind::Device => "the volume is a device",
        })),
    }
}
