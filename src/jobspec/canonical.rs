//! Canonical defaults of every part of a job, over the API's form: what was set stays, what was
//! not is filled. A default that is the same in every job is in its field's line
//! ([`drover_events::field`]), and [`fill`] sets it; here is what follows from other fields, and
//! which blocks exist by default.

use super::canonical_service as service;
use super::value::JsonObject;
use drover_events::field::{Field, Specified};
use drover_events::gojson;
use drover_events::model::status::JobType;
use drover_events::model::{
    Affinity, Consul, DisconnectStrategy, EphemeralDisk, Job, MigrateStrategy,
    ParameterizedJobConfig, PeriodicConfig, RestartPolicy, ScalingPolicy, Spread, Task, TaskGroup,
    UpdateStrategy,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Sets every field of a block that was not set and has a default of its own.
pub(super) fn fill<T: Specified>(o: &mut JsonObject) {
    for field in T::SHAPE.fields {
        let Some(default) = field.default else {
            continue;
        };
        let unstated = match o.get(field.json) {
            None | Some(Json::Null) => true,
            Some(value) => field.empty_is_unset && !is_set(value),
        };
        if unstated {
            o.insert(field.json.to_owned(), default.to_json());
        }
    }
}

/// The same for a block, where it is there.
pub(super) fn fill_in<T: Specified>(o: &mut JsonObject, key: &str) {
    if let Some(block) = object(o, key) {
        fill::<T>(block);
    }
}

/// The same for each of a list of blocks.
pub(super) fn fill_each<T: Specified>(o: &mut JsonObject, key: &str) {
    for block in objects(o, key) {
        fill::<T>(block);
    }
}

/// A block that says nothing, as the model has it.
pub(super) fn unstated<T: Specified + DeserializeOwned>() -> T {
    let mut block = JsonObject::new();
    fill::<T>(&mut block);
    gojson::from_value(Json::Object(block)).expect("the compiler holds defaults to their fields")
}

/// Sets a field that was not set.
pub(super) fn default(o: &mut JsonObject, key: &str, value: impl Into<Json>) {
    if o.get(key).is_none_or(Json::is_null) {
        o.insert(key.to_owned(), value.into());
    }
}

/// Sets a text field that is absent or empty.
pub(super) fn default_text(o: &mut JsonObject, key: &str, value: &str) {
    if text(o, key).is_empty() {
        o.insert(key.to_owned(), value.into());
    }
}

pub(super) fn text(o: &JsonObject, key: &str) -> String {
    o.get(key).and_then(Json::as_str).unwrap_or("").to_owned()
}

pub(super) fn objects<'a>(
    o: &'a mut JsonObject,
    key: &str,
) -> impl Iterator<Item = &'a mut JsonObject> {
    o.get_mut(key)
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Json::as_object_mut)
}

pub(super) fn object<'a>(o: &'a mut JsonObject, key: &str) -> Option<&'a mut JsonObject> {
    o.get_mut(key).and_then(Json::as_object_mut)
}

fn cloned(o: &JsonObject, key: &str) -> Option<JsonObject> {
    o.get(key).and_then(Json::as_object).cloned()
}

fn as_object(json: Json) -> JsonObject {
    match json {
        Json::Object(map) => map,
        _ => JsonObject::new(),
    }
}

/// Lays `over` on top of `under`, field by field.
fn merged(mut under: JsonObject, over: JsonObject) -> JsonObject {
    under.extend(over.into_iter().filter(|(_, v)| !v.is_null()));
    under
}

/// What groups need to know of their job.
pub(super) struct Above {
    pub(super) id: String,
    pub(super) name: String,
    kind: Option<JobType>,
    pub(super) namespace: String,
    update: Option<JsonObject>,
    reschedule: Option<JsonObject>,
    migrate: Option<JsonObject>,
}

/// Canonicalises a job as clients do.
pub(super) fn job(o: &mut JsonObject) {
    fill::<Job>(o);
    let id = text(o, "ID");
    default_text(o, "Name", &id);
    fill_in::<PeriodicConfig>(o, "Periodic");
    fill_in::<ParameterizedJobConfig>(o, "ParameterizedJob");
    let kind = JobType::of(&text(o, "Type"));
    let is_long_running = kind.is_some_and(JobType::is_long_running);
    if is_long_running && o.get("Update").is_none_or(Json::is_null) {
        o.insert("Update".into(), json!({}));
    }
    fill_in::<UpdateStrategy>(o, "Update");
    // All zeros is how a stored job says that it has none.
    let update = cloned(o, "Update").filter(|u| u.values().any(is_set));
    affinities_and_spreads(o);
    let above = Above {
        id,
        name: text(o, "Name"),
        kind,
        namespace: text(o, "Namespace"),
        update,
        reschedule: cloned(o, "Reschedule"),
        migrate: cloned(o, "Migrate"),
    };
    for group in objects(o, "TaskGroups") {
        self::group(group, &above);
    }
}

/// Neither null nor a zero value.
fn is_set(value: &Json) -> bool {
    !matches!(value, Json::Null | Json::Bool(false))
        && value.as_f64() != Some(0.0)
        && value.as_str() != Some("")
}

fn affinities_and_spreads(o: &mut JsonObject) {
    fill_each::<Affinity>(o, "Affinities");
    fill_each::<Spread>(o, "Spreads");
}

fn group(o: &mut JsonObject, above: &Above) {
    fill::<TaskGroup>(o);
    let name = text(o, "Name");
    let scaling_min = o
        .get("Scaling")
        .and_then(|s| s.get("Min"))
        .filter(|m| !m.is_null())
        .cloned();
    default(o, "Count", scaling_min.unwrap_or_else(|| json!(1)));
    let count = o.get("Count").cloned().unwrap_or_else(|| json!(1));
    if let Some(scaling) = object(o, "Scaling") {
        fill::<ScalingPolicy>(scaling);
        default(scaling, "Min", count);
        default_text(scaling, "Type", "horizontal");
    }
    default(o, "EphemeralDisk", json!({}));
    fill_in::<EphemeralDisk>(o, "EphemeralDisk");
    fill_in::<Consul>(o, "Consul");
    policies(o, above);
    fill_in::<DisconnectStrategy>(o, "Disconnect");
    affinities_and_spreads(o);
    for s in objects(o, "Services") {
        service::service(s, above, &name, None);
    }
    let restart = cloned(o, "RestartPolicy").unwrap_or_default();
    for task in objects(o, "Tasks") {
        super::canonical_task::task(task, above, &name, &restart);
    }
}

/// Update, reschedule, migrate and restart: the group's over the job's over the type's.
fn policies(o: &mut JsonObject, above: &Above) {
    let own = cloned(o, "Update");
    if above.update.is_some() || own.is_some() {
        let mut update = merged(
            above.update.clone().unwrap_or_default(),
            own.unwrap_or_default(),
        );
        fill::<UpdateStrategy>(&mut update);
        o.insert("Update".into(), Json::Object(update));
    }
    let own = cloned(o, "ReschedulePolicy");
    let base = match above.kind {
        Some(JobType::Service) => Some(json!({"Attempts": 0, "Interval": 0, "Delay": 30 * SECOND,
            "DelayFunction": "exponential", "MaxDelay": HOUR, "Unlimited": true})),
        Some(JobType::Batch) => Some(
            json!({"Attempts": 1, "Interval": 24 * HOUR, "Delay": 5 * SECOND,
            "DelayFunction": "constant", "MaxDelay": 0, "Unlimited": false}),
        ),
        Some(JobType::System | JobType::Sysbatch | JobType::Core) | None => None,
    };
    if base.is_some() || own.is_some() || above.reschedule.is_some() {
        let zero = json!({"Attempts": 0, "Interval": 0, "Delay": 0, "DelayFunction": "",
            "MaxDelay": 0, "Unlimited": false});
        let base = as_object(base.unwrap_or(zero));
        let policy = merged(
            merged(base, above.reschedule.clone().unwrap_or_default()),
            own.unwrap_or_default(),
        );
        o.insert("ReschedulePolicy".into(), Json::Object(policy));
    }
    let own = cloned(o, "Migrate");
    if above.kind == Some(JobType::Service) || own.is_some() || above.migrate.is_some() {
        let job = above.migrate.clone().unwrap_or_default();
        let mut policy = merged(job, own.unwrap_or_default());
        fill::<MigrateStrategy>(&mut policy);
        o.insert("Migrate".into(), Json::Object(policy));
    }
    let base = match above.kind.is_some_and(JobType::is_batch) {
        true => (3, 24 * HOUR),
        false => (2, 30 * MINUTE),
    };
    let base = json!({"Attempts": base.0, "Interval": base.1});
    let own = cloned(o, "RestartPolicy").unwrap_or_default();
    let mut policy = merged(as_object(base), own);
    fill::<RestartPolicy>(&mut policy);
    o.insert("RestartPolicy".into(), Json::Object(policy));
}

pub(super) fn restart(group: &JsonObject, own: Option<JsonObject>) -> Json {
    Json::Object(merged(group.clone(), own.unwrap_or_default()))
}

fn networks(o: &mut JsonObject) {
    for network in objects(o, "Networks") {
        for key in ["ReservedPorts", "DynamicPorts"] {
            for port in objects(network, key) {
                default_text(port, "HostNetwork", "default");
            }
        }
    }
}

/// What a server fills in beyond that: structs it keeps have no unset fields, and empty maps
/// become none.
pub(super) fn server(o: &mut JsonObject) {
    if o.get("Datacenters")
        .and_then(Json::as_array)
        .is_none_or(Vec::is_empty)
    {
        o.insert("Datacenters".into(), json!(["*"]));
    }
    let update = cloned(o, "Update").unwrap_or_default();
    let parallel = update
        .get("MaxParallel")
        .and_then(Json::as_i64)
        .unwrap_or(0);
    o.remove("Update");
    if parallel > 0 {
        let kept = ["Stagger", "MaxParallel"]
            .map(|k| (k.to_owned(), update.get(k).cloned().unwrap_or(json!(0))));
        o.insert("Update".into(), Json::Object(kept.into_iter().collect()));
    }
    let (namespace, job_id) = (text(o, "Namespace"), text(o, "ID"));
    drop_empty::<Job>(o, is_dropped);
    for group in objects(o, "TaskGroups") {
        let name = text(group, "Name");
        if let Some(scaling) = object(group, "Scaling") {
            let target = json!({"Namespace": namespace, "Job": job_id, "Group": name});
            scaling.insert("Target".into(), target);
        }
        networks(group);
        drop_empty::<TaskGroup>(group, is_dropped);
        for task in objects(group, "Tasks") {
            let task_name = text(task, "Name");
            for scaling in objects(task, "ScalingPolicies") {
                let target = json!({
                    "Namespace": namespace, "Job": job_id, "Group": name, "Task": task_name,
                });
                scaling.insert("Target".into(), target);
            }
            if let Some(resources) = object(task, "Resources") {
                networks(resources);
            }
            drop_empty::<Task>(task, is_dropped);
        }
    }
}

/// Empty lists and maps of jobs, groups and tasks are stored as none, but for those of which a job
/// has to have some.
fn is_dropped(field: &Field) -> bool {
    field.kind.is_collection() && !["TaskGroups", "Tasks"].contains(&field.json)
}

/// Takes out of a block what is empty of these fields.
pub(super) fn drop_empty<T: Specified>(o: &mut JsonObject, which: fn(&Field) -> bool) {
    for field in T::SHAPE.fields.iter().filter(|field| which(field)) {
        let empty = match o.get(field.json) {
            Some(Json::Array(items)) => items.is_empty(),
            Some(Json::Object(map)) => map.is_empty(),
            _ => false,
        };
        if empty {
            o.remove(field.json);
        }
    }
}
