//! The packages, as they are installed and started.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Http, LONG, free_port, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::DROVER;

/// Runs a command, which has to succeed; what it printed.
fn done(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {reported}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the packages of the program under test are.
fn packages() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/package");
        done(
            Command::new(script)
                .args(["--binary", DROVER, "--out"])
                .arg(&packages),
        );
        packages
    })
}

/// The only file that ends so in a directory.
fn only(dir: &Path, end: &str) -> PathBuf {
    let files = fs::read_dir(dir).expect("a directory");
    let mut files = files.map(|file| file.expect("a file").path());
    let found = files.find(|path| path.to_string_lossy().ends_with(end));
    found.unwrap_or_else(|| panic!("no {end} in {}", dir.display()))
}

/// Installs a package below a directory, as dpkg does it.
fn installed(package: &Path, root: &Path) {
    let state = root.join("var/lib/dpkg");
    for part in ["info", "updates", "triggers"] {
        fs::create_dir_all(state.join(part)).expect("a directory");
    }
    fs::write(state.join("status"), "").expect("written");
    let root = format!("--root={}", root.display());
    let forced = "--force-depends,not-root,script-chrootless";
    done(
        Command::new("dpkg")
            .args([&root, forced, "--install"])
            .arg(package),
    );
}

/// The unit that was installed below a directory.
fn unit(root: &Path) -> String {
    fs::read_to_string(root.join("lib/systemd/system/drover.service")).expect("a unit")
}

/// What a unit sets for its service under this name; a setting that stands there once is one value.
fn service_setting<'u>(unit: &'u str, name: &str) -> &'u str {
    let mut sections = unit.split("\n[");
    let service = sections.find_map(|section| section.strip_prefix("Service]\n"));
    let lines = service.expect("a service").lines();
    let set = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let set: Vec<&str> = set.collect();
    assert_eq!(set.len(), 1, "{name}: {set:?}");
    set[0]
}

/// What a service manager must be set to, as no test runs one, and what would be without.
const UNIT: [(&str, &str, &str); 3] = [
    (
        "Type",
        "notify-reload",
        "a start would not wait until the agent serves, and there would be no reload",
    ),
    (
        "KillMode",
        "process",
        "the tasks would be stopped with their agent",
    ),
    (
        "Restart",
        "on-failure",
        "an agent that died would stay away, or one that was stopped would come back",
    ),
];

/// A service manager, as far as an agent notifies it.
struct Manager {
    dir: tempfile::TempDir,
    reported: UnixDatagram,
    root: PathBuf,
    http: u16,
}

impl Manager {
    fn of(root: &Path) -> Manager {
        let dir = tempfile::tempdir().expect("a directory");
        let reported = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
        reported.set_read_timeout(Some(LONG)).expect("a limit");
        let http = free_port().expect("a port");
        let rpc = free_port().expect("a port");
        let more = format!(
            "ports {{\n  http = {http}\n  rpc = {rpc}\n}}\n\
             plugin \"raw_exec\" {{\n  config {{\n    enabled = true\n  }}\n}}\n"
        );
        fs::write(dir.path().join("more.hcl"), more).expect("written");
        let root = root.to_owned();
        Manager {
            dir,
            reported,
            root,
            http,
        }
    }

    /// Starts the agent as the unit does, on the package's own configuration.
    fn start(&self) -> Service {
        let unit = unit(&self.root);
        let mut words = service_setting(&unit, "ExecStart").split(' ').map(|word| {
            let here = |path: &str| self.root.join(path).display().to_string();
            word.strip_prefix('/').map_or_else(|| word.to_owned(), here)
        });
        let log = fs::File::create(self.dir.path().join("log")).expect("a file");
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .arg("-config")
            .arg(self.dir.path().join("more.hcl"));
        command
            .arg("-data-dir")
            .arg(self.root.join("var/lib/drover"));
        command.env("NOTIFY_SOCKET", self.dir.path().join("notify"));
        command
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a file"))
            .stdout(log);
        Service(command.spawn().expect("it starts"))
    }

    /// The next message that it gets.
    fn hears(&self) -> String {
        let mut reported = [0; 1024];
        let heard = self.reported.recv(&mut reported).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            panic!("{error}\n{log}")
        });
        String::from_utf8_lossy(&reported[..heard]).into_owned()
    }

    fn json(&self, path: &str) -> Result<Value> {
        Http::new(([127, 0, 0, 1], self.http).into()).json(path)
    }

    /// Runs a command of the installed program.
    fn drover(&self, words: &[&str]) -> String {
        let address = format!("http://127.0.0.1:{}", self.http);
        let mut command = Command::new(self.root.join("usr/bin/drover"));
        done(
            command
                .args(words)
                .current_dir(&self.dir)
                .env("NOMAD_ADDR", address),
        )
    }

    /// The process of the job's task, as it says itself.
    fn task(&self, job: &str) -> Pid {
        let found = wait_for("the task", LONG, || {
            let allocs = self.json(&format!("/v1/job/{job}/allocations"))?;
            ensure!(allocs[0]["ClientStatus"] == "running", "not yet: {allocs}");
            let id = allocs[0]["ID"].as_str().context("an id")?;
            let log = self.drover(&["alloc", "logs", id]);
            log.trim().parse().context("a process")
        });
        Pid::from_raw(found.expect("it runs"))
    }
}

/// The agent; it ends with the test.
struct Service(Child);

impl Service {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed());
        kill(pid, signal).expect("it is there");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const JOB: &str = r#"job "lasting" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $$; exec sleep 10000"]
      }
      resources {
        cpu    = 20
        memory = 20
      }
    }
  }
}
"#;

#[test]
fn a_package_is_installed_and_its_agent_starts_reloads_and_stops_without_its_tasks() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    installed(&only(packages(), ".deb"), &root);
    let unit = unit(&root);
    for (name, wanted, without) in UNIT {
        assert_eq!(service_setting(&unit, name), wanted, "else {without}");
    }

    let manager = Manager::of(&root);
    let mut first = manager.start();
    assert_eq!(manager.hears(), "READY=1\n");
    let leader = manager
        .json("/v1/status/leader")
        .expect("it serves when it says so");
    assert!(leader.is_string(), "{leader}");
    fs::write(manager.dir.path().join("job.hcl"), JOB).expect("written");
    manager.drover(&["job", "run", "-detach", "job.hcl"]);
    let task = manager.task("lasting");

    first.signal(Signal::SIGHUP);
    let heard = manager.hears();
    assert!(heard.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{heard}");
    assert_eq!(manager.hears(), "READY=1\n");
    first.signal(Signal::SIGTERM);
    assert_eq!(manager.hears(), "STOPPING=1\n");
    let ended = first.0.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    kill(task, None).expect("its task lives on");

    let _second = manager.start();
    assert_eq!(manager.hears(), "READY=1\n");
    assert_eq!(manager.task("lasting"), task, "the same is found again");
    manager.drover(&["job", "stop", "-purge", "lasting"]);
    wait_for("the end of the task", LONG, || {
        ensure!(kill(task, None).is_err(), "it lives");
        Ok::<_, anyhow::Error>(())
    })
    .expect("it ends");
}

#[test]
fn a_tarball_holds_the_program_its_completions_and_its_manual() {
    let dir = tempfile::tempdir().expect("a directory");
    let packed = only(packages(), ".tar.gz");
    done(
        Command::new("tar")
            .arg("-xzf")
            .arg(packed)
            .arg("-C")
            .arg(dir.path()),
    );
    let debug = only(packages(), ".debug");
    let tree = dir.path().join(debug.file_stem().expect("a name"));
    let size = |path: &Path| fs::metadata(path).expect("a file").len();
    let program = tree.join("usr/bin/drover");
    assert!(
        size(&program) < size(Path::new(DROVER)),
        "what debuggers need is not in it"
    );
    assert!(done(Command::new(&program).arg("version")).contains("drover"));
    let share = tree.join("usr/share");
    let bash = share.join("bash-completion/completions/drover");
    done(Command::new("bash").arg("-n").arg(bash));
    let page = share.join("man/man1/drover-job-run.1.gz");
    let page = done(Command::new("gzip").arg("-dc").arg(page));
    assert!(
        page.starts_with(".ie") && page.contains("job\\-run"),
        "{page}"
    );
    done(
        Command::new(&program)
            .args(["config", "validate"])
            .arg(tree.join("etc/drover.d")),
    );
    for part in [
        "lib/systemd/system/drover.service",
        "usr/share/doc/drover/copyright",
    ] {
        assert!(tree.join(part).is_file(), "{part}");
    }
    assert!(!tree.join("DEBIAN").exists());
}

/// A line of the configuration as it is when the `#` of a setting is taken away.
fn uncommented(line: &str) -> &str {
    let is_setting = |rest: &&str| {
        let rest = rest.trim();
        rest.contains(" = ") || rest.ends_with('{') || rest == "}"
    };
    let rest = line.trim_start().strip_prefix('#');
    rest.filter(is_setting).unwrap_or(line)
}

#[test]
fn every_setting_that_the_packages_configuration_shows_is_taken() {
    let shown = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/package.d/drover.hcl");
    let shown = fs::read_to_string(shown).expect("a configuration");
    let whole: Vec<&str> = shown.lines().map(uncommented).collect();
    for part in [
        "raw_exec",
        "acl {",
        "tls {",
        "host_volume",
        "prometheus_metrics",
    ] {
        let is_set = |line: &&str| line.contains(part) && !line.trim_start().starts_with('#');
        assert!(whole.iter().any(is_set), "{part}: {whole:#?}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("drover.hcl");
    fs::write(&path, whole.join("\n")).expect("written");
    done(Command::new(DROVER).args(["config", "validate"]).arg(&path));
}
