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
