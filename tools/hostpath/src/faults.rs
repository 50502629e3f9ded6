//! What to do wrong: a file with a list of rules, read at every call.
//!
//! ```json
//! [{"call": "NodeStageVolume", "volume": "v", "times": 1, "when": "after", "do": "die"}]
//! ```
//!
//! `call` is a name of the specification or `*`; `volume`, if given, the volume that the call
//! names; `times` how often the rule holds (for ever, if it is not given), which the plugin counts
//! down in the file, so that it is true across its own death. `when` is `before` the work (so if
//! not given) or `after` it, when the work is done and only the answer is lost. `do` is one of
//!
//! * `{"fail": {"code": 13, "text": "why"}}`: answers with this code of gRPC;
//! * `{"slow": {"ms": 500}}`: takes that much longer;
//! * `{"hold": {"until": "/a/file"}}`: continues once this file is there, and says in the record
//!   that it waits;
//! * `"hang"`: never answers;
//! * `{"lie": {"id": "another"}}`: answers with this id instead of the true one;
//! * `"die"`: the process ends at once;
//! * `{"forget": "volume"}`: the volume is not known any more, its bytes stay; `"uses"`: where it
//!   is attached, staged and published is not known any more.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::state::{State, replace};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum When {
    #[default]
    Before,
    /// Not where the caller has stopped waiting for the answer.
    After,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fault {
    Fail { code: i32, text: String },
    Slow { ms: u64 },
    Hold { until: PathBuf },
    Hang,
    Lie { id: String },
    Die,
    Forget(Forgotten),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Forgotten {
    Volume,
    Uses,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    call: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(default)]
    when: When,
    #[serde(rename = "do")]
    fault: Fault,
}

/// What is to be done wrong in this call at this moment; counts it.
pub(crate) fn take(path: &Path, call: &str, volume: &str, when: When) -> Result<Vec<Fault>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) if !bytes.is_empty() => bytes,
        _ => return Ok(Vec::new()),
    };
    let mut rules: Vec<Rule> = serde_json::from_slice(&bytes).context("the file of faults")?;
    let mut found = Vec::new();
    let mut counted = false;
    for rule in &mut rules {
        let meant = (rule.call == "*" || rule.call == call)
            && rule.when == when
            && rule.volume.as_deref().is_none_or(|meant| meant == volume)
            && rule.times != Some(0);
        if !meant {
            continue;
        }
        if let Some(times) = &mut rule.times {
            *times -= 1;
            counted = true;
        }
        found.push(rule.fault.clone());
    }
    if counted {
        replace(path, &serde_json::to_vec(&rules)?)?;
    }
    Ok(found)
}

pub(crate) fn forget(state: &mut State, volume: &str, what: Forgotten) {
    match what {
        Forgotten::Volume => {
            state.volumes.remove(volume);
        }
        Forgotten::Uses => {
            if let Some(volume) = state.volumes.get_mut(volume) {
                volume.attached.clear();
                volume.staged.clear();
                volume.published.clear();
            }
        }
    }
}
