//! What each part is given of a configuration, in that part's own terms.

use hyper::header::{HeaderName, HeaderValue};

use super::Failure;
use crate::config::{AclConfig, Config, LimitsConfig};
use crate::gate::Ttls;
use crate::http;
use crate::net::{Budget, PerSecond, Rates};
use crate::telemetry;

/// The shortest interval of the metrics.
pub(super) const SHORTEST_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// What the API is configured with.
pub(super) fn settings(config: &Config) -> Result<http::Settings, Failure> {
    let gzip = http::gzip::Gzip::parse(&config.http_compression).ok_or_else(|| {
        let value = &config.http_compression;
        format!("http_compression: {value:?} is not one of always, remote and never")
    })?;
    Ok(http::Settings {
        gzip,
        rates: Rates::new(rates(&config.limits).0),
        bodies: Budget::new(in_flight(&config.limits)),
        ..http::Settings::of(config, live(config)?)
    })
}

/// What may change in it while the agent runs.
///
/// # Errors
/// The name or value that is not a valid header.
pub(super) fn live(config: &Config) -> Result<http::Live, String> {
    let mut headers = Vec::new();
    for (name, value) in &config.http_api_response_headers {
        let name = HeaderName::try_from(name)
            .map_err(|_| format!("http_api_response_headers: {name:?} is no header name"))?;
        let value = HeaderValue::try_from(value)
            .map_err(|_| format!("http_api_response_headers: bad value for {name}"))?;
        headers.push((name, value));
    }
    Ok(http::Live {
        headers,
        ..http::Live::of(config)
    })
}

/// How many bytes of bodies are held at once.
pub(super) fn in_flight(limits: &LimitsConfig) -> usize {
    usize::try_from(limits.max_body_bytes_in_flight).unwrap_or(usize::MAX)
}

/// How many requests of the API, and how many calls, are taken in a second.
pub(super) fn rates(limits: &LimitsConfig) -> (PerSecond, PerSecond) {
    let burst = limits.request_burst;
    let requests = PerSecond {
        identity: limits.http_max_requests_per_identity,
        address: limits.http_max_requests_per_address,
        namespace: limits.http_max_requests_per_namespace,
        burst,
    };
    let calls = PerSecond {
        identity: limits.rpc_max_requests_per_identity,
        address: limits.rpc_max_requests_per_address,
        namespace: 0,
        burst,
    };
    (requests, calls)
}

/// How long what servers say of tokens is kept.
pub(super) fn ttls(acl: &AclConfig) -> Ttls {
    Ttls {
        token: acl.token_ttl,
        policy: acl.policy_ttl,
        role: acl.role_ttl,
    }
}

/// How metrics are kept, as the configuration says.
pub(super) fn measured(config: &Config) -> telemetry::TelemetryOptions {
    let settings = &config.telemetry;
    let host = || match settings.use_node_name {
        true => config.node_name(),
        false => hostname(),
    };
    telemetry::TelemetryOptions {
        interval: settings
            .in_memory_collection_interval
            .max(SHORTEST_INTERVAL),
        retention: settings.in_memory_retention_period,
        host: (!settings.disable_hostname).then(host),
        prefix_filter: settings.prefix_filter.clone(),
        filter_default: settings.filter_default,
        sinks: sinks(config),
    }
}

/// Where metrics are sent.
pub(super) fn sinks(config: &Config) -> Vec<telemetry::Sink> {
    let sinks = config.telemetry.sinks.iter();
    let sinks = sinks.filter(|(_, address)| !address.is_empty());
    sinks
        .filter_map(|(name, address)| match name.as_str() {
            "statsd_address" => Some(telemetry::Sink::Statsd(address.clone())),
            "statsite_address" => Some(telemetry::Sink::Statsite(address.clone())),
            _ => None,
        })
        .collect()
}

/// The machine's own name, whatever the node is called.
fn hostname() -> String {
    Config::default().node_name()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn acl_10_a_token_a_policy_and_a_role_are_each_kept_as_long_as_is_configured() {
        let acl = AclConfig {
            token_ttl: Duration::from_secs(1),
            policy_ttl: Duration::from_secs(2),
            role_ttl: Duration::from_secs(3),
            ..AclConfig::default()
        };
        let kept = ttls(&acl);
        let kept = [kept.token, kept.policy, kept.role];
        assert_eq!(kept.map(|ttl| ttl.as_secs()), [1, 2, 3]);
    }

    #[test]
    fn auth_09_each_limit_is_of_what_it_is_named_for() {
        let limits = LimitsConfig {
            http_max_requests_per_identity: 1,
            http_max_requests_per_address: 2,
            http_max_requests_per_namespace: 3,
            rpc_max_requests_per_identity: 4,
            rpc_max_requests_per_address: 5,
            request_burst: Duration::from_secs(6),
            ..LimitsConfig::default()
        };
        let burst = Duration::from_secs(6);
        let requests = PerSecond {
            identity: 1,
            address: 2,
            namespace: 3,
            burst,
        };
        let calls = PerSecond {
            identity: 4,
            address: 5,
            namespace: 0,
            burst,
        };
        assert_eq!(rates(&limits), (requests, calls));
    }

    #[test]
    fn metrics_are_kept_and_named_as_the_configuration_says() {
        let mut config = Config {
            name: "one-node".to_owned(),
            ..Config::default()
        };
        let usual = measured(&config);
        assert_eq!(usual.host, Some(hostname()));
        assert_ne!(usual.host.as_deref(), Some("one-node"));
        config.telemetry.use_node_name = true;
        config.telemetry.in_memory_retention_period = Duration::from_secs(77);
        config.telemetry.in_memory_collection_interval = Duration::from_secs(7);
        let options = measured(&config);
        assert_eq!(options.host.as_deref(), Some("one-node"));
        assert_eq!(options.retention.as_secs(), 77);
        assert_eq!(options.interval.as_secs(), 7);
        config.telemetry.disable_hostname = true;
        assert_eq!(measured(&config).host, None);
    }

    #[test]
    fn metrics_are_left_out_as_the_configuration_says() {
        let mut config = Config::default();
        let usual = measured(&config);
        assert!(usual.filter_default && usual.prefix_filter.is_empty());
        config.telemetry.filter_default = false;
        config.telemetry.prefix_filter = vec!["+nomad.client".to_owned()];
        let options = measured(&config);
        assert!(!options.filter_default);
        assert_eq!(options.prefix_filter, ["+nomad.client"]);
    }

    #[test]
    fn answers_are_compressed_when_the_configuration_says() {
        use crate::http::gzip::Gzip;
        let gzip = |value: &str| {
            let config = Config {
                http_compression: value.to_owned(),
                ..Config::default()
            };
            let found = settings(&config).map(|settings| settings.gzip);
            found.map_err(|error| error.to_string())
        };
        assert_eq!(gzip("always"), Ok(Gzip::Always));
        assert_eq!(gzip("remote"), Ok(Gzip::Remote));
        assert_eq!(gzip(""), Ok(Gzip::Remote));
        assert_eq!(gzip("never"), Ok(Gzip::Never));
        let refused = gzip("sometimes").expect_err("there is no such value");
        assert!(
            refused.contains("http_compression: \"sometimes\""),
            "{refused}"
        );
    }
}
