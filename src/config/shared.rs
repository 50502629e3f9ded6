//! The one accessor of a configuration that may be replaced while the agent runs.

use super::Config;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Holds the current configuration. Readers keep the value they took; a change is a new value
/// (ENV-01).
#[derive(Debug)]
pub struct Shared {
    current: ArcSwap<Config>,
}

impl Shared {
    /// Starts with `config`.
    pub fn new(config: Config) -> Shared {
        Shared {
            current: ArcSwap::from_pointee(config),
        }
    }

    /// The configuration as it is now.
    pub fn get(&self) -> Arc<Config> {
        self.current.load_full()
    }

    /// Copies the configuration, lets `alter` change the copy, and swaps it in. With several
    /// callers at once `alter` may run more than once; each change is laid over the newest value,
    /// so none is lost.
    pub fn update(&self, alter: impl Fn(&mut Config)) -> Arc<Config> {
        self.current.rcu(|old| {
            let mut copy = Config::clone(old);
            alter(&mut copy);
            copy
        });
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_01_a_change_is_copied_and_swapped() {
        let shared = Shared::new(Config::default());
        let before = shared.get();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = &shared;
                scope.spawn(move || {
                    for n in 0..200 {
                        shared.update(|c| {
                            c.client.meta.insert(format!("{thread}-{n}"), "x".into());
                        });
                        let seen = shared.get();
                        assert!(seen.client.meta.contains_key(&format!("{thread}-{n}")));
                    }
                });
            }
        });
        assert_eq!(shared.get().client.meta.len(), 800);
        assert!(
            before.client.meta.is_empty(),
            "who held the old value sees no change"
        );
    }

    #[test]
    fn env_02_a_copy_shares_nothing() {
        let mut first = Config::dev();
        first
            .plugins
            .entry("raw_exec".into())
            .or_default()
            .args
            .push("a".into());
        let copy = first.clone();
        assert_eq!(first, copy);
        first
            .plugins
            .get_mut("raw_exec")
            .expect("there")
            .args
            .push("b".into());
        first.client.options.clear();
        first
            .http_api_response_headers
            .insert("X".into(), "1".into());
        assert_eq!(copy.plugins["raw_exec"].args, ["a"]);
        assert!(!copy.client.options.is_empty());
        assert!(copy.http_api_response_headers.is_empty());
    }

    #[test]
    fn env_03_empty_containers_stay_empty_and_usable() {
        let shared = Shared::new(Config::default());
        let after = shared.update(|c| c.region = "eu".into());
        assert!(after.client.servers.is_empty() && after.client.meta.is_empty());
        assert_eq!(after.client.meta.get("none"), None);
        assert_eq!(after.server.server_join.retry_join.first(), None);
    }
}
