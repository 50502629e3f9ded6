//! The one accessor of a value that may be replaced while the agent runs.

use arc_swap::ArcSwap;
use std::sync::Arc;

/// A value that a reload swaps, of which clones hold the same. Readers keep the value they took; a
/// change is a new value, so no reader sees a half-changed one (ENV-01).
#[derive(Clone, Debug)]
pub struct Shared<T> {
    current: Arc<ArcSwap<T>>,
}

impl<T: Clone> Shared<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self {
            current: Arc::new(ArcSwap::from_pointee(value)),
        }
    }

    /// The value as it is now.
    pub fn get(&self) -> Arc<T> {
        self.current.load_full()
    }

    /// Copies the value, lets `alter` change the copy, and swaps it in. With several callers at
    /// once `alter` may run more than once; each change is laid over the newest value, so none is
    /// lost.
    pub fn update(&self, alter: impl Fn(&mut T)) -> Arc<T> {
        self.current.rcu(|old| {
            let mut copy = T::clone(old);
            alter(&mut copy);
            copy
        });
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn env_01_mod_05_holders_of_the_old_settings_see_no_change_and_no_change_is_lost() {
        let shared = Shared::new(Config::default());
        let before = shared.get();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let shared = shared.clone();
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

    /// The lines of all types of a source, without comments.
    fn lines_of_types(source: &str) -> Vec<&str> {
        let mut lines = Vec::new();
        let mut within = false;
        for line in source.lines().filter(|line| !line.is_empty()) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if !line.starts_with(' ') {
                within = line.contains("struct ") || line.contains("enum ");
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
                      pub(super) struct Two(Arc<C>);\n";
        let shared = lines_of_types(source).into_iter();
        let shared: Vec<_> = shared.filter(|line| line.contains("Arc<")).collect();
        assert_eq!(
            shared,
            ["        Arc<A>,", "pub(super) struct Two(Arc<C>);"]
        );
    }
}
