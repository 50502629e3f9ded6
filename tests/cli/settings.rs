//! Namespaces, node pools and variables.

use crate::support::{Session, service};

#[test]
fn namespaces_are_applied_shown_and_deleted() {
    let mut session = Session::new("spaces");
    session.run("namespace apply -description 'for tests' spaces-other");
    session.run("namespace status spaces-other");
    session.file(
        "space.hcl",
        "name = \"spaces-third\"\ndescription = \"from a file\"\nmeta {\n  team = \"a\"\n}\n",
    );
    session.run("namespace apply space.hcl");
    session.run("namespace inspect -t '{{.Name}} {{.Description}} {{.Meta.team}}' spaces-third");
    let listed = session.done("namespace list");
    assert!(
        listed
            .lines()
            .any(|line| line == "spaces-other  for tests" || line.starts_with("spaces-other ")),
        "{listed}"
    );
    session.run("namespace delete spaces-other");
    session.run("namespace delete spaces-third");
    session.run("namespace status spaces-other");
    session.check();
}

#[test]
fn node_pools_are_applied_shown_and_deleted() {
    let mut session = Session::new("pools");
    session.run("node pool init");
    session.run("node pool init");
    session.run("node pool init -out yaml");
    session.run("node pool init -out json -quiet pool.json");
    session.run("node pool apply pool.nomad.hcl");
    session.run("node pool info exam");
    session.run("node pool apply pool.json");
    session.run("node pool nodes example");
    session.run("node pool jobs example");
    let nodes = session.done("node pool nodes default");
    assert!(nodes.starts_with("ID        Node Pool  DC"), "{nodes}");
    let listed = session.done("node pool list");
    assert!(
        listed.lines().any(|line| line.starts_with("default")),
        "{listed}"
    );
    session.file("bad.hcl", "node_pool \"a\" {\n  colour = \"red\"\n}\n");
    session.run("node pool apply bad.hcl");
    session.run("node pool delete example");
    session.run("node pool delete example");
    session.run("node pool delete default");
    session.check();
}

/// The pairs of commands of `src/docs/backups.md`, from a cluster into the same.
#[test]
fn what_goes_over_to_another_cluster_is_what_the_commands_print() {
    let session = Session::new("carried");
    session.done("namespace apply -description 'to go' carried");
    session.done("var put -out none nomad/jobs/web user=ann");
    session.file("web.hcl", &service("carried-web", "1", ""));
    session.done("job run -detach web.hcl");
    session.wait_allocs("carried-web", "running", 1);
    for (shown, taken) in [
        ("namespace inspect carried", "namespace apply -json it.json"),
        (
            "operator api /v1/node/pool/default",
            "node pool info default",
        ),
        ("job inspect carried-web", "job run -detach -json it.json"),
        (
            "var get -out json nomad/jobs/web",
            "var put -force -out none -in json @it.json",
        ),
    ] {
        session.file("it.json", &session.done(shown));
        session.done(taken);
    }
    let job = session.json("/v1/job/carried-web").expect("the job");
    assert_eq!(job["Version"], 0, "the same again: {job}");
    let item = session.done("var get -item user nomad/jobs/web");
    assert_eq!(item, "ann");
    session.done("job stop -purge -detach carried-web");
}

#[test]
fn variables_are_put_got_and_purged() {
    let mut session = Session::new("variables");
    session.run("var init");
    session.run("var put -out none @spec.nsv.hcl");
    session.run("var put -out none /nomad/jobs/web/ user=ann gone=");
    session.run("var put -out none nomad/jobs/web user=bob");
    session.run("var put -out none -check-index 1 nomad/jobs/web user=bob");
    session.run("var put -out none -force nomad/jobs/web user=bob");
    session.run("var get -out table nomad/jobs/web");
    session.run("var get -item user nomad/jobs/web");
    session.run("var get -out hcl path/to/variable");
    session.run("var list -out table");
    session.run("var list -out terse nomad/");
    session.run("var get nomad/none");
    session.run("var purge -check-index 1 nomad/jobs/web");
    session.run("var purge nomad/jobs/web");
    session.run("var list -out table nomad/");
    session.check();
}
