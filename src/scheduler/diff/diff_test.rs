use drover_events::model::{
    Constraint, DesiredUpdates, EphemeralDisk, LogConfig, NetworkResource, PlanAnnotations, Port,
    Resources, Service, Task, TaskGroup,
};

use super::*;

fn job() -> Job {
    let mut task = Task {
        name: "server".into(),
        driver: "raw_exec".into(),
        kill_timeout: 5_000_000_000,
        resources: Some(Resources {
            cpu: 100,
            memory_mb: 64,
            ..Resources::default()
        }),
        log_config: Some(LogConfig {
            max_files: 10,
            max_file_size_mb: 10,
            disabled: false,
        }),
        ..Task::default()
    };
    task.env.insert("MODE", "fast".to_owned());
    let port = Port {
        label: "db".into(),
        host_network: "default".into(),
        ..Port::default()
    };
    let network = NetworkResource {
        dynamic_ports: vec![port].into(),
        ..Default::default()
    };
    let service = Service {
        name: "cache".into(),
        provider: "nomad".into(),
        ..Service::default()
    };
    let group = TaskGroup {
        name: "redis".into(),
        count: 2,
        tasks: vec![task].into(),
        networks: vec![network].into(),
        services: vec![service].into(),
        ephemeral_disk: Some(EphemeralDisk {
            size_mb: 300,
            ..Default::default()
        }),
        ..TaskGroup::default()
    };
    let mut job = Job {
        id: "cache".into(),
        name: "cache".into(),
        r#type: "service".into(),
        priority: 50,
        datacenters: vec!["dc1".to_owned()].into(),
        task_groups: vec![group].into(),
        ..Job::default()
    };
    job.meta.insert("team", "store".to_owned());
    job
}

fn lines(diff: &JobDiff) -> Vec<String> {
    fn of_fields(prefix: &str, fields: &[drover_events::model::FieldDiff], to: &mut Vec<String>) {
        for f in fields {
            to.push(format!(
                "{prefix}{} {}: {:?} {:?}",
                f.r#type, f.name, f.old, f.new
            ));
        }
    }
    fn of_objects(prefix: &str, objects: &[ObjectDiff], to: &mut Vec<String>) {
        for object in objects {
            to.push(format!("{prefix}{} {}", object.r#type, object.name));
            let deeper = format!("{prefix}  ");
            of_fields(&deeper, &object.fields, to);
            of_objects(&deeper, &object.objects, to);
        }
    }
    let mut to = vec![format!("{} {}", diff.r#type, diff.id)];
    of_fields("", &diff.fields, &mut to);
    of_objects("", &diff.objects, &mut to);
    for group in &diff.task_groups {
        to.push(format!("group {} {}", group.r#type, group.name));
        of_fields("  ", &group.fields, &mut to);
        of_objects("  ", &group.objects, &mut to);
        for task in &group.tasks {
            to.push(format!("  task {} {}", task.r#type, task.name));
            of_fields("    ", &task.fields, &mut to);
            of_objects("    ", &task.objects, &mut to);
        }
    }
    to
}

#[test]
fn a_new_job_is_all_added() {
    let diff = job_diff(None, Some(&job()), false);
    let lines = lines(&diff);
    for line in [
        "Added cache",
        "Added AllAtOnce: \"\" \"false\"",
        "Added Meta[team]: \"\" \"store\"",
        "Added Datacenters",
        "  Added Datacenters: \"\" \"dc1\"",
        "group Added redis",
        "  Added Count: \"\" \"2\"",
        "  Added Network",
        "    None Hostname: \"\" \"\"",
        "    Added Dynamic Port",
        "      Added To: \"\" \"0\"",
        "    None TaskName: \"\" \"\"",
        "  task Added server",
        "    Added Env[MODE]: \"\" \"fast\"",
        "    Added LogConfig",
        "      Added MaxFiles: \"\" \"10\"",
    ] {
        assert!(lines.iter().any(|l| l == line), "{line} in {lines:#?}");
    }
    assert!(
        !lines
            .iter()
            .any(|l| l.contains("User") || l.contains("SubmitTime")),
        "{lines:#?}"
    );
}

#[test]
fn a_change_names_what_changed_and_nothing_else() {
    let old = job();
    let mut new = job();
    new.meta.insert("team", "store2".to_owned());
    new.task_groups[0].count = 3;
    let mut diff = job_diff(Some(&old), Some(&new), false);
    assert_eq!(
        lines(&diff),
        [
            "Edited cache",
            "Edited Meta[team]: \"store\" \"store2\"",
            "group Edited redis",
            "  Edited Count: \"2\" \"3\"",
            "  task None server",
        ]
    );
    assert!(diff.objects.is_nil());
    let updates = DesiredUpdates {
        ignore: 2,
        place: 1,
        ..DesiredUpdates::default()
    };
    let mut found = PlanAnnotations::default();
    found.desired_tg_updates.insert("redis", updates);
    annotate(&mut diff, &found);
    let group = &diff.task_groups[0];
    assert_eq!(group.updates.get("ignore"), Some(&2));
    assert_eq!(group.updates.get("create"), Some(&1));
    assert_eq!(group.fields[0].annotations[0], "forces create");
    assert!(group.tasks[0].annotations.is_nil());
}

#[test]
fn a_job_is_edited_whatever_part_of_it_changed() {
    let kind = |change: fn(&mut Job)| {
        let mut new = job();
        change(&mut new);
        job_diff(Some(&job()), Some(&new), true).r#type
    };
    assert_eq!(kind(|_| {}), "None");
    assert_eq!(kind(|job| job.priority = 60), "Edited");
    assert_eq!(kind(|job| job.datacenters = Default::default()), "Edited");
    assert_eq!(kind(|job| job.task_groups[0].count = 7), "Edited");
}

#[test]
fn words_come_and_go_one_by_one() {
    let (old, mut new) = (job(), job());
    new.datacenters = vec!["dc2".to_owned(), "dc3".to_owned()].into();
    assert_eq!(
        lines(&job_diff(Some(&old), Some(&new), false))[1..5],
        [
            "Edited Datacenters",
            "  Added Datacenters: \"\" \"dc2\"",
            "  Added Datacenters: \"\" \"dc3\"",
            "  Deleted Datacenters: \"dc1\" \"\"",
        ]
    );
}

#[test]
fn a_count_and_a_group_that_goes_say_what_they_force() {
    let annotated = |new: &Job| {
        let mut diff = job_diff(Some(&job()), Some(new), true);
        annotate(&mut diff, &PlanAnnotations::default());
        diff.task_groups[0].clone()
    };
    let of_count = |new: &Job| {
        let group = annotated(new);
        let count = group.fields.iter().find(|field| field.name == "Count");
        count.expect("it is told").annotations.to_vec()
    };
    let mut new = job();
    new.meta.insert("team", "other".to_owned());
    assert_eq!(of_count(&new), [""; 0], "as many as before");
    new.task_groups[0].count = 1;
    assert_eq!(of_count(&new), ["forces destroy"]);
    new.task_groups = Default::default();
    assert_eq!(
        annotated(&new).tasks[0].annotations.to_vec(),
        ["forces destroy"]
    );
}

#[test]
fn a_task_says_whether_it_is_replaced() {
    let old = job();
    for (change, want) in [
        ("env", "forces create/destroy update"),
        ("kill", "forces in-place update"),
        ("logs", "forces in-place update"),
        ("cpu", "forces create/destroy update"),
    ] {
        let mut new = job();
        let task = &mut new.task_groups[0].tasks[0];
        match change {
            "env" => drop(task.env.insert("MODE", "slow".to_owned())),
            "kill" => task.kill_timeout = 1,
            "logs" => task.log_config.as_mut().unwrap().max_files = 3,
            _ => task.resources.as_mut().unwrap().cpu = 200,
        }
        let mut diff = job_diff(Some(&old), Some(&new), false);
        annotate(&mut diff, &PlanAnnotations::default());
        assert_eq!(
            diff.task_groups[0].tasks[0].annotations[0], want,
            "{change}"
        );
    }
}

#[test]
fn things_without_a_name_come_and_go() {
    let constraint = |value: &str| Constraint {
        l_target: "${attr.kernel.name}".into(),
        r_target: value.into(),
        operand: "=".into(),
    };
    let (mut old, mut new) = (job(), job());
    old.constraints = vec![constraint("linux")].into();
    new.constraints = vec![constraint("windows")].into();
    let diff = job_diff(Some(&old), Some(&new), false);
    let kinds: Vec<&str> = diff
        .objects
        .iter()
        .map(|object| object.r#type.as_str())
        .collect();
    assert_eq!(kinds, ["Added", "Deleted"]);
    assert_eq!(job_diff(Some(&old), Some(&old), false).r#type, "None");
    assert_eq!(job_diff(Some(&old), None, false).r#type, "Deleted");
}

#[test]
fn a_drivers_configuration_is_told_leaf_by_leaf() {
    type Config = serde_json::Map<String, Value>;
    let lines = |old: &Value, new: &Value, context| {
        let with = |config: &Value| {
            let mut job = job();
            let config: &Config = config.as_object().expect("an object");
            job.task_groups[0].tasks[0].config = config.clone().into_iter().collect();
            job
        };
        let diff = job_diff(Some(&with(old)), Some(&with(new)), context);
        let task = &diff.task_groups[0].tasks[0];
        let config = task.objects.iter().filter(|o| o.name == "Config");
        let reported = config.flat_map(|config| {
            let field = |f: &drover_events::model::FieldDiff| {
                format!("{} {}: {} {}", f.r#type, f.name, f.old, f.new)
            };
            let kind = std::iter::once(config.r#type.clone());
            kind.chain(config.fields.iter().map(field))
        });
        reported.collect::<Vec<String>>()
    };
    let none = serde_json::json!({});
    let one = serde_json::json!({"command": "/bin/a", "args": ["x", "y"]});
    let two = serde_json::json!({"command": "/bin/a", "args": ["x", "z"]});
    assert_eq!(lines(&one, &one, false), [""; 0]);
    assert_eq!(
        lines(&one, &two, false),
        ["Edited", "Edited args[1]: y z"],
        "what is as it was is not told"
    );
    assert_eq!(
        lines(&one, &two, true),
        [
            "Edited",
            "None args[0]: x x",
            "Edited args[1]: y z",
            "None command: /bin/a /bin/a"
        ]
    );
    let came = lines(&none, &one, false);
    assert_eq!(came[..2], ["Added", "Added args[0]:  x"]);
    let went = lines(&one, &none, false);
    assert_eq!(went[..2], ["Deleted", "Deleted args[0]: x "]);
}

#[test]
fn a_group_and_a_task_are_edited_whatever_part_of_them_changed() {
    let mut changes: Vec<(&str, Job)> = Vec::new();
    let mut change = |what, change: fn(&mut TaskGroup)| {
        let mut new = job();
        change(&mut new.task_groups[0]);
        changes.push((what, new));
    };
    change("Edited None", |group| group.count = 7);
    change("Edited None", |group| {
        group.ephemeral_disk.as_mut().unwrap().size_mb = 7;
    });
    change("Edited Edited", |group| group.tasks[0].driver = "x".into());
    change("Edited Edited", |group| {
        group.tasks[0].log_config.as_mut().unwrap().max_files = 7;
    });
    change("None None", |_| {});
    for (kinds, new) in changes {
        let group = &job_diff(Some(&job()), Some(&new), true).task_groups[0];
        let reported = format!("{} {}", group.r#type, group.tasks[0].r#type);
        assert_eq!(reported, kinds, "{group:?}");
    }
}

#[test]
fn volumes_are_known_by_their_name() {
    let (old, mut new) = (job(), job());
    let volume = drover_events::model::VolumeRequest {
        name: "data".into(),
        r#type: "host".into(),
        ..Default::default()
    };
    new.task_groups[0].volumes.insert("data", volume);
    let lines = |old: &Job, new: &Job| lines(&job_diff(Some(old), Some(new), false));
    let reported = |lines: Vec<String>, line: &str| lines.iter().any(|reported| reported == line);
    assert!(reported(lines(&old, &new), "  Added Volume"));
    assert!(reported(lines(&new, &old), "  Deleted Volume"));
    let mut other = new.clone();
    other.task_groups[0]
        .volumes
        .insert("data", Default::default());
    assert!(reported(lines(&new, &other), "  Edited Volume"));
}

#[test]
fn words_that_stay_are_told_beside_the_others_where_all_is() {
    let (mut old, mut new) = (job(), job());
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    old.datacenters = words(&["dc9", "dc1"]).into();
    new.datacenters = words(&["dc7", "dc1", "dc5"]).into();
    let diff = job_diff(Some(&old), Some(&new), true);
    let reported = diff.objects[0].fields.iter();
    let reported: Vec<String> = reported
        .map(|f| format!("{} {} {}", f.r#type, f.old, f.new))
        .collect();
    let want = ["Added  dc5", "Added  dc7", "None dc1 dc1", "Deleted dc9 "];
    assert_eq!(reported, want);
}

#[test]
fn a_task_that_comes_or_goes_creates_or_replaces_what_runs() {
    let alone = job();
    let mut two = job();
    let other = Task {
        name: "other".into(),
        ..Task::default()
    };
    two.task_groups[0].tasks.push(other);
    let reported = |old: Option<&Job>, new: &Job| {
        let mut diff = job_diff(old, Some(new), false);
        let mut found = PlanAnnotations::default();
        let updates = DesiredUpdates {
            destructive_update: 2,
            ..DesiredUpdates::default()
        };
        found.desired_tg_updates.insert("redis", updates);
        annotate(&mut diff, &found);
        let group = &diff.task_groups[0];
        let counts: Vec<_> = group.updates.keys().cloned().collect();
        assert_eq!(counts, ["create/destroy update"], "what is 0 is not told");
        group.tasks[0].annotations.to_vec()
    };
    assert_eq!(reported(None, &alone), ["forces create"]);
    let replaced = ["forces create/destroy update"];
    assert_eq!(reported(Some(&alone), &two), replaced);
    assert_eq!(reported(Some(&two), &alone), replaced);
}
