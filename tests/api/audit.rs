//! The audit trail, cause chains and the comparison of states, requested from a real agent.

use anyhow::{Result, ensure};
use drover_testkit::{Http, LONG, wait_for};
use serde_json::{Value, json};

use crate::support::{dev, job, json_of, register, server};

fn change<'a>(entry: &'a Value, table: &str) -> &'a Value {
    let changes = entry["Changes"].as_array().expect("changes");
    let found = changes.iter().find(|change| change["Table"] == table);
    found.unwrap_or_else(|| panic!("no {table} in {entry:#}"))
}

fn field<'a>(change: &'a Value, path: &str) -> &'a Value {
    let fields = change["Fields"].as_array().expect("fields");
    let found = fields.iter().find(|field| field["Path"] == path);
    found.unwrap_or_else(|| panic!("no {path} in {change:#}"))
}

fn kinds(entries: &Value) -> Vec<&str> {
    let entries = entries.as_array().expect("a list").iter();
    entries
        .map(|e| e["Kind"].as_str().unwrap_or_default())
        .collect()
}

fn delete(http: &mut Http, path: &str) {
    let answer = http.send("DELETE", path, b"").expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn index(http: &mut Http) -> u64 {
    json_of(http, "/v1/operator/digests")["Index"]
        .as_u64()
        .expect("an index")
}

/// All rows of a list, page by page.
fn pages(http: &mut Http, path: &str) -> Vec<Value> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    for _ in 0..1_000 {
        let answer = http.get(&format!("{path}{next}")).expect("an answer");
        let page = answer.json().expect("JSON");
        rows.extend(page.as_array().cloned().unwrap_or_default());
        match answer.header("x-nomad-nexttoken") {
            Some(token) => next = format!("&next_token={token}"),
            None => return rows,
        }
    }
    panic!("{path}: pages without end: {next}");
}

#[test]
fn a_job_that_is_gone_is_audited_with_who_when_why_and_what() {
    let running = server();
    let mut http = running.http().header("x-request-id", "order-66");
    let mut wanted = job("doomed", 1);
    register(&mut http, &wanted);
    wanted["Job"]["TaskGroups"][0]["Count"] = json!(3);
    register(&mut http, &wanted);
    delete(&mut http, "/v1/job/doomed?purge=true");

    let reported = json_of(&mut http, "/v1/audit?type=job&id=doomed");
    let all = kinds(&reported);
    assert_eq!(all[..2], ["JobRegistered", "JobRegistered"], "{reported:#}");
    assert_eq!(*all.last().expect("one"), "JobDeregistered", "{reported:#}");
    let first = &reported[0];
    assert_eq!(first["Actor"]["kind"], "anonymous");
    assert_eq!(first["Actor"]["addr"], "127.0.0.1");
    assert_eq!(first["RequestID"], "order-66");
    assert_eq!(first["Outcome"], "applied");
    assert_eq!(first["Cause"], Value::Null);
    assert!(first["Time"].as_i64().is_some_and(|time| time > 0));
    assert_eq!(change(first, "jobs")["Operation"], "insert");
    let second = change(&reported[1], "jobs");
    assert_eq!(second["Key"], json!(["default", "doomed"]));
    let count = field(second, "TaskGroups[g].Count");
    assert_eq!((&count["Before"], &count["After"]), (&json!(1), &json!(3)));
    let last = change(
        &reported[reported.as_array().expect("a list").len() - 1],
        "jobs",
    );
    assert_eq!(last["Operation"], "delete");
    assert_eq!(field(last, "ID")["Before"], "doomed");

    // The same, newest first and in pages.
    let mut paged = pages(
        &mut http,
        "/v1/audit?type=job&id=doomed&reverse=true&per_page=1",
    );
    paged.reverse();
    assert_eq!(Value::from(paged), reported);
}

#[test]
fn filters_leave_what_was_asked_for() {
    let running = server();
    let mut http = running.http().header("x-request-id", "first");
    register(&mut http, &job("one", 1));
    let middle = index(&mut http);
    let mut other = running.http().header("x-request-id", "second");
    let space = json!({"Name": "space"});
    assert_eq!(
        other
            .put("/v1/namespace", &space)
            .expect("an answer")
            .status,
        200
    );
    let mut two = job("two", 1);
    two["Job"]["Namespace"] = json!("space");
    register(&mut other, &two);

    // Up to here: the server may have more to do by itself.
    let newest = index(&mut http);
    let mut ask = |query: &str| {
        let reported = json_of(&mut http, &format!("/v1/audit?{query}"));
        kinds(&reported)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ask("kind=JobRegistered"),
        ["JobRegistered", "JobRegistered"]
    );
    assert_eq!(
        ask(&format!("kind=JobRegistered&since={}", middle + 1)),
        ["JobRegistered"]
    );
    assert_eq!(
        ask(&format!("kind=JobRegistered&until={middle}")),
        ["JobRegistered"]
    );
    assert_eq!(ask("kind=JobRegistered&namespace=space"), ["JobRegistered"]);
    assert_eq!(ask("request_id=first"), ["JobRegistered"]);
    assert_eq!(
        ask("request_id=second"),
        ["NamespacesUpserted", "JobRegistered"]
    );
    assert_eq!(ask("type=namespace&id=space"), ["NamespacesUpserted"]);
    assert_eq!(ask("actor=127.0.0.1&kind=JobRegistered").len(), 2);
    assert!(ask("actor=node").is_empty());
    assert!(ask("actor=server").contains(&"LeaderElected".to_owned()));
    assert_eq!(ask("kind=JobRegistered&since=-1h").len(), 2);
    assert!(ask("until=1999-01-01T00:00:00Z").is_empty());
    let all = ask(&format!("per_page=1000&until={newest}"));
    assert!(all.len() >= 4, "{all:?}");
    let mut back = ask(&format!("per_page=1000&until={newest}&reverse=true"));
    back.reverse();
    assert_eq!(back, all);
}

#[test]
fn a_bad_question_is_refused_by_the_name_of_its_parameter() {
    let running = server();
    let mut http = running.http();
    for (path, status, words) in [
        ("/v1/audit?type=jab&id=x", 400, ["type", "jab"]),
        ("/v1/audit?type=job", 400, ["id", "missing"]),
        ("/v1/audit?id=x", 400, ["id", "type"]),
        (
            "/v1/audit?type=job&id=x&namespace=*",
            400,
            ["namespace", "*"],
        ),
        ("/v1/audit?type=job&id=never", 404, ["job", "never"]),
        (
            "/v1/audit?type=alloc&id=0b156e3e",
            404,
            ["alloc", "0b156e3e"],
        ),
        ("/v1/audit?kind=JobExploded", 400, ["kind", "JobExploded"]),
        ("/v1/audit?since=soon", 400, ["since", "soon"]),
        ("/v1/audit?filter=Kind==1", 400, ["filter", "kind"]),
        (
            "/v1/jobs?as_of=2200-01-01T00:00:00Z",
            400,
            ["as_of", "not happened"],
        ),
        ("/v1/audit?until=99999999", 400, ["until", "not happened"]),
        ("/v1/audit?next_token=x", 400, ["next_token", "x"]),
        ("/v1/audit?outcome=maybe", 400, ["outcome", "maybe"]),
        ("/v1/audit?diff=maybe", 400, ["diff", "maybe"]),
        ("/v1/audit?per_page=x", 400, ["per_page", ""]),
        ("/v1/audit/trace", 400, ["id", "missing"]),
        ("/v1/audit/trace?id=99999999", 400, ["id", "not happened"]),
        ("/v1/audit/trace?id=event:x", 400, ["event", "x"]),
        (
            "/v1/audit/trace?id=nothing-of-that-name",
            404,
            ["nothing-of", "no event"],
        ),
        ("/v1/state/diff", 400, ["from", "missing"]),
        ("/v1/state/diff?from=soon", 400, ["from", "soon"]),
        (
            "/v1/state/diff?from=1&to=99999999",
            400,
            ["to", "not happened"],
        ),
        (
            "/v1/state/diff?from=1&table=tablet",
            400,
            ["table", "tablet"],
        ),
        (
            "/v1/state/diff?from=1&next_token=q",
            400,
            ["next_token", "q"],
        ),
    ] {
        let answer = http.get(path).expect("an answer");
        let text = answer.text();
        assert_eq!(answer.status, status, "{path}: {text}");
        for word in words {
            assert!(text.contains(word), "{path}: no {word:?} in {text:?}");
        }
    }
}

#[test]
fn a_variable_is_audited_without_its_secret() {
    let running = server();
    let mut http = running.http();
    for value in ["hunter2-first", "hunter2-second"] {
        let body = json!({"Path": "db/pass", "Items": {"password": value}});
        let answer = http.put("/v1/var/db/pass", &body).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let answer = http
        .get("/v1/audit?type=variable&id=db/pass&payload=true")
        .expect("an answer");
    let text = answer.text();
    let reported = answer.json().expect("JSON");
    assert_eq!(kinds(&reported), ["VariableApplied", "VariableApplied"]);
    let data = field(change(&reported[1], "variables"), "Data");
    assert_eq!(data, &json!({"Path": "Data", "Secret": true}));
    assert!(
        !text.contains("hunter2") && text.contains("\"redacted\""),
        "{text}"
    );
    let whole = http.get("/v1/state/diff?from=1").expect("an answer").text();
    assert!(
        whole.contains("db/pass") && !whole.contains("hunter2"),
        "{whole}"
    );
    let sealed = json_of(&mut http, "/v1/state/diff?from=1&table=variables");
    assert_eq!(field(&sealed[0], "Data")["Secret"], true, "{sealed:#}");
}

#[test]
fn two_states_differ_by_the_rows_that_changed() {
    let running = server();
    let mut http = running.http();
    register(&mut http, &job("stays", 1));
    register(&mut http, &job("goes", 1));
    let before = index(&mut http);
    let mut more = job("stays", 1);
    more["Job"]["Priority"] = json!(77);
    register(&mut http, &more);
    delete(&mut http, "/v1/job/goes?purge=true");
    register(&mut http, &job("comes", 1));
    let after = index(&mut http);

    let path = format!("/v1/state/diff?from={before}&to={after}&table=jobs");
    let rows = json_of(&mut http, &path);
    let reported: Vec<_> = rows
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| {
            (
                row["Key"][1].as_str().expect("a key"),
                row["Operation"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        reported,
        [
            ("comes", Some("insert")),
            ("goes", Some("delete")),
            ("stays", Some("update"))
        ]
    );
    let priority = field(&rows[2], "Priority");
    assert_eq!(
        (&priority["Before"], &priority["After"]),
        (&json!(50), &json!(77))
    );
    let none = json_of(
        &mut http,
        &format!("/v1/state/diff?from={after}&to={after}"),
    );
    assert_eq!(none, json!([]));

    // Page by page it is the same.
    let paged = pages(&mut http, &format!("{path}&per_page=1"));
    assert_eq!(Value::from(paged), rows);
    let path = format!("/v1/state/diff?from=0&to={after}");
    let paged = pages(&mut http, &format!("{path}&per_page=1"));
    assert_eq!(Value::from(paged), json_of(&mut http, &path));
}

/// All nodes of a tree, parents before children.
fn nodes(tree: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    let mut waiting = tree["Roots"].as_array().cloned().unwrap_or_default();
    while let Some(node) = waiting.pop() {
        waiting.extend(node["Children"].as_array().cloned().unwrap_or_default());
        all.push(node);
    }
    all
}

#[test]
fn a_chain_goes_from_the_users_command_to_the_events_of_tasks() {
    let running = dev();
    let mut http = running.http().header("x-request-id", "from-the-user");
    let eval = register(&mut http, &job("chain", 1));
    let alloc = wait_for("the task to end", LONG, || -> Result<String> {
        let list = http.json("/v1/job/chain/allocations")?;
        ensure!(
            list[0]["ClientStatus"] == "complete",
            "{}",
            list[0]["ClientStatus"]
        );
        Ok(list[0]["ID"].as_str().unwrap_or_default().to_owned())
    })
    .expect("it ends");

    let begin = &alloc[..8];
    for (id, kind) in [
        (begin, "allocation"),
        (&eval[..8], "evaluation"),
        ("chain", "job"),
        ("from-the-user", "request"),
    ] {
        let tree = json_of(&mut http, &format!("/v1/audit/trace?id={id}"));
        assert_eq!(tree["Type"], kind, "{tree:#}");
        let root = &tree["Roots"][0];
        assert_eq!(root["Kind"], "JobRegistered", "{tree:#}");
        assert_eq!(root["RequestID"], "from-the-user");
        assert_eq!(root["Actor"]["kind"], "anonymous");
        let nodes = nodes(&tree);
        let find = |kind: &str| {
            let found = nodes.iter().find(|node| node["Kind"] == kind);
            found.unwrap_or_else(|| panic!("no {kind} in {tree:#}"))
        };
        let plan = find("PlanApplied");
        assert_eq!(plan["Link"], "cause", "{tree:#}");
        let update = find("AllocsUpdatedByClient");
        assert_eq!(
            (&update["Link"], &update["Actor"]["kind"]),
            (&json!("cause"), &json!("node"))
        );
        let below = nodes
            .iter()
            .filter(|n| n["Kind"] == "AllocsUpdatedByClient");
        let reported =
            below.flat_map(|node| node["Things"].as_array().cloned().unwrap_or_default());
        let tasks: Vec<String> = reported
            .flat_map(|thing| thing["Tasks"].as_array().cloned().unwrap_or_default())
            .map(|task| task["Type"].as_str().unwrap_or_default().to_owned())
            .collect();
        for kind in ["Started", "Terminated"] {
            assert!(
                tasks.iter().any(|task| task == kind),
                "no {kind} in {tasks:?}"
            );
        }
        let elapsed = update["Elapsed"].as_i64().expect("a time");
        assert!(
            elapsed >= plan["Elapsed"].as_i64().expect("a time"),
            "{tree:#}"
        );
    }
    let reported = json_of(&mut http, &format!("/v1/audit?type=alloc&id={begin}"));
    assert_eq!(
        kinds(&reported)[..2],
        ["PlanApplied", "AllocsUpdatedByClient"],
        "{reported:#}"
    );
    let related = json_of(&mut http, "/v1/audit?type=job&id=chain&related=true");
    assert!(kinds(&related).contains(&"PlanApplied"), "{related:#}");
}

/// A job with a confidential value in it.
fn confidential(id: &str, value: &str) -> Value {
    let mut wanted = job(id, 1);
    wanted["Job"]["TaskGroups"][0]["Tasks"][0]["Env"] = json!({"PASSWORD": value});
    wanted
}

#[test]
fn events_are_found_by_a_confidential_value_and_none_is_shown() {
    let running = server();
    let mut http = running.http();
    register(&mut http, &confidential("one", "canary-4711"));
    register(&mut http, &confidential("other", "canary-4712"));
    register(&mut http, &confidential("again", "canary-4711"));
    let body = json!({"Value": "canary-4711"});
    let answer = http
        .put("/v1/audit?payload=true", &body)
        .expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("canary"), "{}", answer.text());
    let reported = answer.json().expect("JSON");
    let jobs = |reported: &Value| -> Vec<String> {
        let entries = reported.as_array().expect("a list").iter();
        let id = |entry: &Value| change(entry, "jobs")["Key"][1].as_str().map(str::to_owned);
        entries.filter_map(id).collect()
    };
    assert_eq!(jobs(&reported), ["one", "again"], "{reported:#}");
    let hash = &reported[0]["Payload"]["Job"]["TaskGroups"][0]["Tasks"][0]["Env"]["PASSWORD"];
    let hash = hash.as_str().expect("a text").to_owned();
    assert!(hash.starts_with("hmac:"), "{hash}");
    let row = change(&reported[0], "jobs");
    assert!(row.to_string().contains(&hash), "the diff shows it as well");
    // By its hash, as an export shows it, and in the query, too.
    let by_hash = http
        .put("/v1/audit", &json!({"Value": hash}))
        .expect("an answer");
    assert_eq!(jobs(&by_hash.json().expect("JSON")), ["one", "again"]);
    let other = json_of(&mut http, "/v1/audit?value=canary-4712");
    assert_eq!(jobs(&other), ["other"]);
    assert_eq!(json_of(&mut http, "/v1/audit?value=canary-47"), json!([]));

    let changed = json!({"Job": confidential("one", "canary-4713")["Job"]});
    register(&mut http, &changed);
    let reported = json_of(
        &mut http,
        "/v1/audit?type=job&id=one&reverse=true&kind=JobRegistered",
    );
    let path = "TaskGroups[g].Tasks[t].Env.PASSWORD";
    let env = field(change(&reported[0], "jobs"), path);
    assert_eq!(env["Before"], hash.as_str(), "{env}");
    assert_ne!(env["After"], env["Before"]);

    let addr = running.agent.addr();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["audit", "-value", "canary-4712", "-json", "-address"])
        .arg(format!("http://{addr}"))
        .output()
        .expect("the program runs");
    let reported: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(jobs(&reported), ["other"]);
    // What was looked for is in no log.
    let requested = http
        .get("/v1/audit/requests?class=audit")
        .expect("an answer");
    assert!(!requested.text().contains("canary") && requested.text().contains("/v1/audit"));
}

/// Everything that was written down, oldest first, as `drover log events -json` shows it.
fn documents(data: &std::path::Path) -> Vec<Value> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_drover"))
        .args(["log", "events", "-json", "-data-dir"])
        .arg(data)
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("JSON")).collect()
}

/// A job that runs and is stopped, and a variable that is written, by one user.
fn busy(agent: &drover_testkit::Agent) {
    let mut http = agent.http().header("x-request-id", "asked-by-a-user");
    let ready = wait_for("the node", LONG, || -> Result<()> {
        let nodes = http.json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok(())
    });
    ready.expect("a node");
    let mut wanted = job("worker", 2);
    wanted["Job"]["Type"] = json!("service");
    let task = &mut wanted["Job"]["TaskGroups"][0]["Tasks"][0];
    task["Config"] = json!({"command": "/bin/sleep", "args": ["600"]});
    register(&mut http, &wanted);
    let items = json!({"Items": {"password": "p"}});
    let put = http.put("/v1/var/app/db", &items).expect("an answer");
    assert_eq!(put.status, 200, "{}", put.text());
    let mut status = |wanted: &str| {
        let outcome = wait_for(wanted, LONG, || -> Result<()> {
            let allocs = http.json("/v1/job/worker/allocations")?;
            let allocs = allocs.as_array().cloned().unwrap_or_default();
            let done = allocs
                .iter()
                .filter(|alloc| alloc["ClientStatus"] == wanted);
            ensure!(done.count() == 2, "{allocs:#?}");
            Ok(())
        });
        outcome.expect("allocations");
        if wanted == "running" {
            delete(&mut http, "/v1/job/worker");
        }
    };
    status("running");
    status("complete");
}

/// An event says who did it, when, and why.
fn check<'a>(event: &Value, by_index: &dyn Fn(u64) -> Option<&'a Value>) {
    let actor = &event["Actor"];
    let is_set = |name: &str| actor[name].as_str().is_some_and(|text| !text.is_empty());
    assert!(
        is_set("kind") && (is_set("id") || is_set("addr")),
        "who: {event:#}"
    );
    assert!(
        event["Time"].as_i64().is_some_and(|time| time > 0),
        "when: {event:#}"
    );
    let request = event["RequestID"].as_str().unwrap_or_default();
    assert!(!request.is_empty(), "why: {event:#}");
    let index = event["Index"].as_u64().expect("an index");
    match event["Cause"].as_u64() {
        Some(cause) => {
            assert!(cause < index, "{event:#}");
            by_index(cause).unwrap_or_else(|| panic!("no event {cause}: {event:#}"));
        }
        // What begins a chain: a user's request, a node's, or a server's own doing by name.
        None if actor["kind"] == "anonymous" => assert_eq!(request, "asked-by-a-user"),
        None => assert!(actor["kind"] == "node" || is_set("name"), "{event:#}"),
    }
}

#[test]
fn every_event_of_a_real_run_says_who_when_and_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let setup = drover_testkit::Setup::dev(env!("CARGO_BIN_EXE_drover"), &data);
    let agent = setup.expect("free ports").start().expect("it starts");
    busy(&agent);
    agent.stop(LONG).expect("it stops");

    let all = documents(&data);
    let by_index = |index: u64| all.iter().find(|event| event["Index"] == index);
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    let mut reports = Vec::new();
    for event in &all {
        let kind = event["Kind"].as_str().expect("a kind");
        *kinds.entry(kind).or_default() += 1;
        if kind.starts_with("Raft") {
            continue;
        }
        check(event, &by_index);
        if kind == "AllocsUpdatedByClient" {
            reports.push(event);
        }
    }
    for kind in [
        "JobRegistered",
        "JobDeregistered",
        "PlanApplied",
        "VariableApplied",
        "NodeRegistered",
    ] {
        assert!(kinds.contains_key(kind), "no {kind} in {kinds:?}");
    }
    assert!(reports.len() >= 2, "{kinds:?}");
    let causes: Vec<&str> = reports
        .iter()
        .map(|event| by_index(event["Cause"].as_u64().expect("a cause")).expect("an event"))
        .map(|cause| cause["Kind"].as_str().expect("a kind"))
        .collect();
    assert!(
        causes.iter().all(|kind| *kind == "PlanApplied"),
        "{causes:?}"
    );
    let first = reports[0]["Cause"].as_u64();
    let last = reports[reports.len() - 1]["Cause"].as_u64();
    assert!(first < last, "placed by one plan, stopped by another");
}
