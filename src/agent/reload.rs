//! The configuration read anew while everything runs.
//!
//! First all of it is read and checked, TLS material included; only then is anything put in place,
//! so that nothing half good is ever used. What can change while the agent runs is taken over; what
//! needs a restart stays as it is and is named.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::settings::{in_flight, live, rates, ttls};
use super::{Failure, expiry, logging, notify, tls};
use crate::client::agent::Client;
use crate::config::{Config, Shared, TlsConfig};
use crate::gate::Gate;
use crate::http;
use crate::net::tls::{Expiry, Loader};
use crate::net::{Budget, Patience, Rates, Visitors};
use crate::server::Around;
use crate::telemetry::Telemetry;

/// Reads the configuration as it was read at the start: files, environment, flags.
pub type Again = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// A port whose limits may change.
pub(super) type Limited = (Arc<Visitors>, Patience);

/// The parts of a running agent that take another configuration.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) http: Option<Limited>,
    pub(super) rpc: Option<Limited>,
    /// How many requests of the API are taken.
    requested: Option<Arc<Rates>>,
    /// How many calls are taken.
    pub(super) called: Option<Arc<Rates>>,
    /// How many bytes of bodies are held at once.
    bodies: Option<Arc<Budget>>,
    live: Option<Arc<ArcSwap<http::Live>>>,
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) client: Option<Arc<Client>>,
}

impl Parts {
    /// The API has these settings.
    pub(super) fn web(&mut self, settings: &http::Settings) {
        self.live = Some(Arc::clone(&settings.live));
        self.requested = Some(Arc::clone(&settings.rates));
        self.bodies = Some(Arc::clone(&settings.bodies));
    }

    /// Has all of them take what was checked; nothing of it fails.
    fn take(&self, config: &Config, live: http::Live) {
        let limits = &config.limits;
        if let Some((visitors, patience)) = &self.http {
            visitors.limit(limits.http_max_conns_per_client);
            patience.set(limits.https_handshake_timeout);
        }
        if let Some((visitors, patience)) = &self.rpc {
            visitors.limit(limits.rpc_max_conns_per_client);
            patience.set(limits.rpc_handshake_timeout);
        }
        let (requested, called) = rates(limits);
        for (rates, allowed) in [(&self.requested, requested), (&self.called, called)] {
            if let Some(rates) = rates {
                rates.limit(allowed);
            }
        }
        if let Some(bodies) = &self.bodies {
            bodies.resize(in_flight(limits));
        }
        if let Some(now) = &self.live {
            now.store(Arc::new(live));
        }
        if let Some(gate) = &self.gate {
            gate.keep(ttls(&config.acl));
        }
        let telemetry = &config.telemetry;
        if let Some(recorder) = &self.telemetry {
            recorder.filter(&telemetry.prefix_filter, telemetry.filter_default);
        }
        if let Some(client) = &self.client {
            client.reconfigure(&config.client);
        }
    }
}

/// What a running agent is configured with, and how that changes.
pub(super) struct Reloader {
    again: Again,
    config: Shared<Config>,
    tls: Arc<Loader>,
    level: Option<logging::LogLevel>,
    parts: Mutex<Parts>,
    /// One at a time.
    turn: Mutex<()>,
}

impl Reloader {
    /// Starts with `config`, whose certificates are read now.
    pub(super) fn open(
        config: &Config,
        again: Again,
        level: Option<logging::LogLevel>,
    ) -> Result<Arc<Self>, Failure> {
        let tls = Loader::open(&tls::settings(config))?;
        expiry::report(&tls);
        Ok(Arc::new(Self {
            again,
            config: Shared::new(config.clone()),
            tls,
            level,
            parts: Mutex::default(),
            turn: Mutex::default(),
        }))
    }

    /// The certificates.
    pub(super) fn tls(&self) -> &Arc<Loader> {
        &self.tls
    }

    /// Says which parts there are.
    pub(super) fn parts(&self, set: impl FnOnce(&mut Parts)) {
        set(&mut self.parts.lock());
    }

    fn try_reload(&self) -> Result<Vec<String>, String> {
        let wanted = (self.again)()?;
        let now = self.config.get();
        weaker(&now.tls, &wanted.tls)?;
        let serves_otherwise = now.tls.http != wanted.tls.http;
        // This agent's identity, its region and its roles stay as they are until a restart.
        let mut running = (*now).clone();
        running.copy_changing(&wanted);
        let live = live(&running)?;
        self.tls
            .reload(&tls::settings(&running))
            .map_err(|error| error.to_string())?;
        // Nothing below fails: the level was checked with the configuration.
        if let Some(level) = &self.level {
            level.set(&wanted.log.level)?;
        }
        self.parts.lock().take(&running, live);
        let now = self.config.update(|config| config.copy_changing(&wanted));
        expiry::report(&self.tls);
        let mut rest = now.differences(&wanted);
        if serves_otherwise {
            // The node and the event stream still show the former address.
            rest.push("tls.http".to_owned());
        }
        Ok(rest)
    }
}

/// Refuses a reload that would open what was closed: a file that was missing for a moment is no
/// request for clear text.
fn weaker(now: &TlsConfig, wanted: &TlsConfig) -> Result<(), String> {
    let closed = [
        ("tls.http", now.http, wanted.http),
        ("tls.rpc", now.rpc, wanted.rpc),
        (
            "tls.verify_https_client",
            now.verify_https_client,
            wanted.verify_https_client,
        ),
        (
            "tls.verify_server_hostname",
            now.verify_server_hostname,
            wanted.verify_server_hostname,
        ),
    ];
    match closed.iter().find(|(_, was, is)| *was && !is) {
        Some((name, ..)) => Err(format!(
            "{name} is true and would not be any more: restart the agent to switch it off"
        )),
        None => Ok(()),
    }
}

impl Reloader {
    /// Reloads as soon as no other reload is running.
    pub(super) fn reload_in_turn(&self) {
        let _turn = self.turn.lock();
        let _result = self.reported();
    }

    /// Reloads, and logs the result.
    fn reported(&self) -> Result<Vec<String>, String> {
        tracing::info!("Reloading configuration...");
        let done = notify::reloads(|| self.try_reload());
        match &done {
            Ok(rest) if rest.is_empty() => tracing::info!("configuration reloaded"),
            Ok(rest) => tracing::warn!(
                changed = %rest.join(", "),
                "configuration reloaded: what else changed needs a restart of the agent"
            ),
            Err(error) => tracing::error!(
                "the configuration is not reloaded, all stays as it was, certificates included: \
                 {error}"
            ),
        }
        done
    }
}

impl Around for Reloader {
    fn reload(&self) -> Result<Vec<String>, String> {
        // Reading files may be slow, and each call that waits for them holds a thread.
        let turn = self.turn.try_lock();
        let _turn = turn.ok_or("another reload is under way: try again when it is done")?;
        self.reported()
    }

    fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    fn expiries(&self) -> Vec<Expiry> {
        self.tls.expiries()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_events::model::AclToken;
    use drover_testkit::certs::Authority;

    use super::*;
    use crate::agent::settings::settings;
    use crate::rpc::caller::Caller;
    use crate::rpc::methods::{AclResolveToken, ResolveAclTokenRequest, ResolveAclTokenResponse};
    use crate::rpc::service::{Access, Call, Service};
    use crate::telemetry::TelemetryOptions;

    /// Whether these two are kept, as the filter of now says.
    fn kept(telemetry: &Telemetry, recorder: &impl metrics::Recorder) -> [bool; 2] {
        metrics::with_local_recorder(recorder, || {
            metrics::counter!("test.wanted").increment(1);
            metrics::counter!("test.unwanted").increment(1);
        });
        let reported = telemetry.prometheus();
        ["test_wanted", "test_unwanted"].map(|name| reported.contains(name))
    }

    #[test]
    fn what_can_change_does_and_what_cannot_is_named() {
        let before = Config::dev();
        let mut after = before.clone();
        after.limits.http_max_conns_per_client = Some(1);
        after.limits.https_handshake_timeout = Duration::from_secs(77);
        after.limits.http_max_requests_per_identity = 1;
        after.limits.request_burst = Duration::from_secs(1);
        after.limits.rpc_max_requests_per_address = 1;
        after.limits.rpc_max_conns_per_client = Some(1);
        after.limits.max_body_bytes_in_flight = 200 << 20;
        after.limits.rpc_handshake_timeout = Duration::from_secs(66);
        after.telemetry.prefix_filter = vec!["-test.unwanted".to_owned()];
        after.telemetry.prometheus_metrics = false;
        after.telemetry.metrics_require_acl = true;
        after.telemetry.disable_rpc_rate_metrics_labels = true;
        after.telemetry.use_node_name = true;
        after.acl.token_max_expiration_ttl = Duration::from_secs(77);
        let headers = &mut after.http_api_response_headers;
        headers.insert("X-New".to_owned(), "yes".to_owned());
        after.client.node_class = "other".to_owned();
        after.client.gc_max_allocs = 7;
        after.ports.http = 1;
        let seen = after.clone();
        let reloader = Reloader::open(&before, Box::new(move || Ok(seen.clone())), None);
        let reloader = reloader.expect("opens");
        let port = || {
            let patience = Patience::new(Duration::from_secs(5));
            (Visitors::new(Some(5), 10), patience)
        };
        let (http, rpc) = (port(), port());
        reloader.parts(|parts| parts.http = Some(http.clone()));
        reloader.parts(|parts| parts.rpc = Some(rpc.clone()));
        let (telemetry, recorder) = crate::telemetry::build(&TelemetryOptions::default());
        reloader.parts(|parts| parts.telemetry = Some(telemetry.clone()));
        let settings = settings(&before).expect("good");
        reloader.parts(|parts| parts.web(&settings));
        let called = Rates::none();
        reloader.parts(|parts| parts.called = Some(Arc::clone(&called)));
        assert!(!settings.rates.are_set() && !called.are_set());
        let held = reloader.config();
        assert_eq!(
            reloader.reload().expect("reloads"),
            ["ports", "client.node_class", "telemetry.use_node_name"]
        );
        assert!(settings.rates.are_set() && called.are_set());
        assert_eq!(settings.bodies.free(), 200 << 20);
        let live = settings.now();
        let header = ("x-new".parse().unwrap(), "yes".parse().unwrap());
        assert!(live.headers.contains(&header));
        assert!(!live.prometheus && live.metrics_require_acl && !live.label_identities);
        assert_eq!(live.token_ttl.max, Duration::from_secs(77));
        let here = crate::net::Peer {
            address: Some("10.0.0.1:1".parse().expect("an address")),
            ..crate::net::Peer::default()
        };
        for ((visitors, patience), seconds) in [(http, 77), (rpc, 66)] {
            let _one = visitors.enter(&here).expect("one");
            assert!(visitors.enter(&here).is_none(), "the new limit");
            assert_eq!(patience.get(), Duration::from_secs(seconds));
        }
        assert_eq!(kept(&telemetry, &recorder), [true, false]);
        let now = reloader.config();
        assert_eq!(now.limits, after.limits);
        assert_eq!(now.client.gc_max_allocs, 7);
        assert_eq!(now.client.node_class, "", "as it runs");
        assert_eq!(
            held.limits, before.limits,
            "who holds the old one sees nothing"
        );
    }

    /// What an agent without tables knows of tokens counts as long as is configured now.
    #[tokio::test]
    async fn how_long_a_token_is_known_changes_too() {
        let reported = async |_: Arc<()>, _: Call, _: ResolveAclTokenRequest| {
            let token = AclToken {
                r#type: "management".to_owned(),
                ..AclToken::default()
            };
            Ok(ResolveAclTokenResponse {
                token: Some(token),
                index: 1,
            })
        };
        let service = Service::new(Arc::new(()));
        let service = service.method::<AclResolveToken, _, _>(Access::Public, reported);
        let mut before = Config::dev();
        before.acl.token_ttl = Duration::from_secs(3_600);
        let caller = Caller::process(Arc::new(service), "");
        let gate = Arc::new(Gate::far(caller, ttls(&before.acl)));
        let who = gate.authenticate(Some("a token"), "").await.expect("told");
        assert!(who.is_management() && gate.keeps("a token"));
        let mut after = before.clone();
        after.acl.token_ttl = Duration::ZERO;
        let reloader = Reloader::open(&before, Box::new(move || Ok(after.clone())), None);
        let reloader = reloader.expect("opens");
        reloader.parts(|parts| parts.gate = Some(Arc::clone(&gate)));
        assert_eq!(reloader.reload(), Ok(Vec::new()));
        assert!(!gate.keeps("a token"));
    }

    /// A block of TLS that is gone from the file is no request for clear text.
    #[test]
    fn what_was_encrypted_stays_so_without_its_block() {
        let dir = tempfile::tempdir().expect("a folder");
        let authority = Authority::make(dir.path()).expect("an authority");
        let names = ["server.global.nomad", "localhost"];
        let pair = authority.issue("one", &names).expect("a certificate");
        let mut before = Config::dev();
        before.tls = TlsConfig {
            http: true,
            rpc: true,
            ca_file: Some(authority.file()),
            cert_file: Some(pair.cert),
            key_file: Some(pair.key),
            ..TlsConfig::default()
        };
        let mut after = before.clone();
        after.tls = TlsConfig::default();
        after.limits.http_max_requests_per_identity = 1;
        let reloader = Reloader::open(&before, Box::new(move || Ok(after.clone())), None);
        let reloader = reloader.expect("opens");
        let settings = settings(&before).expect("good");
        reloader.parts(|parts| parts.web(&settings));
        let refused = reloader.reload().expect_err("it would open what is closed");
        assert!(refused.starts_with("tls.http is true"), "{refused}");
        assert_eq!(*reloader.config(), before);
        assert!(
            !reloader.expiries().is_empty(),
            "the certificates are there"
        );
        assert!(!settings.rates.are_set(), "nothing of it is used");
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let before = Config::dev();
        let mut after = before.clone();
        after.limits.http_max_conns_per_client = Some(1);
        after.tls.http = true;
        after.tls.cert_file = Some("/nowhere/cert.pem".into());
        after.tls.key_file = Some("/nowhere/key.pem".into());
        let reloader = Reloader::open(&before, Box::new(move || Ok(after.clone())), None);
        let reloader = reloader.expect("opens");
        let error = reloader.reload().expect_err("no such file");
        assert!(error.contains("tls.cert_file /nowhere/cert.pem"), "{error}");
        assert_eq!(*reloader.config(), before);
        let mut after = before.clone();
        after.limits.http_max_requests_per_identity = 1;
        let headers = &mut after.http_api_response_headers;
        headers.insert("X-Bad".to_owned(), "two\nlines".to_owned());
        let wrong = Reloader::open(&before, Box::new(move || Ok(after.clone())), None);
        let wrong = wrong.expect("opens");
        let settings = settings(&before).expect("good");
        wrong.parts(|parts| parts.web(&settings));
        let error = wrong.reload().expect_err("no such header");
        assert!(error.contains("bad value for x-bad"), "{error}");
        assert_eq!(*wrong.config(), before);
        assert!(!settings.rates.are_set(), "nothing of it is used");
        let broken = Reloader::open(&before, Box::new(|| Err("a typo".to_owned())), None);
        assert_eq!(broken.expect("opens").reload(), Err("a typo".to_owned()));
    }

    #[test]
    fn who_asks_while_another_reload_is_under_way_is_told_so() {
        let (begun, begins) = std::sync::mpsc::channel();
        let (ends, end) = std::sync::mpsc::channel::<()>();
        let (begun, end) = (Mutex::new(begun), Mutex::new(end));
        // A file that takes its time.
        let again = move || {
            let _ = begun.lock().send(());
            let _ = end.lock().recv();
            Ok(Config::dev())
        };
        let reloader = Reloader::open(&Config::dev(), Box::new(again), None).expect("opens");
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| reloader.reload());
            begins.recv().expect("it began");
            let reported = reloader.reload().expect_err("one at a time");
            assert!(
                reported.contains("another reload is under way"),
                "{reported}"
            );
            drop(ends);
            slow.join().expect("it ran").expect("it reloads");
        });
        reloader.reload().expect("it is done");
    }

    #[test]
    fn a_reload_opens_nothing_that_was_closed() {
        let closed = TlsConfig {
            http: true,
            rpc: true,
            verify_https_client: true,
            verify_server_hostname: true,
            ..TlsConfig::default()
        };
        type Open = fn(&mut TlsConfig);
        let opened: [(&str, Open); 4] = [
            ("tls.http", |tls| tls.http = false),
            ("tls.rpc", |tls| tls.rpc = false),
            ("tls.verify_https_client", |tls| {
                tls.verify_https_client = false
            }),
            ("tls.verify_server_hostname", |tls| {
                tls.verify_server_hostname = false;
            }),
        ];
        for (name, open) in opened {
            let mut wanted = closed.clone();
            open(&mut wanted);
            let refused = weaker(&closed, &wanted).expect_err(name);
            assert!(refused.starts_with(&format!("{name} is true")), "{refused}");
            weaker(&wanted, &closed).expect("closing is taken");
        }
    }
}
