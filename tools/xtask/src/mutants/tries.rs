//! Tries the changes of a portion.
//!
//! First every change is tried with the tests of its own module, which notice most of them and are
//! soon known; what these do not notice is tried with the others of the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;

use super::build::Executables;
use super::generate::Mutant;
use super::jail::{End, Jail};
use super::past::{Answer, Past};
use super::reported::Progress;
use super::trial::{self, Test};
use super::{crates, file_of};

/// A change with its number.
pub(super) type Numbered<'a> = (usize, &'a Mutant);

/// What came of changes so far.
pub(super) struct Record {
    pub(super) past: Past,
    pub(super) progress: Progress,
}

impl Record {
    fn note(&mut self, mutant: &Mutant, answer: Answer) -> Result<()> {
        self.past.note(&mutant.name, answer)?;
        if !answer.is_caught() {
            let word = answer.word();
            println!("mutants: {word}: {} (line {})", mutant.name, mutant.line);
        }
        self.progress.step(answer);
        Ok(())
    }
}

/// Which tests are run: those nearest to a change, or the others, when these noticed nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Near,
    Far,
}

/// What changes are tried with.
pub(super) struct Trial<'a> {
    pub(super) functions: &'a [String],
    pub(super) rows: &'a BTreeMap<String, String>,
    pub(super) executables: &'a Executables,
    /// How long the tests of one change may take in a turn.
    pub(super) limit: Duration,
    /// The tests that noticed a change, by the function that it was in.
    pub(super) noticed: Mutex<BTreeMap<usize, BTreeSet<String>>>,
}

impl Trial<'_> {
    /// Tries all of them, and returns those that are open: none after the last turn.
    pub(super) fn all<'m>(
        &self,
        todo: &[Numbered<'m>],
        (turn, tests): (Turn, &[Test]),
        jails: &[Jail],
        record: &mut Record,
    ) -> Result<Vec<Numbered<'m>>> {
        let state = Mutex::new((record, Vec::new()));
        trial::spread(jails, todo.len(), |jail, at| {
            let (id, mutant) = todo[at];
            let answer = self.one(jail, (turn, tests), (id, mutant))?;
            let mut state = state.lock().expect("no holder panics");
            let (record, open) = &mut *state;
            match answer {
                Some(answer) => record.note(mutant, answer)?,
                None => open.push((id, mutant)),
            }
            Ok(())
        })?;
        let (_, mut open) = state.into_inner().expect("no holder panics");
        open.sort_by_key(|(id, _)| *id);
        Ok(open)
    }

    /// What comes of a change; nothing yet where the other tests are still to be run.
    fn one(
        &self,
        jail: &Jail,
        (turn, tests): (Turn, &[Test]),
        (id, mutant): Numbered<'_>,
    ) -> Result<Option<Answer>> {
        let function = &self.functions[mutant.function];
        let reach: Vec<&Test> = tests
            .iter()
            .filter(|test| test.reaches.contains(function))
            .collect();
        let path = file_of(&mutant.name);
        let near = |test: &Test| {
            let is_of_row = self.rows.contains_key(test.short());
            nearness(path, &test.executable, &test.name) + usize::from(is_of_row)
        };
        let (nearest, others): (Vec<&Test>, Vec<&Test>) =
            reach.iter().copied().partition(|test| near(test) > 1);
        let requested = match turn {
            Turn::Near => nearest,
            Turn::Far => others,
        };
        let lock = || self.noticed.lock().expect("no holder panics");
        let before = lock().get(&mutant.function).cloned().unwrap_or_default();
        let order = trial::order(&requested, &before, &near);
        if is_dangerous(path) {
            jail.renew();
        }
        let (end, by) = trial::noticed(self.executables, jail, &order, id, self.limit)?;
        lock().entry(mutant.function).or_default().extend(by);
        Ok(match end {
            End::Failed => Some(Answer::Caught),
            End::TimedOut => Some(Answer::Late),
            End::Passed if turn == Turn::Near => None,
            End::Passed if reach.is_empty() => Some(Answer::Unreached),
            End::Passed => Some(Answer::Survives),
        })
    }
}

/// Code that starts, ends and mounts things: what it leaves behind is no matter of the next.
fn is_dangerous(path: &str) -> bool {
    path.starts_with("src/client/")
}

/// How much of a test's place is the file's: tests of its own module are nearest. All of a crate's
/// suite are near: what they cover does not go by modules.
pub(super) fn nearness(path: &str, executable: &str, test: &str) -> usize {
    let Some((own, inner)) = crates::of(path) else {
        return 0;
    };
    let of_suite = crates::is_suite_of(executable, &own);
    if own != executable && !of_suite {
        return 0;
    }
    let inner = inner.trim_end_matches(".rs").trim_end_matches("/mod");
    let module: Vec<&str> = inner.split('/').collect();
    let place: Vec<&str> = test.split("::").collect();
    let common = module
        .iter()
        .zip(&place)
        .take_while(|(a, b)| a == b)
        .count();
    let is_named = |part: &&&str| {
        place[common..]
            .iter()
            .any(|other| other.starts_with(**part))
    };
    let named = module[common..].iter().filter(is_named).count();
    2 * (common + named + usize::from(of_suite))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_files_module_are_nearest() {
        let of_rank =
            |executable: &str, name: &str| nearness("src/scheduler/rank/mod.rs", executable, name);
        assert_eq!(of_rank("drover_scheduler", "rank::it"), 2);
        assert_eq!(
            of_rank("scheduler", "rollout::it"),
            2,
            "it is the crate's suite"
        );
        assert_eq!(of_rank("drover", "reactors::it"), 0);
        let of_serve = |name: &str| nearness("src/http/serve.rs", "drover", name);
        assert_eq!(of_serve("http::serve::tests::it"), 4);
        assert_eq!(of_serve("http::edge::tests::it"), 2);
        assert_eq!(of_serve("reactors::tests::it"), 0);
        let of_plan =
            |name: &str| nearness("projections/src/apply/plan.rs", "drover_projections", name);
        assert_eq!(of_plan("apply::tests::plans::it"), 4, "it is named there");
        assert_eq!(of_plan("apply::tests::jobs::it"), 2);
        let of_status = |name: &str| {
            nearness(
                "projections/src/apply/job/status.rs",
                "drover_projections",
                name,
            )
        };
        assert_eq!(of_status("apply::tests::jobs::it"), 4, "its folder is");
        assert_eq!(
            nearness("src/apply/mod.rs", "drover_projections", "apply::it"),
            0
        );
    }
}
