use super::ApiJob;
use drover_events::field::{Kind, Shape, Specified};
use drover_events::model::Job;
use serde_json::{Map, Value as Json, json};

/// Blocks that are filled in elsewhere or not at all: a job's own rules for leaving nodes are laid
/// under those of its groups first, and of the volumes of a sidecar stays what was said.
const AS_SAID: [&str; 2] = ["Job.Migrate", ".SidecarTask.VolumeMounts"];

/// A block that says nothing, with every block in it once, which say nothing either.
fn bare(shape: &'static Shape) -> Json {
    let mut out = Map::new();
    let fields = shape.fields.iter();
    for field in fields.filter(|field| !field.json.starts_with('@')) {
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
        if AS_SAID.iter().any(|end| path.ends_with(end)) {
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
fn what_a_field_is_where_it_is_not_said_is_filled_in_everywhere() {
    let mut job = ApiJob::from_json(bare(Job::SHAPE)).expect("reads");
    job.canonicalise();
    let job = Json::Object(job.fields().clone());
    let found = filled("Job", Job::SHAPE, &job);
    assert!(found > 120, "{found}");
}

#[test]
fn what_was_said_stays_and_zero_is_said_but_where_it_says_nothing() {
    let said = json!({
        "ID": "web", "Priority": 0, "Region": "", "NodePool": "", "AllAtOnce": null,
        "TaskGroups": [{
            "Name": "g", "EphemeralDisk": {"SizeMB": 0},
            "RestartPolicy": {"Delay": 0, "Mode": null},
            "Tasks": [{"Name": "t", "KillTimeout": 0,
                "CSIPluginConfig": {"HealthTimeout": 0, "MountDir": "/x"}}],
        }],
    });
    let mut job = ApiJob::from_json(said).expect("reads");
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
