//! Tasks that try to get at what is not theirs, or to hold the agent up.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use drover_testkit::{Agent, Http, LONG, wait_for};
use nix::mount::{MntFlags, MsFlags};
use serde_json::json;

use super::{World, is_root};
use crate::support::{json_of, register};

/// How long a stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What a task of an unprivileged user tries; every attempt that succeeds says so.
const ATTACK: &str = r#"
exec 2>/dev/null
tell() { echo "BROKE $1"; }
true > ../alloc/logs/x && tell "made a log file"
rm -f ../alloc/logs/t.stdout.0 && tell "removed a log file"
mv ../alloc/logs ../alloc/own && tell "moved the logs"
ln -s /etc ../alloc/logs/t.stdout.1 && tell "linked a log file"
mkfifo ../alloc/logs/t.stdout.1 && tell "made a pipe of a log file"
mv ../alloc ../own && tell "moved what is shared"
mv ../t ../own && tell "moved its directory"
ls .. && tell "listed its allocation"
ls "$DATA/server" && tell "listed the server"
ls "$DATA/client" && tell "listed the client"
ls "$DATA/alloc" && tell "listed all allocations"
cat "$OTHER/t/secrets/token" && tell "read a secret"
true > "$OTHER/t/local/planted" && tell "wrote another one's local"
true > "$OTHER/t/planted" && tell "wrote another one's directory"
cat /proc/$PPID/environ && tell "read the executor's environment"
umask | grep -q 0022 || tell "has an odd umask"
echo mine > local/file || tell "cannot write its own local"
echo mine > secrets/file || tell "cannot write its own secrets"
echo mine > file || tell "cannot write where it works"
echo mine > ../alloc/data/file || tell "cannot write what is shared"
ln -s /etc/shadow local/shadow
ln -s ../../../.. local/up
ln -s ../secrets/file local/way
mkfifo local/pipe
truncate -s 1T local/big
printf 'the end' >> local/big
id -un
echo up
exec sleep 1000
"#;

#[test]
fn a_task_of_another_user_gets_at_nothing_but_its_own() {
    if !is_root("tasks of another user") {
        return;
    }
    let mut world = World::start();
    let secret = "echo token > secrets/token; echo up; exec sleep 1000";
    let other = world.run("other", secret, json!({}));
    let env = json!({"User": "nobody", "Env": {
        "DATA": world.data(), "OTHER": world.of_alloc(&other, ""),
    }});
    let alloc = world.run("attack", ATTACK, env);
    let log = world.log(&alloc, "t");
    assert!(!log.contains("BROKE"), "{log}");
    assert!(log.contains("nobody"), "{log}");
    let mode = |path: PathBuf| fs::metadata(path).expect("is there").mode() & 0o7777;
    for (path, expected) in [("server", 0o700), ("client", 0o700), ("alloc", 0o711)] {
        assert_eq!(mode(world.data().join(path)), expected, "{path}");
    }
    assert_eq!(mode(world.of_alloc(&alloc, "")), 0o711);

    let fs_of = |verb: &str, path: &str| format!("/v1/client/fs/{verb}/{alloc}?path={path}");
    for verb in ["cat", "stat", "ls", "stream", "readat"] {
        for (path, status) in [
            ("t/local/shadow", 400),
            ("t/local/up/etc/passwd", 400),
            ("../../server", 400),
            ("t/secrets/file", 403),
            ("t/secrets", 403),
            ("t/private", 403),
            ("t/local/way", 403),
            ("t/local/none", 404),
        ] {
            let url = fs_of(verb, path) + "&offset=0";
            let (got, text) = world.status(&url);
            assert_eq!(got, status, "{verb} {path}: {text}");
        }
    }
    let (status, text) = world.status(&fs_of("cat", "t/local/pipe"));
    assert_eq!(
        (status, text.contains("no regular file")),
        (400, true),
        "{text}"
    );
    let kinds = json_of(&mut world.http, &fs_of("ls", "t/local"));
    let mode_of = |name: &str| {
        let all = kinds.as_array().expect("a list");
        let one = all.iter().find(|one| one["Name"] == name);
        one.expect("is there")["FileMode"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(mode_of("pipe").starts_with('p') && mode_of("shadow").starts_with('L'));
}

#[test]
fn nothing_of_the_agents_environment_reaches_a_task() {
    let mut world = World::start();
    let script = "env; echo up; exec sleep 1000";
    let alloc = world.run("env", script, json!({"Env": {"SITE_SECRET": "the job's"}}));
    let log = world.log(&alloc, "t");
    assert!(!log.contains("canary"), "{log}");
    assert!(log.contains("SITE_NAME=seen\n"), "{log}");
    assert!(log.contains("SITE_SECRET=the job's\n"), "{log}");
}

#[test]
fn an_agent_ends_in_time_while_pipes_lie_where_its_log_files_are() {
    let mut world = World::start();
    // The task runs as the agent's user, so it can put them there.
    let script = "for n in 1 2 3; do mkfifo ../alloc/logs/t.stdout.$n ../alloc/logs/t.stderr.$n; \
                  done; rm -f ../alloc/logs/t.stderr.0; mkfifo ../alloc/logs/t.stderr.0; echo up; \
                  exec sleep 1000";
    let alloc = world.run("pipes", script, json!({}));
    let followers: Vec<TcpStream> = ["stdout", "stderr"]
        .iter()
        .flat_map(|kind| (0..8).map(move |_| kind))
        .map(|kind| {
            let mut stream = TcpStream::connect(world.agent.addr()).expect("connects");
            let path = format!("/v1/client/fs/logs/{alloc}?task=t&type={kind}&follow=true");
            write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
            stream
        })
        .collect();
    // Everything else is served meanwhile.
    for _ in 0..20 {
        assert_eq!(world.log(&alloc, "t"), "up");
        json_of(&mut world.http, "/v1/nodes");
    }
    let data = world.data();
    stops_in_time(world.agent, &data);
    drop(followers);
}

/// A stop has 5 s, whatever is stuck: after that the agent would end itself, which is no success.
/// How long it gives itself and how long it took it says in its log: a watch of ours would count
/// what else the machine does meanwhile.
fn stops_in_time(agent: Agent, data: &Path) {
    let status = agent.stop(LONG).expect("it ends");
    let log = fs::read_to_string(data.with_extension("log")).expect("its log");
    assert!(status.success(), "{status}: {log}");
    let reported = |line: &str, field: &str| {
        let mut lines = log.lines().filter(|text| text.contains(line));
        let (_, behind) = lines.find_map(|text| text.split_once(field))?;
        let number = behind.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_millis(number))
    };
    let limit = reported(" stopping ", " limit_ms=").unwrap_or_else(|| panic!("no limit: {log}"));
    assert!(limit <= STOP_LIMIT, "{limit:?}");
    let took = reported(" stopped ", " took_ms=").unwrap_or_else(|| panic!("no end: {log}"));
    assert!(took <= STOP_LIMIT, "{took:?}");
}

/// A file system that never answers, as a task with the rights for it can mount one.
struct Hang {
    at: PathBuf,
    _fuse: fs::File,
}

impl Hang {
    fn mount(at: PathBuf) -> Result<Hang> {
        let fuse = fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let how = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            fuse.as_raw_fd()
        );
        fs::create_dir(&at)?;
        let (kind, options) = (Some("fuse"), Some(how.as_str()));
        nix::mount::mount(Some("hang"), &at, kind, MsFlags::MS_NODEV, options)?;
        Ok(Hang { at, _fuse: fuse })
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.at, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_file_system_that_hangs_holds_nobody_else_up_and_not_the_end() {
    if !is_root("a file system that hangs") {
        return;
    }
    let mut world = World::start();
    let stuck = world.run("stuck", "echo up; exec sleep 1000", json!({}));
    let other = world.run(
        "other",
        "echo hi > local/file; echo up; exec sleep 1000",
        json!({}),
    );
    let hang = match Hang::mount(world.of_alloc(&stuck, "t/local/hang")) {
        Ok(hang) => hang,
        Err(error) => {
            return drover_testkit::skip("a file system that hangs", &error.to_string());
        }
    };
    let waiting: Vec<TcpStream> = ["ls", "stat", "cat", "stream"]
        .iter()
        .flat_map(|verb| (0..8).map(move |_| verb))
        .map(|verb| {
            let mut stream = TcpStream::connect(world.agent.addr()).expect("connects");
            let path = format!("/v1/client/fs/{verb}/{stuck}?path=t/local/hang");
            write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").expect("writes");
            stream
        })
        .collect();
    let file = format!("/v1/client/fs/cat/{other}?path=t/local/file");
    for _ in 0..50 {
        assert_eq!(world.status(&file), (200, "hi".to_owned()));
        json_of(&mut world.http, "/v1/nodes");
        json_of(&mut world.http, "/v1/client/stats");
    }
    let data = world.data();
    stops_in_time(world.agent, &data);
    drop((waiting, hang));
}

#[test]
fn signals_are_taken_by_a_thread_that_waits_for_nothing_else() {
    let world = World::start();
    let threads = format!("/proc/{}/task", world.agent.pid());
    let names: Vec<String> = fs::read_dir(threads)
        .expect("its threads")
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok())
        .collect();
    assert!(
        names.iter().any(|name| name.trim() == "signals"),
        "{names:?}"
    );
    let status = fs::read_to_string(format!("/proc/{}/status", world.agent.pid()));
    let status = status.expect("its status");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = u64::from_str_radix(mask.unwrap_or("0").trim(), 16).expect("a mask");
    // SIGHUP, SIGINT and SIGTERM.
    assert_eq!(mask & 0x4003, 0x4003, "{mask:x}");
    // Beside that: what it writes is for its own user only.
    assert!(status.contains("\nUmask:\t0077\n"), "{status}");
    world.agent.stop(LONG).expect("it ends");
}

#[test]
fn a_predecessors_link_is_not_followed_into_a_successors_disk() {
    let mut world = World::start();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).expect("makes");
    let job = |script: &str| {
        json!({"Job": {
            "ID": "sticky", "Name": "sticky", "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{"Name": "g", "Count": 1,
                "EphemeralDisk": {"Sticky": true, "SizeMB": 300},
                "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": false},
                "Tasks": [{"Name": "t", "Driver": "raw_exec", "KillTimeout": 100_000_000,
                    "Config": {"command": "/bin/sh", "args": ["-c", script]}}],
            }],
        }})
    };
    let newest = |http: &mut Http, wanted: &str| {
        wait_for(wanted, LONG, || {
            let all = http.json("/v1/job/sticky/allocations")?;
            let all = all.as_array().cloned().unwrap_or_default();
            let one = all
                .iter()
                .max_by_key(|one| one["CreateIndex"].as_u64())
                .cloned();
            let one = one.unwrap_or_default();
            ensure!(one["ClientStatus"] == wanted, "{one}");
            Ok(one["ID"].as_str().unwrap_or_default().to_owned())
        })
        .expect("it comes")
    };
    register(
        &mut world.http,
        &job("echo one > local/kept; exec sleep 1000"),
    );
    let first = newest(&mut world.http, "running");
    wait_for("it is written", LONG, || {
        ensure!(world.of_alloc(&first, "t/local/kept").is_file());
        Ok::<_, anyhow::Error>(())
    })
    .expect("it is");
    let replace = format!(
        "cat local/kept; rm -r local; ln -s {} local; echo up; exec sleep 1000",
        outside.display()
    );
    register(&mut world.http, &job(&replace));
    let second = wait_for("the second", LONG, || {
        let id = newest(&mut world.http, "running");
        ensure!(id != first && world.log(&id, "t").contains("up"));
        Ok::<_, anyhow::Error>(id)
    })
    .expect("it runs");
    assert!(
        world.log(&second, "t").contains("one"),
        "the disk was not taken over"
    );
    register(
        &mut world.http,
        &job("touch local/planted; exec sleep 1000"),
    );
    let third = newest(&mut world.http, "failed");
    let row = json_of(&mut world.http, &format!("/v1/allocation/{third}"));
    let events = row["TaskStates"]["t"]["Events"].to_string();
    assert!(events.contains("not a directory"), "{events}");
    assert_eq!(
        fs::read_dir(Path::new(&outside)).expect("is there").count(),
        0
    );
}
