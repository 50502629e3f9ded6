//! What the handlers work with: the projections to read, the proposer to write through, and the
//! server for what only it knows about itself and its cluster.

use std::sync::Arc;

use arc_swap::ArcSwap;
use drover_projections::Projections;
use hyper::header::{HeaderName, HeaderValue};

use super::gzip::Gzip;
use crate::commands::acl::TtlBounds;
use crate::config::{Config, SearchConfig};
use crate::gate::Gate;
use crate::history::proof::Ledger;
use crate::keyring::Keyring;
use crate::log::LogEngine;
use crate::net::{BODIES, Budget, Rates};
use crate::proposer::Proposer;
use crate::requests::RequestLog;
use crate::server::Server;

/// The largest request body, bytes: an event holds 4 MiB, and JSON is longer than what it becomes.
pub const BODY_LIMIT: usize = 16 << 20;

/// Settings of the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When answers are compressed.
    pub gzip: Gzip,
    /// What may change while the agent runs.
    pub live: Arc<ArcSwap<Live>>,
    /// The largest request body, bytes.
    pub body_limit: usize,
    /// What all bodies share.
    pub bodies: Arc<Budget>,
    /// How many requests a second are taken.
    pub rates: Arc<Rates>,
    /// Bytes after which a long list is sent on; the usual number by default.
    pub list_part: Option<usize>,
    /// The region of this agent.
    pub region: String,
    /// The priority of jobs that name none.
    pub job_priority: i64,
    /// The highest priority of a job.
    pub job_max_priority: i64,
    /// The largest sum of a job's group counts.
    pub job_max_count: i64,
    /// The longest source kept with a job, bytes.
    pub job_max_source_size: u64,
    /// How many versions of a job are kept.
    pub job_tracked_versions: u32,
    /// Bounds of the searches.
    pub search: SearchConfig,
    /// The most bytes the variables of a namespace may take; 0: any number.
    pub variables_quota: u64,
    /// Whether every caller is shown the process and its machine, where no token is required.
    pub enable_debug: bool,
}

impl Settings {
    /// What this configuration says, with these of what may change. How answers are compressed, the
    /// rates and the budget of bodies are the usual ones: whoever serves says them.
    pub fn of(config: &Config, live: Live) -> Self {
        let server = &config.server;
        Self {
            gzip: Gzip::default(),
            live: Arc::new(ArcSwap::from_pointee(live)),
            body_limit: BODY_LIMIT,
            bodies: Budget::new(BODIES),
            rates: Rates::none(),
            list_part: None,
            region: config.region.clone(),
            job_priority: server.job_default_priority,
            job_max_priority: server.job_max_priority,
            job_max_count: server.job_max_count,
            job_max_source_size: server.job_max_source_size,
            job_tracked_versions: server.job_tracked_versions,
            search: server.search.clone(),
            variables_quota: server.variables_quota,
            enable_debug: config.enable_debug,
        }
    }

    /// What may change, as it is now.
    #[must_use]
    pub fn now(&self) -> Arc<Live> {
        self.live.load_full()
    }
}

/// Settings that may change while the agent runs, all of them at once.
#[derive(Clone, Debug)]
pub struct Live {
    /// Headers put on every response, as the configuration says.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the metrics are offered in Prometheus' form.
    pub prometheus: bool,
    /// How long tokens that expire may live.
    pub token_ttl: TtlBounds,
    /// Whether metrics are shown only to callers that may read the agent.
    pub metrics_require_acl: bool,
    /// Whether requests are counted by their caller.
    pub label_identities: bool,
}

impl Live {
    /// What this configuration says, without its headers, which may be wrong.
    pub fn of(config: &Config) -> Self {
        Self {
            headers: Vec::new(),
            prometheus: config.telemetry.prometheus_metrics,
            metrics_require_acl: config.telemetry.metrics_require_acl,
            label_identities: !config.telemetry.disable_rpc_rate_metrics_labels,
            token_ttl: TtlBounds {
                min: config.acl.token_min_expiration_ttl,
                max: config.acl.token_max_expiration_ttl,
            },
        }
    }
}

#[cfg(test)]
impl Default for Settings {
    fn default() -> Self {
        Self::of(&Config::default(), Live::default())
    }
}

#[cfg(test)]
impl Default for Live {
    /// What is not configured, with the metrics that tests read.
    fn default() -> Self {
        Self {
            prometheus: true,
            ..Self::of(&Config::default())
        }
    }
}

/// Everything a handler can reach.
pub struct Api {
    /// The state to read.
    pub projections: Arc<Projections>,
    /// The log, for what only it knows: when an event happened.
    pub log: Arc<LogEngine>,
    /// Proofs over the log.
    pub ledger: Arc<Ledger>,
    /// Where commands go.
    pub proposer: Proposer,
    /// The keys that variables are encrypted with.
    pub keyring: Arc<Keyring>,
    /// The authentication step.
    pub gate: Arc<Gate>,
    /// The server, for what only it knows about itself and its cluster.
    pub server: Arc<Server>,
    /// Objects that were rendered lately.
    pub rendered: super::Rendered,
    /// Requests to this server that change nothing but matter.
    pub requests: Arc<RequestLog>,
    pub settings: Settings,
}

impl Api {
    /// The API of a server.
    pub fn of(server: &Arc<Server>, settings: Settings) -> Self {
        Self {
            projections: Arc::clone(&server.projections),
            log: Arc::clone(server.raft.log()),
            ledger: Arc::clone(&server.ledger),
            proposer: server.proposer.clone(),
            keyring: Arc::clone(&server.keyring),
            gate: Arc::clone(&server.gate),
            server: Arc::clone(server),
            rendered: super::Rendered::default(),
            requests: Arc::clone(&server.requests),
            settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_setting_of_the_api_is_the_one_that_is_named_for_it() {
        let mut config = Config {
            region: "here".to_owned(),
            ..Config::default()
        };
        let server = &mut config.server;
        server.job_default_priority = 1;
        server.job_max_priority = 2;
        server.job_max_count = 3;
        server.job_max_source_size = 4;
        server.job_tracked_versions = 5;
        server.variables_quota = 6;
        server.search = SearchConfig {
            fuzzy_enabled: false,
            limit_query: 7,
            limit_results: 8,
            min_term_length: 9,
        };
        let found = Settings::of(&config, Live::default());
        assert_eq!(found.region, "here");
        assert_eq!(found.job_priority, 1);
        assert_eq!(found.job_max_priority, 2);
        assert_eq!(found.job_max_count, 3);
        assert_eq!(found.job_max_source_size, 4);
        assert_eq!(found.job_tracked_versions, 5);
        assert_eq!(found.variables_quota, 6);
        let search = &found.search;
        let limits = [
            search.limit_query,
            search.limit_results,
            search.min_term_length,
        ];
        assert_eq!((search.fuzzy_enabled, limits), (false, [7, 8, 9]));
        assert!(!found.enable_debug);
        config.enable_debug = true;
        config.server.search.fuzzy_enabled = true;
        let found = Settings::of(&config, Live::default());
        assert!(found.enable_debug && found.search.fuzzy_enabled);
    }

    #[test]
    fn each_setting_that_may_change_is_the_one_that_is_named_for_it() {
        let switches = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            let found = Live::of(&config);
            [
                found.prometheus,
                found.metrics_require_acl,
                found.label_identities,
            ]
        };
        assert_eq!(switches(|_| ()), [false, false, true]);
        let prometheus = switches(|config| config.telemetry.prometheus_metrics = true);
        assert_eq!(prometheus, [true, false, true]);
        let guarded = switches(|config| config.telemetry.metrics_require_acl = true);
        assert_eq!(guarded, [false, true, true]);
        let bare = switches(|config| config.telemetry.disable_rpc_rate_metrics_labels = true);
        assert_eq!(bare, [false, false, false]);

        let mut config = Config::default();
        config.acl.token_min_expiration_ttl = Duration::from_secs(1);
        config.acl.token_max_expiration_ttl = Duration::from_secs(2);
        let bounds = Live::of(&config).token_ttl;
        assert_eq!((bounds.min.as_secs(), bounds.max.as_secs()), (1, 2));
    }
}
