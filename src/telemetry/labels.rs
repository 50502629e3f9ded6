//! Counters by who asks, of a bounded number of callers.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use metrics::Label;
use parking_lot::Mutex;

/// Callers that are told apart; whoever comes later is counted with all others.
const MOST: usize = 1_000;
/// Callers of a route that are told apart, of all routes together.
const MOST_OF_ROUTES: usize = 10_000;
/// What those are called.
const OTHERS: &str = "others";

static KNOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
static KNOWN_OF_ROUTES: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Counts one, by its label where it has one.
pub fn count(name: String, label: Option<String>) {
    match label {
        None => metrics::counter!(name).increment(1),
        Some(label) => {
            let label = told_apart(&mut KNOWN.lock(), label);
            metrics::counter!(name, "identity" => label).increment(1);
        }
    }
}

/// Counts one that is served, by what was asked for (`GET /v1/jobs`, `Node.Register`) and by the
/// label of who asked, where he has one.
pub fn served(route: &str, label: Option<&str>) {
    metrics::counter!("drover.requests.served_total", of_route(route, label)).increment(1);
}

/// Adds to the time that requests of a route took, and to how many it is of.
pub fn took(route: &str, label: Option<&str>, time: Duration) {
    let labels = of_route(route, label);
    metrics::counter!("drover.requests.timed_total", labels.clone()).increment(1);
    // It only grows; counters of parts of a second there are none.
    metrics::gauge!("drover.requests.spent_seconds", labels).increment(time.as_secs_f64());
}

fn of_route(route: &str, label: Option<&str>) -> Vec<Label> {
    let mut labels = vec![Label::new("route", route.to_owned())];
    if let Some(label) = label {
        let known = &mut KNOWN_OF_ROUTES.lock();
        labels.push(Label::new("identity", told_apart_at(known, route, label)));
    }
    labels
}

fn told_apart_at(known: &mut HashSet<String>, route: &str, label: &str) -> String {
    let pair = format!("{route} {label}");
    match known.contains(&pair) || known.len() < MOST_OF_ROUTES && known.insert(pair) {
        true => label.to_owned(),
        false => OTHERS.to_owned(),
    }
}

fn told_apart(known: &mut HashSet<String>, label: String) -> String {
    if known.contains(&label) {
        return label;
    }
    if known.len() >= MOST {
        return OTHERS.to_owned();
    }
    known.insert(label.clone());
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_beyond_the_bound_are_counted_together() {
        let mut known = HashSet::new();
        for n in 0..MOST {
            assert_eq!(told_apart(&mut known, n.to_string()), n.to_string());
        }
        assert_eq!(told_apart(&mut known, "one more".to_owned()), OTHERS);
        assert_eq!(told_apart(&mut known, "7".to_owned()), "7");
    }

    #[test]
    fn callers_of_routes_beyond_the_bound_are_counted_together_and_the_route_stays() {
        let mut known = HashSet::new();
        for n in 0..MOST_OF_ROUTES {
            let label = (n / 2).to_string();
            let route = ["GET /v1/jobs", "PUT /v1/jobs"][n % 2];
            assert_eq!(told_apart_at(&mut known, route, &label), label);
        }
        assert_eq!(
            told_apart_at(&mut known, "GET /v1/jobs", "one more"),
            OTHERS
        );
        assert_eq!(told_apart_at(&mut known, "PUT /v1/jobs", "7"), "7");
        assert_eq!(told_apart_at(&mut known, "GET /v1/nodes", "7"), OTHERS);
        assert_eq!(known.len(), MOST_OF_ROUTES);
    }
}
