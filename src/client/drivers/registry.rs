//! The drivers of this client.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::{Map, Time};
use drover_events::model::DriverInfo;

use super::Driver;
use drover_config::option;

/// Drivers by name.
#[derive(Clone, Default)]
pub struct Registry {
    drivers: BTreeMap<&'static str, Arc<dyn Driver>>,
}

impl Registry {
    /// A registry of these drivers, less what the lists of `client.options` leave out:
    /// `driver.allowlist` and `driver.denylist`, names separated by commas.
    pub fn new(
        drivers: impl IntoIterator<Item = Arc<dyn Driver>>,
        options: &BTreeMap<String, String>,
    ) -> Self {
        let list = |key: &str| -> Vec<String> {
            let text = options.get(key).map_or("", String::as_str);
            text.split(',')
                .map(|n| n.trim().to_owned())
                .filter(|n| !n.is_empty())
                .collect()
        };
        let allow = list(option::DRIVER_ALLOWLIST);
        let deny = list(option::DRIVER_DENYLIST);
        let drivers = drivers
            .into_iter()
            .map(|d| (d.name(), d))
            .filter(|(n, _)| allow.is_empty() || allow.iter().any(|a| a == n))
            .filter(|(n, _)| !deny.iter().any(|d| d == n))
            .collect();
        Self { drivers }
    }

    /// A driver.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Driver>> {
        self.drivers.get(name)
    }

    /// What they say about themselves.
    pub fn fingerprint(&self, now: i64) -> Map<DriverInfo> {
        self.drivers
            .iter()
            .map(|(n, d)| ((*n).to_owned(), d.fingerprint(now)))
            .collect()
    }
}

/// What a driver says about itself.
pub(super) fn info(name: &str, detected: bool, now: i64, health: &str) -> DriverInfo {
    let attributes = if detected {
        Map::from([(format!("driver.{name}"), "true".to_owned())])
    } else {
        Map::empty()
    };
    DriverInfo {
        attributes,
        detected,
        healthy: detected,
        health_description: health.to_owned(),
        update_time: Time(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::mock::{Mock, NAME};

    #[test]
    fn drivers_are_there_unless_an_operator_leaves_them_out() {
        let there = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            let mock = Arc::new(Mock) as Arc<dyn Driver>;
            let registry = Registry::new([mock], &options.collect());
            registry.get(NAME).is_some()
        };
        let (allow, deny) = ("driver.allowlist", "driver.denylist");
        for (options, wanted) in [
            (&[][..], true),
            (&[(allow, "")], true),
            (&[(allow, "mock_driver")], true),
            (&[(allow, "raw_exec, mock_driver")], true),
            (&[(allow, "raw_exec")], false),
            (&[(deny, "raw_exec,exec")], true),
            (&[(deny, "exec , mock_driver")], false),
            (&[(allow, "mock_driver"), (deny, "mock_driver")], false),
        ] {
            assert_eq!(there(options), wanted, "{options:?}");
        }
    }
}
