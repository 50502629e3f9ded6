//! What is said when something is wrong.

use crate::support::{Session, service};

#[test]
fn mistakes_are_told_in_words() {
    let mut session = Session::new("mistakes");
    session.file("web.hcl", &service("web", "1", ""));
    session.file("broken.hcl", "job \"x\" {\n  a = 1\n  b = 2\n}\n");
    session.file(
        "space.hcl",
        &service("web", "1", "")
            .replace("job \"web\" {", "job \"web\" {\n  namespace = \"nowhere\""),
    );
    for line in [
        "job run broken.hcl",
        "job validate broken.hcl",
        "job plan none.hcl",
        "job run space.hcl",
        "job run -region mars web.hcl",
        "job run -check-index 7 web.hcl",
        "alloc status a",
        "alloc status nope",
        "alloc status abcde",
        "node status zz",
        "eval status nope",
        "job status -filter x",
        "node status -filter 'Colour == \"red\"'",
        "job dispatch web",
        "deployment status abcd",
        "status nope",
        "job inspect -version 3 web",
        "audit alloc abcdabcd",
        "audit -namespace * eval abcdabcd",
        "audit nothing x",
        "system gc -address ftp://x",
        "system gc -address http://127.0.0.1:1",
    ] {
        let ran = session.run(line);
        assert_ne!(ran.code, 0, "{line}");
        assert!(
            !ran.stderr.contains("Unexpected response code"),
            "{line}: {}",
            ran.stderr
        );
    }
    session.check();
}

#[test]
fn a_backup_that_is_not_there_is_not_sent() {
    let session = Session::new("nobackup");
    let ran = session.quiet("operator snapshot restore nofile");
    assert_eq!(ran.code, 1, "{}", ran.all());
    assert!(
        ran.stderr.starts_with("Error reading nofile"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_run_refuses_is_refused_by_plan_and_told_by_validate() {
    let session = Session::new("unbuilt");
    let text = service("web", "1", "").replace(
        "resources {",
        "template {\n        data        = \"x\"\n        destination = \"local/x\"\n      }\n\
         resources {",
    );
    session.file("web.hcl", &text);
    for (line, code) in [("validate", 0), ("plan", 255), ("run", 1)] {
        let ran = session.quiet(&format!("job {line} web.hcl"));
        assert_eq!(ran.code, code, "{line}: {}", ran.all());
        let why = "template blocks are not supported by this version of drover";
        assert!(ran.all().contains(why), "{line}: {}", ran.all());
    }
}

#[test]
fn colours_are_there_where_they_are_asked_for_and_only_there() {
    let session = Session::new("colours");
    session.file("web.hcl", &service("web", "1", ""));
    session.done("job run -detach web.hcl");
    let bold = "\u{1b}[1m";
    for (flags, wanted) in [
        ("", false),
        ("-force-color", true),
        ("-no-color", false),
        ("-no-color -force-color", false),
    ] {
        let shown = session.done(&format!("job status {flags} web"));
        assert_eq!(shown.contains(bold), wanted, "{flags}: {shown}");
    }
    session.done("job stop -purge -detach web");
}

#[test]
fn commands_that_are_not_there_say_what_to_use() {
    let mut session = Session::new("absent");
    for line in [
        "run web.hcl",
        "stop web",
        "quota status",
        "acl auth-method list",
        "job statsu",
    ] {
        let ran = session.run(line);
        assert_eq!(ran.code, 127, "{line}");
    }
    session.check();
}
