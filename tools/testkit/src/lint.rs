//! The rules of `promtool check metrics`, for tests.

use std::collections::BTreeMap;

/// Units that names should not abbreviate.
const ABBREVIATIONS: [&str; 24] = [
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "mins", "secs",
    "hrs", "kib", "mib", "gib", "tib", "msec", "usec", "nsec",
];
/// Units that are no base units.
const DERIVED: [&str; 12] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "weeks",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "bits",
    "kibibytes",
];

/// What promtool says of names that are Nomad's (`nomad_…`), which stay as its dashboards expect
/// them: its counters have no ending, the whole of a machine's memory has theirs, Raft's indexes
/// are in camel case, and garbage collection and the summaries of jobs are called what they are
/// called there. Names of drover's own have no exception.
const OF_NOMADS: [&str; 4] = [
    "a counter without _total",
    "no counter, and _total",
    "no snake_case",
    "a type in its name",
];

/// Checks an agent's text of metrics.
///
/// # Panics
/// When a name breaks a rule that Nomad's own keeps, or nothing is known of what it means.
pub fn check(text: &str) {
    for (name, found) in &problems(text) {
        let nomads = name.starts_with("nomad_");
        let kept = |what: &&str| OF_NOMADS.contains(what);
        assert!(nomads && found.iter().all(kept), "{name}: {found:?}");
    }
    let unexplained = text.lines().find(|line| line.contains(" The metric "));
    assert_eq!(unexplained, None, "telemetry/help.rs does not know it");
}

/// What is wrong with a text of metrics: each name with its problems.
fn problems(text: &str) -> BTreeMap<String, Vec<&'static str>> {
    let mut found: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let (mut helped, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            helped.insert(name.to_owned(), help.to_owned());
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            if kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                found.entry(name.to_owned()).or_default().push("told twice");
            }
        } else if !line.is_empty() && !line.starts_with('#') && !is_sample(line) {
            found.entry(line.to_owned()).or_default().push("no sample");
        }
    }
    for (name, kind) in &kinds {
        let mut add = |what| found.entry(name.clone()).or_default().push(what);
        if helped.get(name).is_none_or(|help| help.trim().is_empty()) {
            add("no help text");
        }
        match (kind.as_str(), name.ends_with("_total")) {
            ("counter", false) => add("a counter without _total"),
            ("counter", true) | (_, false) => {}
            (_, true) => add("no counter, and _total"),
        }
        if ["_count", "_sum", "_bucket"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            add("a reserved ending");
        }
        if name.contains(':') {
            add("a colon");
        }
        if name.chars().any(|c| c.is_ascii_uppercase()) {
            add("no snake_case");
        }
        let parts: Vec<&str> = name.split('_').collect();
        if parts.iter().any(|part| ABBREVIATIONS.contains(part)) {
            add("an abbreviated unit");
        }
        if parts.iter().any(|part| DERIVED.contains(part)) {
            add("no base unit");
        }
        if parts
            .iter()
            .any(|part| ["counter", "gauge", "histogram", "summary"].contains(part))
        {
            add("a type in its name");
        }
    }
    found
}

/// Whether a line is a name, perhaps labels, and a number.
fn is_sample(line: &str) -> bool {
    let Some((series, value)) = line.rsplit_once(' ') else {
        return false;
    };
    let name = series.split('{').next().unwrap_or_default();
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let named = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let labelled = !series.contains('{') || series.ends_with('}');
    begins && named && labelled && value.parse::<f64>().is_ok()
}

#[test]
fn each_rule_finds_what_breaks_it() {
    let text = "# HELP good_total x\n# TYPE good_total counter\ngood_total{a=\"b\"} 1\n\n\
                # TYPE appliedIndex gauge\nappliedIndex 1\n\
                # HELP took_ms x\n# TYPE took_ms counter\ntook_ms NaN\nwhat is this\n";
    let found = problems(text);
    assert_eq!(found["appliedIndex"], ["no help text", "no snake_case"]);
    assert_eq!(
        found["took_ms"],
        ["a counter without _total", "an abbreviated unit"]
    );
    assert_eq!(found["what is this"], ["no sample"]);
    assert_eq!(found.len(), 3, "{found:?}");
}
