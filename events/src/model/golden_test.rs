//! Recorded answers of the real thing, read and written again.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::gojson::{self, List, Map};

fn recorded(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "testdata", name]
        .iter()
        .collect();
    std::fs::read(path).unwrap()
}

/// The value at a pointer (RFC 6901) of a recorded answer reads as T and is written the same.
fn same<T: Serialize + DeserializeOwned>(name: &str, pointer: &str) {
    let body: Value = serde_json::from_slice(&recorded(name)).unwrap();
    let want = body.pointer(pointer).unwrap();
    let read: T = gojson::from_slice(&serde_json::to_vec(want).unwrap()).unwrap();
    let written: Value = serde_json::from_slice(&gojson::to_vec(&read).unwrap()).unwrap();
    assert_eq!(&written, want, "{name}{pointer}");
    let stored = rmp_serde::to_vec_named(&read).unwrap();
    let back: T = rmp_serde::from_slice(&stored).unwrap();
    let written: Value = serde_json::from_slice(&gojson::to_vec(&back).unwrap()).unwrap();
    assert_eq!(&written, want, "{name}{pointer} from its stored form");
}

/// The whole answer reads as T and is written byte for byte the same, key order included.
fn identical<T: Serialize + DeserializeOwned>(name: &str) {
    let body = recorded(name);
    let read: T = gojson::from_slice(&body).unwrap();
    let mut written = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut out = serde_json::Serializer::with_formatter(&mut written, format);
    read.serialize(&mut out).unwrap();
    let (want, got) = (
        String::from_utf8(body).unwrap(),
        String::from_utf8(written).unwrap(),
    );
    assert_eq!(got.trim_end(), want.trim_end(), "{name}");
}

/// As `same` for a whole answer; the last digit of a decimal may differ after reading it.
fn close<T: Serialize + DeserializeOwned>(name: &str) {
    let read: T = gojson::from_slice(&recorded(name)).unwrap();
    let written: Value = serde_json::from_slice(&gojson::to_vec(&read).unwrap()).unwrap();
    let want: Value = serde_json::from_slice(&recorded(name)).unwrap();
    assert!(near(&written, &want), "{name}: {written:#} is not {want:#}");
}

fn near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|b| near(v, b)))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-12
        }
        _ => a == b,
    }
}

#[test]
fn recorded_jobs() {
    same::<Job>("job.json", "");
    same::<Vec<Job>>("job-versions.json", "/Versions");
    identical::<JobSummary>("job-summary.json");
}

#[test]
fn recorded_plans() {
    same::<JobDiff>("job-plan.json", "/Diff");
    same::<PlanAnnotations>("job-plan.json", "/Annotations");
    same::<List<Evaluation>>("job-plan.json", "/CreatedEvals");
}

#[test]
fn recorded_allocations() {
    same::<Allocation>("allocation.json", "");
    for name in [
        "allocations.json",
        "allocations-resources.json",
        "job-allocations.json",
    ] {
        same::<Vec<AllocListStub>>(name, "");
    }
}

#[test]
fn mod_18_answers_about_files_and_figures_of_a_node_are_as_recorded() {
    close::<AllocResourceUsage>("allocation-stats.json");
    identical::<Vec<AllocFileInfo>>("fs-ls.json");
    identical::<AllocFileInfo>("fs-stat.json");
    close::<HostStats>("client-stats.json");
}

#[test]
fn mod_18_the_result_of_a_check_is_written_as_nomads_clients_read_it() {
    let result = CheckQueryResult {
        id: "c1".into(),
        mode: "healthiness".into(),
        status: "success".into(),
        status_code: 200,
        output: "nomad: http ok".into(),
        timestamp: 1_700_000_000,
        group: "web.cache[0]".into(),
        task: "server".into(),
        service: "cache".into(),
        check: "alive".into(),
    };
    let written = gojson::to_vec(&Map::from([("c1", result.clone())])).unwrap();
    let wanted = concat!(
        r#"{"c1":{"ID":"c1","Mode":"healthiness","Status":"success","StatusCode":200,"#,
        r#""Output":"nomad: http ok","Timestamp":1700000000,"Group":"web.cache[0]","#,
        r#""Task":"server","Service":"cache","Check":"alive"}}"#,
    );
    assert_eq!(String::from_utf8(written).unwrap(), wanted);
    let read: Map<CheckQueryResult> = gojson::from_slice(wanted.as_bytes()).unwrap();
    assert_eq!(read["c1"], result);
}

#[test]
fn recorded_evaluations() {
    identical::<Evaluation>("evaluation-blocked.json");
    identical::<Evaluation>("evaluation-complete.json");
    for name in [
        "evaluations.json",
        "evaluations-blocked.json",
        "job-evaluations.json",
    ] {
        same::<Vec<Evaluation>>(name, "");
    }
}

#[test]
fn recorded_deployments() {
    identical::<Deployment>("deployment.json");
    identical::<Vec<Deployment>>("deployments.json");
    identical::<Vec<Deployment>>("job-deployments.json");
}

#[test]
fn recorded_nodes() {
    same::<Node>("node.json", "");
}

#[test]
fn recorded_small_things() {
    identical::<Vec<Namespace>>("namespaces.json");
    identical::<Vec<NodePool>>("node-pools.json");
    identical::<VariableDecrypted>("variable.json");
    identical::<Vec<VariableMetadata>>("variables.json");
    identical::<Vec<ServiceRegistration>>("service.json");
    identical::<Vec<ServiceRegistration>>("allocation-services.json");
    identical::<Vec<ServiceRegistrationListStub>>("services.json");
    identical::<Vec<RootKeyMeta>>("keyring-keys.json");
    same::<SchedulerConfiguration>("scheduler-configuration.json", "/SchedulerConfig");
    identical::<AutopilotConfiguration>("autopilot-configuration.json");
    same::<Vec<ServerHealth>>("autopilot-health.json", "/Servers");
    same::<Vec<RaftServer>>("raft-configuration.json", "/Servers");
}

#[test]
fn older_clients_read_sums_that_follow_from_what_an_allocation_was_given() {
    let recorded: Allocation = gojson::from_slice(&recorded("allocation.json")).unwrap();
    assert!(recorded.resources.is_some() && recorded.task_resources.len() == 2);
    let stored = Allocation {
        resources: None,
        shared_resources: None,
        task_resources: Map::nil(),
        ..recorded.clone()
    };
    assert_eq!(stored.with_summed_resources(), recorded);
}

/// Jobs of long ago have networks with their tasks.
#[test]
fn networks_of_tasks_are_part_of_the_sum_and_without_any_there_is_no_list_of_them() {
    let networks = |ips: &[&str]| -> List<NetworkResource> {
        let network = |ip: &&str| NetworkResource {
            ip: (*ip).to_owned(),
            ..NetworkResource::default()
        };
        ips.iter().map(network).collect()
    };
    let nil = List::<NetworkResource>::nil;
    for (shared, first, second, sum) in [
        (nil(), nil(), nil(), nil()),
        (networks(&["s"]), nil(), nil(), networks(&["s"])),
        (nil(), nil(), networks(&["b"]), networks(&["b"])),
        (
            networks(&["s"]),
            networks(&["a"]),
            networks(&["b", "c"]),
            networks(&["s", "a", "b", "c"]),
        ),
    ] {
        let of_task = |networks: &List<NetworkResource>| AllocatedTaskResources {
            networks: networks.clone(),
            ..AllocatedTaskResources::default()
        };
        let given = AllocatedResources {
            tasks: [("first", of_task(&first)), ("second", of_task(&second))].into(),
            shared: AllocatedSharedResources {
                networks: shared.clone(),
                ..AllocatedSharedResources::default()
            },
            ..AllocatedResources::default()
        };
        let alloc = Allocation {
            allocated_resources: Some(given),
            ..Allocation::default()
        };
        let summed = alloc.with_summed_resources();
        assert_eq!(summed.resources.unwrap().networks, sum);
        assert_eq!(summed.shared_resources.unwrap().networks, shared);
        assert_eq!(summed.task_resources["first"].networks, first);
        assert_eq!(summed.task_resources["second"].networks, second);
    }
}
