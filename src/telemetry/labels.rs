//! Labels: counters by caller, of a bounded number of callers, and the names that labels have.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics::{Key, KeyName, Label, Level, Metadata};
use metrics_exporter_prometheus::formatting::sanitize_label_key;
use parking_lot::{Mutex, RwLock};

/// Callers of a kind that are counted apart; later ones are counted with all others.
const MOST: usize = 500;
/// Callers of a kind and routes that are counted apart.
const MOST_OF_ROUTES: usize = 4_000;
/// What those are called.
const OTHERS: &str = "others";

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

static BY_CALLER: LazyLock<SeriesCache<Key>> = LazyLock::new(|| SeriesCache::new(MOST));
static BY_ROUTE: LazyLock<SeriesCache<RouteSeries>> =
    LazyLock::new(|| SeriesCache::new(MOST_OF_ROUTES));

/// The series of one kind, each made once, for making its key costs more than counting.
struct SeriesCache<T> {
    budget: Mutex<LabelBudget>,
    made: RwLock<HashMap<String, Arc<T>>>,
}

impl<T> SeriesCache<T> {
    fn new(most: usize) -> Self {
        Self {
            budget: Mutex::new(LabelBudget::of(most)),
            made: RwLock::default(),
        }
    }

    /// The series of a name and a caller's label. Where no more callers are counted apart, that of
    /// the others; `counted` is what the budget counts.
    fn series(
        &self,
        name: &str,
        label: Option<&str>,
        counted: impl FnOnce(&str) -> String,
        make: impl FnOnce(Vec<Label>) -> T,
    ) -> Arc<T> {
        let id = |label: Option<&str>| match label {
            None => Cow::Borrowed(name),
            Some(label) => Cow::Owned([name, label].join("\n")),
        };
        let known = |label| self.made.read().get(&*id(label)).map(Arc::clone);
        if let Some(series) = known(label) {
            return series;
        }
        let label = label.map(
            |label| match self.budget.lock().has(label, &counted(label)) {
                true => label,
                false => OTHERS,
            },
        );
        // Most callers beyond the bound come here, and shut out no reader.
        if let Some(series) = known(label) {
            return series;
        }
        let mut made = self.made.write();
        let series = made.entry(id(label).into_owned()).or_insert_with(|| {
            let label = label.map(|label| Label::new("identity", label.to_owned()));
            Arc::new(make(label.into_iter().collect()))
        });
        Arc::clone(series)
    }
}

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
pub fn count(name: &str, label: Option<&str>) {
    let key = BY_CALLER.series(name, label, str::to_owned, |labels| {
        lasting(name.to_owned(), labels)
    });
    increment(&key);
}

/// A key that recorders may keep without a copy of its texts: they take it at each look-up.
#[must_use]
pub fn lasting(name: impl Into<KeyName>, labels: Vec<Label>) -> Key {
    Key::from_parts(name, labels).to_retained()
}

/// Counts one of the series. Its counter is looked up each time: which metrics are recorded may
/// change.
fn increment(key: &Key) {
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(1);
}

/// Records a value of a series of samples.
pub fn record(key: &Key, value: f64) {
    metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(value);
}

/// The name that a label of this key has in Prometheus' text form: other characters than letters
/// and digits of ASCII are underscores there, so that two keys may have one name.
#[must_use]
pub fn label_name(key: &str) -> String {
    sanitize_label_key(key)
}

/// What is counted by route and caller.
struct RouteSeries {
    served: Key,
    timed: Key,
    spent: Key,
    /// Until their answers began. It is shown as a level, as counters are whole numbers; one that
    /// does not change for long is forgotten by its exporter, and must not begin at zero again.
    spent_seconds: Mutex<f64>,
}

/// A request or a call that was counted.
#[derive(Clone)]
pub struct Served(Arc<RouteSeries>);

/// Counts one that is served, by route or method (`GET /v1/jobs`, `Node.Register`) and by the
/// caller's label, where the caller has one.
pub fn served(route: &str, label: Option<&str>) -> Served {
    let counted = |label: &str| format!("{route} {label}");
    let series = BY_ROUTE.series(route, label, counted, |mut labels| {
        labels.push(Label::new("route", route.to_owned()));
        RouteSeries {
            served: lasting("drover.requests.served_total", labels.clone()),
            timed: lasting("drover.requests.timed_total", labels.clone()),
            spent: lasting("drover.requests.spent_seconds", labels),
            spent_seconds: Mutex::new(0.0),
        }
    });
    increment(&series.served);
    Served(series)
}

impl Served {
    /// Adds to the time that such took, and to how many it is of.
    pub fn took(&self, time: Duration) {
        let series = &self.0;
        increment(&series.timed);
        let level =
            metrics::with_recorder(|recorder| recorder.register_gauge(&series.spent, &METADATA));
        let mut spent = series.spent_seconds.lock();
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
                let served = served("GET /v1/of-this-test", None);
                served.took(Duration::from_secs(2));
            });
            telemetry.prometheus()
        };
        let series = "drover_requests_spent_seconds{route=\"GET /v1/of-this-test\"}";
        for seconds in [2, 4] {
            let text = shown();
            assert!(text.contains(&format!("{series} {seconds}\n")), "{text}");
            for counted in ["served", "timed"] {
                let series = format!("drover_requests_{counted}_total{{route=");
                let counted = format!("{series}\"GET /v1/of-this-test\"}} 1\n");
                assert!(text.contains(&counted), "{text}");
            }
        }
    }

    #[test]
    fn each_series_is_made_once_and_the_others_have_one_together() {
        let cache = SeriesCache::new(1);
        let mut made = 0;
        let mut series = |label| {
            let series = cache.series("a", label, str::to_owned, |labels| {
                made += 1;
                labels
            });
            series.first().map(|label| label.value().to_owned())
        };
        for _ in 0..2 {
            assert_eq!(series(None), None);
            assert_eq!(series(Some("token:1")).as_deref(), Some("token:1"));
            assert_eq!(series(Some("token:2")).as_deref(), Some(OTHERS));
            assert_eq!(series(Some("token:3")).as_deref(), Some(OTHERS));
        }
        assert_eq!(made, 3);
    }
}
