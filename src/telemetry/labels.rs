//! Counters by who asks, of a bounded number of callers.

use std::collections::HashSet;
use std::sync::LazyLock;

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
