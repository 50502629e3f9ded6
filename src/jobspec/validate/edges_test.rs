//! Both sides of a rule: what it refuses, and what it just takes.

use drover_events::model::Job;

use super::tests::job;
use super::{JobLimits, validate};
use crate::{Input, parse};

/// Type, then lines of the job, the group and the task, then the error; empty where it is taken.
const CASES: &[[&str; 5]] = &[
    ["service", "", "", "leader = true", ""],
    [
        "service",
        "",
        "task \"u\" {\n driver = \"raw_exec\"\n leader = true\n }",
        "leader = true",
        "Only one task may be marked as leader",
    ],
    ["batch", "periodic { cron = \"@daily\" }", "", "", ""],
    ["batch", "periodic { crons = [\"@daily\"] }", "", "", ""],
    [
        "batch",
        "periodic {\n cron = \"@daily\"\n crons = [\"* * * * *\"]\n}",
        "",
        "",
        "Only cron or crons may be used",
    ],
    ["service", "", "network {\n hostname = \"web\"\n}", "", ""],
    [
        "service",
        "",
        "network {\n hostname = \"-web\"\n}",
        "",
        "Hostname is not a valid DNS name",
    ],
    [
        "service",
        "",
        "network {\n port \"p\" {\n static = 80\n ignore_collision = true\n }\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "network {\n mode = \"bridge\"\n port \"p\" { static = 80 }\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "network {\n mode = \"bridge\"\n port \"p\" {\n static = 80\n ignore_collision = true\n \
         }\n}",
        "",
        "collision may not be ignored on non-host network mode \"bridge\"",
    ],
    // No attempt is a policy, which needs nothing else.
    [
        "service",
        "",
        "reschedule {\n attempts = 0\n unlimited = false\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "reschedule {\n attempts = 1\n unlimited = false\n interval = \"14s\"\n}",
        "",
        "Interval cannot be less than 15s (got 14s)",
    ],
    [
        "service",
        "",
        "restart {\n attempts = 2\n delay = \"30s\"\n interval = \"60s\"\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "restart {\n attempts = 3\n delay = \"30s\"\n interval = \"60s\"\n}",
        "",
        "Nomad can't restart the TaskGroup 3 times in an interval of 1m0s with a delay of 30s",
    ],
    [
        "service",
        "",
        "service {\n name = \"web\"\n port = \"80\"\n connect {\n native = true\n }\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "service {\n name = \"Web\"\n port = \"80\"\n connect {\n native = true\n }\n}",
        "",
        "Connect service name \"Web\" in group \"g\" must not contain uppercase characters",
    ],
    [
        "service",
        "",
        "service {\n port = \"80\"\n address_mode = \"host\"\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "service {\n port = \"80\"\n address = \"10.0.0.1\"\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "service {\n port = \"80\"\n address = \"10.0.0.1\"\n address_mode = \"host\"\n}",
        "",
        "Service address_mode must be \"auto\" if address is set",
    ],
    [
        "service",
        "",
        "service {\n port = \"80\"\n check {\n type = \"tcp\"\n timeout = \"2s\"\n }\n}",
        "",
        "missing required value interval. Interval cannot be less than 1s",
    ],
    [
        "service",
        "",
        "service {\n port = \"80\"\n check {\n type = \"tcp\"\n interval = \"2s\"\n }\n}",
        "",
        "missing required value timeout. Timeout cannot be less than 1s",
    ],
    ["service", "", "", AFFINITY, ""],
    [
        "system",
        "",
        "",
        AFFINITY,
        "System jobs may not have an affinity block",
    ],
    [
        "service",
        "",
        "",
        "resources {\n memory = 64\n memory_max = 64\n}",
        "",
    ],
    [
        "service",
        "",
        "",
        "resources {\n memory = 64\n memory_max = 63\n}",
        "MemoryMaxMB value (63) should be larger than MemoryMB value (64)",
    ],
    [
        "service",
        "",
        "count = 2\n volume \"v\" {\n type = \"host\"\n source = \"d\"\n access_mode = \
         \"single-node-single-writer\"\n per_alloc = true\n}",
        "",
        "",
    ],
    [
        "service",
        "",
        "count = 2\n volume \"v\" {\n type = \"host\"\n source = \"d\"\n access_mode = \
         \"single-node-single-writer\"\n}",
        "",
        "volume with single-node-single-writer access mode allows only one writer",
    ],
];

const AFFINITY: &str = "affinity {\n attribute = \"a\"\n value = \"b\"\n weight = 50\n}";

fn compare(found: &str, expected: &str, what: &str) {
    if expected.is_empty() {
        assert_eq!(found, "", "{what}");
    } else {
        assert!(found.contains(expected), "{what}: {found}");
    }
}

#[test]
fn a_rule_refuses_what_it_is_for_and_takes_the_rest() {
    for [kind, whole, group, task, expected] in CASES {
        let found = job(kind, whole, group, task).error().unwrap_or_default();
        compare(&found, expected, &format!("{kind} {whole} {group} {task}"));
    }
}

type Change = fn(&mut Job);

/// What no specification says, but a job that comes as JSON may.
#[test]
fn what_comes_as_json_keeps_the_same_rules() {
    let text = "job \"x\" {\n group \"g\" {\n count = 2\n scaling {\n min = 2\n max = 5\n }\n \
                task \"t\" {\n driver = \"raw_exec\"\n }\n }\n}\n";
    let parsed = parse(&Input::server(text)).unwrap_or_else(|e| panic!("{e}"));
    let good = parsed.into_model().expect("model");
    let changes: [(Change, &str); 8] = [
        (|_| {}, ""),
        (|job| job.id.push('\0'), "Job ID contains a null character"),
        (
            |job| job.task_groups[0].name.clear(),
            "Missing task group name",
        ),
        (
            |job| job.payload = b"text".to_vec().into(),
            "job can't be submitted with a payload, only dispatched",
        ),
        (
            |job| {
                job.payload = b"text".to_vec().into();
                job.dispatched = true;
            },
            "job can't be submitted with 'Dispatched' set",
        ),
        (
            |job| {
                job.payload = b"text".to_vec().into();
                job.dispatched = true;
                job.parent_id = "of".into();
            },
            "",
        ),
        (
            |job| job.task_groups[0].count = 1,
            "task group count must not be less than minimum count in scaling policy",
        ),
        // One that is stopped may be stopped by its count as well.
        (
            |job| {
                job.task_groups[0].count = 0;
                job.stop = true;
            },
            "",
        ),
    ];
    for (n, (change, expected)) in changes.into_iter().enumerate() {
        let mut job = good.clone();
        change(&mut job);
        let found = validate(&job, &JobLimits::default()).error();
        let change = format!("change {n}");
        compare(&found.unwrap_or_default(), expected, &change);
    }
}
