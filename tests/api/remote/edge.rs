//! The HTTP API of the client's own agent: it answers for itself, and forwards the rest.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use drover_testkit::{Http, LONG, wait_for};
use serde_json::{Value, json};

use super::{World, reached, running, shell, text, wait_log};
use crate::support::{json_of, register};

const ACLS: &str = "acl {\n  enabled = true\n}\n";
const KEPT_SHORTLY: &str = "acl {\n  enabled = true\n  token_ttl = \"1s\"\n  \
                            policy_ttl = \"1s\"\n  role_ttl = \"1s\"\n}\n";

fn drover(http: &str, token: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.args(words).env("NOMAD_ADDR", http);
    if !token.is_empty() {
        command.env("NOMAD_TOKEN", token);
    }
    command.output().expect("it runs")
}

#[test]
fn a_client_agent_answers_for_itself_and_forwards_the_rest() {
    let world = World::start();
    let mut here = world.client.http();
    // Jobs are the servers' business: registered, read, waited for and deleted through it.
    wait_for("the agent", LONG, || -> Result<()> {
        let health = here.get("/v1/agent/health")?;
        ensure!(health.status == 200, "{}", health.text());
        Ok(())
    })
    .expect("it is healthy");
    register(&mut here, &shell("web", "echo begun; exec sleep 600"));
    let alloc = running(&mut here, "web");
    let answer = here.get("/v1/jobs").expect("an answer");
    let index: u64 = answer
        .header("x-nomad-index")
        .expect("it says")
        .parse()
        .expect("a number");
    assert_eq!(answer.json().expect("JSON")[0]["ID"], "web");
    let mut waits = world.client.http().timeout(LONG);
    let waiting =
        std::thread::spawn(move || waits.get(&format!("/v1/jobs?index={index}&wait=50s")));
    register(&mut world.http(), &shell("other", "exec sleep 600"));
    let waited = waiting.join().expect("it ran").expect("an answer");
    assert_eq!(
        waited.json().expect("JSON").as_array().map(Vec::len),
        Some(2)
    );
    let missing = here.get("/v1/job/none").expect("an answer");
    assert_eq!(
        (missing.status, missing.text().as_str()),
        (404, "job not found")
    );
    let mut events = world
        .client
        .http()
        .timeout(LONG)
        .lines("/v1/event/stream?topic=Job&index=1");
    let events = events.as_mut().expect("it begins");
    loop {
        let line = events.next_line().expect("a line").expect("it goes on");
        if String::from_utf8_lossy(&line).contains("JobRegistered") {
            break;
        }
    }

    own(&world, &alloc);
}

/// What is its own it answers itself.
fn own(world: &World, alloc: &str) {
    let mut here = world.client.http();
    let node = json_of(&mut here, "/v1/nodes")[0]["ID"].clone();
    let own = json_of(&mut here, "/v1/agent/self");
    assert_eq!(own["stats"]["client"]["node_id"], node, "{own}");
    let servers = json_of(&mut here, "/v1/agent/servers");
    assert_eq!(servers, json!([world.server.rpc_addr().to_string()]));
    assert!(json_of(&mut here, "/v1/client/stats")["Memory"].is_object());
    assert!(json_of(&mut here, "/v1/metrics")["Gauges"].is_array());
    let text_form = here
        .get("/v1/metrics?format=prometheus")
        .expect("an answer");
    assert_eq!(text_form.status, 415, "{}", text_form.text());
    let host = json_of(&mut here, "/v1/client/metadata");
    assert!(host["Static"].is_object(), "{host}");
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    wait_log(&mut here, &logs, "begun");
    // A server does not name itself by what a client's agent forwards.
    assert_eq!(
        json_of(&mut here, "/v1/status/leader"),
        json_of(&mut world.http(), "/v1/status/leader")
    );
}

#[test]
fn a_client_agent_goes_on_with_its_own_while_servers_are_away() {
    let world = World::start();
    let alloc = world.run("web", "echo begun; exec sleep 600");
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    wait_log(&mut world.http(), &logs, "begun");
    let World { server, client, .. } = world;
    server.kill().expect("it ran");
    let mut here = client.http().timeout(LONG);
    assert_eq!(text(&mut here, &logs), "begun");
    let away = here.get("/v1/jobs").expect("an answer");
    assert_eq!(away.status, 503, "{}", away.text());
    assert!(away.text().contains("no server answers"), "{}", away.text());
}

/// Policies and a token that has nothing but a role with one of them.
fn narrow(http: &mut Http, rules: &str) -> Value {
    let put = |http: &mut Http, path: &str, body: Value| {
        let answer = http.put(path, &body).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    };
    put(
        http,
        "/v1/acl/policy/narrow",
        json!({"Name": "narrow", "Rules": rules}),
    );
    let role = json!({"Name": "readers", "Policies": [{"Name": "narrow"}]});
    let role = put(http, "/v1/acl/role", role).json().expect("JSON");
    let token = json!({"Name": "role only", "Type": "client", "Roles": [{"ID": role["ID"]}]});
    put(http, "/v1/acl/token", token).json().expect("JSON")
}

#[test]
fn acl_10_auth_05_mod_22_a_client_agent_asks_servers_who_asks_it() {
    let figures = "telemetry {\n  metrics_require_acl = true\n}\n";
    let world = World::with(ACLS, &format!("{KEPT_SHORTLY}{figures}"));
    let made = world
        .http()
        .send("POST", "/v1/acl/bootstrap", b"")
        .expect("an answer");
    let root = made.json().expect("JSON")["SecretID"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let with = |http: Http, token: &str| http.header("X-Nomad-Token", token).timeout(LONG);
    let mut root_there = with(world.http(), &root);
    let mut root_here = with(world.client.http(), &root);
    register(&mut root_there, &shell("web", "echo begun; exec sleep 600"));
    let alloc = running(&mut root_there, "web");
    reached(&mut root_there, &alloc);
    let token = narrow(
        &mut root_there,
        "namespace \"default\" { capabilities = [\"read-logs\"] }",
    );
    let token = token["SecretID"].as_str().expect("a secret");
    let mut narrow_here = with(world.client.http(), token);
    let mut nobody_here = world.client.http();

    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    let ls = format!("/v1/client/fs/ls/{alloc}");
    wait_log(&mut root_there, &logs, "begun");
    assert_eq!(text(&mut narrow_here, &logs), "begun");
    assert_eq!(text(&mut root_here, &logs), "begun");
    // A request beyond the token's rights, or with no token or a wrong one, is refused, here and
    // there. The connection that a node proved itself on gives no caller any right.
    let mut wrong_here = with(world.client.http(), "11111111-1111-1111-1111-111111111111");
    for path in [
        ls.as_str(),
        "/v1/client/stats",
        "/v1/agent/self",
        "/v1/jobs",
        "/v1/nodes",
    ] {
        for (who, http) in [
            ("narrow", &mut narrow_here),
            ("nobody", &mut nobody_here),
            ("wrong", &mut wrong_here),
        ] {
            let answer = http.get(path).expect("an answer");
            let status = answer.status;
            assert_eq!(status, 403, "{who} {path}: {}", answer.text());
        }
        let answer = root_here.get(path).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    for http in [&mut nobody_here, &mut wrong_here] {
        assert_eq!(http.get(&logs).expect("an answer").status, 403);
    }
    follow_until_lost(&world, &mut root_there, (token, &logs));

    kept_here(&world, &alloc);
    refused_here(&world, &mut root_there, &alloc);

    // What was known counts further while the servers are away.
    let World { server, client, .. } = world;
    assert_eq!(text(&mut root_here, &logs), "begun");
    server.kill().expect("it ran");
    assert_eq!(text(&mut with(client.http(), &root), &logs), "begun");
    let never = with(client.http(), "22222222-2222-2222-2222-222222222222").get(&logs);
    assert_eq!(never.expect("an answer").status, 503);
}

/// The counts of lists of namespaces, by all callers and by those without a good token.
fn lists_of_namespaces(http: &mut Http) -> (u64, u64) {
    let reported = text(http, "/v1/metrics?format=prometheus");
    let (mut all, mut nobody) = (0, 0);
    for line in reported.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        if !series.starts_with("nomad_nomad_rpc_namespace_list") {
            continue;
        }
        let count: u64 = value.parse().expect("a number");
        all += count;
        if series.contains("unauthenticated") {
            nobody += count;
        }
    }
    (all, nobody)
}

#[test]
fn auth_08_what_an_agent_forwards_is_counted_by_the_server_and_not_by_the_agent() {
    let figures = "telemetry {\n  prometheus_metrics = true\n}\n";
    let with = |more: &str| format!("{more}{figures}");
    let world = World::with(&with(ACLS), &with(KEPT_SHORTLY));
    let mut there = world.http();
    let made = there
        .send("POST", "/v1/acl/bootstrap", b"")
        .expect("an answer");
    let made = made.json().expect("JSON");
    let root = made["SecretID"].as_str().expect("a secret");
    let here = |token: &str| {
        let http = world.client.http().timeout(LONG);
        http.header("X-Nomad-Token", token)
    };
    let forged = "11111111-1111-1111-1111-111111111111";
    let begun = || world.client.http().get("/v1/agent/health");
    wait_for("the client's agent", LONG, begun).expect("it answers");
    let (before, nobody) = lists_of_namespaces(&mut there);
    for (token, status, times) in [(root, 200, 3), (forged, 403, 2)] {
        for _ in 0..times {
            let answer = here(token).get("/v1/namespaces").expect("an answer");
            // A list without anything to see is no refusal, but an unknown token is refused.
            assert_eq!(answer.status, status, "{}", answer.text());
        }
    }
    let after = lists_of_namespaces(&mut there);
    assert_eq!(
        after,
        (before + 5, nobody + 2),
        "once each, the refused ones too"
    );
    assert_eq!(lists_of_namespaces(&mut world.client.http()), (0, 0));
    // It counts what it answers, also requests that every caller may make.
    let reported = text(&mut world.client.http(), "/v1/metrics?format=prometheus");
    let counted = |line: &str| line.starts_with("nomad_nomad_rpc_agent_read");
    assert!(reported.lines().any(counted), "{reported}");
}

/// What the request log of a client's agent has of a class: paths, and the entries.
fn kept(world: &World, class: &str) -> Vec<(String, Value)> {
    let dir = world.setup.data_dir.to_str().expect("UTF-8");
    let words = [
        "audit",
        "requests",
        "-class",
        class,
        "-limit",
        "0",
        "-data-dir",
        dir,
        "-json",
    ];
    let reported = drover("http://127.0.0.1:1", "", &words);
    assert!(reported.status.success(), "{reported:?}");
    let reported: Value = serde_json::from_slice(&reported.stdout).expect("JSON");
    let entries = reported.as_array().expect("a list").iter();
    let with_path = entries.map(|entry| {
        let path = entry["Path"].as_str().expect("a path");
        (path.to_owned(), entry.clone())
    });
    with_path.collect()
}

/// Paths about a client's agent, its node or an allocation that is there, without those that every
/// caller may request.
fn own_paths(alloc: &str) -> Vec<(&'static str, String)> {
    let mut paths = vec![
        ("GET", "/v1/agent/self".to_owned()),
        ("GET", "/v1/agent/servers".to_owned()),
        ("PUT", "/v1/agent/servers?address=127.0.0.1:1".to_owned()),
        ("PUT", "/v1/agent/reload".to_owned()),
        ("GET", "/v1/agent/monitor".to_owned()),
        ("GET", "/v1/agent/monitor/export?on_disk=true".to_owned()),
        ("GET", "/v1/agent/host".to_owned()),
        ("GET", "/v1/agent/pprof/".to_owned()),
        ("GET", "/v1/agent/pprof/cmdline".to_owned()),
        ("GET", "/v1/metrics".to_owned()),
        ("GET", "/v1/client/stats".to_owned()),
        ("GET", "/v1/client/gc".to_owned()),
        ("PUT", "/v1/client/gc".to_owned()),
        ("GET", "/v1/client/metadata".to_owned()),
        ("POST", "/v1/client/metadata".to_owned()),
    ];
    let restart = format!("/v1/client/allocation/{alloc}/restart");
    let signal = format!("/v1/client/allocation/{alloc}/signal");
    let gc = format!("/v1/client/allocation/{alloc}/gc");
    for path in [restart, signal, gc] {
        paths.extend(["GET", "PUT", "POST", "DELETE"].map(|method| (method, path.clone())));
    }
    for path in [
        format!("/v1/client/allocation/{alloc}/stats"),
        format!("/v1/client/allocation/{alloc}/checks"),
        format!("/v1/allocation/{alloc}/checks"),
        format!("/v1/client/fs/ls/{alloc}"),
        format!("/v1/client/fs/stat/{alloc}?path=/"),
        format!("/v1/client/fs/cat/{alloc}?path=/a"),
        format!("/v1/client/fs/readat/{alloc}?path=/a&offset=0"),
        format!("/v1/client/fs/stream/{alloc}?path=/a"),
    ] {
        paths.push(("GET", path));
    }
    paths
}

/// Each of the paths that a client's agent answers itself is refused to a caller with no token, a
/// wrong one, or one for something else; the agent itself refuses it.
fn refused_here(world: &World, root_there: &mut Http, alloc: &str) {
    let rules = "namespace \"default\" { capabilities = [\"read-logs\"] }";
    let policy = json!({"Name": "logs", "Rules": rules});
    let put = root_there.put("/v1/acl/policy/logs", &policy);
    assert_eq!(put.expect("an answer").status, 200);
    let token = json!({"Name": "logs", "Type": "client", "Policies": ["logs"]});
    let made = root_there.put("/v1/acl/token", &token).expect("an answer");
    let made = made.json().expect("JSON");
    let token = made["SecretID"].as_str().expect("a secret");
    let with = |token: &str| world.client.http().header("X-Nomad-Token", token);
    let mut callers = [
        ("narrow", with(token).timeout(LONG)),
        ("nobody", world.client.http().timeout(LONG)),
        (
            "wrong",
            with("33333333-3333-3333-3333-333333333333").timeout(LONG),
        ),
    ];
    let logs = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    assert_eq!(text(&mut callers[0].1, &logs), "begun");
    let paths = own_paths(alloc);
    for (method, path) in &paths {
        let body: &[u8] = match *method {
            "GET" => b"",
            _ => b"{}",
        };
        for (who, http) in &mut callers {
            let answer = http.send(method, path, body).expect("an answer");
            let what = format!("{who} {method} {path}: {}", answer.text());
            assert_eq!(answer.status, 403, "{what}");
        }
    }
    let denied = kept(world, "denied");
    for (method, path) in &paths {
        let path = path.split('?').next().expect("a path");
        let here = denied.iter().any(|(one, entry)| {
            let by_token = entry["Actor"]["kind"] == "token";
            one == path && entry["Method"] == *method && by_token
        });
        assert!(here, "{method} {path}: {denied:?}");
    }
}

/// What a client's agent answered that matters, and what it denied, is in its own request log; what
/// it forwarded is in the server's.
fn kept_here(world: &World, alloc: &str) {
    let kept = |class: &str| kept(world, class);
    let denied = kept("denied");
    let of = |path: &str| denied.iter().filter(|(one, _)| one == path).count();
    let ls = format!("/v1/client/fs/ls/{alloc}");
    assert_eq!((of(&ls), of("/v1/agent/self")), (3, 3), "{denied:?}");
    assert_eq!(of("/v1/jobs"), 0, "the server has it");
    assert!(denied.iter().all(|(_, entry)| entry["Status"] == 403));
    let files = kept("files");
    let logs = format!("/v1/client/fs/logs/{alloc}");
    let (_, read) = files
        .iter()
        .find(|(path, _)| *path == logs)
        .expect("it was read");
    assert_eq!(read["Status"], 200, "{read}");
    assert_eq!(read["Actor"]["kind"], "token", "{read}");
}

/// A follower of a log is cut off when the right to it goes.
fn follow_until_lost(world: &World, root_there: &mut Http, (token, logs): (&str, &str)) {
    let with = || {
        let http = world.client.http().header("X-Nomad-Token", token);
        http.timeout(LONG)
    };
    let follow = format!("{logs}&follow=true");
    let mut lines = with().lines(&follow).expect("it begins");
    assert_eq!(lines.next_line().expect("a line").expect("some"), b"begun");
    let gone = root_there
        .send("DELETE", "/v1/acl/policy/narrow", b"")
        .expect("an answer");
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert!(lines.next_line().expect("it ends in order").is_none());
    assert_eq!(with().get(logs).expect("an answer").status, 403);
}

/// A command beside a task of another machine, requested from the server and from the client's own
/// agent: both go through the server, which writes it down.
#[test]
fn mod_23_a_command_runs_beside_a_task_of_a_remote_client() {
    let world = World::start();
    let alloc = world.run("web", "exec sleep 600");
    let address = |agent: &drover_testkit::Agent| format!("http://{}", agent.addr());
    for agent in [&world.server, &world.client] {
        let run = |words: &[&str]| {
            let mut all = vec!["alloc", "exec", "-t=false", "-task", "t", alloc.as_str()];
            all.extend(words);
            drover(&address(agent), "", &all)
        };
        let ran = run(&[
            "/bin/sh",
            "-c",
            "echo out; echo $NOMAD_TASK_NAME >&2; exit 7",
        ]);
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(7), "{stderr}");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "out\n");
        assert_eq!(stderr, "t\n");
        let none = run(&["/no/such/program"]);
        assert_eq!(none.status.code(), Some(1));
        assert!(!none.stderr.is_empty());
    }
    let mut http = world.http();
    let written = json_of(&mut http, "/v1/audit/requests");
    // Both ways, each of both commands.
    for program in ["/bin/sh", "/no/such/program"] {
        let times = written
            .to_string()
            .matches(&format!("\"{program}\""))
            .count();
        assert_eq!(times, 2, "{program}: {written}");
    }
}

#[test]
fn mod_23_a_client_agent_takes_other_metadata_headers_and_limits_while_it_runs() {
    let world = World::with("", "client {\n  meta {\n    rack = \"r1\"\n  }\n}\n");
    let mut here = world.client.http();
    let node = wait_for("its node", LONG, || -> Result<String> {
        let nodes = here.get("/v1/nodes")?.json()?;
        let id = nodes[0]["ID"].as_str().context("no node yet")?;
        Ok(id.to_owned())
    })
    .expect("it registers");
    let set = json!({"Meta": {"owner": "me"}});
    let set = here
        .send("POST", "/v1/client/metadata", set.to_string().as_bytes())
        .expect("an answer");
    assert_eq!(set.status, 200, "{}", set.text());
    let file = world.setup.data_dir.with_extension("hcl");
    let text = std::fs::read_to_string(&file).expect("read");
    let changed = text.replace("\"r1\"", "\"r2\"")
        + "http_api_response_headers {\n  X-New = \"yes\"\n}\n\
           limits {\n  http_max_requests_per_address = 1000\n}\n";
    std::fs::write(&file, changed).expect("written");
    let reported = here
        .send("PUT", "/v1/agent/reload", b"")
        .expect("an answer");
    assert_eq!(reported.status, 200, "{}", reported.text());
    assert_eq!(reported.header("x-drover-needs-restart"), None);
    let own = here.get("/v1/agent/self").expect("an answer");
    assert_eq!(own.header("x-new"), Some("yes"));
    let limits = &own.json().expect("JSON")["config"]["Limits"];
    assert_eq!(limits["HTTPMaxRequestsPerAddress"], 1000);
    // The servers hear of it, and what was set while it ran stays.
    wait_for("the servers to know", LONG, || -> Result<()> {
        let node = world.http().get(&format!("/v1/node/{node}"))?.json()?;
        let meta = &node["Meta"];
        ensure!(meta["rack"] == "r2" && meta["owner"] == "me", "{meta}");
        Ok(())
    })
    .expect("they do");
    let metadata = json_of(&mut here, "/v1/client/metadata");
    assert_eq!(metadata["Static"]["rack"], "r2");
    assert_eq!(metadata["Dynamic"], json!({"owner": "me"}));
}

#[test]
fn auth_09_a_client_agent_counts_who_comes_to_it_before_it_forwards() {
    let limits = "limits {\n  http_max_requests_per_address = 1\n  request_burst = \"1s\"\n}\n";
    let world = World::with("", limits);
    let mut here = world.client.http();
    wait_for("the client's agent", LONG, || here.get("/v1/jobs")).expect("it answers");
    // What it forwards, and what every caller may request of the agent itself.
    for path in ["/v1/jobs", "/v1/agent/health"] {
        let mut ask = || here.get(path).expect("an answer");
        let refused = (0..2_000)
            .map(|_| ask())
            .find(|reported| reported.status == 429);
        let refused = refused.expect("it is too much").text();
        assert!(refused.contains("this address"), "{path}: {refused}");
    }
    // The servers limit no caller.
    assert_eq!(world.http().get("/v1/jobs").expect("an answer").status, 200);
}
