//! The ways in which a volume may be used.

use crate::capability::{AttachmentMode, access, capability};
use crate::mounts::MountError;
use crate::proto;

/// How a volume is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// It is not to be written.
    pub read_only: bool,
    /// As a folder or as a device: the word of a job.
    pub attachment: String,
    /// The access at a time: the word of a job.
    pub access: String,
    /// The file system that is wanted; empty for the plugin's own choice.
    pub fs_type: String,
    /// Flags of the mount.
    pub flags: Vec<String>,
    /// The options are the job's own (CSI-16): a job that requests the same volume with others has
    /// a place of its own.
    pub own_options: bool,
}

impl Usage {
    /// The name of its folders.
    pub fn name(&self) -> String {
        let may = if self.read_only { "ro" } else { "rw" };
        let base = format!("{may}-{}-{}", self.attachment, self.access);
        match self.own_options {
            true => format!("{base}-{:08x}", self.fingerprint()),
            false => base,
        }
    }

    /// A number for the options: the same for the same ones, by FNV-1a.
    fn fingerprint(&self) -> u32 {
        let words = std::iter::once(&self.fs_type).chain(&self.flags);
        let bytes = words.flat_map(|word| word.bytes().chain([0]));
        bytes.fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }

    /// The message for it.
    ///
    /// # Errors
    /// A word that no job may have.
    pub fn capability(&self) -> Result<proto::VolumeCapability, MountError> {
        let unknown = |word: &str| MountError::Refused(format!("unknown mode {word:?}"));
        let mode = access(&self.access).ok_or_else(|| unknown(&self.access))?;
        let kind = AttachmentMode::of(&self.attachment).ok_or_else(|| unknown(&self.attachment))?;
        Ok(capability(mode, kind, &self.fs_type, &self.flags))
    }
}
