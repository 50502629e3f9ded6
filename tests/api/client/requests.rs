//! Files, logs, figures, restarts, signals and removal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, so, wait_for};
use serde_json::{Value, json};

use super::{World, finished};
use crate::support::json_of;

/// Takes the first bytes of an answer as they come, and closes the connection.
fn first_bytes(agent: &Agent, path: &str, most: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(agent.addr())?;
    stream.set_read_timeout(Some(LONG))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let (mut buf, mut got) = (vec![0; 1 << 16], 0);
    while got < most {
        let n = stream.read(&mut buf)?;
        ensure!(n > 0, "it ended after {got} bytes");
        got += n;
    }
    Ok(got)
}

#[test]
fn a_file_of_a_terabyte_is_sent_in_pieces_and_as_fast_as_it_is_taken() {
    let mut world = World::start();
    let script = "truncate -s 1T local/big; printf 'the end' >> local/big; \
                  printf 0123456789 > local/small; echo up; exec sleep 1000";
    let alloc = world.run("big", script, json!({}));
    let before = world.agent.resident_bytes().expect("it lives");
    let whole = [
        format!("/v1/client/fs/cat/{alloc}?path=t/local/big"),
        format!("/v1/client/fs/readat/{alloc}?path=t/local/big&offset=0&limit=-1"),
    ];
    // Some take nothing at all, one takes a part.
    let idle: Vec<TcpStream> = (0..16)
        .map(|n| {
            let mut stream = TcpStream::connect(world.agent.addr()).expect("connects");
            let path = &whole[n % 2];
            write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
            stream
        })
        .collect();
    for path in &whole {
        first_bytes(&world.agent, path, 256 << 20).expect("a quarter of a gigabyte");
    }
    let after = world.agent.resident_bytes().expect("it lives");
    assert!(
        after < before + (128 << 20),
        "{before} bytes became {after}"
    );
    drop(idle);
    let mut read = |query: &str| {
        let url = format!("/v1/client/fs/readat/{alloc}?path=t/local/{query}");
        let answer = world.http.get(&url).expect("an answer");
        (answer.status, answer.text())
    };
    let terabyte = 1_u64 << 40;
    let end = format!("big&offset={}&limit=-1", terabyte + 4);
    assert_eq!(read(&end), (200, "end".to_owned()));
    assert_eq!(read("small&offset=2&limit=3"), (200, "234".to_owned()));
    for all in ["", "&limit=0", "&limit=-1", "&limit=1000"] {
        let query = format!("small&offset=2{all}");
        assert_eq!(read(&query), (200, "23456789".to_owned()), "{all}");
    }
    assert_eq!(read("small&offset=20"), (200, String::new()));
    assert_eq!(read("small&offset=0&limit=x").0, 400);
    assert_eq!(read("small").0, 400);
}

#[test]
fn a_followed_file_tells_when_it_is_renamed_and_when_it_is_cut() {
    let mut world = World::start();
    let alloc = world.run("files", "echo up; exec sleep 1000", json!({}));
    let local = world.of_alloc(&alloc, "t/local");
    let stream = |world: &World, name: &str| {
        let path = format!("/v1/client/fs/stream/{alloc}?path=t/local/{name}&follow=true");
        let mut stream = TcpStream::connect(world.agent.addr()).expect("connects");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
        stream
    };
    let until = |stream: &mut TcpStream, wanted: &str| {
        let (mut text, mut buf) = (String::new(), [0; 4096]);
        let begun = Instant::now();
        while !text.contains(wanted) {
            // A heartbeat begins the timeout of the socket again.
            assert!(begun.elapsed() < LONG, "{wanted} did not come: {text}");
            let n = stream.read(&mut buf).expect("it goes on");
            assert!(n > 0, "{wanted} did not come: {text}");
            text.push_str(&String::from_utf8_lossy(&buf[..n]));
        }
    };
    fs::write(local.join("a"), "one").expect("writes");
    let mut followed = stream(&world, "a");
    until(&mut followed, "b25l");
    fs::write(local.join("a"), "").expect("writes");
    until(&mut followed, "file truncated");
    fs::write(local.join("a"), "two").expect("writes");
    until(&mut followed, "dHdv");
    fs::rename(local.join("a"), local.join("b")).expect("renames");
    fs::write(local.join("a"), "other").expect("writes");
    until(&mut followed, "file deleted");
    fs::remove_file(local.join("a")).expect("removes");
    std::os::unix::fs::symlink("/etc/passwd", local.join("a")).expect("links");
    let (status, _) = world.status(&format!("/v1/client/fs/stream/{alloc}?path=t/local/a"));
    assert_eq!(status, 400);
}

#[test]
fn a_followed_log_is_whole_over_rotations() {
    let mut world = World::start();
    let script = "echo up; n=0; while [ $n -lt 60000 ]; do \
                  echo \"line $n ..................................................\"; \
                  n=$((n+1)); done; echo over; exec sleep 1000";
    let logs = json!({"LogConfig": {"MaxFiles": 10, "MaxFileSizeMB": 1}});
    let alloc = world.run("rotate", script, logs);
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true");
    let mut lines = world.agent.http().lines(&path).expect("a stream");
    let mut next = 0;
    loop {
        let line = lines
            .next_line()
            .expect("it goes on")
            .expect("it is not over");
        let line = String::from_utf8_lossy(&line).into_owned();
        match line.split(' ').nth(1).and_then(|n| n.parse::<u32>().ok()) {
            Some(n) => {
                assert_eq!(n, next);
                next += 1;
            }
            None if line == "over" => break,
            None => assert_eq!(line, "up"),
        }
    }
    assert_eq!(next, 60_000);
    assert!(world.of_alloc(&alloc, "alloc/logs/t.stdout.3").is_file());
}

/// Works all the time; says what signals it gets, and ends in its own way.
const BUSY: &str = "trap 'echo got usr1' USR1; trap 'echo bye; exit 0' HUP; echo up; n=0; \
                    while :; do n=$((n+1)); [ $((n % 5000)) = 0 ] && sleep 0.01; done";

fn busy(world: &mut World) -> String {
    let more = json!({"KillSignal": "SIGHUP", "Resources": {"CPU": 50, "MemoryMB": 50}});
    world.run("busy", BUSY, more)
}

fn wait_for_line(world: &mut World, alloc: &str, wanted: &str) {
    wait_for(wanted, LONG, || {
        let log = world.log(alloc, "t");
        ensure!(log.contains(wanted), "{log}");
        Ok(())
    })
    .expect("it says so");
}

fn of(alloc: &str, verb: &str) -> String {
    format!("/v1/client/allocation/{alloc}/{verb}")
}

#[test]
fn an_allocation_is_signalled_restarted_and_stopped_with_its_own_signal() {
    let mut world = World::start();
    let alloc = busy(&mut world);
    let usr1 = json!({"Signal": "SIGUSR1", "Task": "t"});
    let answer = world.http.put(&of(&alloc, "signal"), &usr1);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait_for_line(&mut world, &alloc, "got usr1");

    let answer = world
        .http
        .put(&of(&alloc, "restart"), &json!({"TaskName": "t"}));
    assert_eq!(answer.expect("an answer").status, 200);
    wait_for_line(&mut world, &alloc, "bye");
    let path = format!("/v1/allocation/{alloc}");
    wait_for("it runs again", LONG, || {
        let state = world.http.json(&path)?["TaskStates"]["t"].take();
        let (now, restarts) = (&state["State"], &state["Restarts"]);
        ensure!(now == "running" && *restarts == 1, "{state}");
        Ok(())
    })
    .expect("it runs again");
    // A shell that has not set its traps says nothing when it is ended.
    wait_for("it is up again", LONG, || {
        let log = world.log(&alloc, "t");
        let times = log.lines().filter(|line| *line == "up").count();
        ensure!(times == 2, "{log}");
        Ok(())
    })
    .expect("its traps are set");

    let stopped = world.http.put(&format!("{path}/stop"), &json!({}));
    let stopped = stopped.expect("an answer");
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    wait_for("it ends", LONG, || {
        let row = world.http.json(&path)?;
        ensure!(row["ClientStatus"] == "complete", "{}", row["ClientStatus"]);
        Ok(())
    })
    .expect("it ends");
    assert_eq!(world.log(&alloc, "t").matches("bye").count(), 2);
}

#[test]
fn mod_17_figures_are_of_an_interval_of_the_clients_own_however_often_they_are_asked_for() {
    let mut world = World::start();
    let alloc = busy(&mut world);
    let stats = |http: &mut Http| http.json(&of(&alloc, "stats")).expect("figures");
    let percent = |stats: &Value| stats["ResourceUsage"]["CpuStats"]["Percent"].as_f64();
    let first = wait_for("a measure", LONG, || {
        let used = stats(&mut world.http);
        ensure!(percent(&used).is_some_and(|cpu| cpu > 0.0), "{used}");
        Ok(used)
    });
    let first = first.expect("it works");
    let rss = first["ResourceUsage"]["MemoryStats"]["RSS"].as_u64();
    assert!(rss > Some(0), "{first}");
    assert_eq!(first["Tasks"].as_object().map(|tasks| tasks.len()), Some(1));
    for _ in 0..20 {
        let again = stats(&mut world.http);
        assert!(percent(&again).is_some_and(|cpu| cpu > 0.0), "{again}");
        let host = json_of(&mut world.http, "/v1/client/stats");
        for cpu in host["CPU"].as_array().expect("processors") {
            let part = |name: &str| cpu[name].as_f64().unwrap_or_default();
            assert!(part("User") + part("System") + part("Idle") > 50.0, "{cpu}");
        }
    }
}

#[test]
fn what_is_finished_is_removed_one_by_one_and_all_at_once() {
    let mut world = World::start();
    let script = "echo up; exec sleep 1000";
    let [first, second, kept] =
        ["first", "second", "kept"].map(|id| world.run(id, script, json!({})));
    let refused = world.http.get(&of(&first, "gc")).expect("an answer");
    assert_eq!(refused.status, 404, "{}", refused.text());
    for job in ["first", "second"] {
        let gone = world.http.send("DELETE", &format!("/v1/job/{job}"), &[]);
        assert_eq!(gone.expect("an answer").status, 200);
        finished(&mut world.http, job);
    }
    let root = |world: &World, alloc: &str| world.of_alloc(alloc, "").is_dir();
    assert!(root(&world, &first) && root(&world, &second));
    // The client may still have something to do for it when the servers know of its end.
    wait_for("the removal", LONG, || {
        let answer = world.http.get(&of(&first, "gc"))?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .expect("it is removed");
    assert!(!root(&world, &first) && root(&world, &second));
    let unknown = world.http.get(&of(&first, "stats")).expect("an answer");
    assert_eq!(unknown.status, 404);
    wait_for("the removal of all that is over", LONG, || {
        let answer = world.http.get("/v1/client/gc").expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        so(!root(&world, &second))
    })
    .expect("it is removed");
    assert!(root(&world, &kept));
}

#[test]
fn a_task_killed_by_a_signal_shows_the_exit_code_of_shells() {
    let mut world = World::start();
    let deaf = "trap '' HUP; echo up; while :; do sleep 0.05; done";
    let forced = json!({"KillSignal": "SIGHUP", "KillTimeout": 50_000_000});
    let patient = json!({"KillTimeout": 60_000_000_000_u64});
    for (job, script, more, (code, signal)) in [
        ("killed", deaf, forced, (137, 9)),
        // Without a word a task is interrupted.
        ("interrupted", "echo up; exec sleep 1000", patient, (130, 2)),
    ] {
        let alloc = world.run(job, script, more);
        let gone = world.http.send("DELETE", &format!("/v1/job/{job}"), &[]);
        assert_eq!(gone.expect("an answer").status, 200);
        finished(&mut world.http, job);
        let row = json_of(&mut world.http, &format!("/v1/allocation/{alloc}"));
        let events = row["TaskStates"]["t"]["Events"].as_array();
        let mut events = events.into_iter().flatten();
        let end = events.find(|event| event["Type"] == "Terminated");
        let end = end.unwrap_or_else(|| panic!("{job} has no end: {row}"));
        assert_eq!(end["ExitCode"], code, "{end}");
        assert_eq!(end["Signal"], signal, "{end}");
        assert_eq!(end["Details"]["exit_code"], code.to_string());
        let shown = format!("Exit Code: {code}, Signal: {signal}");
        assert_eq!(end["DisplayMessage"], shown);
    }
}
