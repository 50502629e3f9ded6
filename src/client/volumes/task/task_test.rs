//! What tasks are answered that mount volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_events::gojson::from_value;
use drover_events::model::{Allocation, ClientHostVolumeConfig, Node};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::alloc_dir::AllocDir;
use crate::clock::Clock;
use crate::config::ClientSettings;
use crate::drivers::Registry;

fn given(dir: &Path, driver: &str, volume: &Value, mount: &Value) -> TaskGiven {
    let alloc: Allocation = from_value(json!({"ID": "a1", "Name": "j.g[1]", "TaskGroup": "g",
        "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": {"my-data": volume},
            "Tasks": [{"Name": "t", "Driver": driver, "VolumeMounts": [mount]}]}]}}))
    .expect("an allocation");
    let mut node = Node::default();
    let path = dir.to_str().expect("a path").to_owned();
    for (name, path, read_only) in [
        ("data", path.clone(), false),
        ("data[1]", path.clone(), false),
        ("certs", path.clone(), true),
        ("lost", format!("{path}/lost"), false),
    ] {
        let offered = ClientHostVolumeConfig {
            name: name.to_owned(),
            path,
            read_only,
            ..ClientHostVolumeConfig::default()
        };
        node.host_volumes.insert(name, offered);
    }
    TaskGiven {
        alloc: Arc::new(alloc),
        name: "t".to_owned(),
        dir: AllocDir::new(Path::new("/allocs"), "a1"),
        drivers: Registry::default(),
        node: Arc::new(node),
        settings: Arc::new(ClientSettings::default()),
        resources: Arc::default(),
        clock: Clock::System,
        emit: Arc::new(|_| {}),
        hook_env: BTreeMap::new(),
    }
}

fn host(source: &str, read_only: bool, per_alloc: bool) -> Value {
    json!({"Type": "host", "Source": source, "ReadOnly": read_only, "PerAlloc": per_alloc})
}

fn at(destination: &str) -> Value {
    json!({"Volume": "my-data", "Destination": destination})
}

/// A host with SELinux.
fn host_of(is_root: bool) -> Host {
    Host {
        is_root,
        has_labels: true,
    }
}

#[test]
fn a_task_gets_its_volume_where_it_wants_it_and_is_told_where_that_is() {
    let tmp = tempfile::tempdir().unwrap();
    let host_path = tmp.path().to_owned();
    let writable = host("data", false, false);
    for (driver, is_root, destination, seen) in [
        ("exec", true, "/srv/data", Some("/srv/data")),
        ("exec", true, "local/data", Some("/local/data")),
        ("raw_exec", true, "/srv/data", Some("/allocs/a1/t/srv/data")),
        (
            "raw_exec",
            true,
            "${NOMAD_TASK_DIR}/data",
            Some("/allocs/a1/t/local/data"),
        ),
        (
            "raw_exec",
            true,
            "local/data",
            Some("/allocs/a1/t/local/data"),
        ),
        (
            "raw_exec",
            true,
            "${NOMAD_ALLOC_INDEX}",
            Some("/allocs/a1/t/1"),
        ),
        ("raw_exec", false, "/srv/data", None),
        ("mock_driver", true, "/srv/data", None),
    ] {
        let given = given(&host_path, driver, &writable, &at(destination));
        let (answer, _) = mounted(&given, host_of(is_root)).expect("mounted");
        let variable = answer.env["NOMAD_VOLUME_my_data"].clone();
        assert!(!answer.done);
        match seen {
            Some(seen) => {
                assert_eq!(variable, seen, "{driver} {destination}");
                assert_eq!(answer.mounts.len(), 1);
                assert_eq!(answer.mounts[0].host_path, host_path);
                assert!(!answer.mounts[0].read_only);
            }
            None => {
                assert_eq!(Path::new(&variable), host_path, "{driver}");
                assert!(answer.mounts.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn hv_03_the_volume_is_that_of_the_index_and_one_that_is_not_there_is_told() {
    let tmp = tempfile::tempdir().unwrap();
    let answer = async |volume: Value, mount: &Value| {
        let given = given(tmp.path(), "raw_exec", &volume, mount);
        let answer = VolumeHook.prestart(&given, &Value::Null).await;
        answer.map_err(|failure| {
            assert!(!failure.recoverable);
            failure.message
        })
    };
    assert!(answer(host("data", false, true), &at("/d")).await.is_ok());
    let lost = format!("{}/lost", tmp.path().display());
    let lost = format!("host volume \"lost\" at {lost} is not there: ");
    for (volume, mount, text) in [
        (
            host("certs", true, true),
            at("/d"),
            "host volume \"certs[1]\" is not on this node",
        ),
        (
            host("certs", false, false),
            at("/d"),
            "host volume \"certs\" is read-only on this node",
        ),
        (host("lost", false, false), at("/d"), &lost),
        (
            host("data", false, false),
            at(""),
            "volume \"my-data\" has no destination",
        ),
        (
            host("data", false, false),
            json!({"Volume": "other"}),
            "volume mount references undefined volume \"other\"",
        ),
    ] {
        let why = answer(volume, &mount).await.expect_err("refused");
        assert!(why.starts_with(text), "{why}");
    }
}

#[test]
fn what_must_not_be_written_is_mounted_so_or_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let mut mount = at("/d");
    mount["SELinuxLabel"] = "z".into();
    for (volume, of_mount, read_only) in [
        (host("data", false, false), false, false),
        (host("data", false, false), true, true),
        (host("data", true, false), false, true),
        (host("certs", true, false), false, true),
    ] {
        mount["ReadOnly"] = of_mount.into();
        let given = given(tmp.path(), "raw_exec", &volume, &mount);
        let (answer, unlabelled) = mounted(&given, host_of(true)).expect("mounted");
        assert_eq!(answer.mounts[0].read_only, read_only, "{volume}");
        assert_eq!(answer.mounts[0].selinux_label, "z", "for the driver");
        assert!(unlabelled.is_empty(), "{unlabelled:?}");
        let without = mounted(&given, host_of(false));
        assert_eq!(without.is_err(), read_only, "{without:?}");
    }
}

#[test]
fn a_label_that_is_not_set_is_told_and_one_that_nobody_knows_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let volume = host("data", false, false);
    let mut mount = at("/d");
    let reported = |mount: &Value, driver: &str, is_root, has_labels| {
        let given = given(tmp.path(), driver, &volume, mount);
        let host = Host {
            is_root,
            has_labels,
        };
        mounted(&given, host).map(|(_, unlabelled)| unlabelled)
    };
    let not_set = |why: &str| {
        let text = "SELinux label \"Z\" of volume \"my-data\" is not set: ";
        vec![format!("{text}{why}")]
    };
    let none = Vec::new();
    assert_eq!(reported(&mount, "exec", true, false), Ok(none.clone()));
    mount["SELinuxLabel"] = "Z".into();
    assert_eq!(reported(&mount, "exec", true, true), Ok(none));
    let nowhere = Ok(not_set("this host has no SELinux"));
    assert_eq!(reported(&mount, "exec", true, false), nowhere);
    let unmounted = Ok(not_set("no directory is mounted that could have it"));
    assert_eq!(reported(&mount, "raw_exec", false, true), unmounted);
    mount["SELinuxLabel"] = "x".into();
    let refused = reported(&mount, "exec", true, true).expect_err("no label");
    let text = "no SELinux label \"x\"";
    assert_eq!(refused, HookFailure::fatal(text));
}

#[tokio::test]
async fn that_a_host_has_no_selinux_is_said_before_the_first_start_alone() {
    if labels::is_on() {
        return drover_testkit::skip("a host without SELinux", "this one has it");
    }
    let tmp = tempfile::tempdir().unwrap();
    let mut mount = at("/d");
    mount["SELinuxLabel"] = "z".into();
    let mut given = given(
        tmp.path(),
        "mock_driver",
        &host("data", false, false),
        &mount,
    );
    let reported = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reported);
    given.emit = Arc::new(move |event| heard.lock().push((event.r#type, event.display_message)));
    let first = VolumeHook.prestart(&given, &Value::Null).await.unwrap();
    let second = VolumeHook.prestart(&given, &first.kept).await.unwrap();
    assert_eq!((&second.kept, second.done), (&first.kept, false));
    let text = "volumes: SELinux label \"z\" of volume \"my-data\" is not set: this host has no \
                SELinux";
    let once = ("Task hook message".to_owned(), text.to_owned());
    assert_eq!(*reported.lock(), [once]);
}
