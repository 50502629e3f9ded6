//! Host volumes of the configuration: a real agent, and real tasks that read and write them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::ensure;
use drover_testkit::{LONG, skip, wait_for};
use serde_json::{Value, json};

use crate::support::{Running, dev_with, json_of, register};

/// Three directories that an agent offers: one for each of two allocations, and one to be read.
struct Offered {
    dir: tempfile::TempDir,
    running: Running,
}

fn offered() -> Offered {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = String::from("client {\n");
    for (name, at, read_only) in [
        ("data[0]", "first", false),
        ("data[1]", "second", false),
        ("certs", "certs", true),
    ] {
        let path = dir.path().join(at);
        fs::create_dir(&path).expect("made");
        fs::write(path.join("given"), at).expect("written");
        let path = path.display();
        config += &format!(
            "host_volume \"{name}\" {{\n  path = \"{path}\"\n  read_only = {read_only}\n}}\n"
        );
    }
    let running = dev_with(&(config + "}\n"));
    let registered = wait_for("the node", LONG, || {
        let nodes = running.http().json("/v1/nodes")?;
        ensure!(nodes[0]["Status"] == "ready", "{nodes}");
        Ok::<_, anyhow::Error>(())
    });
    registered.expect("it registers");
    Offered { dir, running }
}

fn job(volumes: &Value, mounts: &Value, script: &str) -> Value {
    json!({"Job": {
        "ID": "reader", "Name": "reader", "Type": "batch", "Datacenters": ["*"],
        "TaskGroups": [{"Name": "g", "Count": 2, "Volumes": volumes,
            "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
            "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
            "Tasks": [{"Name": "main", "Driver": "raw_exec", "VolumeMounts": mounts,
                "Config": {"command": "/bin/sh", "args": ["-c", script]},
                "Resources": {"CPU": 20, "MemoryMB": 20}}]}],
    }})
}

#[test]
fn hv_01_hv_03_tasks_read_and_write_the_volumes_of_their_index() {
    if fs::metadata("/proc/self").expect("there").uid() != 0 {
        skip("mounts of host volumes", "not root");
        return;
    }
    let Offered { dir, running } = offered();
    let mut http = running.http();
    let nodes = json_of(&mut http, "/v1/nodes");
    let reported = &nodes[0]["HostVolumes"];
    assert_eq!(reported["certs"]["ReadOnly"], true, "{reported}");
    assert_eq!(
        reported.as_object().expect("volumes").len(),
        3,
        "{reported}"
    );
    let volumes = json!({
        "v": {"Type": "host", "Source": "data", "PerAlloc": true},
        "tls": {"Type": "host", "Source": "certs", "ReadOnly": true},
    });
    let mounts = json!([
        {"Volume": "v", "Destination": "local/data"},
        {"Volume": "tls", "Destination": "${NOMAD_TASK_DIR}/certs", "ReadOnly": true},
    ]);
    let script = "cd local && cat data/given certs/given > data/read && \
                  echo \"$NOMAD_VOLUME_v\" > data/where && \
                  { ! touch certs/new 2> data/refused; }";
    register(&mut http, &job(&volumes, &mounts, script));
    let allocs = wait_for("both to end", LONG, || {
        let list = http.json("/v1/job/reader/allocations")?;
        let all = list.as_array().cloned().unwrap_or_default();
        let ended = |alloc: &&Value| alloc["ClientStatus"] == "complete";
        ensure!(all.iter().filter(ended).count() == 2, "{list:#}");
        Ok::<_, anyhow::Error>(all)
    });
    let allocs = allocs.expect("they end well");
    for (index, at) in ["first", "second"].into_iter().enumerate() {
        let file = |name: &str| fs::read_to_string(dir.path().join(at).join(name)).expect(name);
        assert_eq!(file("read"), format!("{at}certs"));
        assert!(file("refused").contains("Read-only"), "{}", file("refused"));
        let name = format!("reader.g[{index}]");
        let alloc = allocs.iter().find(|alloc| alloc["Name"] == name.as_str());
        let id = alloc.expect(&name)["ID"]
            .as_str()
            .expect("an id")
            .to_owned();
        let place = file("where");
        assert!(place.contains(&id) && place.trim().ends_with("main/local/data"));
        // What the task saw there was its own alone.
        let outside = fs::read_dir(place.trim());
        assert!(outside.map_or(true, |mut files| files.next().is_none()));
    }
    assert!(!dir.path().join("certs/new").exists());
}

#[test]
fn a_job_waits_for_a_volume_that_no_node_offers_and_says_so() {
    let Offered { running, .. } = offered();
    let mut http = running.http();
    let volumes = json!({"v": {"Type": "host", "Source": "certs"}});
    register(&mut http, &job(&volumes, &json!([]), "true"));
    let found = wait_for("the evaluation", LONG, || {
        let evals = http.json("/v1/job/reader/evaluations")?;
        let waits = evals.as_array().into_iter().flatten();
        let mut waits = waits.filter(|eval| eval["Status"] == "blocked");
        let eval = waits.next().cloned();
        eval.ok_or_else(|| anyhow::anyhow!("{evals:#}"))
    });
    let eval = found.expect("it waits");
    let why = &eval["FailedTGAllocs"]["g"]["ConstraintFiltered"];
    assert_eq!(*why, json!({"missing compatible host volumes": 1}));
    assert_eq!(eval["FailedTGAllocs"]["g"]["CoalescedFailures"], 1);
}
