//! Certificates and settings that change while the agent runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use drover_testkit::certs::Pair;
use drover_testkit::{Agent, LONG};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{SERVER, Trust, logged, printed};

fn hang_up(agent: &Agent) {
    kill(Pid::from_raw(agent.pid().cast_signed()), Signal::SIGHUP).expect("sent");
}

/// The event stream of an agent over TLS, line by line.
struct Follower {
    curl: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(trust: &Trust, agent: &Agent) -> Self {
        let mut curl = Command::new("curl")
            .args(["-sSN", "--cacert"])
            .arg(trust.authority.file())
            .arg(format!(
                "https://{}/v1/event/stream?topic=Job",
                agent.addr()
            ))
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl runs");
        let (report, lines) = channel();
        let out: ChildStdout = curl.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if report.send(line).is_err() {
                    return;
                }
            }
        });
        Self { curl, lines }
    }

    /// Waits for a line with this in it.
    fn hears(&self, part: &str) {
        while let Ok(line) = self.lines.recv_timeout(LONG) {
            if line.contains(part) {
                return;
            }
        }
        panic!("the stream ended before {part}");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

/// The common name of the certificate that an agent shows now.
fn shown(agent: &Agent) -> String {
    let address = agent.addr().to_string();
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-brief"])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    let text = printed(&output);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Peer certificate: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn put_in_place(from: &Pair, to: &Pair) {
    // A file at a time, as people do: an agent that read between them would refuse both.
    std::fs::copy(&from.cert, &to.cert).expect("copied");
    std::fs::copy(&from.key, &to.key).expect("copied");
}

#[test]
fn env_02_certificates_loaded_anew_reach_the_listeners_and_broken_ones_do_not() {
    let trust = Trust::new();
    let agent = trust.start("http = true", "");
    let follower = Follower::start(&trust, &agent);
    let register = |id: &str| {
        let job = crate::support::job(id, 1).to_string();
        let output = trust.curl(&agent, "/v1/jobs", &["-X", "PUT", "--data", &job, "--fail"]);
        assert!(output.status.success(), "{}", printed(&output));
    };
    register("first");
    follower.hears("first");
    assert_eq!(shown(&agent), "CN = server");

    let reload = || {
        printed(&trust.curl(
            &agent,
            "/v1/agent/reload",
            &["-X", "PUT", "-w", "%{http_code}"],
        ))
    };
    let next = trust.authority.issue("next", SERVER).expect("made");
    let torn = trust.authority.issue("torn", SERVER).expect("made");
    std::fs::copy(&torn.cert, &trust.server.cert).expect("copied");
    let text = reload();
    assert!(
        text.contains("is not the key of the certificate") && text.ends_with("500"),
        "{text}"
    );
    assert_eq!(shown(&agent), "CN = server", "the old one is served");
    logged(&agent, &["ERROR", "all stays as it was", "tls.key_file"]);

    put_in_place(&next, &trust.server);
    hang_up(&agent);
    logged(&agent, &["INFO", "configuration reloaded"]);
    assert_eq!(shown(&agent), "CN = next");
    // A stream from before gets events as ever.
    register("second");
    follower.hears("second");

    std::fs::remove_file(&trust.server.cert).expect("removed");
    hang_up(&agent);
    logged(&agent, &["ERROR", "cannot be read", "tls.cert_file"]);
    assert_eq!(shown(&agent), "CN = next");
    put_in_place(&torn, &trust.server);
    assert_eq!(reload(), "200");
    assert_eq!(shown(&agent), "CN = torn", "which is whole by now");
    register("third");
    follower.hears("third");
}

#[test]
fn a_reload_changes_what_it_can_and_names_the_rest() {
    let trust = Trust::new();
    let setup = trust.setup("http = true", "log_level = \"WARN\"\n");
    let agent = setup.spawn().expect("starts");
    trust.ready(&agent);
    let file = setup.data_dir.with_extension("hcl");
    let text = std::fs::read_to_string(&file).expect("read");
    let changed = text.replace("\"WARN\"", "\"DEBUG\"")
        + "datacenter = \"elsewhere\"\nlimits {\n  http_max_conns_per_client = 7\n}\n";
    std::fs::write(&file, &changed).expect("written");
    let output = trust.curl(
        &agent,
        "/v1/agent/reload",
        &["-X", "PUT", "-i", "--http1.1"],
    );
    let answer = printed(&output);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("x-drover-needs-restart: datacenter\r\n"),
        "{answer}"
    );
    let about = trust.json(&agent, "/v1/agent/self").expect("an answer");
    let config = &about["config"];
    assert_eq!(config["LogLevel"], "DEBUG");
    assert_eq!(config["Limits"]["HTTPMaxConnsPerClient"], 7);
    assert_eq!(config["Datacenter"], "dc1", "as it runs");
    hang_up(&agent);
    // At WARN this would not have been logged.
    logged(&agent, &["INFO", "Reloading configuration..."]);
    logged(&agent, &["WARN", "needs a restart", "datacenter"]);

    std::fs::write(&file, changed + "regoin = \"x\"\n").expect("written");
    let output = trust.curl(
        &agent,
        "/v1/agent/reload",
        &["-X", "PUT", "-w", "%{http_code}"],
    );
    let text = printed(&output);
    assert!(
        text.contains("unexpected keys regoin") && text.ends_with("500"),
        "{text}"
    );
    let clear = "tls {\n  tls_min_version = \"tls11\"\n}\n";
    std::fs::write(&file, std::fs::read_to_string(&file).expect("read") + clear).expect("written");
    hang_up(&agent);
    logged(&agent, &["ERROR", "all stays as it was"]);
    trust.json(&agent, "/v1/jobs").expect("it serves");
}
