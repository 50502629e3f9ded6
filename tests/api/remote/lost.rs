//! A client that goes, stands still or comes back during requests.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use drover_testkit::{LONG, wait_for};

use super::{World, text, wait_log};

/// How long a follower waits for the next output: one that is not notified that the machine is lost
/// does not end before this, and one that is notified ends within `LONG`.
const PATIENCE: Duration = Duration::from_secs(600);

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
        let mut lines = world
            .http()
            .timeout(PATIENCE)
            .lines(&path)
            .expect("it begins");
        assert_eq!(lines.next_line().expect("a line").expect("some"), b"begun");
        let pid = world.client.pid();
        signal(pid, how);
        let lost = Instant::now();
        let ended = lines.next_line();
        let took = lost.elapsed();
        // A request that comes now gets that answer too, and does not hang.
        let ls = format!("/v1/client/fs/ls/{alloc}");
        let answer = world.http().timeout(LONG).get(&ls).expect("an answer");
        signal(pid, "-CONT");
        assert!(ended.is_err(), "{how}: it broke off: {ended:?}");
        assert!(took < LONG, "{how}: after {took:?}");
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
    // The client reads what was written before it was killed.
    wait_log(&mut world.http(), &path, "begun");
    let world = world.restart_client();
    wait_log(&mut world.http(), &path, "begun");
    let world = world.restart_server();
    wait_log(&mut world.http(), &path, "begun");
    assert_eq!(text(&mut world.http(), &path), "begun");
}

/// A command beside a task of a client that is killed, or stands still, ends for its caller in
/// words, and by itself.
#[test]
fn mod_23_a_command_of_a_client_that_is_lost_ends_in_words() {
    for how in ["-KILL", "-STOP"] {
        let world = World::start();
        let alloc = world.run("lost", "exec sleep 600");
        let script = "echo $$; exec sleep 600";
        let mut child = Command::new(env!("CARGO_BIN_EXE_drover"))
            .args(["alloc", "exec", &alloc, "/bin/sh", "-c", script])
            .env("NOMAD_ADDR", format!("http://{}", world.server.addr()))
            .env_remove("NOMAD_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = child.stdout.take().expect("a pipe");
        let pid = BufReader::new(out).lines().next().expect("a line");
        let place = format!("/proc/{}/stat", pid.expect("a number"));
        assert!(std::fs::exists(&place).expect("it is known"));
        signal(world.client.pid(), how);
        let ended = child.wait_with_output().expect("it ends");
        signal(world.client.pid(), "-CONT");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{how}: {stderr}");
        let own = "the agent says nothing any more";
        assert!(
            stderr.contains("failed to exec into task") && !stderr.contains(own),
            "{how}: {stderr}"
        );
        let gone = wait_for("the command to end", LONG, || {
            let stat = std::fs::read_to_string(&place).unwrap_or_default();
            ensure!(stat.is_empty() || stat.contains(") Z "), "{stat}");
            Ok::<_, anyhow::Error>(())
        });
        gone.expect("it ends with those who asked for it");
    }
}
