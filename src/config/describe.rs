//! The configuration as `/v1/agent/self` shows it: Nomad's names, secrets left out.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Addresses, Config};
use crate::base::version::NOMAD_VERSION;

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Config {
    /// The configuration for people and clients to read. Tokens and keys are not in it.
    pub fn describe(&self) -> Value {
        let advertise = Addresses {
            http: self.http_advertise().ok(),
            rpc: self.rpc_advertise().ok(),
            serf: self.advertise.serf.clone(),
        };
        let mut all = json!({
            "ACL": {
                "Enabled": self.acl.enabled,
                "PolicyTTL": ns(self.acl.policy_ttl),
                "ReplicationToken": "",
                "RoleTTL": ns(self.acl.role_ttl),
                "TokenMaxExpirationTTL": ns(self.acl.token_max_expiration_ttl),
                "TokenMinExpirationTTL": ns(self.acl.token_min_expiration_ttl),
                "TokenTTL": ns(self.acl.token_ttl),
            },
            "Addresses": addresses(&self.addresses, &self.bind_addr),
            "AdvertiseAddrs": addresses(&advertise, &self.bind_addr),
            "Audit": {
                "DeliveryGuarantee": self.audit.delivery_guarantee.name(),
                "Enabled": self.audit.enabled,
                "Filters": null,
                "Sinks": null,
            },
            "Autopilot": {
                "CleanupDeadServers": self.autopilot.cleanup_dead_servers,
                "LastContactThreshold": ns(self.autopilot.last_contact_threshold),
                "MaxTrailingLogs": self.autopilot.max_trailing_logs,
                "MinQuorum": self.autopilot.min_quorum,
                "ServerStabilizationTime": ns(self.autopilot.server_stabilization_time),
            },
            "BindAddr": self.bind_addr,
            "DataDir": self.data_dir,
            "Datacenter": self.datacenter,
            "DevMode": self.dev,
            "EnableDebug": self.enable_debug,
            "EnableSyslog": self.log.enable_syslog,
            "Files": self.files,
            "HTTPAPIResponseHeaders": self.http_api_response_headers,
            "HTTPTrustedProxies": self.http_trusted_proxies,
            "LeaveOnInt": self.leave_on_interrupt,
            "LeaveOnTerm": self.leave_on_terminate,
            "NodeName": self.node_name(),
            "PluginDir": self.plugin_dir,
            "Ports": { "HTTP": self.ports.http, "RPC": self.ports.rpc, "Serf": self.ports.serf },
            "Region": self.region,
            "UI": { "Enabled": self.ui.enabled },
            "Version": {
                "BuildDate": null,
                "Revision": "",
                "Version": NOMAD_VERSION,
                "VersionMetadata": "",
                "VersionPrerelease": "",
            },
        });
        self.describe_log(&mut all);
        self.describe_roles(&mut all);
        all
    }

    fn describe_log(&self, all: &mut Value) {
        all["LogLevel"] = json!(self.log.level);
        all["LogJson"] = json!(self.log.json);
        all["LogFile"] = json!(self.log.file);
        all["LogIncludeLocation"] = json!(self.log.include_location);
        all["LogRotateBytes"] = json!(self.log.rotate_bytes);
        all["LogRotateMaxFiles"] = json!(self.log.rotate_max_files);
        all["SyslogFacility"] = json!(self.log.syslog_facility);
        all["Telemetry"] = json!({
            "CollectionInterval": format!("{}s", self.telemetry.collection_interval.as_secs()),
            "DisableHostname": self.telemetry.disable_hostname,
            "PrometheusMetrics": self.telemetry.prometheus_metrics,
            "PublishAllocationMetrics": self.telemetry.publish_allocation_metrics,
            "PublishNodeMetrics": self.telemetry.publish_node_metrics,
            "UseNodeName": self.telemetry.use_node_name,
        });
        all["Limits"] = json!({
            "HTTPMaxConnsPerClient": per_client(self.limits.http_max_conns_per_client),
            "HTTPSHandshakeTimeout":
                format!("{}s", self.limits.https_handshake_timeout.as_secs()),
            "RPCHandshakeTimeout": format!("{}s", self.limits.rpc_handshake_timeout.as_secs()),
            "RPCMaxConnsPerClient": per_client(self.limits.rpc_max_conns_per_client),
            "HTTPMaxRequestsPerIdentity": self.limits.http_max_requests_per_identity,
            "HTTPMaxRequestsPerAddress": self.limits.http_max_requests_per_address,
            "HTTPMaxRequestsPerNamespace": self.limits.http_max_requests_per_namespace,
            "RPCMaxRequestsPerIdentity": self.limits.rpc_max_requests_per_identity,
            "RPCMaxRequestsPerAddress": self.limits.rpc_max_requests_per_address,
            "RequestBurst": format!("{}s", self.limits.request_burst.as_secs()),
            "MaxBodyBytesInFlight": self.limits.max_body_bytes_in_flight,
        });
    }

    fn describe_roles(&self, all: &mut Value) {
        all["Server"] = json!({
            "AuthoritativeRegion": self.server.authoritative_region,
            "BootstrapExpect": self.server.bootstrap_expect,
            "Enabled": self.server.enabled,
            "EnabledSchedulers": self.server.enabled_schedulers,
            "NumSchedulers": self.server.num_schedulers,
            "RaftProtocol": self.server.raft_protocol,
        });
        all["Client"] = json!({
            "AllocDir": self.client.alloc_dir,
            "Enabled": self.client.enabled,
            "MaxDynamicPort": self.client.max_dynamic_port,
            "Meta": self.client.meta,
            "MinDynamicPort": self.client.min_dynamic_port,
            "NetworkInterface": self.client.network_interface,
            "NodeClass": self.client.node_class,
            "NodePool": self.client.node_pool,
            "Options": self.client.options,
            "Servers": self.client.servers,
            "StateDir": self.client.state_dir,
        });
        all["TLSConfig"] = json!({
            "CAFile": self.tls.ca_file,
            "CertFile": self.tls.cert_file,
            "EnableHTTP": self.tls.http,
            "EnableRPC": self.tls.rpc,
            "KeyFile": self.tls.key_file,
            "RPCUpgradeMode": self.tls.rpc_upgrade_mode,
            "TLSCipherSuites": self.tls.tls_cipher_suites,
            "TLSPreferServerCipherSuites": self.tls.tls_prefer_server_cipher_suites,
            "TLSMinVersion": self.tls.tls_min_version,
            "VerifyHTTPSClient": self.tls.verify_https_client,
            "VerifyServerHostname": self.tls.verify_server_hostname,
        });
    }
}

/// What is in force for callers from elsewhere.
fn per_client(configured: Option<u32>) -> u32 {
    configured.unwrap_or(crate::net::PER_CLIENT)
}

fn addresses(named: &Addresses, bind: &str) -> Value {
    let or_bind = |one: &Option<String>| one.clone().unwrap_or_else(|| bind.to_owned());
    json!({
        "HTTP": or_bind(&named.http),
        "RPC": or_bind(&named.rpc),
        "Serf": or_bind(&named.serf),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let mut config = Config::dev();
        config.acl.replication_token.0 = "canary-8c6f".to_owned();
        let shown = config.describe();
        assert_eq!(shown["Region"], "global");
        assert_eq!(shown["Ports"]["HTTP"], 4646);
        assert!(!shown.to_string().contains("canary-8c6f"));
    }
}
