//! What of a configuration is not as in another.

use super::{AclConfig, ClientConfig, Config, TelemetryConfig};

/// Compares these fields. They are taken apart, so that whoever adds one meets this.
macro_rules! compared {
    ($kind:ident, $within:literal, $one:expr, $other:expr; $($field:ident)* $(, $idle:ident)?) => {{
        let $kind { $($field,)* $($idle: _,)? } = $one;
        let all = [$((concat!($within, stringify!($field)), *$field == $other.$field)),*];
        all.into_iter().filter(|(_, same)| !same).map(|(name, _)| name)
    }};
}

impl Config {
    /// What differs in another configuration, by the names of settings and blocks; of blocks some
    /// of which may change while the agent runs, by what it is.
    #[must_use]
    pub fn differences(&self, other: &Config) -> Vec<&'static str> {
        let blocks = compared!(Config, "", self, other;
            dev region datacenter name data_dir plugin_dir
            log bind_addr enable_debug leave_on_interrupt leave_on_terminate http_compression
            http_api_response_headers http_trusted_proxies ports addresses advertise
            server client acl limits telemetry event_publisher
            autopilot rpc tls ui plugins audit
            // Which files there are says nothing: what is in them does.
            , files
        );
        let mut names = Vec::new();
        for block in blocks {
            match block {
                "acl" => names.extend(self.acl.differences(&other.acl)),
                "client" => names.extend(self.client.differences(&other.client)),
                "telemetry" => names.extend(self.telemetry.differences(&other.telemetry)),
                whole => names.push(whole),
            }
        }
        names
    }
}

impl AclConfig {
    fn differences(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        compared!(AclConfig, "acl.", self, other;
            enabled token_ttl policy_ttl role_ttl replication_token token_min_expiration_ttl
            token_max_expiration_ttl
        )
    }
}

impl ClientConfig {
    fn differences(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        compared!(ClientConfig, "client.", self, other;
            enabled state_dir alloc_dir alloc_mounts_dir host_volumes_dir
            host_volume_plugin_dir common_plugin_dir servers server_join node_class node_pool
            options meta chroot_env network_interface preferred_address_family network_speed
            cpu_total_compute memory_total_mb disk_total_mb disk_free_mb reservable_cores
            reserved max_kill_timeout client_min_port client_max_port min_dynamic_port
            max_dynamic_port gc_interval gc_parallel_destroys gc_disk_usage_threshold
            gc_inode_usage_threshold gc_max_allocs gc_volumes_on_node_gc no_host_uuid
            disable_remote_exec cni_path cni_config_dir bridge_network_name
            bridge_network_subnet bridge_network_subnet_ipv6 bridge_network_hairpin_mode
            bind_wildcard_default_host_network cgroup_parent
            nomad_service_discovery node_max_allocs default_ineligible host_volumes
            host_networks drain_on_shutdown artifact template fingerprint users
        )
    }
}

impl TelemetryConfig {
    fn differences(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        compared!(TelemetryConfig, "telemetry.", self, other;
            in_memory_collection_interval in_memory_retention_period collection_interval
            prometheus_metrics publish_allocation_metrics publish_node_metrics disable_hostname
            use_node_name include_alloc_metadata_in_metrics allowed_metadata_keys_in_metrics
            prefix_filter filter_default disable_dispatched_job_summary_metrics
            disable_rpc_rate_metrics_labels metrics_require_acl disable_allocation_hook_metrics
            sinks
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A setting, and what gives it another value than that of [`usual`].
    type Change = (&'static str, fn(&mut Config));

    const LONG: Duration = Duration::from_secs(1_234);

    const OF_CLIENTS: &[Change] = &[
        ("client.meta", |c| drop(c.client.meta.remove("a"))),
        ("client.gc_interval", |c| c.client.gc_interval = LONG),
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
            c.client.max_kill_timeout = LONG;
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
        ("acl.token_ttl", |c| c.acl.token_ttl = LONG),
        ("acl.policy_ttl", |c| c.acl.policy_ttl = LONG),
        ("acl.role_ttl", |c| c.acl.role_ttl = LONG),
        ("acl.replication_token", |c| {
            c.acl.replication_token.0 = "t".into();
        }),
        ("acl.token_min_expiration_ttl", |c| {
            c.acl.token_min_expiration_ttl = LONG;
        }),
        ("acl.token_max_expiration_ttl", |c| {
            c.acl.token_max_expiration_ttl = LONG;
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
