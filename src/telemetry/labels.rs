//! Counters by who asks, of a bounded number of callers.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use metrics::Label;
use parking_lot::Mutex;

/// Callers that are told apart; whoever comes later is counted with all others.
const MOST: usize = 1_000;
/// What those are called.
const OTHERS: &str = "others";

static KNOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

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

/// Adds to the time that requests of an endpoint and a kind took, by the label of who asked where
/// he has one.
pub fn took((endpoint, kind): (&str, &'static str), label: Option<String>, time: Duration) {
    let mut labels = vec![
        Label::new("endpoint", endpoint.to_owned()),
        Label::new("kind", kind),
    ];
    if let Some(label) = label {
        let label = told_apart(&mut KNOWN.lock(), label);
        labels.push(Label::new("identity", label));
    }
    // It only grows; counters of parts of a second there are none.
    metrics::gauge!("drover.requests.spent_seconds", labels).increment(time.as_secs_f64());
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
}
