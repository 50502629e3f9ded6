//! The crates whose code is changed.

/// The file each begins with, and the package's name.
const CRATES: [(&str, &str); 22] = [
    ("events/src/lib.rs", "drover-events"),
    ("migrations/src/lib.rs", "drover-migrations"),
    ("projections/src/filter/mod.rs", "drover-filter"),
    ("projections/src/lib.rs", "drover-projections"),
    ("src/acl/mod.rs", "drover-acl"),
    ("src/base/mod.rs", "drover-base"),
    ("src/client/mod.rs", "drover-client"),
    ("src/commands/mod.rs", "drover-commands"),
    ("src/config/mod.rs", "drover-config"),
    ("src/csi/mod.rs", "drover-csi"),
    ("src/error/mod.rs", "drover-error"),
    ("src/hcl1/mod.rs", "drover-hcl1"),
    ("src/identity/mod.rs", "drover-identity"),
    ("src/jobspec/mod.rs", "drover-jobspec"),
    ("src/keyring/mod.rs", "drover-keyring"),
    ("src/lib.rs", "drover"),
    ("src/log/mod.rs", "drover-log"),
    ("src/net/mod.rs", "drover-net"),
    ("src/plugins/mod.rs", "drover-plugins"),
    ("src/rpc/mod.rs", "drover-rpc"),
    ("src/scheduler/mod.rs", "drover-scheduler"),
    ("src/telemetry/mod.rs", "drover-telemetry"),
];

/// Suites of these crates that are not in their libraries, and the crate each is of, as code calls
/// it. They are built with the package at the top, where they lie.
pub(crate) const SUITES: [(&str, &str); 1] = [("scheduler", "drover_scheduler")];
/// The package that suites lie in.
pub(crate) const TOP: &str = "drover";

/// Whether tests of this executable are those of a crate's suite.
pub(crate) fn is_suite_of(executable: &str, own: &str) -> bool {
    SUITES.contains(&(executable, own))
}

/// The place of a file of a suite in it.
pub(crate) fn in_suite(path: &str) -> Option<&str> {
    let inner = path.strip_prefix("tests/")?;
    let mut suites = SUITES.iter();
    suites.find_map(|(suite, _)| inner.strip_prefix(suite)?.strip_prefix('/'))
}

/// The suites of a package.
pub(crate) fn suites(package: &str) -> impl Iterator<Item = &'static str> {
    let own = package.replace('-', "_");
    let of_own = SUITES.iter().filter(move |(_, of)| *of == own);
    of_own.map(|(suite, _)| *suite)
}

/// Whether a file is the root of one.
pub(crate) fn is_root(path: &str) -> bool {
    CRATES.iter().any(|(root, _)| *root == path)
}

/// The package that a file is of.
pub(crate) fn package_of(path: &str) -> Option<&'static str> {
    nearest(path).map(|(package, _)| package)
}

/// The crate that a file is of, as code calls it, and the file's place in it.
pub(crate) fn of(path: &str) -> Option<(String, &str)> {
    nearest(path).map(|(package, inner)| (package.replace('-', "_"), inner))
}

fn nearest(path: &str) -> Option<(&'static str, &str)> {
    CRATES
        .iter()
        .filter_map(|(root, package)| {
            let (folder, _) = root.rsplit_once('/')?;
            let inner = path.strip_prefix(folder)?.strip_prefix('/')?;
            Some((*package, inner))
        })
        .min_by_key(|(_, inner)| inner.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_nearest_crate() {
        let of = |path: &'static str| of(path).expect("it is of one");
        let own = |name: &str, inner: &'static str| (name.to_owned(), inner);
        assert_eq!(of("src/http/mod.rs"), own("drover", "http/mod.rs"));
        assert_eq!(
            of("src/log/segment_set.rs"),
            own("drover_log", "segment_set.rs")
        );
        assert_eq!(
            of("projections/src/filter/eval.rs"),
            own("drover_filter", "eval.rs")
        );
        assert_eq!(super::of("tools/xtask/src/main.rs"), None);
        assert_eq!(package_of("src/log/segment_set.rs"), Some("drover-log"));
        let of_log: Vec<&str> = suites("drover-log").collect();
        let of_scheduler: Vec<&str> = suites("drover-scheduler").collect();
        assert_eq!((of_log, of_scheduler), (vec![], vec!["scheduler"]));
    }
}
