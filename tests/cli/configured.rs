//! What an agent does not act on of its configuration: refused, or named when it starts.

use drover_testkit::Setup;

use crate::support::{DROVER, Session};

#[test]
fn what_is_refused_is_listed_with_what_to_do() {
    let session = Session::to("configured", "127.0.0.1:1");
    let listed = session.done("config validate -unsupported");
    assert!(listed.starts_with("Setting "), "{listed}");
    for (setting, text) in [
        ("client.cni_path", "client {\n  cni_path = \"/x\"\n}\n"),
        (
            "server.redundancy_zone",
            "server {\n  redundancy_zone = \"a\"\n}\n",
        ),
    ] {
        let row = listed.lines().find_map(|line| line.strip_prefix(setting));
        let advice = row.unwrap_or_else(|| panic!("{setting}: {listed}")).trim();
        session.file("agent.hcl", text);
        let refused = session.quiet("config validate agent.hcl");
        assert_eq!(refused.code, 1, "{}", refused.all());
        for part in [
            "agent.hcl:2:",
            advice,
            "All such settings: drover config validate -unsupported",
        ] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
    }
}

#[test]
fn what_has_no_effect_is_named_by_the_agent_and_by_who_checks_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut setup = Setup::server(DROVER, &dir.path().join("data")).expect("free ports");
    // The port for gossip is in every agent's file here.
    let more = "client {\n  servers = [\"10.0.0.1\"]\n  options {\n    colour = \"red\"\n  }\n}\n";
    setup.config.push_str(more);
    let agent = setup.start().expect("the agent starts");
    let log = agent.log_tail(usize::MAX);
    let warned = log
        .lines()
        .filter_map(|line| line.strip_prefix("==> WARNING: "));
    let warned: Vec<&str> = warned
        .filter(|line| line.contains(" has no effect: "))
        .collect();
    let settings = ["ports.serf", "client.servers", "client.options \"colour\""];
    assert_eq!(warned.len(), settings.len(), "{log}");
    for (line, setting) in warned.iter().zip(settings) {
        let begin = format!("{setting} has no effect: ");
        assert!(line.starts_with(&begin), "{line}");
    }
    let session = Session::at("configured", &agent);
    let file = dir.path().join("data.hcl");
    let checked = session.done(&format!("config validate {}", file.display()));
    let named: Vec<&str> = checked.lines().skip(1).collect();
    assert_eq!(named, warned, "{checked}");
}
