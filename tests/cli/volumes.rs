//! Volumes and plugins.

use crate::recorder::Recorder;
use crate::support::{Session, shared_address};

#[test]
fn volumes_and_plugins_are_shown_and_what_is_wrong_with_them_is_said() {
    let mut session = Session::new("volumes");
    session.file("odd.hcl", "id = \"a\"\ncapasity_min = \"1G\"\n");
    for (line, code) in [
        ("volume status", 0),
        ("volume status -type host", 0),
        ("volume status -type nfs", 1),
        ("plugin status", 0),
        ("plugin status -json", 0),
        ("plugin status nothing", 1),
        ("volume init", 0),
        ("volume init", 1),
        ("volume init -type host -json host.json", 0),
        ("volume register volume.hcl", 1),
        ("volume register odd.hcl", 1),
        ("volume status nothing", 1),
        ("volume status -type csi nothing", 1),
        ("volume deregister nothing", 1),
        ("volume deregister -force nothing", 1),
        ("volume explain nothing", 1),
        ("volume claim list", 0),
        (
            "volume claim delete -yes 00000000-0000-4000-8000-000000000001",
            1,
        ),
        ("volume snapshot create data -secret odd", 1),
        ("volume snapshot list -plugin nothing", 1),
        ("volume history nothing", 1),
        ("volume status -node-pool default", 0),
        ("volume status -type csi -node-pool default", 1),
        ("volume delete -force nothing", 1),
        ("volume delete -type host -secret a=b nothing", 1),
    ] {
        let ran = session.run(line);
        assert_eq!(ran.code, code, "{line}: {}", ran.all());
    }
}

/// A flag that means nothing for a type of volume is not taken for done.
#[test]
fn flags_of_the_other_type_of_volume_are_refused_by_name() {
    let session = Session::new("volume-flags");
    for (line, expected) in [
        ("volume delete -force data", "-force is about host volumes"),
        (
            "volume delete -type host -secret a=b data",
            "-secret is about CSI volumes",
        ),
        (
            "volume status -type csi -node-pool default",
            "-node-pool is about host volumes",
        ),
        (
            "volume history -type nfs data",
            "unknown volume type \"nfs\": it is csi or host",
        ),
        (
            "volume explain -type nfs data",
            "unknown volume type \"nfs\": it is csi or host",
        ),
        (
            "volume explain -type host data",
            "volume explain is about CSI volumes",
        ),
    ] {
        let ran = session.quiet(line);
        assert_eq!(ran.code, 1, "{line}: {}", ran.all());
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.all());
    }
    let listed = session.done("volume status -node-pool default");
    assert!(!listed.contains("Container Storage"), "{listed}");
    assert!(listed.contains("Dynamic Host Volumes"), "{listed}");
}

/// A volume of the suite's only host, which is made with these flags; its id, and what was said.
fn made(session: &Session, name: &str, flags: &str) -> (String, String) {
    let spec = format!(
        r#"{{"type": "host", "name": "{name}", "plugin_id": "mkdir",
             "capability": [{{"access_mode": "single-node-writer",
                              "attachment_mode": "file-system"}}]}}"#
    );
    session.file("made.json", &spec);
    let printed = session.done(&format!("volume create {flags} made.json"));
    let line = printed.lines().find(|line| line.contains(" with ID "));
    let id = line.and_then(|line| line.rsplit(' ').next());
    (id.expect("an id").to_owned(), printed)
}

#[test]
fn what_nobody_acts_on_of_a_host_volume_is_in_its_warnings() {
    let session = Session::new("volume-warned");
    let (id, printed) = made(&session, "warned", "-policy-override");
    let warnings = printed.split("Volume Warnings:\n").nth(1);
    let named = warnings.is_some_and(|warnings| warnings.contains("field PolicyOverride"));
    assert!(named, "{printed}");
    session.done(&format!("volume delete -type host {id}"));
}

#[test]
fn job_12_what_is_to_be_done_by_force_is_asked_for_so_and_nothing_else_is() {
    let recorder = Recorder::before(shared_address().parse().expect("an address"));
    let session = Session::new("volume-force").through(&recorder.address);
    let run_line = |line: &str| {
        let ran = session.quiet(line);
        let (last, _) = recorder.requested().pop().expect("a request");
        (ran, last)
    };
    let node = "00000000-0000-4000-8000-00000000dead";
    for (flag, force) in [("", "false"), ("-force", "true")] {
        let query = format!("force={force}&namespace=volume-force");
        let (ran, last) = run_line(&format!("volume deregister {flag} nothing"));
        assert_eq!(ran.code, 1, "{}", ran.all());
        assert_eq!(last, format!("DELETE /v1/volume/csi/nothing?{query}"));

        let (ran, last) = run_line(&format!("volume detach {flag} nothing {node}"));
        assert_eq!(ran.code, 1, "{}", ran.all());
        let target = format!("/v1/volume/csi/nothing/detach?node={node}&{query}");
        assert_eq!(last, format!("DELETE {target}"));

        let (id, _) = made(&session, &format!("by-force-{force}"), "");
        let (ran, last) = run_line(&format!("volume delete -type host {flag} {id}"));
        assert_eq!(ran.code, 0, "{}", ran.all());
        assert_eq!(last, format!("DELETE /v1/volume/host/{id}?{query}"));
    }
}
