//! A client in a network of its own, whose cable is pulled during requests.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_testkit::{LONG, Setup, skip};

use super::{World, reached};

/// How long a follower waits for the next output: one that is not notified that the machine is lost
/// does not end before this, and one that is notified ends within `LONG`.
const PATIENCE: Duration = Duration::from_secs(600);

/// A network namespace and the one cable that leads there.
struct Cable {
    namespace: String,
    number: u32,
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.context("ip")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {stderr}");
    Ok(())
}

impl Cable {
    fn lay() -> Result<Self> {
        let number = std::process::id();
        let namespace = format!("drover{number}");
        ip(&format!("netns add {namespace}"))?;
        let cable = Self { namespace, number };
        let (near, far) = (cable.end('n'), cable.end('f'));
        let namespace = &cable.namespace;
        ip(&format!(
            "link add {near} type veth peer name {far} netns {namespace}"
        ))?;
        ip(&format!("addr add {}/30 dev {near}", cable.address(1)))?;
        ip(&format!(
            "-n {namespace} addr add {}/30 dev {far}",
            cable.address(2)
        ))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} link set {far} up"))?;
        cable.plug();
        Ok(cable)
    }

    fn end(&self, which: char) -> String {
        format!("dr{:x}{which}", self.number)
    }

    /// An address without an owner: they are for tests of networks (RFC 2544).
    fn address(&self, last: u32) -> String {
        format!("198.18.{}.{last}", self.number % 256)
    }

    fn plug(&self) {
        ip(&format!("link set {} up", self.end('n'))).expect("it is there");
    }

    fn pull(&self) {
        ip(&format!("link set {} down", self.end('n'))).expect("it is there");
    }

    /// A program that is drover in that namespace.
    fn program(&self, path: &Path) -> std::io::Result<()> {
        let drover = env!("CARGO_BIN_EXE_drover");
        let run = format!("exec ip netns exec {} {drover} \"$@\"\n", self.namespace);
        std::fs::write(path, format!("#!/bin/sh\n{run}"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // Whatever of it was made.
        let _ = ip(&format!("link del {}", self.end('n')));
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

impl World {
    /// A server here, and a client at the other end of a cable.
    fn beyond(cable: &Cable) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("server");
        let mut server_setup =
            Setup::server(env!("CARGO_BIN_EXE_drover"), &data).expect("free ports");
        let here = cable.address(1);
        server_setup.config.push_str(&format!(
            "addresses {{ rpc = \"{here}\" }}\nadvertise {{ rpc = \"{here}\" }}\n"
        ));
        let server = server_setup.start().expect("the server starts");
        let mut setup = super::setup(&server, dir.path().join("client"), "");
        let rpc = format!("{here}:{}", server_setup.rpc);
        setup.config = setup.config.replace(&server.rpc_addr().to_string(), &rpc);
        setup.binary = dir.path().join("drover-beyond");
        cable.program(&setup.binary).expect("written");
        let client = setup.spawn().expect("the client starts");
        Self {
            server,
            server_setup,
            client,
            setup,
            _dir: dir,
        }
    }

    fn exec(&self, alloc: &str, script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command
            .args(["alloc", "exec", "-t=false", alloc, "/bin/sh", "-c", script])
            .env("NOMAD_ADDR", format!("http://{}", self.server.addr()))
            .env_remove("NOMAD_TOKEN")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

#[test]
fn mod_23_a_client_in_another_network_is_reached_and_a_pulled_cable_ends_what_goes_over_it() {
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(why) => return skip("a client in another network", &format!("{why:#}")),
    };
    let world = World::beyond(&cable);
    let alloc = world.run("afar", "echo begun; exec sleep 600");
    let printed = world
        .exec(&alloc, "cat /proc/net/dev")
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains(&cable.end('f')), "{printed}");
    let path = format!("/v1/client/fs/logs/{alloc}?task=t&type=stdout&plain=true&follow=true");
    let mut lines = world
        .http()
        .timeout(PATIENCE)
        .lines(&path)
        .expect("it begins");
    assert_eq!(lines.next_line().expect("a line").expect("some"), b"begun");
    // Something long goes the other way meanwhile.
    let mut upload = world.exec(&alloc, "exec cat >/dev/null");
    let mut upload = upload.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut into = upload.stdin.take().expect("a pipe");
    into.write_all(&vec![b'x'; 4 << 20]).expect("it is taken");
    let more = std::thread::spawn(move || while into.write_all(&[b'x'; 64 << 10]).is_ok() {});

    cable.pull();
    let lost = Instant::now();
    let ended = lines.next_line();
    assert!(ended.is_err(), "it broke off: {ended:?}");
    let uploaded = upload.wait_with_output().expect("it ends");
    let took = lost.elapsed();
    assert!(took < LONG, "after {took:?}");
    more.join().expect("nobody takes it");
    let stderr = String::from_utf8_lossy(&uploaded.stderr);
    assert_eq!(uploaded.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("failed to exec into task"), "{stderr}");
    let ls = format!("/v1/client/fs/ls/{alloc}");
    let answer = world.http().timeout(LONG).get(&ls).expect("an answer");
    assert!([404, 503].contains(&answer.status), "{}", answer.text());

    cable.plug();
    reached(&mut world.http(), &alloc);
}
