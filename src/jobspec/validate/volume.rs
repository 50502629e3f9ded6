//! Rules of volumes that groups request.

use super::when;
use drover_events::model::VolumeRequest;
use drover_events::model::status::{AccessMode, JobType, VolumeType, access_mode, attachment_mode};

pub(super) fn check(
    v: &VolumeRequest,
    job_type: &str,
    count: i64,
    canaries: bool,
    errors: &mut Vec<String>,
) {
    when(errors, v.kind().is_none(), || {
        format!("volume has unrecognized type {}", v.r#type)
    });
    when(errors, v.source.is_empty(), || {
        "volume has an empty source".into()
    });
    if v.per_alloc {
        let system = JobType::of(job_type).is_some_and(JobType::is_system);
        when(errors, system, || {
            "volume cannot be per_alloc for system or sysbatch jobs".into()
        });
        when(errors, canaries, || {
            "volume cannot be per_alloc when canaries are in use".into()
        });
        when(errors, v.sticky, || {
            "volume cannot be per_alloc and sticky at the same time".into()
        });
    }
    let mode = v.access_mode.as_str();
    match v.kind() {
        Some(VolumeType::Host) => {
            when(errors, v.mount_options.is_some(), || {
                "host volumes cannot have mount options".into()
            });
            match AccessMode::of(mode) {
                Some(AccessMode::SingleNodeReader | AccessMode::MultiNodeReader) => {
                    when(errors, !v.read_only, || {
                        format!("{mode} volumes must be read-only")
                    });
                }
                Some(
                    AccessMode::SingleNodeWriter
                    | AccessMode::SingleNodeSingleWriter
                    | AccessMode::SingleNodeMultiWriter,
                ) => {}
                None if mode.is_empty() => {}
                Some(AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter)
                | None => errors.push(format!(
                    "host volumes cannot be mounted with {mode} access mode"
                )),
            }
            when(
                errors,
                mode == access_mode::SINGLE_NODE_SINGLE_WRITER && count > 1 && !v.per_alloc,
                || format!("volume with {mode} access mode allows only one writer"),
            );
        }
        Some(VolumeType::Csi) => csi(v, count, errors),
        None => {}
    }
}

fn csi(v: &VolumeRequest, count: i64, errors: &mut Vec<String>) {
    let mode = v.access_mode.as_str();
    when(errors, v.attachment_mode.is_empty(), || {
        "CSI volumes must have an attachment mode".into()
    });
    when(errors, mode.is_empty(), || {
        "CSI volumes must have an access mode".into()
    });
    when(
        errors,
        v.attachment_mode == attachment_mode::BLOCK_DEVICE && v.mount_options.is_some(),
        || "block devices cannot have mount options".into(),
    );
    let shared = count > 1 && !v.per_alloc;
    match AccessMode::of(mode) {
        Some(AccessMode::SingleNodeReader) => {
            when(errors, !v.read_only, || {
                format!("{mode} volumes must be read-only")
            });
            when(errors, shared, || {
                format!("volume with {mode} access mode allows only one reader")
            });
        }
        Some(AccessMode::SingleNodeWriter) => when(errors, shared, || {
            format!("volume with {mode} access mode allows only one reader or writer")
        }),
        Some(AccessMode::MultiNodeReader) => {
            when(errors, !v.read_only, || {
                format!("{mode} volumes must be read-only")
            });
        }
        Some(AccessMode::MultiNodeSingleWriter) => when(errors, shared && !v.read_only, || {
            format!("volume with {mode} access mode allows only one writer")
        }),
        Some(
            AccessMode::MultiNodeMultiWriter
            | AccessMode::SingleNodeSingleWriter
            | AccessMode::SingleNodeMultiWriter,
        )
        | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_events::model::CsiMountOptions;

    const FOLDER: &str = "file-system";
    const DEVICE: &str = "block-device";
    const WRITES: &str = "single-node-writer";
    const READS: &str = "single-node-reader-only";
    const ALL_READ: &str = "multi-node-reader-only";

    /// Type, access and attachment, whether it is read only and has options, and the message for a
    /// group of one that requests it.
    type Case = (&'static str, [&'static str; 2], [bool; 2], &'static str);

    const CASES: &[Case] = &[
        ("host", ["", ""], [false, false], ""),
        (
            "host",
            ["", ""],
            [false, true],
            "host volumes cannot have mount options",
        ),
        ("host", [READS, FOLDER], [true, false], ""),
        (
            "host",
            [READS, FOLDER],
            [false, false],
            "single-node-reader-only volumes must be read-only",
        ),
        ("host", [ALL_READ, FOLDER], [true, false], ""),
        (
            "host",
            [ALL_READ, FOLDER],
            [false, false],
            "multi-node-reader-only volumes must be read-only",
        ),
        ("host", [WRITES, FOLDER], [false, false], ""),
        (
            "host",
            ["multi-node-multi-writer", FOLDER],
            [false, false],
            "host volumes cannot be mounted with multi-node-multi-writer access mode",
        ),
        ("csi", [WRITES, FOLDER], [false, true], ""),
        (
            "csi",
            ["", FOLDER],
            [false, true],
            "CSI volumes must have an access mode",
        ),
        (
            "csi",
            [WRITES, ""],
            [false, true],
            "CSI volumes must have an attachment mode",
        ),
        ("csi", [WRITES, DEVICE], [false, false], ""),
        (
            "csi",
            [WRITES, DEVICE],
            [false, true],
            "block devices cannot have mount options",
        ),
        ("csi", [READS, FOLDER], [true, false], ""),
        (
            "csi",
            [READS, FOLDER],
            [false, false],
            "single-node-reader-only volumes must be read-only",
        ),
        ("csi", [ALL_READ, FOLDER], [true, false], ""),
        (
            "csi",
            [ALL_READ, FOLDER],
            [false, false],
            "multi-node-reader-only volumes must be read-only",
        ),
    ];

    #[test]
    fn job_07_what_a_kind_of_volume_cannot_be_is_said() {
        for (r#type, [access, attachment], [read_only, options], expected) in CASES {
            let volume = VolumeRequest {
                name: "data".into(),
                r#type: (*r#type).into(),
                source: "data".into(),
                access_mode: (*access).into(),
                attachment_mode: (*attachment).into(),
                read_only: *read_only,
                mount_options: options.then(CsiMountOptions::default),
                ..VolumeRequest::default()
            };
            let mut errors = Vec::new();
            check(&volume, "service", 1, false, &mut errors);
            assert_eq!(errors.join("\n"), *expected, "{volume:?}");
        }
    }

    #[test]
    fn job_09_per_alloc_is_for_host_volumes_as_it_is_for_csi() {
        for r#type in ["host", "csi"] {
            let mut volume = VolumeRequest {
                name: "data".into(),
                r#type: r#type.into(),
                source: "data".into(),
                per_alloc: true,
                ..VolumeRequest::default()
            };
            if r#type == "csi" {
                volume.access_mode = "single-node-writer".into();
                volume.attachment_mode = "file-system".into();
            }
            let reported = |volume: &VolumeRequest, job: &str, count: i64, canaries: bool| {
                let mut errors = Vec::new();
                check(volume, job, count, canaries, &mut errors);
                errors
            };
            let none = Vec::<String>::new();
            for job in ["service", "batch"] {
                assert_eq!(reported(&volume, job, 3, false), none, "{type} {job}");
            }
            for job in ["system", "sysbatch"] {
                let why = "volume cannot be per_alloc for system or sysbatch jobs";
                assert_eq!(reported(&volume, job, 1, false), [why], "{type} {job}");
            }
            let why = "volume cannot be per_alloc when canaries are in use";
            assert_eq!(reported(&volume, "service", 3, true), [why], "{type}");
            // One volume for all is no better for a writer of three.
            volume.per_alloc = false;
            let shared = reported(&volume, "service", 3, false);
            assert_eq!(shared.is_empty(), r#type == "host", "{shared:?}");
        }
    }
}
