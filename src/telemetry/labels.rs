//! Labels: counters by caller, of a bounded number of callers, and the names that labels have.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::Duration;

use metrics::Label;
use metrics_exporter_prometheus::formatting::sanitize_label_key;
use parking_lot::Mutex;

/// Callers of a kind that are counted apart; later ones are counted with all others.
const MOST: usize = 500;
/// Callers of a kind and routes that are counted apart.
const MOST_OF_ROUTES: usize = 4_000;
/// What those are called.
const OTHERS: &str = "others";

static KNOWN: LazyLock<Mutex<LabelBudget>> = LazyLock::new(|| Mutex::new(LabelBudget::of(MOST)));
static KNOWN_OF_ROUTES: LazyLock<Mutex<LabelBudget>> =
    LazyLock::new(|| Mutex::new(LabelBudget::of(MOST_OF_ROUTES)));

/// Which callers are counted apart: so many of each kind, for series are kept as long as the
/// process. Allocations that end and nodes that come take no place of a token's.
struct LabelBudget {
    most: usize,
    kinds: [HashSet<String>; 4],
}

impl LabelBudget {
    fn of(most: usize) -> Self {
        Self {
            most,
            kinds: Default::default(),
        }
    }

    /// Whether this is counted apart, by the kind of caller that such a label names.
    fn has(&mut self, label: &str, what: &str) -> bool {
        let kind = match label.split_once(':').map_or("", |(kind, _)| kind) {
            "token" => 0,
            "client" => 1,
            "alloc" => 2,
            _ => 3,
        };
        let kind = &mut self.kinds[kind];
        kind.contains(what) || kind.len() < self.most && kind.insert(what.to_owned())
    }
}

/// Counts one, by its label where it has one.
pub fn count(name: String, label: Option<String>) {
    match label {
        None => metrics::counter!(name).increment(1),
        Some(label) => {
            let known = KNOWN.lock().has(&label, &label);
            let label = if known { label } else { OTHERS.to_owned() };
            metrics::counter!(name, "identity" => label).increment(1);
        }
    }
}

/// The name that a label of this key has in Prometheus' text form: other characters than letters
/// and digits of ASCII are underscores there, so that two keys may have one name.
#[must_use]
pub fn label_name(key: &str) -> String {
    sanitize_label_key(key)
}

/// Seconds that were spent, by route and label: a level that does not change for long is forgotten
/// by its exporter, and must not begin at zero again. As many as are counted apart.
static SPENT: LazyLock<Mutex<HashMap<Vec<Label>, f64>>> = LazyLock::new(Mutex::default);

/// A request or a call that was counted.
#[derive(Clone, Debug)]
pub struct Served(Vec<Label>);

/// Counts one that is served, by route or method (`GET /v1/jobs`, `Node.Register`) and by the
/// caller's label, where the caller has one.
pub fn served(route: String, label: Option<&str>) -> Served {
    let mut labels = Vec::with_capacity(2);
    if let Some(label) = label {
        let known = KNOWN_OF_ROUTES
            .lock()
            .has(label, &format!("{route} {label}"));
        let label = if known { label } else { OTHERS };
        labels.push(Label::new("identity", label.to_owned()));
    }
    labels.push(Label::new("route", route));
    metrics::counter!("drover.requests.served_total", labels.clone()).increment(1);
    Served(labels)
}

impl Served {
    /// Adds to the time that such took, and to how many it is of.
    pub fn took(&self, time: Duration) {
        metrics::counter!("drover.requests.timed_total", self.0.clone()).increment(1);
        let level = metrics::gauge!("drover.requests.spent_seconds", self.0.clone());
        let mut spent = SPENT.lock();
        let spent = spent.entry(self.0.clone()).or_default();
        *spent += time.as_secs_f64();
        level.set(*spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_beyond_the_bound_are_counted_together_and_each_kind_has_its_own() {
        let mut known = LabelBudget::of(3);
        let mut has = |label: &str| known.has(label, &format!("GET /v1/jobs {label}"));
        for kind in ["token", "client", "alloc", "server.global.nomad"] {
            for n in 0..3 {
                assert!(has(&format!("{kind}:{n}")));
            }
            assert!(!has(&format!("{kind}:one more")));
            assert!(has(&format!("{kind}:1")), "who is known stays so");
        }
        assert!(!has("unauthenticated"), "with those who show certificates");
    }

    #[test]
    fn what_was_spent_goes_on_where_it_was_when_it_was_not_shown_for_long() {
        // One that has forgotten it, each time.
        let shown = || {
            let options = crate::TelemetryOptions::default();
            let (telemetry, recorder) = crate::build(&options);
            metrics::with_local_recorder(&recorder, || {
                let served = served("GET /v1/of-this-test".to_owned(), None);
                served.took(Duration::from_secs(2));
            });
            telemetry.prometheus()
        };
        let series = "drover_requests_spent_seconds{route=\"GET /v1/of-this-test\"}";
        for seconds in [2, 4] {
            let text = shown();
            assert!(text.contains(&format!("{series} {seconds}\n")), "{text}");
        }
    }
}
