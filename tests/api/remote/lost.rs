//! A client that goes, stands still or comes back while it is asked.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover_testkit::{LONG, wait_for};

use super::{World, text};

/// How soon whoever waits for a machine that is lost must be told.
const TOLD: Duration = Duration::from_secs(10);

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// A followed log of a client that is killed, or stands still, ends within seconds; and it is
/// no good end.
#[test]
fn mod_23_a_log_of_a_lost_client_breaks_off() {
    for how in ["-KILL", "-STOP"] {
        let world = World::start();
        let alloc = world.run("followed", "echo begun; exec sleep 600");
        let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true");
        let mut lines = world.http().timeout(LONG).lines(&path).expect("it begins");
        assert_eq!(lines.next_line().expect("a line").expect("some"), b"begun");
        let pid = world.client.pid();
        signal(pid, how);
        let lost = Instant::now();
        let ended = lines.next_line();
        let took = lost.elapsed();
        // What asks now is told so too, and does not hang.
        let ls = format!("/v1/client/fs/ls/{alloc}");
        let answer = world.http().timeout(LONG).get(&ls).expect("an answer");
        signal(pid, "-CONT");
        assert!(ended.is_err(), "{how}: it broke off: {ended:?}");
        assert!(took < TOLD * 2, "{how}: after {took:?}");
        assert!(
            [404, 503].contains(&answer.status),
            "{how}: {}: {}",
            answer.status,
            answer.text()
        );
    }
}

/// A client that starts again is reached again; so is one whose server does.
#[test]
fn whoever_comes_back_is_reached_again() {
    let world = World::start();
    let alloc = world.run("kept", "echo begun; exec sleep 600");
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true");
    let again = |world: &World| {
        let mut http = world.http();
        wait_for("the client", LONG, || -> Result<()> {
            let answer = http.get(&path)?;
            ensure!(answer.status == 200, "{}", answer.text());
            ensure!(answer.text() == "begun", "{}", answer.text());
            Ok(())
        })
    };
    let world = world.restart_client();
    again(&world).expect("it is reached");
    let world = world.restart_server();
    again(&world).expect("it is reached");
    assert_eq!(text(&mut world.http(), &path), "begun");
}
