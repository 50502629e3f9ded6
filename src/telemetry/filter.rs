//! Which metrics are recorded at all: `telemetry { prefix_filter, filter_default }`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Prefixes of names, and whether what begins with them is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PrefixRules {
    prefixes: Vec<(String, bool)>,
    otherwise: bool,
}

impl PrefixRules {
    /// Reads `+prefix` and `-prefix`; what has neither sign says nothing.
    pub(super) fn parse(rules: &[String], otherwise: bool) -> Self {
        let rule = |text: &String| {
            let allowed = text
                .strip_prefix('+')
                .map(|prefix| (prefix.to_owned(), true));
            let blocked = || {
                text.strip_prefix('-')
                    .map(|prefix| (prefix.to_owned(), false))
            };
            allowed.or_else(blocked)
        };
        let mut prefixes: Vec<_> = rules.iter().filter_map(rule).collect();
        // The longest first: the first that fits decides.
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self {
            prefixes,
            otherwise,
        }
    }

    fn allow(&self, name: &str) -> bool {
        let mut rules = self.prefixes.iter();
        let found = rules.find(|(prefix, _)| name.starts_with(prefix.as_str()));
        found.map_or(self.otherwise, |(_, allowed)| *allowed)
    }
}

/// A recorder that gets what the rules allow.
pub(super) struct Filtered<R> {
    rules: Arc<ArcSwap<PrefixRules>>,
    inner: R,
}

impl<R> Filtered<R> {
    pub(super) fn new(rules: Arc<ArcSwap<PrefixRules>>, inner: R) -> Self {
        Self { rules, inner }
    }
}

impl<R: Recorder> Recorder for Filtered<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_counter(name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_gauge(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.inner.describe_histogram(name, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        match self.rules.load().allow(key.name()) {
            true => self.inner.register_counter(key, metadata),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        match self.rules.load().allow(key.name()) {
            true => self.inner.register_gauge(key, metadata),
            false => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        match self.rules.load().allow(key.name()) {
            true => self.inner.register_histogram(key, metadata),
            false => Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let rules = |otherwise| {
            let rules = ["-nomad.raft", "+nomad.raft.applied", "nonsense"];
            PrefixRules::parse(&rules.map(str::to_owned), otherwise)
        };
        for otherwise in [true, false] {
            let rules = rules(otherwise);
            assert!(rules.allow("nomad.raft.appliedIndex"));
            assert!(!rules.allow("nomad.raft.lastIndex"));
            assert_eq!(rules.allow("nomad.client.uptime"), otherwise);
            assert_eq!(rules.allow("nonsense"), otherwise);
        }
    }
}
