//! What the client of a node answers over HTTP: restarts, signals, figures, files, removal.

use anyhow::{Context, ensure};
use drover_testkit::{Http, LONG, wait_for};
use serde_json::{Value, json};

use crate::remote::wait_log;
use crate::support::{Running, dev, dev_with, job, json_of, node_is_ready, register};

/// A running allocation of two tasks that wait, and one that ended before they began; its id.
fn waiting(running: &Running) -> String {
    let task = |name: &str| {
        json!({"Name": name, "Driver": "raw_exec", "Config": {
            "command": "/bin/sh",
            "args": ["-c", "trap 'echo heard' USR1; echo begun; while :; do sleep 0.1; done"],
        }})
    };
    let once = json!({"Name": "once", "Driver": "raw_exec", "Config": {"command": "true"},
        "Lifecycle": {"Hook": "prestart", "Sidecar": false}});
    let job = json!({"Job": {
        "ID": "pair", "Name": "pair", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [task("a"), task("b"), once]}],
    }});
    let mut http = running.http();
    register(&mut http, &job);
    let id = wait_for("both tasks", LONG, || {
        let allocs = http.json("/v1/job/pair/allocations")?;
        let states = &allocs[0]["TaskStates"];
        let runs = |task: &str| states[task]["State"] == "running";
        ensure!(runs("a") && runs("b"), "{states}");
        allocs[0]["ID"].as_str().map(str::to_owned).context("an id")
    });
    id.expect("they run")
}

/// When the tasks began, once `so` holds of that.
fn begun(http: &mut Http, alloc: &str, so: impl Fn(&[String; 2]) -> bool) -> [String; 2] {
    let path = format!("/v1/allocation/{alloc}");
    let begun = wait_for("the tasks", LONG, || {
        let shown = http.json(&path)?;
        let states = &shown["TaskStates"];
        ensure!(
            states["a"]["State"] == "running" && states["b"]["State"] == "running",
            "{states}"
        );
        let begun = ["a", "b"].map(|task| states[task]["StartedAt"].to_string());
        ensure!(so(&begun), "{begun:?}");
        Ok(begun)
    });
    begun.expect("they go on")
}

fn put(http: &mut Http, path: &str, body: &Value) -> (u16, String) {
    let answer = http.put(path, body).expect("an answer");
    (answer.status, answer.text())
}

/// The last events of a task, so many.
fn reported(http: &mut Http, alloc: &str, task: &str, last: usize) -> Vec<Value> {
    let shown = json_of(http, &format!("/v1/allocation/{alloc}"));
    let events = shown["TaskStates"][task]["Events"].as_array();
    let mut events = events.expect("events").clone();
    events.split_off(events.len().saturating_sub(last))
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["Type"].as_str())
        .collect()
}

/// A requested restart is among a task's events as in Nomad.
fn restarted(http: &mut Http, alloc: &str, task: &str) {
    const REQUESTED: &str = "User requested task to restart";
    let events = reported(http, alloc, task, 4);
    let wanted = ["Restart Signaled", "Terminated", "Restarting", "Started"];
    assert_eq!(kinds(&events), wanted, "{task}: {events:?}");
    let [requested, ended, ..] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(requested["RestartReason"], REQUESTED, "{requested}");
    assert_eq!(requested["DisplayMessage"], REQUESTED, "{requested}");
    assert_eq!(
        requested["Details"]["restart_reason"], REQUESTED,
        "{requested}"
    );
    assert!(ended["Details"]["exit_code"].is_string(), "{ended}");
}

#[test]
fn job_11_cl_29_a_restart_is_of_one_task_of_those_that_run_or_of_all() {
    let running = dev();
    let alloc = waiting(&running);
    let mut http = running.http();
    let path = format!("/v1/client/allocation/{alloc}/restart");
    let first = begun(&mut http, &alloc, |_| true);
    let both = put(
        &mut http,
        &path,
        &json!({"TaskName": "a", "AllTasks": true}),
    );
    assert_eq!(both.0, 400);
    assert_eq!(
        both.1,
        "cannot restart all tasks and a single task at the same time"
    );
    let nobody = put(&mut http, &path, &json!({"TaskName": "nobody"}));
    assert_eq!(nobody, (500, "Could not find task \"nobody\"".to_owned()));
    let dead = put(&mut http, &path, &json!({"TaskName": "once"}));
    assert_eq!(dead, (500, "Task not running".to_owned()));
    assert_eq!(
        begun(&mut http, &alloc, |_| true),
        first,
        "nothing happened"
    );

    assert_eq!(put(&mut http, &path, &json!({"TaskName": "a"})).0, 200);
    let one = begun(&mut http, &alloc, |now| now[0] != first[0]);
    assert_eq!(one[1], first[1], "the other goes on");
    restarted(&mut http, &alloc, "a");
    let other = reported(&mut http, &alloc, "b", 10);
    assert_eq!(kinds(&other), ["Received", "Task Setup", "Started"]);
    assert_eq!(put(&mut http, &path, &json!({})).0, 200);
    let both_anew = |now: &[String; 2]| now[0] != one[0] && now[1] != one[1];
    let running_ones = begun(&mut http, &alloc, both_anew);
    for task in ["a", "b"] {
        restarted(&mut http, &alloc, task);
    }
    let starts = |http: &mut Http| {
        let shown = json_of(http, &format!("/v1/allocation/{alloc}"));
        let once = shown["TaskStates"]["once"].clone();
        let events = once["Events"].as_array().expect("events").clone();
        let started = events.iter().filter(|e| e["Type"] == "Started").count();
        (once["State"].clone(), started)
    };
    assert_eq!(starts(&mut http), (json!("dead"), 1), "it does not run");
    assert_eq!(put(&mut http, &path, &json!({"AllTasks": true})).0, 200);
    begun(&mut http, &alloc, |now| {
        now[0] != running_ones[0] && now[1] != running_ones[1]
    });
    assert_eq!(starts(&mut http), (json!("dead"), 2), "it ran once more");
    for task in ["a", "b"] {
        restarted(&mut http, &alloc, task);
    }

    let requested = json_of(&mut http, "/v1/audit/requests?class=control");
    let requested = requested["Requests"].as_array().or(requested.as_array());
    let requested = requested.expect("requests");
    assert_eq!(
        requested.len(),
        6,
        "who restarted what is written down, refused or not"
    );
    for entry in requested {
        assert_eq!(entry["Path"], path, "{entry}");
        assert_eq!(entry["Actor"]["kind"], "anonymous", "{entry}");
        let address = entry["Actor"]["addr"].as_str().unwrap_or_default();
        assert!(address.starts_with("127.0.0.1"), "{entry}");
    }
}

#[test]
fn cl_29_a_crash_that_ends_its_group_is_told_of_every_task() {
    let running = dev();
    let task = |name: &str, script: &str| {
        json!({"Name": name, "Driver": "raw_exec", "Config": {
            "command": "/bin/sh", "args": ["-c", script],
        }})
    };
    // It crashes once the other one runs.
    let crash = "until [ -e \"$NOMAD_ALLOC_DIR/up\" ]; do sleep 0.1; done; exit 3";
    let waits = "touch \"$NOMAD_ALLOC_DIR/up\"; exec sleep 1000";
    // The health of a batch job is not reported, which would be one event more.
    let job = json!({"Job": {
        "ID": "siblings", "Name": "siblings", "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1,
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
            "Tasks": [task("crash", crash), task("other", waits)]}],
    }});
    let mut http = running.http();
    register(&mut http, &job);
    let alloc = wait_for("the end", LONG, || {
        let allocs = http.json("/v1/job/siblings/allocations")?;
        let states = &allocs[0]["TaskStates"];
        let dead = |task: &str| states[task]["State"] == "dead";
        ensure!(dead("crash") && dead("other"), "{states}");
        allocs[0]["ID"].as_str().map(str::to_owned).context("an id")
    });
    let alloc = alloc.expect("both end");

    let crashed = reported(&mut http, &alloc, "crash", 2);
    assert_eq!(kinds(&crashed), ["Terminated", "Not Restarting"]);
    let why = "Policy allows no restarts";
    assert_eq!(crashed[1]["RestartReason"], why, "{crashed:?}");
    assert_eq!(crashed[1]["DisplayMessage"], why, "{crashed:?}");
    let other = reported(&mut http, &alloc, "other", 4);
    let wanted = ["Sibling Task Failed", "Killing", "Terminated", "Killed"];
    assert_eq!(kinds(&other), wanted);
    assert_eq!(other[0]["FailedSibling"], "crash", "{other:?}");
    let why = "Sibling Task Failed";
    assert_eq!(other[1]["KillReason"], why, "{other:?}");
    assert_eq!(other[1]["DisplayMessage"], why, "{other:?}");
    assert_eq!(other[1]["Details"]["kill_reason"], why, "{other:?}");
}

/// An allocation without checks has none to list, by either path.
fn unchecked(http: &mut Http, alloc: &str) {
    for path in ["/v1/client/allocation", "/v1/allocation"] {
        let checks = json_of(http, &format!("{path}/{alloc}/checks"));
        assert_eq!(checks, Value::Null, "it has none");
    }
}

/// A signal that was sent is among a task's events, in time.
fn signalled(http: &mut Http, alloc: &str, task: &str) {
    let event = wait_for("the servers to know", LONG, || {
        let last = reported(http, alloc, task, 1).remove(0);
        ensure!(last["Type"] == "Signaling", "{last}");
        Ok(last)
    });
    let event = event.expect("it is told");
    assert_eq!(event["TaskSignal"], "SIGUSR1", "{event}");
    let text = &event["DisplayMessage"];
    assert_eq!(text, "Task being sent signal SIGUSR1");
}

/// How the tasks ended with their job: one was killed, the other had ended by itself.
fn killed(http: &mut Http, alloc: &str) {
    let ends = reported(http, alloc, "a", 3);
    assert_eq!(kinds(&ends), ["Killing", "Terminated", "Killed"]);
    let text = &ends[0]["DisplayMessage"];
    assert_eq!(text, "Sent interrupt. Waiting 5s before force killing");
    assert_eq!(ends[0]["KillTimeout"], 5_000_000_000_u64, "{ends:?}");
    let text = &ends[2]["DisplayMessage"];
    assert_eq!(text, "Task successfully killed");
    let once = reported(http, alloc, "once", 1).remove(0);
    assert_eq!(once["Type"], "Terminated", "it had ended by itself");
    assert_eq!(once["DisplayMessage"], "Exit Code: 0");
}

#[test]
fn mod_23_each_question_to_a_node_is_answered() {
    let running = dev();
    let alloc = waiting(&running);
    let mut http = running.http();
    let client = format!("/v1/client/allocation/{alloc}");
    let stats = json_of(&mut http, &format!("{client}/stats"));
    assert!(
        stats["Tasks"]["a"]["ResourceUsage"].is_object() && stats["Tasks"]["b"].is_object(),
        "{stats}"
    );
    unchecked(&mut http, &alloc);
    let logs = format!("/v1/client/fs/logs/{alloc}?task=a&type=stdout&plain=true");
    // A shell that has not set its trap is ended by the signal.
    wait_log(&mut http, &logs, "begun");
    let signal = json!({"Task": "a", "Signal": "SIGUSR1"});
    assert_eq!(put(&mut http, &format!("{client}/signal"), &signal).0, 200);
    wait_log(&mut http, &logs, "begun\nheard");
    signalled(&mut http, &alloc, "a");

    let list = json_of(&mut http, &format!("/v1/client/fs/ls/{alloc}?path=/"));
    let names: Vec<&str> = list
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["Name"].as_str())
        .collect();
    assert!(
        ["a", "b", "alloc"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    let stat = json_of(&mut http, &format!("/v1/client/fs/stat/{alloc}?path=alloc"));
    assert_eq!(
        (&stat["Name"], &stat["IsDir"]),
        (&json!("alloc"), &json!(true))
    );
    for verb in ["restart", "signal"] {
        let answer = http.get(&format!("{client}/{verb}")).expect("an answer");
        assert_eq!(answer.status, 405, "{verb} changes something");
    }
    let paused = put(&mut http, &format!("{client}/pause"), &json!({"Task": "a"}));
    assert_eq!(paused, (501, "Nomad Enterprise only endpoint".to_owned()));
    let unknown = "/v1/client/allocation/00000000-0000-0000-0000-000000000000/stats";
    assert_eq!(http.get(unknown).expect("an answer").status, 404);

    let stopped = http.send("DELETE", "/v1/job/pair", &[]).expect("an answer");
    assert_eq!(stopped.status, 200);
    wait_for("the end", LONG, || {
        let shown = http.json(&format!("/v1/allocation/{alloc}"))?;
        ensure!(
            shown["ClientStatus"] == "complete",
            "{}",
            shown["ClientStatus"]
        );
        Ok(())
    })
    .expect("it ends");
    killed(&mut http, &alloc);
    // Its node may still have something to do for it when the servers know of its end.
    wait_for("the removal", LONG, || {
        let collected = http.get(&format!("{client}/gc"))?;
        ensure!(collected.status == 200, "{}", collected.text());
        Ok(())
    })
    .expect("it is removed");
    let gone = http
        .get(&format!("/v1/client/fs/ls/{alloc}?path=/"))
        .expect("an answer");
    assert_eq!(gone.status, 404, "{}", gone.text());
}

#[test]
fn mod_17_the_figures_of_a_machine_are_plausible() {
    let running = dev();
    let mut http = running.http();
    node_is_ready(&mut http);
    json_of(&mut http, "/v1/client/stats");
    let stats = json_of(&mut http, "/v1/client/stats");
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let cores = std::thread::available_parallelism().expect("cores").get();
    let cpus = stats["CPU"].as_array().expect("processors");
    assert!(cpus.len() >= cores, "{stats}");
    for cpu in cpus {
        assert!(
            cpu["CPU"]
                .as_str()
                .is_some_and(|name| name.starts_with("cpu"))
        );
        for part in ["User", "System", "Idle", "TotalPercent"] {
            let percent = number(&cpu[part]);
            assert!((0.0..=100.0).contains(&percent), "{part}: {cpu}");
        }
    }
    let memory = &stats["Memory"];
    let (total, used) = (number(&memory["Total"]), number(&memory["Used"]));
    assert!(total > 64e6 && used > 0.0 && used <= total, "{memory}");
    assert!(number(&memory["Available"]) <= total, "{memory}");
    for disk in [&stats["AllocDirStats"], &stats["DiskStats"][0]] {
        let (size, used) = (number(&disk["Size"]), number(&disk["Used"]));
        assert!(size > 0.0 && used <= size, "{disk}");
        assert!(
            (0.0..=100.0).contains(&number(&disk["UsedPercent"])),
            "{disk}"
        );
    }
    assert!(number(&stats["Uptime"]) > 0.0 && number(&stats["Timestamp"]) > 1.6e18);
}

#[test]
fn mod_27_the_oldest_that_are_finished_go_when_there_are_too_many() {
    let running = dev_with("client {\n  gc_interval = \"1s\"\n  gc_max_allocs = 2\n}\n");
    let runs = waiting(&running);
    let mut http = running.http();
    let mut finished = Vec::new();
    for number in 0..4 {
        let id = format!("done-{number}");
        register(&mut http, &job(&id, 1));
        let alloc = wait_for("the end", LONG, || {
            let allocs = http.json(&format!("/v1/job/{id}/allocations"))?;
            ensure!(allocs[0]["ClientStatus"] == "complete", "{allocs}");
            allocs[0]["ID"].as_str().map(str::to_owned).context("an id")
        });
        finished.push(alloc.expect("it ends"));
    }
    let there = |http: &mut Http, alloc: &str| {
        let path = format!("/v1/client/fs/ls/{alloc}?path=/");
        http.get(&path).expect("an answer").status == 200
    };
    wait_for("the oldest to go", LONG, || {
        let left: Vec<bool> = finished.iter().map(|id| there(&mut http, id)).collect();
        ensure!(left == [false, false, false, true], "{left:?}");
        Ok(())
    })
    .expect("they go");
    assert!(there(&mut http, &runs), "what runs stays");
}
