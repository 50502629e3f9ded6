//! Allocations, their files and their tasks; and the services they offer.

use crate::support::{Session, service, task};

#[test]
fn job_11_an_allocation_is_shown_restarted_signalled_and_stopped() {
    let mut session = Session::new("allocs");
    session.file("web.hcl", &service("web", "1", ""));
    session.done("job run web.hcl");
    let id = session.wait_allocs("web", "running", 1).remove(0);
    let short = &id[..8];
    session.run(&format!("alloc checks {short}"));
    session.run(&format!("alloc restart {short} nope"));
    session.run(&format!("alloc restart -all-tasks {short} main"));
    session.run(&format!("alloc restart {short} main"));
    let path = format!("/v1/allocation/{id}");
    session.wait(&path, |alloc| {
        alloc["TaskStates"]["main"]["Restarts"] == 1 && alloc["ClientStatus"] == "running"
    });
    session.run(&format!("alloc signal -s SIGNOPE {short}"));
    session.run(&format!("alloc signal -s SIGCONT {short} main"));
    let node = session.quiet("node status -self -verbose").stdout;
    let row = node
        .lines()
        .find(|line| line.starts_with(&id))
        .expect("the allocation");
    session.file("web.hcl", &service("web", "2", ""));
    session.done("job run web.hcl");
    let second = session.wait_allocs("web", "running", 1).remove(0);
    let node = session.quiet("node status -self").stdout;
    let row2 = node
        .lines()
        .find(|line| line.starts_with(&second[..8]))
        .expect("it");
    let verbose = session.quiet("node status -self -verbose").stdout;
    let whole_row2 = verbose
        .lines()
        .find(|line| line.starts_with(&second))
        .expect("it too");
    let version = |row: &str, place: usize| row.split_whitespace().nth(place).map(str::to_owned);
    assert_eq!(version(row, 5).as_deref(), Some("0"), "{row}");
    assert_eq!(version(row2, 3).as_deref(), Some("1"), "{row2}");
    assert_eq!(version(whole_row2, 5).as_deref(), Some("1"), "{whole_row2}");
    let stopped = session.quiet(&format!("alloc stop {second}"));
    assert_eq!(stopped.code, 0, "{}", stopped.all());
    let third = session.wait_allocs("web", "running", 1).remove(0);
    assert_ne!(second, third);
    session.run("alloc stop -detach nope");
    session.run("alloc status a");
    session.done("job stop -purge -detach web");
    session.check();
}

#[test]
fn job_11_all_tasks_means_those_too_that_ended() {
    let session = Session::new("again");
    let text = service("again-web", "1", "").replace(
        "task \"main\" {",
        r#"task "before" {
      driver = "raw_exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/true"
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
    task "main" {"#,
    );
    session.file("web.hcl", &text);
    session.done("job run -detach web.hcl");
    let id = session.wait_allocs("again-web", "running", 1).remove(0);
    // How often the tasks began again: the one that waits, and the one that had ended.
    let again = |main: u64, before: u64| {
        session.wait(&format!("/v1/allocation/{id}"), |alloc| {
            let states = &alloc["TaskStates"];
            states["main"]["Restarts"] == main
                && states["before"]["Restarts"] == before
                && states["main"]["State"] == "running"
                && states["before"]["State"] == "dead"
        });
    };
    again(0, 0);
    let reported = session.done(&format!("alloc restart -verbose {id}"));
    let of = |whom: &str| format!("Requested restart of {whom} of allocation {id:?}\n");
    assert_eq!(reported, of("all tasks that run"));
    again(1, 0);
    let reported = session.done(&format!("alloc restart -verbose -all-tasks {id}"));
    assert_eq!(reported, of("all tasks"));
    again(2, 1);
    session.done("job restart -yes again-web");
    again(3, 1);
    session.done("job restart -yes -all-tasks again-web");
    again(4, 2);
    session.done("job stop -purge -detach again-web");
}

#[test]
fn files_are_listed_and_read() {
    let mut session = Session::new("files");
    let script = r#"command = "/bin/sh"
        args    = ["-c", "for n in 1 2 3 4 5; do echo line $n; done > local/out; exec sleep 300"]"#;
    session.file("web.hcl", &task("web", "1", "", script));
    session.done("job run web.hcl");
    let id = session.wait_allocs("web", "running", 1).remove(0);
    let stat = format!("/v1/client/fs/stat/{id}?path=main/local/out");
    session.wait(&stat, |file| file["Size"] == 35);
    let listed = session.done(&format!("alloc fs {id}"));
    for name in ["alloc/", "main/"] {
        assert!(listed.lines().any(|line| line.ends_with(name)), "{listed}");
    }
    session.run(&format!("alloc fs {id} main/local/out"));
    session.run(&format!("alloc fs -tail -n 2 {id} main/local/out"));
    session.run(&format!("alloc fs -c 7 {id} main/local/out"));
    session.run(&format!("alloc fs -stat {id} main/local/out"));
    session.run(&format!("alloc fs -H -stat {id} main/local/out"));
    session.run("alloc fs -job web main/local/out");
    session.run(&format!("alloc fs {id} main/local/none"));
    session.run(&format!("alloc fs -tail {id} main/local"));
    session.run("alloc fs -job -group nope web main/local/out");
    session.done("job stop -purge -detach web");
    session.check();
}

#[test]
fn services_are_listed_shown_and_deleted() {
    let mut session = Session::new("services");
    let text = service("web", "1", "").replace(
        "task \"main\" {",
        r#"network {
      port "http" {}
    }
    service {
      name     = "web-api"
      provider = "nomad"
      port     = "http"
      tags     = ["a", "b"]
      check {
        name     = "alive"
        type     = "tcp"
        interval = "1s"
        timeout  = "1s"
      }
    }
    task "main" {"#,
    );
    session.file("web.hcl", &text);
    session.done("job run -detach web.hcl");
    let id = session.wait_allocs("web", "running", 1).remove(0);
    session.wait("/v1/service/web-api", |all| {
        all.as_array().is_some_and(|all| all.len() == 1)
    });
    session.run("service list");
    session.run("service list -name web");
    let reported = session.done("service info web-api");
    assert!(reported.starts_with("Job ID  Address"), "{reported}");
    assert!(
        reported.contains("[a,b]") && reported.contains(&id[..8]),
        "{reported}"
    );
    let whole = session.done("service info -verbose web-api");
    let registration = whole.lines().next().expect("a line");
    let registration = registration.rsplit(' ').next().expect("an id");
    let checks = format!("/v1/client/allocation/{id}/checks");
    session.wait(&checks, |all| {
        all.as_object()
            .is_some_and(|all| all.values().any(|one| one["Status"] == "failure"))
    });
    let checked = session.done(&format!("alloc checks {id}"));
    assert!(
        checked.starts_with("Status of 1 Nomad Service Check\n"),
        "{checked}"
    );
    let row = |name: &str| {
        checked
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
    };
    assert!(row("Name").ends_with("= alive"), "{checked}");
    assert!(row("Timestamp").contains("= 20"), "{checked}");
    session.run("service delete web-api nope");
    session.run(&format!("service delete web-api {registration}"));
    session.run("service info web-api");
    session.done("job stop -purge -detach web");
    session.check();
}
