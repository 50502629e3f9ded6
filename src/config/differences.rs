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
