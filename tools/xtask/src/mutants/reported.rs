//! What is printed of a run: how far it is, and at its end what came of each folder.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::file_of;
use super::past::Answer;
use super::portions::folder_of;

/// After so many changes, or so long, the progress of a run is printed.
const MANY: usize = 50;
const LONG: Duration = Duration::from_secs(60);

/// How far a run is.
pub(super) struct Progress {
    begun: Instant,
    reported: Instant,
    /// How many changes are to be tried, as far as is known.
    all: usize,
    done: usize,
    survive: usize,
}

impl Progress {
    pub(super) fn new(all: usize) -> Self {
        Self {
            begun: Instant::now(),
            reported: Instant::now(),
            all,
            done: 0,
            survive: 0,
        }
    }

    /// So many are not to be tried after all.
    pub(super) fn leave_out(&mut self, count: usize) {
        self.all = self.all.saturating_sub(count);
    }

    /// One more was tried; every so often that is printed.
    pub(super) fn step(&mut self, answer: Answer) {
        self.done += 1;
        self.survive += usize::from(!answer.is_caught());
        if self.done.is_multiple_of(MANY) || self.reported.elapsed() >= LONG {
            self.reported = Instant::now();
            println!("mutants: {}", self.now());
        }
    }

    pub(super) fn now(&self) -> String {
        self.line(self.begun.elapsed())
    }

    /// The time of the builds so far is in what is expected: more of them are to come.
    fn line(&self, took: Duration) -> String {
        let (done, all, survive) = (self.done, self.all, self.survive);
        let share = 100 * done / all.max(1);
        let mut line = format!("{done} of {all} ({share} %) tried, {survive} no test notices");
        if done > 0 {
            let seconds = took.as_secs_f64();
            let a_minute = done as f64 * 60.0 / seconds.max(1.0);
            let left = seconds / done as f64 * all.saturating_sub(done) as f64 / 60.0;
            line += &format!("; {a_minute:.0} a minute, {left:.0} minutes to go");
        }
        line
    }
}

/// What came of the changes of a folder.
#[derive(Default)]
struct Count {
    all: usize,
    caught: usize,
    late: usize,
    survive: usize,
    unreached: usize,
    refused: usize,
}

impl Count {
    fn add(&mut self, answer: Option<Answer>, is_refused: bool) {
        self.all += 1;
        match answer {
            Some(Answer::Caught) => self.caught += 1,
            Some(Answer::Late) => self.late += 1,
            Some(Answer::Survives) => self.survive += 1,
            Some(Answer::Unreached) => self.unreached += 1,
            None => self.refused += usize::from(is_refused),
        }
    }

    fn line(&self, place: &str) -> String {
        let noticed = self.caught + self.late;
        let tried = noticed + self.survive + self.unreached;
        let share = 100 * noticed / tried.max(1);
        format!(
            "{place}: {noticed} of {tried} ({share} %) caught, {} of them by their time; \
             {} survive, {} no test reaches; {} did not compile, {} were not tried",
            self.late,
            self.survive,
            self.unreached,
            self.refused,
            self.all - tried - self.refused,
        )
    }
}

/// What came of the selected changes: a line for each folder, and one for all.
pub(super) fn counts(
    requested: &[&str],
    answers: &BTreeMap<String, Answer>,
    refused: &BTreeSet<String>,
) -> Vec<String> {
    let mut folders: BTreeMap<&str, Count> = BTreeMap::new();
    let mut all = Count::default();
    for name in requested {
        let (answer, is_refused) = (answers.get(*name).copied(), refused.contains(*name));
        let folder = folders.entry(folder_of(file_of(name))).or_default();
        folder.add(answer, is_refused);
        all.add(answer, is_refused);
    }
    let each = folders.iter().map(|(place, count)| count.line(place));
    each.chain([all.line("in all")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_what_it_took_so_far() {
        let mut progress = Progress::new(250);
        progress.leave_out(50);
        let minute = Duration::from_secs(60);
        assert_eq!(
            progress.line(minute),
            "0 of 200 (0 %) tried, 0 no test notices"
        );
        for at in 0..40 {
            progress.step(match at {
                0 => Answer::Survives,
                1 => Answer::Unreached,
                2 => Answer::Late,
                _ => Answer::Caught,
            });
        }
        assert_eq!(
            progress.line(minute),
            "40 of 200 (20 %) tried, 2 no test notices; 40 a minute, 4 minutes to go"
        );
    }

    #[test]
    fn each_folder_has_its_count() {
        let requested = [
            "src/a/b.rs: f: 1",
            "src/a/b.rs: f: 2",
            "src/a/c/d.rs: f: 3",
            "src/a/c/d.rs: f: 4",
            "src/a/c/d.rs: f: 5",
            "src/z/b.rs: f: 6",
        ];
        let answers = [
            (requested[0], Answer::Caught),
            (requested[1], Answer::Late),
            (requested[2], Answer::Survives),
            (requested[5], Answer::Unreached),
        ];
        let answers = answers.map(|(name, answer)| (name.to_owned(), answer));
        let refused = BTreeSet::from([requested[3].to_owned()]);
        assert_eq!(
            counts(&requested, &answers.into(), &refused),
            [
                "src/a: 2 of 3 (66 %) caught, 1 of them by their time; 1 survive, 0 no test \
                 reaches; 1 did not compile, 1 were not tried",
                "src/z: 0 of 1 (0 %) caught, 0 of them by their time; 0 survive, 1 no test \
                 reaches; 0 did not compile, 0 were not tried",
                "in all: 2 of 4 (50 %) caught, 1 of them by their time; 1 survive, 1 no test \
                 reaches; 1 did not compile, 1 were not tried",
            ]
        );
    }
}
