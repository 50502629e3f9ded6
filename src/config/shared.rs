//! The one accessor of a configuration that may be replaced while the agent runs.

use super::Config;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Holds the current configuration. Readers keep the value they took; a change is a new value
/// (ENV-01).
#[derive(Debug)]
pub struct SharedConfig {
    current: ArcSwap<Config>,
}

impl SharedConfig {
    /// Starts with `config`.
    pub fn new(config: Config) -> SharedConfig {
        SharedConfig {
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
        let shared = SharedConfig::new(Config::default());
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

    /// The holders that are there to be shared: of all settings, and of a client's.
    const HOLDERS: [&str; 2] = ["struct Shared ", "struct SharedSettings "];

    /// The lines of all types of a source, without comments and holders.
    fn lines_of_types(source: &str) -> Vec<&str> {
        let mut lines = Vec::new();
        let mut within = false;
        for line in source.lines().filter(|line| !line.is_empty()) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if !line.starts_with(' ') {
                let declares = line.contains("struct ") || line.contains("enum ");
                within = declares && !HOLDERS.iter().any(|holder| line.contains(holder));
            }
            if within {
                lines.push(line);
            }
        }
        lines
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
            include_str!("limits.rs"),
            include_str!("publisher.rs"),
            include_str!("retention.rs"),
            include_str!("server.rs"),
            include_str!("../client/config.rs"),
        ];
        let shares = [
            "Arc<",
            "Rc<",
            "Mutex<",
            "RwLock<",
            "Cell<",
            "Swap<",
            "Atomic",
            "&'static mut",
        ];
        let mut fields = 0;
        for line in sources.iter().flat_map(|source| lines_of_types(source)) {
            fields += usize::from(line.ends_with(','));
            assert!(!shares.iter().any(|word| line.contains(word)), "{line}");
        }
        assert!(fields > 250, "{fields} fields were looked at");
    }

    #[test]
    fn a_field_is_looked_at_however_it_is_written() {
        let source = "struct One {\n    /// Arc<A>\n    a:\n        Arc<A>,\n}\n\
                      fn f() {\n    B::<Arc<B>>::new();\n}\n\
                      pub(super) struct Two(Arc<C>);\n\
                      pub struct Shared {\n    d: Arc<D>,\n}\n";
        let shared = lines_of_types(source).into_iter();
        let shared: Vec<_> = shared.filter(|line| line.contains("Arc<")).collect();
        assert_eq!(
            shared,
            ["        Arc<A>,", "pub(super) struct Two(Arc<C>);"]
        );
    }
}
