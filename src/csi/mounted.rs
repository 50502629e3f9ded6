//! What was published on a node, and whether it is still there.

use std::path::PathBuf;

use tokio::fs;

use crate::disk::is_mount;
use crate::mounts::MountError;

/// A volume that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where, on the host.
    pub path: PathBuf,
    /// Something is mounted there; otherwise the plugin shows it in another way.
    pub is_mount: bool,
    /// Why it is not as large as it is to be here, if it is not.
    pub too_small: Option<String>,
}

/// Whether what was published is still to be seen.
///
/// # Errors
/// The list of mounts cannot be read.
pub async fn is_there(mounted: &Mounted) -> Result<bool, MountError> {
    match mounted.is_mount {
        true => is_mount(&mounted.path).await,
        false => Ok(fs::symlink_metadata(&mounted.path).await.is_ok()),
    }
}
