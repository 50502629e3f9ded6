//! The HTTP API over TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use drover_testkit::certs::Pair;
use drover_testkit::{LONG, wait_for};

use super::{PEOPLE, Trust, printed};
use crate::official_client::go_works;

const CLOSED: &str = "http = true\n  rpc = true\n  verify_server_hostname = true\n  \
    verify_https_client = true";

#[test]
fn curl_and_openssl_speak_with_an_agent_and_are_asked_for_a_certificate() {
    let trust = Trust::new();
    let agent = trust.start(CLOSED, "");
    for (version, flag) in [("2", "--http2"), ("1.1", "--http1.1")] {
        let format = "%{http_code} %{http_version}";
        let output = trust.curl(&agent, "/v1/jobs", &["-w", format, flag]);
        assert_eq!(printed(&output), format!("[]200 {version}"));
    }
    // A body of some length both ways over HTTP/2, and headers as they are over HTTP/1.1.
    let job = trust.dir.path().join("job.json");
    let text = crate::support::job("web", 1)
        .to_string()
        .replace("/bin/true", &"x".repeat(300_000));
    std::fs::write(&job, text).expect("written");
    let data = format!("@{}", job.display());
    let output = trust.curl(
        &agent,
        "/v1/jobs",
        &["-X", "PUT", "--data-binary", &data, "-i"],
    );
    assert!(
        printed(&output).contains("x-nomad-index: "),
        "{}",
        printed(&output)
    );
    let job = trust.json(&agent, "/v1/job/web").expect("a job");
    let command = &job["TaskGroups"][0]["Tasks"][0]["Config"]["command"];
    assert_eq!(command.as_str().map(str::len), Some(300_000));
}

#[test]
fn nobody_without_a_certificate_is_served_and_sessions_go_on() {
    let trust = Trust::new();
    let agent = trust.start(CLOSED, "");
    let url = format!("https://{}/v1/jobs", agent.addr());
    let plain = |args: &[&str]| {
        Command::new("curl")
            .args(args)
            .arg(&url)
            .output()
            .expect("curl")
    };
    let ca = trust.authority.file();
    let output = plain(&["-sS", "--cacert", ca.to_str().expect("a name")]);
    assert!(!output.status.success(), "{}", printed(&output));
    assert_eq!(plain(&["-sS"]).status.code(), Some(60), "unknown authority");

    // One that has expired is refused at the handshake, as one from an unknown authority is.
    let shows = |pair: &Pair| {
        let name = |path: &Path| path.to_str().expect("a name").to_owned();
        let (cert, key) = (name(&pair.cert), name(&pair.key));
        let ca = name(&ca);
        plain(&["-sS", "--cacert", &ca, "--cert", &cert, "--key", &key])
    };
    let issue = |name: &str, days| trust.authority.issue_for(name, PEOPLE, days);
    let old = shows(&issue("old", -20..-3).expect("a certificate"));
    assert!(!old.status.success(), "{}", printed(&old));
    let good = shows(&issue("young", -1..9).expect("a certificate"));
    assert_eq!(printed(&good), "[]");

    let session = trust.dir.path().join("session");
    let reported = |extra: &[&str]| {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &agent.addr().to_string(), "-CAfile"]);
        openssl.arg(&ca).arg("-cert").arg(&trust.people.cert);
        openssl.arg("-key").arg(&trust.people.key).args(extra);
        openssl
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = openssl.spawn().expect("openssl runs");
        let request = b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(request)
            .expect("written");
        let output = child.wait_with_output().expect("it ends");
        printed(&output)
    };
    let file = session.to_str().expect("a name");
    let first = reported(&["-ign_eof", "-sess_out", file]);
    assert!(first.contains("Verify return code: 0 (ok)"), "{first}");
    assert!(
        first.contains("New, TLSv1.3") && first.contains("HTTP/1.1 200 OK"),
        "{first}"
    );
    let again = reported(&["-ign_eof", "-sess_in", file]);
    assert!(
        again.contains("Reused, TLSv1.3") && again.contains("HTTP/1.1 200 OK"),
        "{again}"
    );
    let old = reported(&["-ign_eof", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]);
    assert!(!old.contains("200 OK"), "{old}");
    let older = reported(&["-ign_eof", "-tls1_2"]);
    assert!(
        older.contains("New, TLSv1.2") && older.contains("200 OK"),
        "{older}"
    );
}

#[test]
fn what_is_spoken_on_the_wrong_port_is_answered_in_words() {
    let trust = Trust::new();
    let agent = trust.start("http = true", "");
    let mut stream = TcpStream::connect(agent.addr()).expect("a connection");
    let request = b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request).expect("written");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("an answer and the end");
    let expected = "HTTP/1.0 400 Bad Request\r\n\r\n\
        Client sent an HTTP request to an HTTPS server.\n";
    assert_eq!(answer, expected);
    super::logged(
        &agent,
        &["WARN", "http: clear text where TLS is spoken", "https://"],
    );
    // Connections that say nothing, or half of it, hinder no other.
    let mut halves = Vec::new();
    for number in 0..60 {
        let mut half = TcpStream::connect(agent.addr()).expect("a connection");
        let begun: &[u8] = if number % 2 == 0 {
            b"\x16\x03\x01\x02\x00\x01"
        } else {
            b""
        };
        half.write_all(begun).expect("written");
        halves.push(half);
    }
    trust.json(&agent, "/v1/jobs").expect("others are served");
    for mut half in halves {
        half.set_read_timeout(Some(LONG)).expect("set");
        let ended = half.read(&mut [0; 64]);
        let waits = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(
            !ended.as_ref().is_err_and(waits),
            "it is sent away: {ended:?}"
        );
    }

    let clear = crate::support::server();
    let mut stream = TcpStream::connect(clear.agent.addr()).expect("a connection");
    stream
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        .expect("written");
    stream.set_read_timeout(Some(LONG)).expect("set");
    let mut rest = Vec::new();
    // An end, not a reset, though the server read nothing of what was sent.
    stream.shutdown(std::net::Shutdown::Write).expect("shut");
    stream.read_to_end(&mut rest).expect("the end");
    assert!(rest.is_empty(), "{rest:?}");
    super::logged(
        &clear.agent,
        &[
            "WARN",
            "http: TLS where clear text is spoken",
            "http = true",
        ],
    );
}

/// Commands against an agent that requires certificates.
struct Commands {
    trust: Trust,
    agent: drover_testkit::Agent,
}

impl Commands {
    fn start() -> Self {
        let trust = Trust::new();
        let agent = trust.start(CLOSED, "");
        Self { trust, agent }
    }

    fn https(&self) -> String {
        format!("https://{}", self.agent.addr())
    }

    /// Exit code and outputs of a command with the first or the last of the variables.
    fn reported(&self, address: &str, which: std::ops::Range<usize>, words: &str) -> (i32, String) {
        let env = self.trust.env();
        let env: Vec<_> = env
            .iter()
            .map(|(name, path)| (*name, path.as_path()))
            .collect();
        let output = self.trust.drover(address, &env[which], words);
        (output.status.code().unwrap_or(-1), printed(&output))
    }
}

#[test]
fn commands_take_certificates_from_the_environment_and_from_flags() {
    let commands = Commands::start();
    let (https, port) = (commands.https(), commands.agent.addr().port());
    let (code, text) = commands.reported(&https, 0..3, "job status");
    assert_eq!((code, text.trim()), (0, "No running jobs"));
    let (code, text) =
        commands.reported(&format!("https://localhost:{port}"), 0..3, "server members");
    assert_eq!(code, 0, "{text}");
    let (_, text) = commands.reported(&https, 0..3, "operator api -dryrun /v1/jobs");
    assert!(
        text.contains("--cacert") && text.contains("--key"),
        "{text}"
    );
    let [ca, cert, key] = commands.trust.env().map(|(_, path)| path);
    let only = commands.trust.dir.path().join("only");
    std::fs::create_dir(&only).expect("made");
    std::fs::copy(&ca, only.join("ca.pem")).expect("copied");
    let flags = format!(
        "job status -address={https} -ca-path={} -client-cert={} -client-key={}",
        only.display(),
        cert.display(),
        key.display()
    );
    let (code, text) = commands.reported("http://127.0.0.1:1", 0..0, &flags);
    assert_eq!(code, 0, "{text}");
    for words in [
        "job status -tls-skip-verify",
        "job status -insecure",
        "job status -tls-skip-verify -tls-server-name=any.example",
    ] {
        assert_eq!(commands.reported(&https, 1..3, words).0, 0, "{words}");
    }
    let name = "job status -tls-server-name=server.global.nomad";
    assert_eq!(commands.reported(&https, 0..3, name).0, 0);
}

#[test]
fn commands_take_a_name_and_less_care_from_the_environment() {
    let commands = Commands::start();
    let https = commands.https();
    let env = commands.trust.env();
    let reported = |which: std::ops::Range<usize>, (name, value): (&str, &str)| {
        let files = env[which].iter();
        let mut all: Vec<_> = files.map(|(name, path)| (*name, path.as_path())).collect();
        all.push((name, std::path::Path::new(value)));
        let output = commands.trust.drover(&https, &all, "job status");
        (output.status.code().unwrap_or(-1), printed(&output))
    };
    const NAME: &str = "NOMAD_TLS_SERVER_NAME";
    let (code, text) = reported(0..3, (NAME, "server.global.nomad"));
    assert_eq!(code, 0, "{text}");
    let (code, text) = reported(0..3, (NAME, "other.example"));
    let refused = code == 1 && text.contains("for server.global.nomad");
    assert!(refused, "{text}");
    // No trusted authority is named here.
    for (value, wanted) in [("true", 0), ("1", 0), ("false", 1)] {
        let (code, text) = reported(1..3, ("NOMAD_SKIP_VERIFY", value));
        assert_eq!(code, wanted, "{value}: {text}");
        assert_eq!(text.contains("unknown authority"), wanted == 1, "{text}");
    }
}

#[test]
fn commands_take_a_directory_of_authorities_from_the_environment() {
    let commands = Commands::start();
    let only = commands.trust.dir.path().join("only");
    std::fs::create_dir(&only).expect("made");
    let [(_, ca), cert, key] = commands.trust.env();
    let reported = || {
        let shown = [&cert, &key].map(|(name, path)| (*name, path.as_path()));
        let all = [&[("NOMAD_CAPATH", only.as_path())][..], &shown].concat();
        let output = commands.trust.drover(&commands.https(), &all, "job status");
        (output.status.code().unwrap_or(-1), printed(&output))
    };
    let (code, text) = reported();
    assert!(code == 1 && text.contains("unknown authority"), "{text}");
    std::fs::copy(ca, only.join("ca.pem")).expect("copied");
    let (code, text) = reported();
    assert_eq!((code, text.trim()), (0, "No running jobs"));
}

#[test]
fn commands_say_what_is_missing() {
    let commands = Commands::start();
    let (https, http) = (
        commands.https(),
        format!("http://{}", commands.agent.addr()),
    );
    let clear = crate::support::server();
    let wrong = format!("https://{}", clear.agent.addr());
    for (address, env, words, part) in [
        (
            &https,
            1..3,
            "job status",
            "unknown authority\n\nName the authority's certificate",
        ),
        (
            &https,
            0..1,
            "job status",
            "with -client-cert and -client-key",
        ),
        (
            &https,
            0..3,
            "job status -tls-server-name=other.example",
            "for server.global.nomad",
        ),
        (&http, 0..3, "job status", "use https:// in -address"),
        (&wrong, 0..3, "job status", "use http:// in -address"),
    ] {
        let (code, text) = commands.reported(address, env, words);
        assert!(code == 1 && text.contains(part), "{words}: {text}");
        assert!(!text.contains("Is an agent running"), "{text}");
    }
}

#[test]
fn an_end_that_is_near_is_told_everywhere() {
    let trust = Trust::new();
    let soon = trust
        .authority
        .issue_for("soon", super::SERVER, -1..12)
        .expect("made");
    let mut setup = trust.setup(
        "http = true",
        "telemetry {\n  prometheus_metrics = true\n}\n",
    );
    setup.config = setup
        .config
        .replace("server.pem", "soon.pem")
        .replace("server-key", "soon-key");
    assert!(setup.config.contains("soon-key.pem"));
    let agent = setup.spawn().expect("starts");
    trust.ready(&agent);
    super::logged(&agent, &["WARN", "tls.cert_file", "soon.pem expires in 1"]);
    let about = trust.json(&agent, "/v1/agent/self").expect("an answer");
    let warning = about["stats"]["tls"]["warning"]
        .as_str()
        .unwrap_or_default();
    assert!(warning.contains("soon.pem expires in 1"), "{about}");
    let output = trust.curl(&agent, "/v1/metrics?format=prometheus", &[]);
    let metrics = printed(&output);
    let line = |setting: &str| {
        let label = format!("setting=\"{setting}\"");
        let mut lines = metrics.lines().filter(|line| line.contains(&label));
        let line = lines.find(|line| line.starts_with("drover_tls_expires_in_seconds{"));
        let line = line.unwrap_or_else(|| panic!("{label} is missing in {metrics}"));
        let value = line.split_whitespace().last().unwrap_or_default();
        value.parse::<f64>().expect("a number")
    };
    let days: f64 = line("cert_file") / 86_400.0;
    assert!((10.0..12.1).contains(&days), "{days}");
    assert!(line("ca_file") > 300.0 * 86_400.0);
    let env = trust.env();
    let env: Vec<_> = env
        .iter()
        .map(|(name, path)| (*name, path.as_path()))
        .collect();
    for words in ["status", "agent-info"] {
        let output = trust.drover(&format!("https://{}", agent.addr()), &env, words);
        assert!(
            printed(&output).contains(&soon.cert.display().to_string()),
            "{}",
            printed(&output)
        );
    }
}

#[test]
fn the_official_go_client_works_over_tls_with_acls_on() {
    let Some(module) = go_works() else { return };
    let trust = Trust::new();
    let mut setup = trust.setup(CLOSED, "acl { enabled = true }\n");
    setup.dev = true;
    let agent = setup.spawn().expect("starts");
    trust.ready(&agent);
    let get_json = |path: &str, more: &[&str]| -> anyhow::Result<serde_json::Value> {
        let output = trust.curl(&agent, path, &[&["--fail"], more].concat());
        anyhow::ensure!(output.status.success(), "{}", printed(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let first = || get_json("/v1/acl/bootstrap", &["-X", "PUT"]);
    let token = wait_for("the first token", LONG, first).expect("it is given");
    let token = token["SecretID"].as_str().expect("a secret");
    let header = format!("X-Nomad-Token: {token}");
    wait_for("the node", LONG, || -> anyhow::Result<()> {
        let nodes = get_json("/v1/nodes", &["-H", &header])?;
        anyhow::ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    })
    .expect("its client registers");
    let tests = "TestServiceJob|TestVariables|TestBlockingQuery|TestEventStream|TestNodes";
    let output = Command::new("go")
        .args(["test", "-count=1", "-mod=readonly", "-run", tests, "./..."])
        .current_dir(module)
        .env("NOMAD_ADDR", format!("https://{}", agent.addr()))
        .envs(trust.env())
        .env("NOMAD_TOKEN", token)
        .output()
        .expect("go runs");
    assert!(
        output.status.success(),
        "{}\n{}",
        printed(&output),
        agent.log_tail(30)
    );
}
