use super::{JobLimits, Validation, validate};
use crate::{ApiJob, Input, parse};
use serde_json::Value as Json;

fn checked(text: &str) -> Validation {
    let job = parse(&Input::server(text)).unwrap_or_else(|e| panic!("{e}"));
    validate(&job.into_model().expect("model"), &JobLimits::default())
}

pub(super) fn job(kind: &str, job: &str, group: &str, task: &str) -> Validation {
    checked(&format!(
        "job \"x\" {{\n type = \"{kind}\"\n {job}\n group \"g\" {{\n {group}\n task \"t\" {{\n\
             driver = \"raw_exec\"\n {task}\n }}\n }}\n}}\n"
    ))
}

#[test]
fn a_good_job_has_no_errors() {
    for kind in ["service", "batch", "system", "sysbatch"] {
        assert_eq!(job(kind, "", "", "").errors, Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn the_recorded_warnings() {
    let text = include_str!("../testdata/job-register.json");
    let mut lines = text.lines().skip(1);
    let sent = lines
        .next()
        .and_then(|l| l.strip_prefix("// body: "))
        .expect("a body");
    let sent: Json = serde_json::from_str(sent).expect("json");
    let answer: Json = serde_json::from_str(&lines.collect::<String>()).expect("json");
    let model = ApiJob::from_json(sent["Job"].clone())
        .expect("reads")
        .into_model()
        .expect("model");
    let found = validate(&model, &JobLimits::default());
    assert_eq!(found.error(), None);
    assert_eq!(found.warning(), answer["Warnings"].as_str().expect("text"));
}

#[test]
fn errors_are_nested_as_users_know_them() {
    let found = checked("job \"x\" {\n group \"g\" {\n task \"t\" {}\n }\n}\n");
    assert_eq!(
        found.error().as_deref(),
        Some(
            "1 error occurred:\n\t* Task group g validation failed: 1 error occurred:\n\t* Task t \
                validation failed: \
             1 error occurred:\n\t* Missing task driver\n\n\n\n\n\n"
        )
    );
}

const TEXTS: &[[&str; 2]] = &[
    [
        "job \"x\" {\n group \"g\" {\n task \"..\" {\n driver = \"raw_exec\"\n }\n }\n}\n",
        "Task cannot be named \"..\"",
    ],
    ["job \"a b\" {\n}\n", "Job ID contains a space"],
    ["job \"x\" {\n}\n", "Missing job task groups"],
    [
        "job \"x\" {\n priority = 101\n}\n",
        "job priority must be between [1, 100]",
    ],
];

/// Type, then lines of the job, the group and the task, then what must be said.
const CASES: &[[&str; 5]] = &[
    ["magic", "", "", "", "Invalid job type: \"magic\""],
    [
        "service",
        "datacenters = [\"\"]",
        "",
        "",
        "Job datacenter must be non-empty string",
    ],
    [
        "service",
        "",
        "count = -1",
        "",
        "Task group count can't be negative",
    ],
    [
        "service",
        "",
        "count = 60000",
        "",
        "total count was greater than configured job_max_count: 60000 > 50000",
    ],
    [
        "system",
        "",
        "count = 2",
        "",
        "Job task group g has count 2. Count cannot exceed 1 with system scheduler",
    ],
    [
        "batch",
        "",
        "update {}",
        "",
        "Job type \"batch\" does not allow update block",
    ],
    [
        "batch",
        "",
        "migrate {}",
        "",
        "Job type \"batch\" does not allow migrate block",
    ],
    [
        "system",
        "",
        "reschedule {}",
        "",
        "System or sysbatch jobs should not have a reschedule policy",
    ],
    [
        "service",
        "periodic { cron = \"* * * * *\" }",
        "",
        "",
        "Periodic can only be used with",
    ],
    [
        "batch",
        "periodic { cron = \"* *\" }",
        "",
        "",
        "Invalid cron spec \"* *\": missing field(s)",
    ],
    [
        "batch",
        "periodic {\n cron = \"@daily\"\n time_zone = \"Mars/Here\"\n}",
        "",
        "",
        "Invalid time zone \"Mars/Here\"",
    ],
    [
        "batch",
        "parameterized {\n payload = \"maybe\"\n meta_required = [\"a\"]\n\
                     meta_optional = [\"a\"]\n}",
        "",
        "",
        "Following keys exist in both: [\"a\"]",
    ],
    [
        "service",
        "",
        "network {\n port \"p\" { static = 70000 }\n}",
        "",
        "Port p (70000) cannot be greater than 65535",
    ],
    [
        "service",
        "",
        "network {\n port \"a\" { static = 80 }\n port \"b\" { static = 80 }\n}",
        "",
        "Static port 80 already reserved by taskgroup network:a",
    ],
    [
        "service",
        "",
        "update { stagger = \"0s\" }",
        "",
        "Stagger must be greater than zero: 0s",
    ],
    [
        "service",
        "",
        "update { auto_promote = true }",
        "",
        "Auto Promote requires a Canary count greater than zero",
    ],
    [
        "service",
        "",
        "restart { interval = \"1s\" }",
        "",
        "Interval can not be less than 5s (got 1s)",
    ],
    [
        "service",
        "",
        "reschedule {\n attempts = 3\n unlimited = false\n interval = \"20s\"\n\
                     delay = \"10s\"\n delay_function = \"constant\"\n}",
        "",
        "Nomad can only make 2 attempts in 20s with initial delay 10s and delay function \
                \"constant\"",
    ],
    [
        "service",
        "",
        "ephemeral_disk { size = 1 }",
        "",
        "minimum DiskMB value is 10; got 1",
    ],
    [
        "service",
        "",
        "scaling {\n max = 1\n min = 2\n}\n count = 5",
        "",
        "maximum count must not be less than minimum count",
    ],
    [
        "service",
        "",
        "volume \"v\" { type = \"magic\" }",
        "",
        "volume has unrecognized type magic",
    ],
    [
        "service",
        "",
        "volume \"v\" {\n type = \"host\"\n mount_options { fs_type = \"xfs\" }\n}",
        "",
        "host volumes cannot have mount options",
    ],
    [
        "service",
        "",
        "volume \"v\" {\n type = \"csi\"\n source = \"d\"\n}",
        "",
        "CSI volumes must have an access mode",
    ],
    [
        "service",
        "",
        "constraint { operator = \"magic\" }",
        "",
        "Unknown constraint type \"magic\"",
    ],
    [
        "service",
        "",
        "constraint {\n attribute = \"a\"\n regexp = \"(\"\n}",
        "",
        "Regular expression failed to compile",
    ],
    [
        "service",
        "",
        "constraint {\n attribute = \"a\"\n version = \"x\"\n}",
        "",
        "Version constraint is invalid",
    ],
    [
        "service",
        "",
        "affinity {\n attribute = \"a\"\n value = \"b\"\n weight = 0\n}",
        "",
        "Affinity weight cannot be zero",
    ],
    [
        "service",
        "",
        "spread {\n attribute = \"a\"\n target \"x\" { percent = 90 }\n\
                     target \"y\" { percent = 20 }\n}",
        "",
        "must not be greater than 100%; got 110%",
    ],
    [
        "service",
        "",
        "service {\n provider = \"magic\"\n}",
        "",
        "Service provider must be",
    ],
    [
        "service",
        "",
        "service {\n name = \"a_b\"\n}",
        "",
        "must be valid per RFC 1123",
    ],
    [
        "service",
        "",
        "service {\n provider = \"nomad\"\n check {\n type = \"http\"\n}\n}",
        "",
        "http type must have http path",
    ],
    [
        "service",
        "",
        "",
        "kill_timeout = \"-1s\"",
        "KillTimeout must be a positive value",
    ],
    [
        "service",
        "",
        "",
        "resources { cpu = 0 }",
        "minimum CPU value is 1; got 0",
    ],
    [
        "service",
        "",
        "",
        "resources { memory = 1 }",
        "minimum MemoryMB value is 10; got 1",
    ],
    [
        "service",
        "",
        "",
        "logs { max_files = 100 }",
        "log storage (1000 MB) must be less than requested disk capacity (300 MB)",
    ],
    [
        "service",
        "",
        "",
        "template { data = \"x\" }",
        "Must specify a destination for the template",
    ],
    [
        "service",
        "",
        "",
        "template {\n data = \"x\"\n destination = \"../../x\"\n}",
        "destination escapes allocation directory",
    ],
    ["service", "", "", "artifact {}", "source must be specified"],
    [
        "service",
        "",
        "",
        "artifact {\n source = \"x\"\n options { checksum = \"md5:zz\" }\n}",
        "invalid checksum",
    ],
    [
        "service",
        "",
        "",
        "volume_mount { volume = \"nope\" }",
        "Volume Mount (0) references undefined volume nope",
    ],
    [
        "service",
        "",
        "",
        "lifecycle { hook = \"magic\" }",
        "invalid hook: magic",
    ],
    [
        "service",
        "",
        "",
        "identity {\n name = \"a b\"\n}",
        "invalid name \"a b\"",
    ],
    [
        "service",
        "",
        "",
        "secret \"s\" { provider = \"vault\" }",
        "has provider \"vault\" but no vault block",
    ],
    [
        "service",
        "multiregion {\n}",
        "",
        "",
        "Multiregion jobs are unlicensed.",
    ],
];

#[test]
fn names_are_kept_short_and_nobody_meets_the_limit() {
    let long = "n".repeat(1_025);
    let fits = "n".repeat(1_024);
    let text = |job: &str, group: &str, task: &str| {
        format!(
            "job \"{job}\" {{\n group \"{group}\" {{\n task \"{task}\" {{\n driver = \
             \"raw_exec\"\n }}\n }}\n}}\n"
        )
    };
    let limit = "is 1025 bytes long; at most 1024 are accepted";
    for (what, spec) in [
        ("Job ID", text(&long, "g", "t")),
        ("Task group name", text("j", &long, "t")),
        ("Task name", text("j", "g", &long)),
    ] {
        let error = checked(&spec).error().unwrap_or_default();
        assert!(error.contains(&format!("{what} {limit}")), "{error}");
    }
    assert_eq!(checked(&text(&fits, &fits, &fits)).error(), None);
    let group = format!("network {{\n port \"{long}\" {{}}\n }}");
    let error = job("service", "", &group, "").error().unwrap_or_default();
    assert!(error.contains(&format!("Port label {limit}")), "{error}");
}

#[test]
fn a_schedule_that_never_comes_or_is_too_long_is_refused() {
    let never = job("batch", "periodic { crons = [\"0 0 30 2 *\"] }", "", "");
    let text = never.error().unwrap_or_default();
    assert!(text.contains("there is no such day"), "{text}");
    let many = vec!["\"* * * * *\""; 65].join(",");
    let many = job("batch", &format!("periodic {{ crons = [{many}] }}"), "", "");
    let text = many.error().unwrap_or_default();
    assert!(text.contains("has 65 cron specs; at most 64"), "{text}");
}

#[test]
fn a_service_of_a_group_names_a_port_that_there_is() {
    let with = |port: &str, check: &str| {
        let check = match check {
            "" => String::new(),
            port => format!(
                "check {{\n type = \"tcp\"\n port = \"{port}\"\n interval = \"10s\"\n timeout = \
                 \"2s\"\n }}"
            ),
        };
        let group = format!(
            "network {{\n port \"http\" {{}}\n }}\n service {{\n name = \"x\"\n provider = \
             \"nomad\"\n port = \"{port}\"\n {check}\n }}"
        );
        job("service", "", &group, "").error().unwrap_or_default()
    };
    let missing = "port label \"nope\" referenced by services x does not exist";
    assert!(with("nope", "").contains(missing), "{}", with("nope", ""));
    assert!(with("http", "nope").contains(missing));
    for good in ["http", "8080", "${NOMAD_PORT_http}"] {
        assert_eq!(with(good, ""), "", "{good}");
    }
}

#[test]
fn every_rule_finds_its_case() {
    let texts = TEXTS.iter().map(|[text, part]| (checked(text), *part));
    let cases = CASES
        .iter()
        .map(|[kind, j, g, t, part]| (job(kind, j, g, t), *part));
    for (found, part) in texts.chain(cases) {
        let text = found.error().unwrap_or_default();
        assert!(text.contains(part), "{part}\nis missing in\n{text}");
    }
}

#[test]
fn job_05_any_check_may_name_its_task() {
    let found = job(
        "service",
        "",
        "network {\n port \"p\" {}\n}\n service \
            {\n provider = \"consul\"\n port = \"p\"\n check \
                {\n type = \"tcp\"\n task = \"t\"\n interval = \"10s\"\n timeout = \"2s\"\n}\n}",
        "",
    );
    assert_eq!(found.errors, Vec::<String>::new());
}

#[test]
fn tags_of_a_service_are_few_and_short() {
    let tags = |count: usize, length: usize| {
        let tags: Vec<String> = (0..count).map(|n| format!("{n:0length$}")).collect();
        let tags = format!("tags = {tags:?}\n provider = \"nomad\"\n port = \"80\"");
        job("service", "", &format!("service {{\n {tags}\n }}"), "").errors
    };
    assert_eq!(tags(1_024, 64), [""; 0]);
    for (count, length, wanted) in [
        (1_025, 4, "there are 1025 tags; at most 1024 are accepted"),
        (2, 40_000, "tags are 80000 bytes long; at most 65536"),
    ] {
        let reported = tags(count, length).join("\n");
        assert!(reported.contains(wanted), "{reported}");
    }
}

/// The jobs of which each expression took thirty milliseconds to compile, six hundred times.
#[test]
fn expressions_of_a_job_are_few_and_each_is_compiled_once() {
    let constraints = |texts: &mut dyn Iterator<Item = String>| {
        let one = |text: String| {
            format!(
                "constraint {{\n attribute = \"a\"\n operator = \"regexp\"\n value = {text:?}\n}}\n"
            )
        };
        let all: String = texts.map(one).collect();
        job("service", &all, "", "").errors
    };
    let distinct = |n: usize| format!("\\w{{75}}{n}");
    assert_eq!(constraints(&mut (0..64).map(distinct)), [""; 0]);
    // One text, however often it stands there, is one.
    assert_eq!(constraints(&mut (0..600).map(|_| distinct(1))), [""; 0]);
    for mut texts in [
        Box::new((0..65).map(distinct)) as Box<dyn Iterator<Item = String>>,
        Box::new((0..600).map(distinct)),
        Box::new((0..9).map(|n| format!("{n}{}", "x".repeat(4_000)))),
    ] {
        let errors = constraints(&mut texts);
        let [error] = errors.as_slice() else {
            panic!("{errors:?}");
        };
        assert!(error.contains("regular expressions of"), "{error}");
        assert!(error.contains("at most 64 of 32768 bytes"), "{error}");
    }
    // An expression that is too large, or invalid, is named where it stands.
    let errors = constraints(&mut ["\\pL{1000}".repeat(4), "(".to_owned()].into_iter());
    assert_eq!(errors.len(), 2, "{errors:?}");
    for (n, error) in errors.iter().enumerate() {
        let place = format!("Constraint {} validation failed", n + 1);
        assert!(error.contains(&place), "{error}");
        let text = "Regular expression failed to compile";
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let found = job(
        "service",
        "",
        "network {\n hostname = \"h\"\n dns {\n servers = [\"1.1.1.1\"]\n }\n}",
        "kind = \"connect-proxy:x\"\n action \"a\" {\n command = \"/bin/true\"\n }\n resources {\n \
         secrets = 12\n memory = 32\n }",
    );
    let warned = found.warnings.join("\n");
    for what in ["dns", "hostname", "actions", "kind", "secrets"] {
        let text = format!("{what} of a ");
        assert!(
            warned.contains(&text),
            "{what}: {warned} {:?}",
            found.errors
        );
    }
    let plain = job("service", "", "network {\n mode = \"host\"\n }", "");
    assert!(!plain.warnings.join("\n").contains("no effect"));
    for (disk, warned) in [("sticky", false), ("migrate", true)] {
        let disk = format!("ephemeral_disk {{\n {disk} = true\n }}");
        let found = job("service", "", &disk, "").warnings.join("\n");
        let text = "migrate of an ephemeral_disk has no effect between nodes";
        assert_eq!(found.contains(text), warned, "{found}");
    }
    for (status, warned) in [("pending", false), ("success", true)] {
        let check = "type = \"tcp\"\n interval = \"1s\"\n timeout = \"1s\"\n";
        let service = format!(
            "service {{\n provider = \"nomad\"\n port = \"80\"\n check {{\n {check} \
             initial_status = \"{status}\"\n }}\n }}"
        );
        let found = job("service", "", &service, "").warnings.join("\n");
        let text = "initial_status of check";
        assert_eq!(found.contains(text), warned, "{found}");
    }
    // Where the files of a plugin lie matters to one that has its own.
    let text = "mount_dir or stage_publish_base_dir of a task has no effect";
    for (dir, warned) in [("", false), ("mount_dir = \"/sock\"", true)] {
        let plugin = format!("csi_plugin {{\n id = \"p\"\n type = \"node\"\n {dir}\n }}");
        let found = job("service", "", "", &plugin);
        assert_eq!(found.warnings.join("\n").contains(text), warned, "{dir}");
    }
}

#[test]
fn what_an_update_says_of_deployments_has_no_effect_where_there_are_none() {
    let warned = |kind: &str, update: &str| {
        let update = format!("update {{\n {update}\n }}");
        job(kind, &update, "", "").warnings.join("\n")
    };
    let text = "canary, auto_revert, progress_deadline of an update has no effect in a system job";
    let deployed = "canary = 10\n auto_revert = true\n progress_deadline = \"20m\"";
    assert!(warned("system", deployed).contains(text));
    assert!(!warned("service", deployed).contains("no effect"));
    let rolled = warned("system", "max_parallel = 3\n stagger = \"1m\"");
    assert!(!rolled.contains("no effect"), "{rolled}");
    assert!(
        !job("system", "", "", "")
            .warnings
            .join("\n")
            .contains("no effect")
    );
}
