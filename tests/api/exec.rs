//! Commands beside tasks, over the WebSocket: who may, what happens on every way out, how much it
//! takes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use drover_testkit::{LONG, Leftovers, wait_for};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::acl::{first_token, made};
use crate::official_client::go_test;
use crate::support::{Running, dev, dev_with, escaped, json_of, register};

/// A task that sleeps; its allocation.
fn sleeper(running: &Running, token: &str, namespace: &str) -> String {
    let mut http = running.http().header("X-Nomad-Token", token);
    let body = json!({"Job": {
        "ID": "sleeper", "Name": "sleeper", "Type": "service", "Datacenters": ["*"],
        "Namespace": namespace,
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [{
            "Name": "main", "Driver": "raw_exec",
            "Config": {"command": "/bin/sleep", "args": ["1000"]},
            "Resources": {"CPU": 20, "MemoryMB": 20},
        }]}],
    }});
    register(&mut http, &body);
    let path = format!("/v1/job/sleeper/allocations?namespace={namespace}");
    let found = wait_for("the task", LONG, || {
        let list = http.json(&path)?;
        ensure!(list[0]["ClientStatus"] == "running", "{list}");
        Ok::<_, anyhow::Error>(list[0]["ID"].as_str().unwrap_or_default().to_owned())
    });
    found.expect("it runs")
}

type Socket = WebSocketStream<TcpStream>;

fn path(alloc: &str, script: &str, more: &str) -> String {
    let command = json!(["/bin/sh", "-c", script]).to_string();
    let command = escaped(&command);
    format!("/v1/client/allocation/{alloc}/exec?task=main&command={command}{more}")
}

/// Requests a session; the status where it is refused.
async fn open(running: &Running, path: &str, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let addr = running.agent.addr();
    let mut request = format!("ws://{addr}{path}")
        .into_client_request()
        .expect("a request");
    for (name, value) in headers {
        let name: tokio_tungstenite::tungstenite::http::HeaderName = name.parse().expect("a name");
        request
            .headers_mut()
            .insert(name, value.parse().expect("a value"));
    }
    let stream = TcpStream::connect(addr).await.expect("it listens");
    match client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

async fn say(socket: &mut Socket, frame: &Value) -> bool {
    socket.send(Message::text(frame.to_string())).await.is_ok()
}

/// What came to the end: output, exit code, and the close frame.
#[derive(Debug, Default)]
struct CommandEnd {
    out: String,
    code: Option<i64>,
    closed: Option<(u16, String)>,
}

/// Reads until a text is in the output, or to the end.
async fn read(socket: &mut Socket, until: Option<&str>) -> CommandEnd {
    let mut end = CommandEnd::default();
    let reading = async {
        while let Some(Ok(message)) = socket.next().await {
            let text = match message {
                Message::Text(text) => text,
                Message::Close(frame) => {
                    end.closed = frame.map(|f| (f.code.into(), f.reason.to_string()));
                    continue;
                }
                _ => continue,
            };
            let frame: Value = serde_json::from_str(&text).expect("a frame");
            if let Some(data) = frame["stdout"]["data"].as_str() {
                let data = drover_events::gojson::Base64::decode(data).expect("base64");
                end.out += &String::from_utf8_lossy(&data);
                if until.is_some_and(|text| end.out.contains(text)) {
                    return;
                }
            }
            if frame["exited"] == true {
                end.code = Some(frame["result"]["exit_code"].as_i64().unwrap_or(0));
            }
        }
    };
    let read = tokio::time::timeout(LONG, reading).await;
    read.unwrap_or_else(|_| panic!("no end: {until:?}"));
    end
}

fn gone(pid: &str) {
    let place = Path::new("/proc").join(pid.trim()).join("stat");
    let gone = wait_for("the process to end", LONG, || {
        let stat = std::fs::read_to_string(&place).unwrap_or_default();
        ensure!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        Ok::<_, anyhow::Error>(())
    });
    gone.expect("it ends");
}

#[test]
fn mod_23_the_official_go_client_runs_commands() {
    let running = dev();
    let _left = Leftovers(running.data());
    go_test("./exec", &running);
}

const BOTH: &str = r#"namespace "default" { capabilities = ["alloc-exec", "alloc-node-exec"] }"#;

/// A token with one policy.
fn token(running: &Running, root: &str, name: &str, rules: &str) -> Value {
    let policy = json!({"Name": name, "Rules": rules});
    made(running, root, &format!("/v1/acl/policy/{name}"), &policy);
    let body = json!({"Name": name, "Type": "client", "Policies": [name]});
    made(running, root, "/v1/acl/token", &body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_who_may_not_runs_nothing() {
    let running = dev_with("acl { enabled = true }\n");
    let _left = Leftovers(running.data());
    let root = first_token(&running);
    let alloc = sleeper(&running, &root, "default");
    let secret = |name: &str, rules: &str| {
        let made = token(&running, &root, name, rules);
        made["SecretID"].as_str().expect("a text").to_owned()
    };
    let only = |one: &str| format!(r#"namespace "default" {{ capabilities = ["{one}"] }}"#);
    let elsewhere = BOTH.replace("default", "other");
    let denied = [
        secret("exec", &only("alloc-exec")),
        secret("node", &only("alloc-node-exec")),
        secret("read", r#"namespace "default" { policy = "read" }"#),
        secret("other", &elsewhere),
        "6fa01f4c-0000-0000-0000-000000000000".to_owned(),
        String::new(),
    ];
    let both = token(&running, &root, "both", BOTH);
    let good = both["SecretID"].as_str().expect("a text");
    let mark = running.data().with_extension("mark");
    let touch = format!("touch {}; exit 3", mark.display());
    let (plain, framed) = (
        path(&alloc, &touch, ""),
        path(&alloc, &touch, "&ws_handshake=1"),
    );

    let requested = (plain.as_str(), framed.as_str());
    refused(&running, requested, &denied).await;
    misspoken(&running, &framed, (good, &denied[0])).await;
    let odd = path(&alloc, &touch, "&ws_handshake=maybe");
    assert_eq!(open(&running, &odd, &[]).await.err(), Some(400));
    let unknown = path("nope", &touch, "");
    let by = [("X-Nomad-Token", good)];
    assert_eq!(open(&running, &unknown, &by).await.err(), Some(404));
    assert!(!mark.exists(), "nothing ran");

    // Both ways of saying it, from any page: it is the token that counts.
    let by = [
        ("X-Nomad-Token", good),
        ("Origin", "http://elsewhere.example"),
    ];
    let mut socket = open(&running, &plain, &by).await.expect("let in");
    assert_eq!(read(&mut socket, None).await.code, Some(3));
    assert!(mark.exists());
    let mut socket = open(&running, &framed, &by[1..]).await.expect("let in");
    assert!(say(&mut socket, &hello(1, good)).await);
    let end = read(&mut socket, None).await;
    assert_eq!(
        (end.code, end.closed),
        (Some(3), Some((1000, String::new())))
    );

    let mut http = running.http().header("X-Nomad-Token", &root);
    let accessor = both["AccessorID"].as_str().expect("a text");
    lost(&running, &alloc, &by, (&mut http, accessor)).await;
    reported(&mut http, &touch);
}

/// The right is lost while a command runs.
async fn lost(
    running: &Running,
    alloc: &str,
    by: &[(&str, &str)],
    (http, accessor): (&mut drover_testkit::Http, &str),
) {
    let forever = path(alloc, "echo $$ runs; exec sleep 1000", "");
    let mut socket = open(running, &forever, by).await.expect("let in");
    let pid = read(&mut socket, Some("runs")).await.out;
    let token = format!("/v1/acl/token/{accessor}");
    let deleted = http.send("DELETE", &token, b"").expect("an answer");
    assert_eq!(deleted.status, 200);
    let end = read(&mut socket, None).await;
    assert_eq!(end.closed, Some((1008, "Permission denied".to_owned())));
    gone(pid.split(' ').next().expect("a process"));
}

fn hello(version: i64, token: &str) -> Value {
    json!({"version": version, "auth_token": token})
}

/// Each of these tokens is refused: before the upgrade, and in the first frame.
async fn refused(running: &Running, (plain, framed): (&str, &str), tokens: &[String]) {
    for token in tokens {
        let headers = [("X-Nomad-Token", token.as_str())];
        let refused = open(running, plain, &headers[..usize::from(!token.is_empty())]).await;
        assert_eq!(refused.err(), Some(403), "{token}");
        let mut socket = open(running, framed, &[]).await.expect("let in to say who");
        assert!(say(&mut socket, &hello(1, token)).await);
        let end = read(&mut socket, None).await;
        let wanted = Some((1008, "Permission denied".to_owned()));
        assert_eq!((end.closed, end.code), (wanted, None), "{token}");
    }
}

/// Invalid first frames.
async fn misspoken(running: &Running, framed: &str, (good, other): (&str, &str)) {
    for (frame, header, text) in [
        (hello(2, good), None, "unexpected handshake value: 2"),
        (
            hello(1, good),
            Some(other),
            "handshake auth token mismatched auth header token",
        ),
        (json!("what"), None, "failed to read handshake: "),
    ] {
        let headers: Vec<_> = header
            .map(|token| ("X-Nomad-Token", token))
            .into_iter()
            .collect();
        let mut socket = open(running, framed, &headers).await.expect("let in");
        assert!(say(&mut socket, &frame).await);
        let (code, reason) = read(&mut socket, None).await.closed.expect("closed");
        assert!(code == 1008 && reason.starts_with(text), "{code} {reason}");
    }
}

/// The request log has each of them, with what came of it.
fn reported(http: &mut drover_testkit::Http, touch: &str) {
    let list = json_of(http, "/v1/audit/requests?class=exec&per_page=100");
    let list = list.as_array().expect("a list");
    let of = |status: i64| -> Vec<&Value> {
        list.iter().filter(|one| one["Status"] == status).collect()
    };
    assert!(of(403).len() >= 6, "{list:?}");
    let ran = of(101);
    assert_eq!(ran.len(), 2, "{ran:?}");
    for one in ran {
        assert_eq!(one["Ran"]["Task"], "main");
        assert_eq!(one["Ran"]["Command"], json!(["/bin/sh", "-c", touch]));
        assert_eq!(one["Session"]["ExitCode"], 3);
        assert!(one["Actor"].to_string().contains("both"), "{one}");
    }
    let cut: Vec<_> = list
        .iter()
        .filter(|one| !one["Session"].is_null())
        .collect();
    assert_eq!(cut.len(), 3);
    let lost = cut
        .iter()
        .find(|one| one["Status"] == 403)
        .expect("the one that was cut");
    assert!(lost["Session"]["ExitCode"].is_null(), "{lost}");
    assert!(lost["Session"]["BytesOut"].as_u64() > Some(0), "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_a_session_ends_in_words_or_with_its_caller() {
    let running = dev();
    let _left = Leftovers(running.data());
    let alloc = sleeper(&running, "", "default");
    let plain = path(&alloc, "exit 4", "");
    let own = format!("http://{}", running.agent.addr());
    for (origin, refused) in [
        (own.as_str(), None),
        ("http://elsewhere.example", Some(403)),
        ("null", Some(403)),
    ] {
        for more in ["", "&ws_handshake=true"] {
            let requested = path(&alloc, "exit 4", more);
            let opened = open(&running, &requested, &[("Origin", origin)]).await;
            assert_eq!(opened.err(), refused, "{origin} {more}");
        }
    }
    let answer = running.http().get(&plain).expect("it works");
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().contains("ask for an upgrade"),
        "{}",
        answer.text()
    );
    for (path, status, text) in [
        (
            plain.replace("task=main", "task="),
            400,
            "must provide task name",
        ),
        (
            plain.replace("command=", "command=no&x="),
            400,
            "command is not a JSON array",
        ),
        (
            plain.clone() + "&tty=maybe",
            400,
            "tty value is not a boolean",
        ),
        (
            plain.replace("task=main", "task=x"),
            400,
            "unknown task name \"x\"",
        ),
    ] {
        let answer = running.http().get(&path).expect("it works");
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    misbehaved(&running, &alloc).await;
}

/// A session ends with what is no frame, with one that is too long, and with its caller.
async fn misbehaved(running: &Running, alloc: &str) {
    for (frame, text) in [
        ("what".to_owned(), "failed to decode frame: "),
        ("x".repeat(1 << 20), "Message too long: "),
    ] {
        let forever = path(alloc, "echo $$ runs; exec sleep 1000", "");
        let mut socket = open(running, &forever, &[]).await.expect("let in");
        let pid = read(&mut socket, Some("runs")).await.out;
        socket.send(Message::text(frame)).await.expect("sent");
        let (code, reason) = read(&mut socket, None).await.closed.expect("closed");
        assert!(code == 1008 && reason.starts_with(text), "{code} {reason}");
        gone(pid.split(' ').next().expect("a process"));
    }

    // The caller vanishes, with a terminal and without, in words and without.
    for (tty, polite) in [("", true), ("&tty=true", false), ("", false)] {
        let forever = path(alloc, "echo $$ runs; exec sleep 1000", tty);
        let mut socket = open(running, &forever, &[]).await.expect("let in");
        let pid = read(&mut socket, Some("runs")).await.out;
        if polite {
            socket.close(None).await.expect("said");
        }
        drop(socket);
        gone(pid.split(' ').next().expect("a process"));
    }
}

/// It neither says anything nor answers, as one whose machine has lost its power.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_a_caller_that_falls_silent_takes_its_command_along() {
    let running = dev();
    let _left = Leftovers(running.data());
    let alloc = sleeper(&running, "", "default");
    let forever = path(&alloc, "echo $$ runs; exec sleep 1000", "&tty=1");
    let mut socket = open(&running, &forever, &[]).await.expect("let in");
    let pid = read(&mut socket, Some("runs")).await.out;
    gone(pid.split(' ').next().expect("a process"));
    drop(socket);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_much_goes_through_and_little_is_held() {
    // Of 128 KiB each: a gibibyte, or less where a machine is slow and its owner says so.
    let pieces = std::env::var("DROVER_EXEC_PIECES").ok();
    let pieces = pieces
        .and_then(|text| text.parse().ok())
        .unwrap_or(8_192_usize);
    let running = dev();
    let _left = Leftovers(running.data());
    let alloc = sleeper(&running, "", "default");
    let piece = drover_events::gojson::Base64::encode(&vec![b'x'; 128 << 10]);
    let frame = json!({"stdin": {"data": piece}});
    let memory = || {
        let status = format!("/proc/{}/status", running.agent.pid());
        let status = std::fs::read_to_string(status).expect("it works");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok())
            .expect("it works")
            >> 10
    };
    let before = memory();
    let counts = path(&alloc, "wc -c", "");
    let mut socket = open(&running, &counts, &[]).await.expect("let in");
    let text = frame.to_string();
    for _ in 0..pieces {
        socket
            .send(Message::text(text.clone()))
            .await
            .expect("taken");
    }
    assert!(say(&mut socket, &json!({"stdin": {"close": true}})).await);
    let end = read(&mut socket, None).await;
    let wanted = format!("{}\n", pieces * (128 << 10));
    assert_eq!((end.out, end.code), (wanted, Some(0)));

    // One that never reads: what is sent waits with the sender.
    let never = path(&alloc, "echo $$ runs; exec sleep 1000", "");
    let mut socket = open(&running, &never, &[]).await.expect("let in");
    let pid = read(&mut socket, Some("runs")).await.out;
    let mut taken = 0;
    let wait = Duration::from_secs(2);
    while taken < pieces.min(1_600) {
        let sent = socket.send(Message::text(text.clone()));
        if tokio::time::timeout(wait, sent).await.is_err() {
            break;
        }
        taken += 1;
    }
    assert!(taken < pieces.min(1_600) / 2, "{taken} pieces were taken");
    // It shows that the caller is gone, although nothing is read from it.
    drop(socket);
    gone(pid.split(' ').next().expect("a process"));

    // Output that no reader takes waits in the task.
    let endless = path(&alloc, "echo $$ runs; exec yes", "");
    let mut socket = open(&running, &endless, &[]).await.expect("let in");
    let pid = read(&mut socket, Some("runs")).await.out;
    let stat = format!("/proc/{}/stat", pid.split(' ').next().expect("a process"));
    let full = || {
        let stat = std::fs::read_to_string(&stat)?;
        ensure!(stat.contains(") S "), "{stat}");
        Ok::<_, anyhow::Error>(())
    };
    let waits = drover_testkit::eventually("the task to wait", LONG, full).await;
    waits.expect("it works");
    let after = memory();
    assert!(after < before + 150, "{before} MiB, then {after} MiB");
    drop(socket);
    gone(pid.split(' ').next().expect("a process"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_a_session_counts_as_a_connection_of_its_caller() {
    let running = dev_with("limits { http_max_conns_per_client = 5 }\n");
    let _left = Leftovers(running.data());
    let alloc = sleeper(&running, "", "default");
    let forever = path(&alloc, "exec sleep 1000", "");
    let mut sockets = Vec::new();
    let refused = loop {
        match open(&running, &forever, &[]).await {
            Ok(socket) => sockets.push(socket),
            Err(status) => break status,
        }
        assert!(sockets.len() <= 5);
    };
    assert_eq!(refused, 429);
    sockets.pop();
    let space = async || match open(&running, &path(&alloc, "exit 6", ""), &[]).await {
        Ok(socket) => Ok(socket),
        Err(status) => Err(status.to_string()),
    };
    let mut socket = drover_testkit::eventually_async("room", LONG, space)
        .await
        .expect("it works");
    assert_eq!(read(&mut socket, None).await.code, Some(6));
}

const JOB: &str = r#"job "tls" {
  group "g" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
"#;

#[test]
fn mod_23_a_session_works_over_tls_and_over_a_socket_of_the_machine() {
    let trust = crate::tls::Trust::new();
    let socket = trust.dir.path().join("api.sock");
    let data = trust.dir.path().join("data");
    let mut setup =
        drover_testkit::Setup::dev(env!("CARGO_BIN_EXE_drover"), &data).expect("it works");
    let tls = trust.authority.block(&trust.server, "http = true");
    let sockets = format!(
        "addresses {{ http = \"127.0.0.1 unix://{}\" }}\n",
        socket.display()
    );
    setup.config.push_str(&(tls + &sockets));
    let agent = setup.spawn().expect("the agent starts");
    let _left = Leftovers(data);
    trust.ready(&agent);
    let drover = |address: &str, words: &[&str], input: &str| {
        use std::io::Write as _;
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(words)
            .env("NOMAD_ADDR", address)
            .env("NOMAD_CACERT", trust.dir.path().join("tls/ca.pem"))
            .env_remove("NOMAD_TOKEN")
            .current_dir(trust.dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let reported = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&reported).into_owned(),
        )
    };
    std::fs::write(trust.dir.path().join("tls.hcl"), JOB).expect("written");
    let (https, unix) = (
        format!("https://{}", agent.addr()),
        format!("unix://{}", socket.display()),
    );
    // It is placed once the node is there.
    wait_for("the job", LONG, || {
        let (code, text) = drover(&https, &["job", "run", "tls.hcl"], "");
        if code == Some(0) { Ok(()) } else { Err(text) }
    })
    .expect("it runs");
    for address in [&https, &unix] {
        let words = [
            "alloc",
            "exec",
            "-job",
            "tls",
            "/bin/sh",
            "-c",
            "cat; exit 9",
        ];
        let (code, text) = drover(address, &words, "through");
        assert_eq!((code, text.as_str()), (Some(9), "through"), "{address}");
    }
}
