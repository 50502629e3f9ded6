//! `monitor`, `node meta`, `operator debug`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use drover_testkit::{LONG, Setup, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{DROVER, Session, alone, service};

#[test]
fn a_log_is_followed_until_somebody_has_enough() {
    let (agent, _dir) = alone();
    let mut child = Command::new(DROVER)
        .args(["monitor", "-log-level", "debug", "-server-id", "leader"])
        .env("NOMAD_ADDR", format!("http://{}", agent.addr()))
        .env_remove("NOMAD_TOKEN")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    // Until the command listens it misses what is logged, so that is repeated.
    let reported = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut lines = lines.map_while(Result::ok);
            lines.find(|line| line.contains("Reloading configuration"))
        });
        let again = wait_for("a line", LONG, || {
            let answer = agent.http().put("/v1/agent/reload", &Value::Null);
            answer.map_err(|error| error.to_string())?;
            reading
                .is_finished()
                .then_some(())
                .ok_or("not yet".to_owned())
        });
        if again.is_err() {
            let _ = child.kill();
        }
        reading.join().expect("no panic")
    });
    assert!(reported.expect("a line").contains(" INFO "));
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));

    let session = Session::at("monitored", &agent);
    let ran = session.quiet("monitor -log-level loud");
    assert_eq!(ran.code, 1, "{}", ran.all());
    assert!(
        ran.stderr.contains("Unknown log level: loud"),
        "{}",
        ran.all()
    );
    let ran = session.quiet("monitor export");
    assert!(
        ran.code == 1 && ran.stderr.contains("-service-name or -on-disk"),
        "{}",
        ran.all()
    );
    let ran = session.quiet("monitor export -on-disk");
    assert!(
        ran.code == 1 && ran.stderr.contains("log_file"),
        "{}",
        ran.all()
    );
}

#[test]
fn metadata_is_set_shown_and_taken_away() {
    let mut session = Session::new("metadata");
    session.run("node meta apply cli.rack=r7 cli.tier=a=b");
    let read = |session: &Session| -> Value {
        serde_json::from_str(&session.done("node meta read -json")).expect("JSON")
    };
    let metadata = read(&session);
    assert_eq!(
        (&metadata["Meta"]["cli.rack"], &metadata["Meta"]["cli.tier"]),
        (&"r7".into(), &"a=b".into())
    );
    let id = session.json("/v1/nodes").expect("nodes")[0]["ID"].to_string();
    let id = &id.trim_matches('"')[..6];
    let shown = session.done(&format!("node meta read -node-id {id}"));
    for part in ["All Meta\n", "Dynamic Meta\ncli.rack", "Static Meta\n"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    session.done(&format!(
        "node meta apply -node-id {id} -unset cli.rack,cli.tier"
    ));
    session.run("node meta read -t '{{.Dynamic}}'");
    session.run("node meta apply");
    session.run("node meta apply cli.rack");
    session.run("node meta apply -unset a a=1");
    session.run("node meta apply 'a b=1'");
    session.run("node meta read -node-id zz");
    session.check();
}

/// The files of an archive, and the text of one of them.
fn listed(session: &Session, archive: &str) -> Vec<String> {
    let output = Command::new("tar")
        .args(["-tzf"])
        .arg(session.path(archive))
        .output()
        .expect("tar runs");
    let text = String::from_utf8(output.stdout).expect("names");
    text.lines().map(str::to_owned).collect()
}

fn held(session: &Session, archive: &str) -> String {
    let output = Command::new("tar")
        .args(["-xOzf"])
        .arg(session.path(archive))
        .output()
        .expect("tar runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_there_is_to_see_of_a_cluster_is_captured_without_secrets() {
    let session = Session::new("debugged");
    let task = service("debugged-web", "canary-7c1f", "");
    session.file("web.hcl", &task);
    session.done("job run -detach web.hcl");
    session.wait_allocs("debugged-web", "running", 1);
    let shown = session.done(
        "operator debug -duration 2s -interval 1s -pprof-interval 2s -event-topic all \
         -event-index 1 -log-level trace",
    );
    let archive = shown.lines().last().expect("a line");
    let archive = archive
        .strip_prefix("Created debug archive: ")
        .expect("an archive");
    assert!(shown.contains("Capture interval 0001"), "{shown}");
    let files = listed(&session, archive);
    let name = archive.strip_suffix(".tar.gz").expect("its name");
    let node = session.json("/v1/nodes").expect("nodes")[0]["ID"].clone();
    let node = node.as_str().expect("an id");
    let members = session.json("/v1/agent/members").expect("members");
    let server = members["Members"][0]["Name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let mut wanted: Vec<String> = [
        "index.json",
        "index.html",
        "cluster/agent-self.json",
        "cluster/members.json",
        "cluster/eventstream.json",
        "nomad/0000/allocations.json",
        "nomad/0000/nodes.json",
        "nomad/0001/metrics.json",
    ]
    .map(str::to_owned)
    .to_vec();
    for folder in [format!("client/{node}"), format!("server/{server}")] {
        for file in [
            "agent-host.json",
            "monitor.log",
            "goroutine-debug1_0000.txt",
            "profile_0000.prof",
        ] {
            wanted.push(format!("{folder}/{file}"));
        }
    }
    for file in &wanted {
        assert!(
            files.contains(&format!("{name}/{file}")),
            "{file}: {files:#?}"
        );
    }
    let all = held(&session, archive);
    assert!(all.contains("debugged-web"), "the job is in it");
    assert!(!all.contains("canary-7c1f"), "and no secret of it");
    assert!(!files.iter().any(|file| file.contains("..")));

    let shown = session.done("debug -duration 1s -interval 1s -node-id none -output .");
    let place = shown.lines().last().expect("a line");
    let place = place
        .strip_prefix("Created debug directory: ")
        .expect("a directory");
    let index = std::fs::read(session.path(place).join("index.json")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    assert_eq!(index["Missing"], serde_json::json!([]), "{index:#}");
    assert_eq!(index["Clients"], serde_json::json!([]));
    assert_eq!(index["Servers"], serde_json::json!([server]));
}

#[test]
fn what_a_capture_cannot_have_is_noted_and_never_fatal() {
    let (agent, _dir) = alone();
    let session = Session::at("undebugged", &agent);
    let shown = session.done("operator debug -duration 1s -interval 1s -output . -verbose");
    assert!(shown.contains("could not be had"), "{shown}");
    let place = shown.lines().last().expect("a line");
    let place = place
        .strip_prefix("Created debug directory: ")
        .expect("a directory");
    let index = std::fs::read(session.path(place).join("index.json")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let missing = index["Missing"].as_array().expect("a list");
    let host = missing
        .iter()
        .find(|one| one["File"].as_str().unwrap().ends_with("agent-host.json"));
    let reason = host.expect("a reason")["Reason"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(reason.contains("enable_debug"), "{reason}");
    let ran = session.quiet("operator debug -duration 1s -interval 2s");
    assert!(
        ran.code == 1 && ran.stderr.contains("-interval"),
        "{}",
        ran.all()
    );
    let ran = session.quiet("operator debug -vault-address x");
    assert!(
        ran.code == 1 && ran.stderr.contains("neither Consul nor Vault"),
        "{}",
        ran.all()
    );
    let ran = session.quiet("operator debug -address http://127.0.0.1:1");
    assert_eq!(ran.code, 1, "{}", ran.all());
}

#[test]
fn a_client_of_another_machine_is_described_and_captured_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::server(DROVER, &dir.path().join("server")).expect("free ports");
    setup.config.push_str("enable_debug = true\n");
    let server = setup.start().expect("the server starts");
    let client = Setup {
        config: format!(
            "enable_debug = true\nclient {{\n  enabled = true\n  servers = [\"{}\"]\n}}\n",
            server.rpc_addr()
        ),
        dev: false,
        ..Setup::dev(DROVER, &dir.path().join("client")).expect("free ports")
    };
    let _client = client.spawn().expect("the client starts");
    let session = Session::at("elsewhere", &server).within("default");
    let node = session.wait("/v1/nodes", |nodes| nodes[0]["Status"] == "ready");
    let node = node[0]["ID"].as_str().expect("an id").to_owned();
    let metadata = format!("/v1/client/metadata?node_id={node}");
    session.wait(&metadata, |shown| shown["Static"].is_object());

    session.done(&format!("node meta apply -node-id {node} far=away"));
    let shown = session.done(&format!(
        "node meta read -node-id {node} -t '{{{{.Meta.far}}}}'"
    ));
    assert_eq!(shown.trim(), "away");
    session.wait("/v1/node/ID".replace("ID", &node).as_str(), |one| {
        one["Meta"]["far"] == "away"
    });

    wait_for("a checkpoint", LONG, || -> anyhow::Result<()> {
        let reported = session.http().get("/v1/log/checkpoint")?;
        anyhow::ensure!(reported.status == 200, "{}", reported.text());
        Ok(())
    })
    .expect("one is signed");
    let shown = session.done("operator debug -duration 2s -interval 2s -output .");
    let place = shown.lines().last().expect("a line");
    let place = place
        .strip_prefix("Created debug directory: ")
        .expect("a directory");
    let read = |file: &str| std::fs::read_to_string(session.path(place).join(file));
    let index: Value = serde_json::from_str(&read("index.json").expect("an index")).expect("JSON");
    assert_eq!(index["Missing"], serde_json::json!([]), "{index:#}");
    read(&format!("client/{node}/monitor.log")).expect("what it logs");
    let kept: Value =
        serde_json::from_str(&read(&format!("client/{node}/metadata.json")).expect("metadata"))
            .expect("JSON");
    assert_eq!(kept["Dynamic"]["far"], "away");
    let threads = read(&format!("client/{node}/goroutine-debug1_0000.txt")).expect("threads");
    assert!(
        threads.starts_with("goroutine profile: total "),
        "{threads}"
    );
}
