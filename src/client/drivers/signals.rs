//! Signals by name.

use std::str::FromStr;

use nix::sys::signal::Signal;

/// What a task is stopped with when its job names nothing.
pub const DEFAULT_KILL_SIGNAL: &str = "SIGINT";

/// The number of a signal's name; `SIG` may be left out, and case does not matter.
pub fn number(name: &str) -> Option<i32> {
    let upper = name.trim().to_uppercase();
    let full = if upper.starts_with("SIG") {
        upper
    } else {
        format!("SIG{upper}")
    };
    Signal::from_str(&full).ok().map(|s| s as i32)
}

/// The names tasks may use (`os.signals`), sorted.
pub fn names() -> Vec<&'static str> {
    let mut out: Vec<_> = Signal::iterator().map(Signal::as_str).collect();
    out.push("SIGNULL");
    out.sort_unstable();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drv_06_signals_are_known_by_name() {
        assert_eq!(number("SIGINT"), Some(2));
        assert_eq!(number("term"), Some(15));
        assert_eq!(number("SIGNOPE"), None);
        assert!(names().contains(&"SIGUSR1"));
    }
}
