//! TLS as strangers see it: curl, openssl, the official Go client, and agents among each other.

mod agents;
mod http;
mod reload;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use drover_testkit::certs::{Authority, Pair};
use drover_testkit::{Agent, LONG, Setup, wait_for};
use serde_json::Value;

pub(crate) const DROVER: &str = env!("CARGO_BIN_EXE_drover");
pub(crate) const SERVER: &[&str] = &["server.global.nomad", "localhost", "127.0.0.1"];
pub(crate) const CLIENT: &[&str] = &["client.global.nomad", "localhost", "127.0.0.1"];
pub(crate) const PEOPLE: &[&str] = &["cli.global.nomad", "localhost"];

/// An authority and what it signed, in a directory that vanishes.
pub(crate) struct Trust {
    pub(crate) authority: Authority,
    pub(crate) server: Pair,
    pub(crate) client: Pair,
    pub(crate) people: Pair,
    pub(crate) dir: tempfile::TempDir,
}

impl Trust {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::make(&dir.path().join("tls")).expect("an authority");
        let issue = |name: &str, names| authority.issue(name, names).expect("a certificate");
        Self {
            server: issue("server", SERVER),
            client: issue("client", CLIENT),
            people: issue("people", PEOPLE),
            authority,
            dir,
        }
    }

    /// A server with these settings of TLS; it is spoken to as they say.
    pub(crate) fn setup(&self, settings: &str, more: &str) -> Setup {
        let data = self.dir.path().join("server");
        let mut setup = Setup::server(DROVER, &data).expect("free ports");
        setup
            .config
            .push_str(&self.authority.block(&self.server, settings));
        setup.config.push_str(more);
        setup
    }

    /// The same, running and ready.
    pub(crate) fn start(&self, settings: &str, more: &str) -> Agent {
        let agent = self
            .setup(settings, more)
            .spawn()
            .expect("the agent starts");
        self.ready(&agent);
        agent
    }

    /// Waits until an agent answers over TLS and has a leader.
    pub(crate) fn ready(&self, agent: &Agent) {
        let ready = wait_for("the agent", LONG, || -> Result<()> {
            let leader = self.json(agent, "/v1/status/leader")?;
            ensure!(
                leader.as_str().is_some_and(|text| !text.is_empty()),
                "no leader"
            );
            Ok(())
        });
        ready.unwrap_or_else(|error| panic!("{error:#}\n{}", agent.log_tail(30)));
    }

    /// The output of curl over TLS, with a user's certificate.
    pub(crate) fn curl(&self, agent: &Agent, path: &str, more: &[&str]) -> Output {
        let url = format!("https://{}{path}", agent.addr());
        Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .arg("--cacert")
            .arg(self.authority.file())
            .arg("--cert")
            .arg(&self.people.cert)
            .arg("--key")
            .arg(&self.people.key)
            .args(more)
            .arg(url)
            .output()
            .expect("curl runs")
    }

    /// A JSON answer over TLS.
    pub(crate) fn json(&self, agent: &Agent, path: &str) -> Result<Value> {
        let output = self.curl(agent, path, &["--fail"]);
        ensure!(output.status.success(), "{}", printed(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// A command of drover's, spoken to an address with these variables beside.
    pub(crate) fn drover(&self, address: &str, env: &[(&str, &Path)], words: &str) -> Output {
        let mut command = Command::new(DROVER);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("NOMAD_")) {
            command.env_remove(name);
        }
        command
            .args(words.split_whitespace())
            .env("NOMAD_ADDR", address)
            .envs(env.iter().copied());
        command.output().expect("the program runs")
    }

    /// The variables with which people show their certificate.
    pub(crate) fn env(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("NOMAD_CACERT", self.authority.file()),
            ("NOMAD_CLIENT_CERT", self.people.cert.clone()),
            ("NOMAD_CLIENT_KEY", self.people.key.clone()),
        ]
    }
}

/// Both outputs of a command.
pub(crate) fn printed(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Waits until an agent's log has these words.
pub(crate) fn logged(agent: &Agent, words: &[&str]) {
    let seen = wait_for("a word in the log", LONG, || -> Result<()> {
        let log = agent.log_tail(1_000);
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        ensure!(
            log.lines().any(has),
            "{words:?} are not in a line of:\n{log}"
        );
        Ok(())
    });
    seen.unwrap_or_else(|error| panic!("{error:#}"));
}
