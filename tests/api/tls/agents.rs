//! Agents among each other: mutual TLS over RPC.

use anyhow::{Result, ensure};
use drover_testkit::certs::Pair;
use drover_testkit::{Agent, LONG, Setup, wait_for};

use super::{DROVER, Trust, logged};
use crate::remote::{reached, shell, text, wait_log};
use crate::support::{job, register, server_with};

const RPC: &str = "rpc = true\n  verify_server_hostname = true";

/// A client agent that knows one server, with this `tls` block.
fn client(trust: &Trust, name: &str, server: &Agent, tls: &str) -> Setup {
    let data = trust.dir.path().join(name);
    Setup {
        config: format!(
            "name = \"{name}\"\nclient {{\n  enabled = true\n  servers = [\"{}\"]\n  \
             options {{\n    \"driver.raw_exec.enable\" = \"true\"\n  }}\n}}\n{tls}",
            server.rpc_addr()
        ),
        dev: false,
        ..Setup::dev(DROVER, &data).expect("free ports")
    }
}

fn block(trust: &Trust, pair: &Pair) -> String {
    trust.authority.block(pair, RPC)
}

/// A server whose RPC takes TLS only; its API is in clear text.
fn server(trust: &Trust, settings: &str) -> crate::support::Running {
    server_with(&trust.authority.block(&trust.server, settings))
}

fn wait_ready(server: &Agent, names: &[&str]) {
    let mut http = server.http();
    let ready = wait_for("the nodes", LONG, || -> Result<()> {
        let nodes = http.json("/v1/nodes")?;
        let all = nodes.as_array().into_iter().flatten();
        let ready = all.filter(|node| node["Status"] == "ready");
        let mut ready: Vec<_> = ready.filter_map(|node| node["Name"].as_str()).collect();
        ready.sort_unstable();
        ensure!(ready == names, "{nodes}");
        Ok(())
    });
    ready.unwrap_or_else(|error| panic!("{error:#}\n{}", server.log_tail(30)));
}

#[test]
fn mod_30_a_remote_client_registers_and_runs_a_job_over_mutual_tls() {
    let trust = Trust::new();
    let running = server(&trust, RPC);
    let remote = client(
        &trust,
        "remote",
        &running.agent,
        &block(&trust, &trust.client),
    );
    let _remote = remote.spawn().expect("starts");
    wait_ready(&running.agent, &["remote"]);
    let mut http = running.http();
    register(&mut http, &job("sums", 3));
    wait_for("the job", LONG, || -> Result<()> {
        let allocs = http.json("/v1/job/sums/allocations")?;
        let all = allocs.as_array().map_or(&[][..], Vec::as_slice);
        let done = all
            .iter()
            .filter(|alloc| alloc["ClientStatus"] == "complete");
        ensure!(done.count() == 3, "{allocs}");
        Ok(())
    })
    .expect("it is run there");
}

/// A client is called over the connections that it made itself, which are encrypted as all others.
#[test]
fn mod_23_mod_30_a_remote_client_is_asked_over_mutual_tls() {
    let trust = Trust::new();
    let running = server(&trust, RPC);
    let remote = client(
        &trust,
        "remote",
        &running.agent,
        &block(&trust, &trust.client),
    );
    let remote = remote.spawn().expect("starts");
    wait_ready(&running.agent, &["remote"]);
    let mut http = running.http().timeout(LONG);
    register(&mut http, &shell("web", "echo begun; exec sleep 600"));
    let alloc = crate::remote::running(&mut http, "web");
    reached(&mut http, &alloc);
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    wait_log(&mut http, &logs, "begun");
    for agent in [&running.agent, &remote] {
        let mut requested = agent.http().timeout(LONG);
        assert_eq!(text(&mut requested, &logs), "begun");
        let ran = std::process::Command::new(DROVER)
            .args(["alloc", "exec", "-t=false", "-task", "t", alloc.as_str()])
            .args(["/bin/sh", "-c", "echo out; exit 7"])
            .env("NOMAD_ADDR", format!("http://{}", agent.addr()))
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(7), "{stderr}");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "out\n");
    }
}

#[test]
fn who_is_not_of_the_cluster_is_refused_and_both_sides_say_why() {
    let (trust, foreign) = (Trust::new(), Trust::new());
    let running = server(&trust, RPC);
    let start = |name: &str, tls: &str| {
        let client = client(&trust, name, &running.agent, tls);
        client.spawn().expect("starts")
    };
    let clear = start("clear", "");
    logged(
        &clear,
        &[
            "registration",
            "this port takes TLS only",
            "set tls { rpc = true }",
        ],
    );
    logged(
        &running.agent,
        &["rpc: clear text where TLS is spoken", "rpc_upgrade_mode"],
    );

    // Another authority: the client does not take the server.
    let alien = start("alien", &block(&foreign, &foreign.client));
    logged(
        &alien,
        &["registration", "unknown authority", "tls.ca_file"],
    );
    // Nor the server the client, where that trusts both.
    let read = |trust: &Trust| std::fs::read_to_string(trust.authority.file()).expect("read");
    let both = foreign.dir.path().join("both.pem");
    std::fs::write(&both, read(&trust) + &read(&foreign)).expect("written");
    let tls = block(&foreign, &foreign.client);
    let own = foreign.authority.file().display().to_string();
    let tls = tls.replace(&own, &both.display().to_string());
    let guest = start("guest", &tls);
    logged(
        &guest,
        &[
            "registration",
            "does not take the certificate",
            "tls.cert_file",
        ],
    );
    logged(&running.agent, &["rpc: TLS handshake failed"]);

    // A certificate of the authority for people, where names are not verified on that side.
    let unverified = trust.authority.block(&trust.people, "rpc = true");
    let people = start("people", &unverified);
    logged(&people, &["registration", "does not take the certificate"]);
    let nodes = running.http().json("/v1/nodes").expect("a list");
    assert_eq!(nodes.as_array().map(Vec::len), Some(0), "{nodes}");
}

#[test]
fn a_server_in_clear_text_is_not_called_by_who_was_told_to_use_tls() {
    let trust = Trust::new();
    let running = crate::support::server();
    let setup = client(
        &trust,
        "remote",
        &running.agent,
        &block(&trust, &trust.client),
    );
    let remote = setup.spawn().expect("starts");
    logged(
        &remote,
        &[
            "registration",
            "may not speak TLS",
            "set tls { rpc = true } on the server",
        ],
    );
    logged(
        &running.agent,
        &["rpc: TLS where clear text is spoken", "rpc = true"],
    );
}

#[test]
fn while_it_is_upgraded_a_server_takes_both() {
    let trust = Trust::new();
    let running = server(&trust, &format!("{RPC}\n  rpc_upgrade_mode = true"));
    let old = client(&trust, "old", &running.agent, "");
    let new = client(
        &trust,
        "young",
        &running.agent,
        &block(&trust, &trust.client),
    );
    let _both = [old.spawn().expect("starts"), new.spawn().expect("starts")];
    wait_ready(&running.agent, &["old", "young"]);
}

#[test]
fn an_agent_does_not_start_with_certificates_that_nobody_would_take() {
    let trust = Trust::new();
    let issue = |name: &str, days| trust.authority.issue_for(name, super::SERVER, days);
    let old = issue("old", -30..-2).expect("made");
    for (pair, why) in [
        (&trust.client, "not for server.global.nomad"),
        (&trust.people, "not for server.global.nomad"),
        (&old, "has expired: it was valid until"),
    ] {
        let mut setup = trust.setup(RPC, "");
        let (good, bad) = (&trust.server, pair);
        for (from, to) in [(&good.cert, &bad.cert), (&good.key, &bad.key)] {
            setup.config = setup
                .config
                .replace(&format!("{from:?}"), &format!("{to:?}"));
        }
        let agent = setup.spawn().expect("spawned");
        logged(&agent, &["the agent cannot run: tls.cert_file", why]);
        let pid = agent.pid();
        wait_for("its end", LONG, || -> Result<()> {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            ensure!(state.is_empty() || state.contains(") Z "), "it runs");
            Ok(())
        })
        .expect("it ends");
    }
}

/// How often an agent's output warns of clear text.
fn warnings(agent: &drover_testkit::Agent) -> usize {
    logged(agent, &["Starting drover agent"]);
    let log = agent.log_tail(usize::MAX);
    log.matches(" in clear text: others on the network").count()
}

#[test]
fn an_agent_says_once_at_its_start_that_others_may_hear_it() {
    const OPEN: &str = "addresses {\n  http = \"0.0.0.0\"\n  rpc = \"0.0.0.0\"\n}\n\
                        advertise {\n  http = \"127.0.0.1\"\n  rpc = \"127.0.0.1\"\n}\n";
    let dir = tempfile::tempdir().expect("a directory");
    let setup = |name: &str| Setup::server(DROVER, &dir.path().join(name)).expect("free ports");
    let mut open = setup("open");
    open.config.push_str(OPEN);
    let open = open.start().expect("it starts");
    assert_eq!(warnings(&open), 1);
    logged(&open, &["HTTP on 0.0.0.0", "RPC on 0.0.0.0"]);
    let closed = setup("closed").start().expect("it starts");
    assert_eq!(warnings(&closed), 0, "nobody else is on this machine");
    // A client has an API too.
    let mut client = setup("client");
    client.config = format!(
        "client {{\n  enabled = true\n  servers = [\"{}\"]\n}}\n{OPEN}",
        closed.rpc_addr()
    );
    let client = client.spawn().expect("it starts");
    assert_eq!(warnings(&client), 1);
    let reported = client.log_tail(usize::MAX);
    assert!(
        reported.contains("HTTP on 0.0.0.0") && !reported.contains("RPC on"),
        "{reported}"
    );
}
