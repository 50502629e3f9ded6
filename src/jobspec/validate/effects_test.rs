//! What of a job is taken and has no effect is warned of, and the README says so.

use std::collections::BTreeSet;

use drover_events::model::{Task, TaskGroup};

use super::tests::job;
use super::{unbuilt, warnings};

fn service(provider: &str, more: &str) -> String {
    format!("service {{\n name = \"web\"\n provider = \"{provider}\"\n port = \"80\"\n {more}\n }}")
}

fn warned(whole: &str, group: &str, task: &str) -> String {
    job("service", whole, group, task).warnings.join("\n")
}

#[test]
fn what_only_consul_acts_on_is_named_of_a_native_service() {
    let map = |name: &str| format!("{name} {{\n a = \"b\"\n }}");
    let weights = |passing: u8| format!("weights {{\n passing = {passing}\n warning = 1\n }}");
    for (block, what) in [
        ("enable_tag_override = true", "enable_tag_override"),
        (&map("meta"), "meta"),
        (&map("canary_meta"), "canary_meta"),
        (&map("tagged_addresses"), "tagged_addresses"),
        (&weights(5), "weights"),
        ("kind = \"api-gateway\"", "kind"),
        ("identity {\n aud = [\"a\"]\n }", "identity"),
        ("cluster = \"east\"", "cluster"),
        ("kind = \"x\"\n cluster = \"y\"", "kind, cluster"),
    ] {
        let text = format!("Group \"g\": {what} of service \"web\" has no effect: only Consul");
        for (provider, is_named) in [("nomad", true), ("consul", false)] {
            let service = service(provider, block);
            for found in [warned("", &service, ""), warned("", "", &service)] {
                assert_eq!(
                    found.contains(&text),
                    is_named,
                    "{provider} {block}: {found}"
                );
            }
        }
    }
    for usual in ["", "cluster = \"default\"", "meta {}", &weights(1)] {
        let found = warned("", &service("nomad", usual), "");
        assert!(!found.contains("no effect"), "{usual}: {found}");
    }
}

#[test]
fn an_address_of_its_own_that_no_task_has_is_named() {
    for (mode, is_named) in [
        ("auto", false),
        ("host", false),
        ("alloc", false),
        ("alloc_ipv6", true),
    ] {
        let mode = format!("address_mode = \"{mode}\"");
        let check = format!(
            "check {{\n name = \"up\"\n type = \"tcp\"\n interval = \"1s\"\n \
             timeout = \"1s\"\n {mode}\n }}"
        );
        for (block, whose) in [(&mode, ""), (&check, "check \"up\" of ")] {
            let found = warned("", &service("nomad", block), "");
            let text = format!("{mode} of {whose}service \"web\" has no effect: tasks have the");
            assert_eq!(found.contains(&text), is_named, "{block}: {found}");
        }
    }
}

#[test]
fn there_is_no_interface_that_a_ui_block_could_be_for() {
    for (block, is_named) in [
        ("", false),
        ("ui {}", false),
        ("ui {\n description = \"d\"\n }", true),
        ("ui {\n link {\n label = \"l\"\n url = \"u\"\n }\n }", true),
    ] {
        let found = warned(block, "", "");
        let text = "Job: ui of a job has no effect: there is no user interface";
        assert_eq!(found.contains(text), is_named, "{block}: {found}");
    }
}

#[test]
fn arguments_of_cni_plugins_are_named_where_there_are_any() {
    let arguments = "cni {\n args {\n a = \"b\"\n }\n }";
    for (block, is_named) in [("", false), (arguments, true)] {
        let network = format!("network {{\n mode = \"cni/lan\"\n {block}\n }}");
        let found = job("service", "", &network, "");
        assert_eq!(found.errors, Vec::<String>::new());
        let text = "Group \"g\": cni of a network has no effect: tasks have the host's network";
        let found = found.warnings.join("\n");
        assert_eq!(found.contains(text), is_named, "{block}: {found}");
    }
}

const README: &str = include_str!("../../../README.md");

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let all = text.split(move |c: char| !is_part(c));
    all.filter(|word| !word.is_empty() && *word != "or")
}

/// The words in backticks.
fn named(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).flat_map(words).collect()
}

#[test]
fn the_readme_says_what_of_a_job_is_refused_and_what_has_no_effect() {
    let (_, refused) = README.split_once("In a job: ").expect("the list");
    let (refused, _) = refused.split_once(". What of a job").expect("its end");
    assert!(refused.ends_with(" identities"), "{refused}");
    let (group, task) = (TaskGroup::default(), Task::default());
    let (of_group, of_task) = (unbuilt::of_group(&group), unbuilt::of_task(&task));
    let all = of_group.iter().chain(&of_task).map(|(what, _)| *what);
    let blocks = all.filter(|what| !what.starts_with("identities "));
    let blocks = blocks.map(|what| {
        let name = what.trim_start_matches("services with a ");
        name.split(' ').next().unwrap_or_default()
    });
    let expected: BTreeSet<&str> = blocks.chain(["multiregion"]).collect();
    assert_eq!(named(refused), expected);

    let begin =
        "| HTTP API; job specification, HCL2 and JSON | partly | no effect, and a warning: ";
    let row = README.lines().find_map(|line| line.strip_prefix(begin));
    let row = row.expect("its row");
    let (of_networks, of_task) = (warnings::of_networks(&group), warnings::of_task(&task));
    let of_task = of_task.iter().flat_map(|(what, ..)| words(what));
    let all = of_networks.iter().map(|(what, _)| *what).chain(of_task);
    let others = [
        "ui",
        "initial_status",
        "address_mode",
        "alloc_ipv6",
        "migrate",
    ];
    let expected: BTreeSet<&str> = all.chain(others).collect();
    assert_eq!(named(row), expected);
    for part in [
        "deployments of system jobs",
        "what only Consul does for a service",
    ] {
        assert!(row.contains(part), "{part}: {row}");
    }
}
