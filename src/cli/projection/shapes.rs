//! The parts of an agent's answers about tables that decide the exit code, whatever else of them
//! cannot be read: they are passed on all the same.

use serde::Deserialize;

/// The part of a rebuild's progress that decides the exit code.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct StageReached {
    /// What it does.
    pub(super) stage: String,
}

/// The part of a comparison's result that decides the exit code.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Verdict {
    /// Whether nothing is wrong.
    pub(super) verified: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::answer;
    use crate::history::rebuild::{CheckReport, RebuildStatus};

    #[test]
    fn what_decides_the_exit_code_is_read_of_what_is_reported() {
        let status = RebuildStatus {
            stage: "failed".to_owned(),
            ..RebuildStatus::default()
        };
        let reached: StageReached = answer::of(serde_json::to_value(status).unwrap()).unwrap();
        assert_eq!(reached.stage, "failed");
        let report = CheckReport {
            verified: true,
            ..CheckReport::default()
        };
        let verdict: Verdict = answer::of(serde_json::to_value(report).unwrap()).unwrap();
        assert!(verdict.verified);
    }
}
