//! Tasks of the `exec` driver under a real agent.

use std::fs;

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};
use serde_json::{Value, json};

use super::{World, is_root};
use crate::support::register;

#[test]
fn drv_06_the_node_says_that_it_can_and_a_task_of_exec_lives_apart() {
    if !is_root("the exec driver") {
        return;
    }
    let mut world = World::start();
    let script = "echo $NOMAD_ALLOC_DIR $NOMAD_TASK_DIR $NOMAD_SECRETS_DIR; id -un; \
                  cat /proc/1/comm; ls -d /root /home 2>/dev/null; \
                  echo kept > $NOMAD_TASK_DIR/file; echo up; exec sleep 1000";
    let more = json!({"Driver": "exec", "Resources": {"CPU": 50, "MemoryMB": 32}});
    let alloc = world.run("apart", script, more);
    let wanted = "/alloc /local /secrets\nnobody\ndrover-init\nup";
    assert_eq!(world.log(&alloc, "t"), wanted);
    let file = world.of_alloc(&alloc, "t/local/file");
    assert_eq!(fs::read_to_string(file).expect("its file"), "kept\n");
    let nodes = world.http.json("/v1/nodes").expect("an answer");
    let id = nodes[0]["ID"].as_str().expect("a node").to_owned();
    let node = world
        .http
        .json(&format!("/v1/node/{id}"))
        .expect("an answer");
    let driver = &node["Drivers"]["exec"];
    assert_eq!(
        (&driver["Detected"], &driver["Healthy"]),
        (&json!(true), &json!(true)),
        "{driver}"
    );
    assert_eq!(driver["Attributes"]["driver.exec"], "true");
    assert_eq!(node["Attributes"]["driver.exec"], "1");

    let path = format!("/v1/client/allocation/{alloc}/stats");
    // A sample may be of before its last command took over its process.
    wait_for("a sample", LONG, || {
        let stats = world.http.json(&path)?;
        let pids = stats["Tasks"]["t"]["Pids"].as_object();
        let alone = pids.is_some_and(|pids| pids.len() == 1);
        ensure!(alone, "the task alone is measured: {stats}");
        Ok(())
    })
    .expect("it is measured");
    let deleted = world
        .http
        .send("DELETE", "/v1/job/apart", &[])
        .expect("an answer");
    assert_eq!(deleted.status, 200);
    wait_for("the task to end", LONG, || {
        let one = world.http.json(&format!("/v1/allocation/{alloc}"))?;
        ensure!(one["ClientStatus"] == "complete", "{}", one["TaskStates"]);
        Ok(())
    })
    .expect("it ends");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let here = world.data().display().to_string();
    assert!(
        !mounts.contains(&here),
        "nothing of it is mounted: {mounts}"
    );
}

/// The events of a job's only task when it has failed.
fn failed(world: &mut World, id: &str, task: Value) -> Vec<Value> {
    let job = json!({"Job": {
        "ID": id, "Name": id, "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 1, "Tasks": [task],
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "ReschedulePolicy": {"Attempts": 0, "Unlimited": false}}],
    }});
    register(&mut world.http, &job);
    let path = format!("/v1/job/{id}/allocations");
    let events = wait_for("the task to fail", LONG, || {
        let all = world.http.json(&path)?;
        ensure!(all[0]["ClientStatus"] == "failed", "{all}");
        Ok(all[0]["TaskStates"]["t"]["Events"].clone())
    });
    let events = events.expect("it fails");
    events.as_array().cloned().unwrap_or_default()
}

#[test]
fn drv_06_what_goes_wrong_in_a_task_of_exec_is_told_in_its_events() {
    if !is_root("the exec driver") {
        return;
    }
    let mut world = World::start();
    let task = |config: Value, user: &str| {
        json!({"Name": "t", "Driver": "exec", "User": user, "Config": config,
            "Resources": {"CPU": 50, "MemoryMB": 16}})
    };
    let config = json!({"command": "tail", "args": ["/dev/zero"]});
    let events = failed(&mut world, "greedy", task(config, ""));
    let ended = events.iter().find(|event| event["Type"] == "Terminated");
    let ended = ended.expect("it ended");
    let text = "Exit Code: 137, Signal: 9, Exit Message: \"OOM Killed\"";
    assert_eq!(ended["DisplayMessage"], text, "{ended}");
    assert_eq!(ended["Details"]["oom_killed"], "true");
    for (id, config, user, part) in [
        (
            "root",
            json!({"command": "id"}),
            "root",
            "running as user \"root\" is disallowed",
        ),
        (
            "caps",
            json!({"command": "id", "cap_add": ["sys_admin"]}),
            "",
            "driver does not allow the following capabilities: sys_admin",
        ),
        (
            "gone",
            json!({"command": "/nowhere/at/all"}),
            "",
            "/nowhere/at/all",
        ),
        (
            "host",
            json!({"command": "/var/lib/dpkg/status"}),
            "",
            "No such file",
        ),
    ] {
        let events = failed(&mut world, id, task(config, user));
        let reported = events.iter().any(|event| {
            event["DisplayMessage"]
                .to_string()
                .contains(&part.replace('"', "\\\""))
        });
        assert!(reported, "{part}: {events:#?}");
    }
}
