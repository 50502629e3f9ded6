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

    /// A copy is deep as long as no field can share or change behind a shared reference.
    #[test]
    fn env_02_mod_05_no_field_of_the_configuration_can_be_shared_between_copies() {
        let sources = [
            include_str!("mod.rs"),
            include_str!("audit.rs"),
            include_str!("block.rs"),
            include_str!("client.rs"),
            include_str!("hidden.rs"),
            include_str!("publisher.rs"),
            include_str!("retention.rs"),
            include_str!("server.rs"),
        ];
        let shares = [
            "Arc<",
            "Rc<",
            "Mutex<",
            "RwLock<",
            "Cell<",
            "Atomic",
            "&'static mut",
        ];
        let mut fields = 0;
        for line in sources.iter().flat_map(|source| source.lines()) {
            let Some(field) = line.strip_prefix("    pub ").filter(|l| l.ends_with(',')) else {
                continue;
            };
            fields += 1;
            assert!(!shares.iter().any(|word| field.contains(word)), "{field}");
        }
        assert!(fields > 200, "{fields} fields were looked at");
    }
}
