//! What a job may say and this version does not do yet. It is refused where a job is registered:
//! nothing that a user requests is left out in silence. The list only gets shorter.
//!
//! It is no word in the lines of fields ([`drover_events::field`]): whether something has no effect
//! is seen from what it says (an identity, `numa`), not from its being there. A test holds the
//! names to the blocks that there are.

use drover_events::model::{Job, Service, Task, TaskGroup};

/// Everything in a job that would have no effect, in words; nothing if there is none.
pub fn unbuilt(job: &Job) -> Vec<String> {
    let mut found = Vec::new();
    if job.multiregion.is_some() {
        found.push(refusal("Job", "multiregion blocks"));
    }
    for group in job.task_groups.iter() {
        let place = format!("Task group {:?}", group.name);
        found.extend(super::there(of_group(group)).map(|what| refusal(&place, what)));
        for task in group.tasks.iter() {
            let place = format!("Task \"{}.{}\"", group.name, task.name);
            found.extend(super::there(of_task(task)).map(|what| refusal(&place, what)));
        }
    }
    found
}

fn refusal(place: &str, what: &str) -> String {
    format!("{place}: {what} are not supported by this version of drover")
}

pub(super) fn of_group(group: &TaskGroup) -> [(&'static str, bool); 2] {
    [
        ("consul blocks", group.consul.is_some()),
        (
            "services with a connect block",
            group.services.iter().any(is_meshed),
        ),
    ]
}

pub(super) fn of_task(task: &Task) -> [(&'static str, bool); 9] {
    let identity = task.identity.as_ref();
    let numa = task
        .resources
        .as_ref()
        .and_then(|wanted| wanted.numa.as_ref());
    [
        ("template blocks", !task.templates.is_empty()),
        ("artifact blocks", !task.artifacts.is_empty()),
        ("vault blocks", task.vault.is_some()),
        ("consul blocks", task.consul.is_some()),
        ("secret blocks", !task.secrets.is_empty()),
        ("schedule blocks", task.schedule.is_some()),
        (
            "identities in the environment or a file",
            identity.is_some_and(|known| known.env || known.file) || !task.identities.is_empty(),
        ),
        (
            "numa blocks",
            numa.is_some_and(|numa| !matches!(numa.affinity.as_str(), "" | "none")),
        ),
        (
            "services with a connect block",
            task.services.iter().any(is_meshed),
        ),
    ]
}

fn is_meshed(service: &Service) -> bool {
    service.connect.is_some()
}

#[cfg(test)]
mod tests {
    use drover_events::field::{Shape, Specified};
    use drover_events::gojson::from_value;
    use drover_events::model::Resources;
    use serde_json::json;

    use super::*;

    fn job(group: serde_json::Value, task: serde_json::Value) -> Job {
        let mut whole = json!({"Name": "g", "Tasks": [{"Name": "t", "Driver": "raw_exec",
            "Identity": {"Name": "default", "Audience": ["nomadproject.io"]}}]});
        for (key, value) in group.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        for (key, value) in task.as_object().into_iter().flatten() {
            whole["Tasks"][0][key] = value.clone();
        }
        from_value(json!({"ID": "j", "TaskGroups": [whole]})).unwrap()
    }

    /// What is called a block is one, of one of these.
    fn is_named_rightly(text: &str, shapes: &[&Shape]) -> bool {
        let Some(name) = text.strip_suffix(" blocks") else {
            return true;
        };
        let field = shapes.iter().find_map(|shape| shape.hcl(name));
        field.is_some_and(|field| field.kind.is_block())
    }

    #[test]
    fn what_has_an_effect_is_not_named() {
        let none = json!({});
        assert!(unbuilt(&job(none.clone(), none.clone())).is_empty());
        let plain = json!({"Resources": {"NUMA": {"Affinity": "none"}}, "Env": {"A": "b"},
            "Services": [{"Name": "web", "Provider": "nomad"}], "VolumeMounts": [{"Volume": "x"}]});
        for kind in ["host", "csi"] {
            let group = json!({"Volumes": {"x": {"Type": kind, "Source": "x", "Sticky": true}}});
            assert!(unbuilt(&job(group, plain.clone())).is_empty());
        }
        let plugin = json!({"CSIPluginConfig": {"ID": "x"}});
        assert!(unbuilt(&job(none, plugin)).is_empty());
    }

    #[test]
    fn what_would_have_no_effect_is_named_with_its_place() {
        let none = json!({});
        let unsupported = "not supported by this version of drover";
        for (group, text) in [
            (json!({"Consul": {}}), "consul blocks"),
            (
                json!({"Services": [{"Connect": {"Native": true}}]}),
                "services with a connect block",
            ),
        ] {
            let expected = format!("Task group \"g\": {text} are {unsupported}");
            assert_eq!(unbuilt(&job(group, none.clone())), [expected]);
            assert!(is_named_rightly(text, &[TaskGroup::SHAPE]), "{text}");
        }
        for (task, text) in [
            (
                json!({"Templates": [{"EmbeddedTmpl": "x"}]}),
                "template blocks",
            ),
            (
                json!({"Artifacts": [{"GetterSource": "x"}]}),
                "artifact blocks",
            ),
            (json!({"Vault": {}}), "vault blocks"),
            (json!({"Consul": {}}), "consul blocks"),
            (json!({"Secrets": [{"Name": "x"}]}), "secret blocks"),
            (json!({"Schedule": {}}), "schedule blocks"),
            (
                json!({"Identity": {"Env": true}}),
                "identities in the environment or a file",
            ),
            (
                json!({"Identity": {"File": true}}),
                "identities in the environment or a file",
            ),
            (
                json!({"Identities": [{"Name": "x"}]}),
                "identities in the environment or a file",
            ),
            (
                json!({"Resources": {"NUMA": {"Affinity": "require"}}}),
                "numa blocks",
            ),
            (
                json!({"Services": [{"Connect": {}}]}),
                "services with a connect block",
            ),
        ] {
            let expected = format!("Task \"g.t\": {text} are {unsupported}");
            assert_eq!(
                unbuilt(&job(none.clone(), task.clone())),
                [expected],
                "{task}"
            );
            assert!(
                is_named_rightly(text, &[Task::SHAPE, Resources::SHAPE]),
                "{text}"
            );
        }
        assert!(!is_named_rightly("templates blocks", &[Task::SHAPE]));
        assert!(is_named_rightly("multiregion blocks", &[Job::SHAPE]));
        let mut far = job(none.clone(), none);
        far.multiregion = Some(drover_events::model::Multiregion::default());
        assert_eq!(
            unbuilt(&far),
            [format!("Job: multiregion blocks are {unsupported}")]
        );
    }
}
