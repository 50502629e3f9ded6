//! The configuration read anew while everything runs.
//!
//! First all of it is read and checked, TLS material included; only then is anything put in place,
//! so that nothing half good is ever used. What can change while the agent runs is taken over; what
//! needs a restart stays as it is and is named.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Failure, expiry, logging, tls};
use crate::config::{Config, Shared, TlsConfig};
use crate::net::tls::{Expiry, Loader};
use crate::net::{Patience, Visitors};
use crate::server::Around;

/// Reads the configuration as it was read at the start: files, environment, flags.
pub type Again = Box<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// A port whose limits may change.
pub(super) type Limited = (Arc<Visitors>, Patience);

/// The limits of both ports.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) http: Option<Limited>,
    pub(super) rpc: Option<Limited>,
}

/// What a running agent is configured with, and how that changes.
pub(super) struct Reloader {
    again: Again,
    config: Shared,
    tls: Arc<Loader>,
    level: Option<logging::Level>,
    ports: Mutex<Ports>,
    /// One at a time.
    turn: Mutex<()>,
}

impl Reloader {
    /// Starts with `config`, whose certificates are read now.
    pub(super) fn open(
        config: &Config,
        again: Again,
        level: Option<logging::Level>,
    ) -> Result<Arc<Self>, Failure> {
        let tls = Loader::open(&tls::settings(config))?;
        expiry::tell(&tls);
        Ok(Arc::new(Self {
            again,
            config: Shared::new(config.clone()),
            tls,
            level,
            ports: Mutex::default(),
            turn: Mutex::default(),
        }))
    }

    /// The certificates.
    pub(super) fn tls(&self) -> &Arc<Loader> {
        &self.tls
    }

    /// Says which limits are in force where.
    pub(super) fn limits(&self, set: impl FnOnce(&mut Ports)) {
        set(&mut self.ports.lock());
    }

    fn try_reload(&self) -> Result<Vec<&'static str>, String> {
        let wanted = (self.again)()?;
        let now = self.config.get();
        weaker(&now.tls, &wanted.tls)?;
        let serves_otherwise = now.tls.http != wanted.tls.http;
        // Who this agent is, its region and its roles, stays as it is until a restart.
        let mut running = (*now).clone();
        running.tls.clone_from(&wanted.tls);
        self.tls
            .reload(&tls::settings(&running))
            .map_err(|error| error.to_string())?;
        // Nothing below fails: the level was checked with the configuration.
        if let Some(level) = &self.level {
            level.set(&wanted.log.level)?;
        }
        let limits = &wanted.limits;
        let ports = self.ports.lock();
        if let Some((visitors, patience)) = &ports.http {
            visitors.limit(limits.http_max_conns_per_client);
            patience.set(limits.https_handshake_timeout);
        }
        if let Some((visitors, patience)) = &ports.rpc {
            visitors.limit(limits.rpc_max_conns_per_client);
            patience.set(limits.rpc_handshake_timeout);
        }
        drop(ports);
        let now = self.config.update(|config| {
            config.tls.clone_from(&wanted.tls);
            config.log.level.clone_from(&wanted.log.level);
            config.limits.clone_from(&wanted.limits);
        });
        expiry::tell(&self.tls);
        let mut rest = now.differences(&wanted);
        if serves_otherwise {
            // The node and the event stream go on telling of the address of before.
            rest.push("tls.http");
        }
        Ok(rest)
    }
}

/// Refuses a reload that would open what was closed: a file that was missing for a moment is no
/// wish for clear text.
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

impl Around for Reloader {
    fn reload(&self) -> Result<Vec<&'static str>, String> {
        let _turn = self.turn.lock();
        tracing::info!("Reloading configuration...");
        let done = self.try_reload();
        match &done {
            Ok(rest) if rest.is_empty() => tracing::info!("configuration reloaded"),
            Ok(rest) => tracing::warn!(
                changed = %rest.join(", "),
                "configuration reloaded: TLS, the log level and limits are new, what else changed \
                 needs a restart of the agent"
            ),
            Err(error) => tracing::error!(
                "the configuration is not reloaded, all stays as it was, certificates included: \
                 {error}"
            ),
        }
        done
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

    use super::*;

    #[test]
    fn what_can_change_does_and_what_cannot_is_named() {
        let before = Config::dev();
        let mut after = before.clone();
        after.limits.http_max_conns_per_client = Some(1);
        after.limits.https_handshake_timeout = Duration::from_secs(77);
        after.client.node_class = "other".to_owned();
        after.ports.http = 1;
        let seen = after.clone();
        let reloader = Reloader::open(&before, Box::new(move || Ok(seen.clone())), None);
        let reloader = reloader.expect("opens");
        let visitors = Visitors::new(Some(5), 10);
        let patience = Patience::new(Duration::from_secs(5));
        let http = (Arc::clone(&visitors), patience.clone());
        reloader.limits(|ports| ports.http = Some(http));
        let held = reloader.config();
        assert_eq!(reloader.reload().expect("reloads"), ["ports", "client"]);
        let here = "10.0.0.1".parse().expect("an address");
        let _one = visitors.enter(here).expect("one");
        assert!(visitors.enter(here).is_none(), "the new limit");
        assert_eq!(patience.get(), Duration::from_secs(77));
        let now = reloader.config();
        assert_eq!(now.limits, after.limits);
        assert_eq!(now.client, before.client, "as it runs");
        assert_eq!(
            held.limits, before.limits,
            "who holds the old one sees nothing"
        );
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
        let broken = Reloader::open(&before, Box::new(|| Err("a typo".to_owned())), None);
        assert_eq!(broken.expect("opens").reload(), Err("a typo".to_owned()));
    }
}
