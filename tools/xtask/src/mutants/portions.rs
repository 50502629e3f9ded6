//! Which changes are compiled and tried together.
//!
//! All changes of the project in one build take more memory and time than a machine has: a portion
//! holds what one build bears, of one crate, whose tests are all that is built with it. Nothing of
//! what is known yet goes into the plan, so that a run that continues finds its portions again.

use std::collections::{BTreeMap, BTreeSet};

use super::past::number;
use super::{crates, file_of};

/// Changes of one crate.
pub(super) struct Portion {
    pub(super) package: &'static str,
    /// The folders that they are in.
    pub(super) folders: BTreeSet<String>,
    /// Their names.
    pub(super) changes: BTreeSet<String>,
}

impl Portion {
    /// What it is, in a line.
    pub(super) fn line(&self) -> String {
        let folders: Vec<&str> = self.folders.iter().map(String::as_str).collect();
        let (count, package) = (self.changes.len(), self.package);
        format!("{count} changes of {package} in {}", folders.join(", "))
    }
}

/// Packs changes, in their order, into portions of at most `most`: folders as they are where they
/// fit, parts of equal size of those that are larger.
pub(super) fn plan(names: &[&str], most: usize) -> Vec<Portion> {
    let most = most.max(1);
    let mut folders: BTreeMap<(&'static str, &str), Vec<&str>> = BTreeMap::new();
    for name in names {
        let path = file_of(name);
        if let Some(package) = crates::package_of(path) {
            let folder = folders.entry((package, folder_of(path))).or_default();
            folder.push(*name);
        }
    }
    let mut portions: Vec<Portion> = Vec::new();
    for ((package, folder), names) in folders {
        let parts = names.len().div_ceil(most);
        for part in names.chunks(names.len().div_ceil(parts)) {
            let fits = |last: &&mut Portion| {
                last.package == package && last.changes.len() + part.len() <= most
            };
            let changes = part.iter().map(|name| (*name).to_owned());
            if let Some(last) = portions.last_mut().filter(fits) {
                last.folders.insert(folder.to_owned());
                last.changes.extend(changes);
                continue;
            }
            portions.push(Portion {
                package,
                folders: BTreeSet::from([folder.to_owned()]),
                changes: changes.collect(),
            });
        }
    }
    portions
}

/// About every so many-th of these: which, their names and the seed say, whatever else is selected.
/// As many seeds, from 0 on, take all of them, each one once.
pub(super) fn sample<'a>(names: &[&'a str], every: usize, seed: usize) -> Vec<&'a str> {
    let every = every.max(1) as u64;
    let is_taken = |name: &&&str| number(name) % every == seed as u64 % every;
    names.iter().filter(is_taken).copied().collect()
}

/// The folder of a crate that a file is in, as it is counted: `src/http` of `src/http/jobs/a.rs`.
pub(super) fn folder_of(path: &str) -> &str {
    let inner = path.find("src/").map_or(0, |at| at + 4);
    match path[inner..].find('/') {
        Some(end) => &path[..inner + end],
        None => path[..inner].trim_end_matches('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &str, count: usize) -> Vec<String> {
        let name = |at: usize| format!("{folder}/f{}.rs: f: change {at}", at / 3);
        (0..count).map(name).collect()
    }

    fn lent(names: &[String]) -> Vec<&str> {
        names.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_portion_is_of_one_crate_and_no_larger_than_one_build_bears() {
        let all = [
            names("events/src/model", 2),
            names("src", 1),
            names("src/acl", 3),
            names("src/gate", 4),
            names("src/http/jobs", 13),
            names("src/nodesim", 5),
            names("src/raft", 5),
        ]
        .concat();
        let portions = plan(&lent(&all), 10);
        let reported: Vec<String> = portions.iter().map(Portion::line).collect();
        assert_eq!(
            reported,
            [
                "5 changes of drover in src, src/gate",
                "7 changes of drover in src/http",
                "6 changes of drover in src/http",
                "10 changes of drover in src/nodesim, src/raft",
                "3 changes of drover-acl in src/acl",
                "2 changes of drover-events in events/src/model",
            ]
        );
        let planned: usize = portions.iter().map(|portion| portion.changes.len()).sum();
        assert_eq!(planned, all.len(), "each is in one of them");
        assert!(plan(&[], 10).is_empty());
    }

    #[test]
    fn samples_are_the_same_whatever_else_is_asked_for_and_together_they_are_all() {
        let (few, more) = (names("src/raft", 40), names("src/http", 40));
        let all = [few.clone(), more].concat();
        let of_few = sample(&lent(&few), 4, 1);
        let of_all = sample(&lent(&all), 4, 1);
        let in_both: Vec<&str> = of_all
            .iter()
            .filter(|name| name.starts_with("src/raft"))
            .copied()
            .collect();
        assert_eq!(of_few, in_both);
        assert!((1..40).contains(&of_few.len()), "{of_few:?}");
        let together: BTreeSet<&str> = (0..4)
            .flat_map(|seed| sample(&lent(&all), 4, seed))
            .map(|name| all.iter().find(|one| *one == name).expect("it was given"))
            .map(String::as_str)
            .collect();
        let sizes: usize = (0..4).map(|seed| sample(&lent(&all), 4, seed).len()).sum();
        assert_eq!((together.len(), sizes), (all.len(), all.len()));
        assert_eq!(sample(&lent(&all), 4, 5), of_all, "seeds go round");
        assert_eq!(sample(&lent(&all), 1, 3), lent(&all));
    }

    #[test]
    fn files_are_counted_by_the_first_folder_of_their_crate() {
        for (path, folder) in [
            ("src/http/jobs/plan.rs", "src/http"),
            ("src/lib.rs", "src"),
            (
                "projections/src/apply/job/status.rs",
                "projections/src/apply",
            ),
            ("events/src/lib.rs", "events/src"),
        ] {
            assert_eq!(folder_of(path), folder);
        }
    }
}
