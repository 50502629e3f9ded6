//! Rules of artifacts.

use super::{escapes, when};
use drover_events::model::TaskArtifact;

pub(super) fn check(a: &TaskArtifact, errors: &mut Vec<String>) {
    when(errors, a.getter_source.is_empty(), || {
        "source must be specified".into()
    });
    when(
        errors,
        !matches!(a.getter_mode.as_str(), "any" | "file" | "dir"),
        || {
            format!(
                "invalid artifact mode {:?}; must be one of: any, file, dir",
                a.getter_mode
            )
        },
    );
    when(errors, escapes(&a.relative_dest, 1), || {
        "destination escapes allocation directory".into()
    });
    if let Some(sum) = a.getter_options.get("checksum")
        && let Err(text) = checksum(sum)
    {
        errors.push(text);
    }
}

fn checksum(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("checksum value cannot be empty".into());
    }
    // What a task's environment fills in cannot be checked now.
    if text.contains("${") {
        return Ok(());
    }
    let Some((kind, value)) = text.split_once(':') else {
        return Err(format!(
            "checksum must be given as \"type:value\"; got {text:?}"
        ));
    };
    let length = match kind {
        "md5" => 32,
        "sha1" => 40,
        "sha256" => 64,
        "sha512" => 128,
        "file" => return Ok(()),
        other => return Err(format!("unsupported checksum type: {other}")),
    };
    if !value.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(format!("invalid checksum: {value:?} is not hexadecimal"));
    }
    if value.len() != length {
        return Err(format!("invalid {kind} checksum: {value}"));
    }
    Ok(())
}
