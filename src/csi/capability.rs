//! The ways a volume is used: the words of jobs, and the messages of plugins.

use drover_events::model::status;
pub use drover_events::model::status::AttachmentMode;

use crate::proto::VolumeCapability;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

/// What a word of a job means: how many allocations may use a volume at a time, and for what.
pub fn access(word: &str) -> Option<Mode> {
    Some(match status::AccessMode::of(word)? {
        status::AccessMode::SingleNodeReader => Mode::SingleNodeReaderOnly,
        status::AccessMode::SingleNodeWriter => Mode::SingleNodeWriter,
        status::AccessMode::MultiNodeReader => Mode::MultiNodeReaderOnly,
        status::AccessMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
        status::AccessMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
        // These exist for host volumes only.
        status::AccessMode::SingleNodeSingleWriter | status::AccessMode::SingleNodeMultiWriter => {
            return None;
        }
    })
}

/// The message for a way to use a volume. Options are only for folders.
pub fn capability(
    access: Mode,
    attachment: AttachmentMode,
    fs_type: &str,
    flags: &[String],
) -> VolumeCapability {
    let kind = match attachment {
        AttachmentMode::BlockDevice => AccessType::Block(BlockVolume {}),
        AttachmentMode::FileSystem => AccessType::Mount(MountVolume {
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
    use super::{AttachmentMode, access, capability};
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
        assert_eq!(AttachmentMode::of("block"), None);
    }

    #[test]
    fn options_go_to_folders_only() {
        let flags = vec!["noatime".to_owned()];
        let mode = Mode::SingleNodeWriter;
        let folder = capability(mode, AttachmentMode::FileSystem, "ext4", &flags);
        let Some(AccessType::Mount(mount)) = folder.access_type else {
            panic!("a folder is mounted")
        };
        assert_eq!((mount.fs_type.as_str(), mount.mount_flags), ("ext4", flags));
        let device = capability(mode, AttachmentMode::BlockDevice, "ext4", &[]);
        assert!(matches!(device.access_type, Some(AccessType::Block(_))));
    }
}
