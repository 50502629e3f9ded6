//! What differs between two configurations.

use super::settings::{differences, take_over};
use super::{AclConfig, ClientConfig, Config, TelemetryConfig};

impl Config {
    /// What differs in another configuration, by the names of settings and blocks; of blocks some
    /// of which may change while the agent runs, by what it is.
    #[must_use]
    pub fn differences(&self, other: &Config) -> Vec<String> {
        differences(self, other)
    }
}

/// For the whole, and for the blocks of which other parts hold a copy.
macro_rules! changing {
    ($($block:ident)*) => {$(
        impl $block {
            /// Takes over what counts from now on without a restart.
            pub fn copy_changing(&mut self, other: &Self) {
                take_over(self, other);
            }
        }
    )*};
}
changing!(Config AclConfig ClientConfig TelemetryConfig);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A setting, and what gives it another value than that of [`usual`].
    type Change = (&'static str, fn(&mut Config));

    const ANOTHER: Duration = Duration::from_secs(1_234);

    const OF_CLIENTS: &[Change] = &[
        ("client.meta", |c| drop(c.client.meta.remove("a"))),
        ("client.gc_interval", |c| c.client.gc_interval = ANOTHER),
        ("client.gc_parallel_destroys", |c| {
            c.client.gc_parallel_destroys = 77;
        }),
        ("client.gc_disk_usage_threshold", |c| {
            c.client.gc_disk_usage_threshold = 1.5;
        }),
        ("client.gc_inode_usage_threshold", |c| {
            c.client.gc_inode_usage_threshold = 2.5;
        }),
        ("client.gc_max_allocs", |c| c.client.gc_max_allocs = 777),
        ("client.max_kill_timeout", |c| {
            c.client.max_kill_timeout = ANOTHER;
        }),
        ("client.disable_remote_exec", |c| {
            c.client.disable_remote_exec ^= true;
        }),
        ("client.options", |c| {
            drop(c.client.options.remove("user.denylist"));
        }),
        ("client.options", |c| option(c, "user.denylist")),
        ("client.options", |c| option(c, "user.checked_drivers")),
    ];

    const OF_TELEMETRY: &[Change] = &[
        ("telemetry.prometheus_metrics", |c| {
            c.telemetry.prometheus_metrics ^= true;
        }),
        ("telemetry.publish_allocation_metrics", |c| {
            c.telemetry.publish_allocation_metrics ^= true;
        }),
        ("telemetry.publish_node_metrics", |c| {
            c.telemetry.publish_node_metrics ^= true;
        }),
        ("telemetry.include_alloc_metadata_in_metrics", |c| {
            c.telemetry.include_alloc_metadata_in_metrics ^= true;
        }),
        ("telemetry.allowed_metadata_keys_in_metrics", |c| {
            c.telemetry
                .allowed_metadata_keys_in_metrics
                .push("k".into());
        }),
        ("telemetry.prefix_filter", |c| {
            c.telemetry.prefix_filter.push("-x".into());
        }),
        ("telemetry.filter_default", |c| {
            c.telemetry.filter_default ^= true;
        }),
        ("telemetry.disable_dispatched_job_summary_metrics", |c| {
            c.telemetry.disable_dispatched_job_summary_metrics ^= true;
        }),
        ("telemetry.disable_rpc_rate_metrics_labels", |c| {
            c.telemetry.disable_rpc_rate_metrics_labels ^= true;
        }),
        ("telemetry.metrics_require_acl", |c| {
            c.telemetry.metrics_require_acl ^= true;
        }),
    ];

    const OF_ACL: &[Change] = &[
        ("acl.token_ttl", |c| c.acl.token_ttl = ANOTHER),
        ("acl.policy_ttl", |c| c.acl.policy_ttl = ANOTHER),
        ("acl.role_ttl", |c| c.acl.role_ttl = ANOTHER),
        ("acl.replication_token", |c| {
            c.acl.replication_token.0 = "t".into();
        }),
        ("acl.token_min_expiration_ttl", |c| {
            c.acl.token_min_expiration_ttl = ANOTHER;
        }),
        ("acl.token_max_expiration_ttl", |c| {
            c.acl.token_max_expiration_ttl = ANOTHER;
        }),
    ];

    /// What needs a restart.
    const STAYS: &[Change] = &[
        ("client.options", |c| option(c, "driver.raw_exec.enable")),
        ("client.node_class", |c| c.client.node_class = "x".into()),
        ("telemetry.use_node_name", |c| {
            c.telemetry.use_node_name ^= true;
        }),
        ("acl.enabled", |c| c.acl.enabled ^= true),
    ];

    fn option(config: &mut Config, key: &str) {
        config.client.options.insert(key.into(), "another".into());
    }

    /// With something to be taken away.
    fn usual() -> Config {
        let mut config = Config::dev();
        config.client.meta.insert("a".into(), "1".into());
        config
            .client
            .options
            .insert("user.denylist".into(), "root".into());
        config
    }

    #[test]
    fn what_changes_without_a_restart_is_taken_over_and_differs_no_more() {
        let taken = [OF_CLIENTS, OF_TELEMETRY, OF_ACL].concat();
        let all = taken.iter().map(|change| (change, true));
        for ((name, change), is_taken) in all.chain(STAYS.iter().map(|change| (change, false))) {
            let (mut one, mut other) = (usual(), usual());
            change(&mut other);
            assert_eq!(one.differences(&other), [*name]);
            one.acl.copy_changing(&other.acl);
            one.telemetry.copy_changing(&other.telemetry);
            one.client.copy_changing(&other.client);
            let left = one.differences(&other);
            if is_taken {
                assert!(left.is_empty(), "{name}: {left:?}");
                assert_eq!(one, other, "{name}");
            } else {
                assert_eq!(left, [*name]);
            }
        }
    }

    #[test]
    fn what_differs_is_named_as_in_a_file() {
        let one = Config::dev();
        let mut other = one.clone();
        assert!(one.differences(&other).is_empty());
        other.files.push("/a".into());
        assert!(
            one.differences(&other).is_empty(),
            "the same from elsewhere"
        );
        other.region = "eu".into();
        other.tls.http = true;
        assert_eq!(one.differences(&other), ["region", "tls"]);
        other.acl.enabled = true;
        other.client.node_class = "x".into();
        other.telemetry.use_node_name = true;
        assert_eq!(
            one.differences(&other),
            [
                "region",
                "client.node_class",
                "acl.enabled",
                "telemetry.use_node_name",
                "tls"
            ]
        );
    }
}
