//! Volumes of hosts, from a specification to their end.

use crate::support::Session;

/// The id in "… with ID 4b7a2c11-…".
fn id_of(printed: &str) -> &str {
    let line = printed.lines().find(|line| line.contains(" with ID "));
    let id = line.and_then(|line| line.rsplit(' ').next());
    id.expect("an id")
}

#[test]
fn host_volumes_are_made_registered_shown_and_deleted() {
    let mut session = Session::new("host-volumes");
    session.run("volume init -type host");
    session.file(
        "data.json",
        r#"{"type": "host", "name": "cli-data", "plugin_id": "mkdir",
            "capability": [{"access_mode": "single-node-writer",
                            "attachment_mode": "file-system"}],
            "parameters": {"mode": "0711"}}"#,
    );
    let made = session.run("volume create data.json");
    assert_eq!(made.code, 0, "{}", made.all());
    let id = id_of(&made.stdout).to_owned();
    session.run("volume create data.json");
    session.file(
        "odd.hcl",
        "type = \"host\"\nname = \"odd\"\nplugin_id = \"mkdir\"\n",
    );
    session.run("volume create odd.hcl");
    let there = session.path("there");
    std::fs::create_dir(&there).expect("a directory");
    let nodes = session.json("/v1/nodes").expect("nodes");
    let node = nodes[0]["ID"].as_str().expect("an id").to_owned();
    let spec = format!(
        "type = \"host\"\nname = \"cli-there\"\nnode_id = \"{node}\"\nhost_path = {there:?}\n\
         capacity = \"5MiB\"\ncapability {{\n  access_mode = \"single-node-reader-only\"\n  \
         attachment_mode = \"file-system\"\n}}\n"
    );
    session.file("there.hcl", &spec);
    let registered = session.run("volume register there.hcl");
    let other = id_of(&registered.stdout).to_owned();
    let path = format!("/v1/volume/host/{other}");
    session.wait(&path, |volume| volume["State"] == "ready");
    let mut listed = session.done("volume status -type host -verbose");
    listed.retain(|c| c != ' ');
    for (id, name) in [(&id, "cli-data"), (&other, "cli-there")] {
        assert!(
            listed.contains(id.as_str()) && listed.contains(name),
            "{listed}"
        );
    }
    let shown = session.done(&format!("volume status -type host {}", &other[..8]));
    for text in [
        &other,
        "cli-there",
        "5.0 MiB",
        "ready",
        &*there.to_string_lossy(),
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let of_node = session.done(&format!("volume status -type host -node {}", &node[..8]));
    assert!(of_node.contains("cli-there"), "{of_node}");
    let json = session.done(&format!("volume status -json {id}"));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["Name"], "cli-data");
    assert_eq!(json["Parameters"]["mode"], "0711");
    let history = session.done(&format!("volume history -type host {id}"));
    assert!(history.contains("HostVolumeRegistered"), "{history}");
    session.run("volume claim list");
    session.run("volume delete -type host nothing");
    session.run(&format!("volume delete -type host {}", &id[..8]));
    session.run(&format!("volume delete -type host {other}"));
    session.run("volume status -type host");
    assert!(there.exists(), "what no plugin made stays");
    session.check();
}
