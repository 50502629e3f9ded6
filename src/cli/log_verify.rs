//! `log verify`: reads a log again from its first byte and says whether it is what was signed.

use super::log::log_dir;
use super::out::Out;
use crate::proof::{NoteKey, Verified, Verify, verify};
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `log verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover log verify -data-dir /var/lib/drover
  drover log verify -data-dir /mnt/backup -key drover/3f0c…+1a2b3c4d+AbCd…

Reads every entry, builds the tree over them again, and compares it with every checkpoint that was
signed. Without -key the keys that lie beside the checkpoints are believed, and the result says
\"unpinned\"; a key noted elsewhere before (GET /v1/log/keys) makes it independent of the server.
Nothing is changed, and an agent may be running. Exit codes: 0 all is well, 1 something is wrong.")]
pub(super) struct VerifyArgs {
    /// The agent's data directory, or a copy of it
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// A verifier key whose signatures count; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Verifies a log.
pub(super) fn run(args: &VerifyArgs, out: &Out) -> Result<u8> {
    let log = log_dir(&args.data_dir);
    let server = log.parent().unwrap_or(Path::new(".")).to_owned();
    let parse = |text: &String| {
        NoteKey::parse(text).with_context(|| format!("Error reading the key {text:?}"))
    };
    let how = Verify {
        pinned: args.keys.iter().map(parse).collect::<Result<_>>()?,
    };
    let bar = out.draws().then(|| {
        let style = "{bar:40} {percent}% {pos}/{len} events  {per_sec}  {eta} left";
        let bar = indicatif::ProgressBar::no_length();
        match indicatif::ProgressStyle::with_template(style) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    });
    let began = Instant::now();
    let done = verify(&log, &server, &how, &mut |at, all| {
        if let Some(bar) = &bar {
            bar.set_length(all);
            bar.set_position(at);
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let done = done.with_context(|| format!("Error verifying the log in {}", log.display()))?;
    if args.json {
        out.line(&as_json(&done, began.elapsed().as_secs_f64()).to_string());
    } else {
        tell(&done, began.elapsed().as_secs_f64(), out);
    }
    Ok(u8::from(!done.findings.is_empty()))
}

fn tell(done: &Verified, seconds: f64, out: &Out) {
    for finding in &done.findings {
        match finding.index {
            Some(index) => out.error(&format!("index {index}: {}", finding.what)),
            None => out.error(&finding.what),
        }
    }
    if !done.findings.is_empty() {
        out.error(&format!(
            "NOT verified: {} events read, {} problems found",
            done.entries,
            done.findings.len()
        ));
        return;
    }
    let signer = match (done.signers.as_slice(), done.pinned) {
        ([], _) => "nobody".to_owned(),
        (signers, true) => signers.join(", "),
        (signers, false) => format!("{} (unpinned)", signers.join(", ")),
    };
    let signed = match done.signed_to {
        Some(index) => format!("{} checkpoints, signed to {index}", done.checkpoints),
        None => "no checkpoint".to_owned(),
    };
    #[allow(clippy::cast_precision_loss)]
    let rate = done.entries as f64 / seconds.max(0.001);
    out.line(&format!(
        "verified {} events, {} to {}, root {}, {signed}, signer {signer}, {seconds:.2}s \
         ({rate:.0}/s)",
        done.entries,
        done.first,
        done.last,
        STANDARD.encode(done.root),
    ));
}

fn as_json(done: &Verified, seconds: f64) -> Json {
    let findings: Vec<Json> = done
        .findings
        .iter()
        .map(|finding| json!({"Index": finding.index, "What": finding.what}))
        .collect();
    json!({
        "Verified": done.findings.is_empty(),
        "Events": done.entries,
        "From": done.first,
        "To": done.last,
        "Size": done.size,
        "Root": STANDARD.encode(done.root),
        "Checkpoints": done.checkpoints,
        "SignedTo": done.signed_to,
        "Signers": done.signers,
        "Pinned": done.pinned,
        "Seconds": seconds,
        "Findings": findings,
    })
}
