//! Namespaces, node pools and variables.

use crate::support::Session;

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
