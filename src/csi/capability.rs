//! The ways a volume is used: the words of jobs, and the messages of plugins.

use crate::proto::VolumeCapability;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

/// How a volume is brought to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// As a folder.
    FileSystem,
    /// As a device.
    BlockDevice,
}

impl Attachment {
    /// The word of a job.
    pub fn parse(word: &str) -> Option<Attachment> {
        match word {
            "file-system" => Some(Attachment::FileSystem),
            "block-device" => Some(Attachment::BlockDevice),
            _ => None,
        }
    }
}

/// What a word of a job means: who may use a volume at a time.
pub fn access(word: &str) -> Option<Mode> {
    Some(match word {
        "single-node-reader-only" => Mode::SingleNodeReaderOnly,
        "single-node-writer" => Mode::SingleNodeWriter,
        "multi-node-reader-only" => Mode::MultiNodeReaderOnly,
        "multi-node-single-writer" => Mode::MultiNodeSingleWriter,
        "multi-node-multi-writer" => Mode::MultiNodeMultiWriter,
        _ => return None,
    })
}

/// The message for a way to use a volume. Options are only for folders.
pub fn capability(
    access: Mode,
    attachment: Attachment,
    fs_type: &str,
    flags: &[String],
) -> VolumeCapability {
    let kind = match attachment {
        Attachment::BlockDevice => AccessType::Block(BlockVolume {}),
        Attachment::FileSystem => AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: flags.to_vec(),
            volume_mount_group: String::new(),
        }),
    };
    VolumeCapability {
        access_mode: Some(AccessMode {
            mode: i32::from(access),
        }),
        access_type: Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attachment, access, capability};
    use crate::proto::volume_capability::AccessType;
    use crate::proto::volume_capability::access_mode::Mode;

    #[test]
    fn every_word_of_a_job_has_its_message_and_no_other_word_has_one() {
        let words = [
            ("single-node-reader-only", Mode::SingleNodeReaderOnly),
            ("single-node-writer", Mode::SingleNodeWriter),
            ("multi-node-reader-only", Mode::MultiNodeReaderOnly),
            ("multi-node-single-writer", Mode::MultiNodeSingleWriter),
            ("multi-node-multi-writer", Mode::MultiNodeMultiWriter),
        ];
        for (word, mode) in words {
            assert_eq!(access(word), Some(mode), "{word}");
        }
        assert_eq!(access(""), None);
        assert_eq!(access("single-node-single-writer"), None);
        assert_eq!(Attachment::parse("block"), None);
    }

    #[test]
    fn options_go_to_folders_only() {
        let flags = vec!["noatime".to_owned()];
        let mode = Mode::SingleNodeWriter;
        let folder = capability(mode, Attachment::FileSystem, "ext4", &flags);
        let Some(AccessType::Mount(mount)) = folder.access_type else {
            panic!("a folder is mounted")
        };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags), ("ext4", flags));
        let device = capability(mode, Attachment::BlockDevice, "ext4", &[]);
        assert!(matches!(device.access_type, Some(AccessType::Block(_))));
    }
}
