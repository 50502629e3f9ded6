//! A value that no debug output shows.

use super::hcl1::HclNode;
use super::read::FromNode;
use std::fmt;

/// Something confidential in a configuration; its `Debug` shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hidden<T>(pub T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<T: FromNode> FromNode for Hidden<T> {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        self.0.read(node)
    }

    fn is_nothing(node: &HclNode) -> bool {
        T::is_nothing(node)
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn no_debug_output_of_a_configuration_shows_what_is_confidential() {
        let mut config = Config::default();
        let canary = || "canary-config-7f".to_owned();
        config.server.encrypt.0 = canary();
        config.acl.replication_token.0 = canary();
        let text = format!("{config:?}");
        assert!(
            text.contains("replication_token") && !text.contains("canary"),
            "{text}"
        );
    }
}
