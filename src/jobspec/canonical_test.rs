use super::ApiJob;
use drover_events::field::{Kind, Shape, Specified};
use drover_events::model::{Job, Service, Task, TaskArtifact, TaskGroup};
use serde_json::{Map, Value as Json, json};

/// Blocks that are filled in elsewhere or not at all: a job's own rules for leaving nodes are laid
/// under those of its groups first, and of the volumes of a sidecar stays what was said.
const FILLED_ELSEWHERE: [&str; 2] = ["Job.Migrate", ".SidecarTask.VolumeMounts"];

/// A block that says nothing, with every block in it once, which say nothing either.
fn bare(shape: &'static Shape) -> Json {
    let mut out = Map::new();
    let fields = shape.fields.iter();
    for field in fields.filter(|field| !field.is_internal()) {
        let inner = match field.kind {
            Kind::One(inner) | Kind::Omit(inner) => bare(inner),
            Kind::Many(inner) | Kind::Labelled(inner, _) => json!([bare(inner)]),
            Kind::ByLabel(inner, _) => json!({ "x": bare(inner) }),
            _ => continue,
        };
        out.insert(field.json.to_owned(), inner);
    }
    Json::Object(out)
}

/// Every field of a block, and of those in it, that has a default has it; how many they were.
fn filled(path: &str, shape: &'static Shape, block: &Json) -> usize {
    let mut found = 0;
    for field in shape.fields {
        let path = format!("{path}.{}", field.json);
        if FILLED_ELSEWHERE.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        let value = &block[field.json];
        if let Some(default) = field.default {
            assert_eq!(*value, default.to_json(), "{path}");
            found += 1;
        }
        let Some((inner, _)) = field.kind.shape() else {
            continue;
        };
        let below: usize = match (field.kind, value) {
            (Kind::ByLabel(..), Json::Object(map)) => {
                map.values().map(|one| filled(&path, inner, one)).sum()
            }
            (_, Json::Object(_)) => filled(&path, inner, value),
            (_, Json::Array(items)) => items.iter().map(|one| filled(&path, inner, one)).sum(),
            _ => 0,
        };
        found += below;
    }
    found
}

#[test]
fn every_default_is_filled_in() {
    let mut job = ApiJob::from_json(bare(Job::SHAPE)).expect("reads");
    job.canonicalise();
    let job = Json::Object(job.fields().clone());
    let found = filled("Job", Job::SHAPE, &job);
    assert!(found > 120, "{found}");
}

/// A block in which every list and map is present and empty; single blocks are absent.
fn emptied(shape: &'static Shape) -> Json {
    let mut out = Map::new();
    let fields = shape.fields.iter();
    for field in fields.filter(|f| f.kind.is_collection() && !f.is_internal()) {
        let is_map = field.kind.is_map() || matches!(field.kind, Kind::ByLabel(..));
        let empty = if is_map { json!({}) } else { json!([]) };
        out.insert(field.json.to_owned(), empty);
    }
    Json::Object(out)
}

#[test]
fn empty_lists_and_maps_are_stored_as_none_where_a_job_may_have_none() {
    let (mut job, mut group) = (emptied(Job::SHAPE), emptied(TaskGroup::SHAPE));
    let mut task = emptied(Task::SHAPE);
    task["Artifacts"] = json!([emptied(TaskArtifact::SHAPE)]);
    group["Services"] = json!([emptied(Service::SHAPE)]);
    group["Tasks"] = json!([task, emptied(Task::SHAPE)]);
    job["TaskGroups"] = json!([group, emptied(TaskGroup::SHAPE)]);
    let job = ApiJob::from_json(job).expect("reads").into_model();
    let bytes = drover_events::gojson::to_vec(&job.expect("a job")).expect("json");
    let job: Json = serde_json::from_slice(&bytes).expect("json");
    let group = &job["TaskGroups"][0];
    let blocks = [
        (Job::SHAPE, &job),
        (TaskGroup::SHAPE, &job["TaskGroups"][1]),
        (Task::SHAPE, &group["Tasks"][1]),
    ];
    // `Datacenters` becomes `["*"]`; `TaskGroups` and `Tasks` stay lists, also empty ones.
    let exempt = ["Datacenters", "TaskGroups", "Tasks"];
    for (shape, block) in blocks {
        let fields = shape.fields.iter();
        for field in fields.filter(|f| f.kind.is_collection() && !exempt.contains(&f.json)) {
            assert_eq!(
                block[field.json],
                Json::Null,
                "{}.{}",
                shape.name,
                field.json
            );
        }
    }
    assert_eq!(job["Datacenters"], json!(["*"]));
    assert_eq!(job["TaskGroups"][1]["Tasks"], json!([]));
    let service = &group["Services"][0];
    let (meta, tags) = (&service["CanaryMeta"], &service["Tags"]);
    assert_eq!((meta, tags), (&Json::Null, &json!([])));
    let artifact = &group["Tasks"][0]["Artifacts"][0];
    assert_eq!(artifact["GetterHeaders"], Json::Null);
}

#[test]
fn a_set_value_stays_and_zero_counts_as_set_except_where_zero_means_unset() {
    let set_fields = json!({
        "ID": "web", "Priority": 0, "Region": "", "NodePool": "", "AllAtOnce": null,
        "TaskGroups": [{
            "Name": "g", "EphemeralDisk": {"SizeMB": 0},
            "RestartPolicy": {"Delay": 0, "Mode": null},
            "Tasks": [{"Name": "t", "KillTimeout": 0,
                "CSIPluginConfig": {"HealthTimeout": 0, "MountDir": "/x"}}],
        }],
    });
    let mut job = ApiJob::from_json(set_fields).expect("reads");
    job.canonicalise();
    let job = Json::Object(job.fields().clone());
    assert_eq!(job["Priority"], 50);
    assert_eq!(
        (&job["Region"], &job["NodePool"]),
        (&json!("global"), &json!(""))
    );
    assert_eq!(job["AllAtOnce"], false);
    let group = &job["TaskGroups"][0];
    assert_eq!(group["EphemeralDisk"]["SizeMB"], 0);
    assert_eq!(group["RestartPolicy"]["Delay"], 0);
    assert_eq!(group["RestartPolicy"]["Mode"], "fail");
    let task = &group["Tasks"][0];
    assert_eq!(task["KillTimeout"], 0);
    assert_eq!(task["CSIPluginConfig"]["MountDir"], "/x");
    assert_eq!(task["CSIPluginConfig"]["HealthTimeout"], 30_000_000_000_i64);
}
