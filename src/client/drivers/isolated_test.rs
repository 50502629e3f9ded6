//! The `exec` driver: its configuration, and real tasks; `raw_exec` with what hooks mount.

use std::fs;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;
use crate::drivers::exec::{ExecCommand, ExecOut, Wires};
use crate::drivers::raw_exec::RawExec;
use crate::drivers::{TaskLimits, isolates_files, runs_as};
use crate::executor::cgroup;
use crate::executor::executor_test::launcher;
use crate::executor::files::{RunDir, write_json};

fn block(value: Value) -> BTreeMap<String, Value> {
    let Value::Object(block) = value else {
        panic!("a block")
    };
    block.into_iter().collect()
}

fn plugin(caps: Option<&[&str]>, pid: Option<&str>) -> Result<IsolatedPlugin, String> {
    let config = PluginConfig {
        allow_caps: caps.map(|caps| caps.iter().map(|c| (*c).to_owned()).collect()),
        default_pid_mode: pid.map(str::to_owned),
        ..PluginConfig::default()
    };
    IsolatedPlugin::of(&ClientConfig::default(), &config)
}

#[test]
fn drv_06_a_configuration_of_exec_names_all_its_problems() {
    let usual = plugin(None, None).unwrap();
    let read = |config| IsolatedConfig::read(&block(config), &usual);
    let text = read(
        json!({"pid_mode": "own", "ipc_mode": "x", "cap_add": ["net_admin", "what"],
        "work_dir": "a", "no_such": 1}),
    )
    .unwrap_err();
    for part in [
        "missing command for exec driver",
        "pid_mode must be \"private\" or \"host\", got \"own\"",
        "ipc_mode must be \"private\" or \"host\", got \"x\"",
        "cap_add configured with capabilities not supported by system: what",
        "work_dir must be an absolute path",
        "no_such: unknown key",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let more = read(json!({"command": "x", "cap_add": ["net_admin"]})).unwrap_err();
    assert_eq!(
        more,
        "driver does not allow the following capabilities: net_admin"
    );
    let given = read(json!({"command": "x", "args": ["-v"]})).unwrap();
    assert_eq!((given.pid.as_str(), given.ipc.as_str()), (PRIVATE, PRIVATE));
    assert_eq!(given.capabilities.bounding, Set::usual().0);
    assert_eq!(given.capabilities.ambient, 0);
    let given = read(json!({"command": "x", "cap_add": ["CAP_CHOWN"], "cap_drop": ["all"]}));
    assert_eq!(given.unwrap().capabilities, Capabilities::default());
}

#[test]
fn drv_06_what_an_operator_says_of_exec_holds_for_its_tasks() {
    let given = plugin(Some(&["NET_ADMIN", "chown"]), Some("host")).unwrap();
    let config = block(json!({"command": "x", "cap_add": ["net_admin"]}));
    let read = IsolatedConfig::read(&config, &given).unwrap();
    assert_eq!(read.pid, HOST);
    let named = Set::named(&["net_admin", "chown"]).unwrap();
    assert_eq!(read.capabilities.bounding, named.0);
    assert_eq!(read.capabilities.ambient, 1 << 12);
    let refused = plugin(Some(&["chown", "x"]), None).unwrap_err();
    assert_eq!(refused, "allow_caps: unknown capabilities: x");
    let refused = plugin(None, Some("shared")).unwrap_err();
    assert!(refused.contains("default_pid_mode must be"), "{refused}");

    let mut client = ClientConfig::default();
    let usual = IsolatedPlugin::of(&client, &PluginConfig::default()).unwrap();
    let paths = |plugin: &IsolatedPlugin| {
        let mounts = plugin.chroot.iter();
        let path = |mount: &Mount| (mount.host_path.clone(), mount.task_path.clone());
        assert!(plugin.chroot.iter().all(|mount| mount.read_only));
        mounts.map(path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&usual).len(), 8);
    client.chroot_env = [("/opt/tools".to_owned(), "/bin".to_owned())].into();
    let own = IsolatedPlugin::of(&client, &PluginConfig::default()).unwrap();
    assert_eq!(paths(&own), [("/opt/tools".into(), "/bin".into())]);
    assert!(isolates_files(NAME));
    assert_eq!((runs_as(NAME, ""), runs_as(NAME, "bin")), (USER, "bin"));
    assert_eq!(runs_as("raw_exec", ""), "");
}

/// A task that requests this, and what its executor is given.
fn spec_of(plugin: &IsolatedPlugin, requested: Value) -> ExecSpec {
    let runs = Runs {
        launcher: launcher(),
        dir: "/nowhere".into(),
        cgroups: Parents::default(),
    };
    let task = TaskConfig {
        config: block(requested),
        ..TaskConfig::default()
    };
    Exec::spec(&task, plugin, &runs).unwrap()
}

#[test]
fn drv_06_every_option_of_exec_reaches_its_executor() {
    let usual = plugin(None, None).unwrap();
    let hosts = PluginConfig {
        default_pid_mode: Some("host".into()),
        default_ipc_mode: Some("host".into()),
        allow_caps: Some(vec!["chown".into()]),
        ..PluginConfig::default()
    };
    let hosts = IsolatedPlugin::of(&ClientConfig::default(), &hosts).unwrap();
    let own = |spec: &ExecSpec| (spec.namespaces.pid, spec.namespaces.ipc);
    let both = json!({"command": "x", "pid_mode": "host", "ipc_mode": "host"});
    let none = json!({"command": "x", "pid_mode": "private", "ipc_mode": "private"});
    for (plugin, requested, wanted) in [
        (&usual, json!({"command": "x"}), (true, true)),
        (
            &usual,
            json!({"command": "x", "pid_mode": "host"}),
            (false, true),
        ),
        (
            &usual,
            json!({"command": "x", "ipc_mode": "host"}),
            (true, false),
        ),
        (&usual, both, (false, false)),
        (&hosts, json!({"command": "x"}), (false, false)),
        (&hosts, none, (true, true)),
    ] {
        assert_eq!(
            own(&spec_of(plugin, requested.clone())),
            wanted,
            "{requested}"
        );
    }
    let requested = json!({"command": "run", "args": ["-v", 3], "work_dir": "/local",
        "cap_add": ["chown"], "cap_drop": ["kill"]});
    let spec = spec_of(&usual, requested.clone());
    assert_eq!(
        (&*spec.command, &*spec.args),
        ("run", ["-v", "3"].map(str::to_owned).as_slice())
    );
    assert_eq!(spec.cwd, Path::new("/local"));
    let bits = |names: &[&str]| Set::named(names).unwrap().0;
    let rights = spec.capabilities.unwrap();
    assert_eq!(rights.bounding, Set::usual().0 & !bits(&["kill"]));
    assert_eq!(rights.ambient, bits(&["chown"]));
    let rights = spec_of(&hosts, json!({"command": "x"})).capabilities;
    assert_eq!(
        rights.unwrap().bounding,
        bits(&["chown"]),
        "what is allowed"
    );
    // What `exec` does not know it refuses.
    for key in [
        "oom_score_adj",
        "denied_envvars",
        "cgroup_v2_override",
        "image",
    ] {
        let config = block(json!({"command": "x", key: 1}));
        let refused = IsolatedConfig::read(&config, &usual).unwrap_err();
        assert_eq!(refused, format!("{key}: unknown key"));
    }
}

#[test]
fn drv_06_names_are_found_where_the_file_that_says_how_is_a_link() {
    let tmp = tempfile::tempdir().unwrap();
    let at = |path: &str| tmp.path().canonicalize().unwrap().join(path);
    let mounts = |paths: &[&str]| {
        let mount = |path: &&str| Mount {
            host_path: at(path),
            task_path: at(path),
            ..Mount::default()
        };
        paths.iter().map(mount).collect::<Vec<_>>()
    };
    for dir in ["etc", "run"] {
        fs::create_dir(at(dir)).unwrap();
    }
    let path = at("etc/resolv.conf");
    assert_eq!(resolver(&mounts(&["etc"]), &path), None, "there is none");
    fs::write(at("run/stub"), "").unwrap();
    std::os::unix::fs::symlink("../run/stub", &path).unwrap();
    let found = resolver(&mounts(&["etc"]), &path).unwrap();
    assert_eq!((&found.host_path, found.read_only), (&at("run/stub"), true));
    assert_eq!(found.task_path, at("run/stub"));
    assert_eq!(resolver(&mounts(&["etc", "run"]), &path), None);
    assert_eq!(
        resolver(&mounts(&["run"]), &path),
        None,
        "no task sees the link"
    );
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert_eq!(resolver(&mounts(&["etc"]), &path), None, "it is no link");
}

#[test]
fn drv_06_exec_says_why_it_cannot_run_here() {
    let root = tempfile::tempdir().unwrap();
    let runs = Runs {
        launcher: launcher(),
        dir: root.path().to_owned(),
        cgroups: Parents::default(),
    };
    let config = PluginConfig::default();
    let exec = Exec::new(&ClientConfig::default(), &config, runs).unwrap();
    let info = exec.fingerprint(7);
    let why = match nix::unistd::geteuid().is_root() {
        true => "Failed to discover cgroup mount point",
        false => "Driver must run as root",
    };
    assert_eq!(info.health_description, why);
    assert!(!info.healthy && !info.detected && info.attributes.is_empty());
    let able = Exec {
        missing: None,
        ..exec
    };
    let info = able.fingerprint(7);
    assert!(info.healthy && info.detected);
    assert_eq!(
        info.attributes.get("driver.exec").map(String::as_str),
        Some("true")
    );
}

/// Where runs are recorded, and groups below a directory that keep them to four cores.
fn runs_on_cores(dir: &Path) -> Runs {
    fs::write(dir.join("cpuset.cpus"), "0-3").unwrap();
    Runs {
        launcher: launcher(),
        dir: dir.join("runs"),
        cgroups: Parents {
            v1: [("cpuset".to_owned(), dir.to_owned())].into(),
            ..Parents::default()
        },
    }
}

#[tokio::test]
async fn drv_06_cores_of_a_run_that_left_nothing_behind_are_everybodys_again() {
    let tmp = tempfile::tempdir().unwrap();
    let runs = runs_on_cores(tmp.path());
    // Its directory cannot be made.
    fs::write(&runs.dir, "").unwrap();
    let exec = Exec {
        missing: None,
        ..Exec::new(&ClientConfig::default(), &PluginConfig::default(), runs).unwrap()
    };
    let config = TaskConfig {
        alloc_id: "a1".into(),
        task: "web".into(),
        run: 1,
        config: block(json!({"command": "/bin/true"})),
        cores: vec![1],
        ..TaskConfig::default()
    };
    assert!(exec.start(config).await.is_err());
    let mut next = ExecSpec::default();
    exec.runs.cgroups.run("next", &mut next);
    exec.cores.begin(&exec.runs.cgroups, &mut next);
    assert_eq!(next.shared_cores, [0, 1, 2, 3]);
}

#[test]
fn cores_that_an_operator_keeps_are_no_tasks() {
    let tmp = tempfile::tempdir().unwrap();
    let runs = runs_on_cores(tmp.path());
    let exec = |kept: &str| {
        let mut client = ClientConfig::default();
        client.reserved.cores = kept.to_owned();
        Exec::new(&client, &PluginConfig::default(), runs.clone())
    };
    let mut spec = ExecSpec::default();
    runs.cgroups.run("one", &mut spec);
    exec("0-1").unwrap().cores.begin(&runs.cgroups, &mut spec);
    assert_eq!(spec.shared_cores, [2, 3]);
    let refused = exec("0-").err().unwrap();
    assert!(refused.starts_with("client.reserved.cores: "), "{refused}");
}

#[test]
fn drv_06_cores_that_a_run_of_a_former_agent_reserved_are_not_shared_while_runs_are_found() {
    let tmp = tempfile::tempdir().unwrap();
    let runs = runs_on_cores(tmp.path());
    for (alloc, cores, isolated) in [
        ("shares", &[][..], true),
        ("reserves", &[1], true),
        ("raw", &[2], false),
        ("gone", &[3], true),
    ] {
        let mut spec = ExecSpec {
            cores: cores.to_vec(),
            chroot: isolated.then(Vec::new),
            ..ExecSpec::default()
        };
        runs.cgroups.run(alloc, &mut spec);
        let run = RunDir(runs.dir.join(alloc).join("web/1"));
        fs::create_dir_all(&run.0).unwrap();
        write_json(&run.spec(), &spec).unwrap();
        if alloc != "gone" {
            fs::create_dir(tmp.path().join(alloc)).unwrap();
            fs::write(tmp.path().join(alloc).join("cgroup.procs"), "7").unwrap();
        }
    }
    let exec = Exec::new(&ClientConfig::default(), &PluginConfig::default(), runs).unwrap();
    let shared = || fs::read_to_string(tmp.path().join("shares/cpuset.cpus")).unwrap();
    exec.cores.share_anew(&exec.runs.cgroups);
    assert_eq!(shared(), "0,2-3");
    exec.destroy("reserves", "web", 1);
    assert_eq!(shared(), "0-3");
}

/// The directories of a task as an agent makes them, and what it is started with.
struct Given {
    tmp: tempfile::TempDir,
    config: TaskConfig,
    cgroups: Parents,
}

impl Given {
    /// `None`, and printed, where this machine cannot.
    fn new(config: Value) -> Option<Self> {
        let tmp = tempfile::tempdir().unwrap();
        let name = tmp.path().file_name().unwrap().to_string_lossy();
        let name = format!("drover-isolated-{}", name.trim_start_matches('.'));
        let cgroups = Parents::of_host(&name);
        if let Some(why) = missing(&cgroups) {
            drover_testkit::skip("the exec driver", &why);
            return None;
        }
        let dir = crate::alloc_dir::AllocDir::new(tmp.path(), "a1");
        dir.build().unwrap();
        dir.build_task("web", USER).unwrap();
        let config = TaskConfig {
            alloc_id: "a1".into(),
            task: "web".into(),
            run: 1,
            config: block(config),
            env: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
            paths: dir.paths("web"),
            log_dir: dir.logs(),
            log_max_files: 2,
            log_max_bytes: 1 << 20,
            limits: TaskLimits {
                cpu_shares: 100,
                memory: 64 << 20,
                memory_max: 0,
            },
            ..TaskConfig::default()
        };
        Some(Self {
            tmp,
            config,
            cgroups,
        })
    }

    fn runs(&self) -> Runs {
        Runs {
            launcher: launcher(),
            dir: self.tmp.path().join("runs"),
            cgroups: self.cgroups.clone(),
        }
    }

    fn exec(&self) -> Exec {
        let config = PluginConfig::default();
        Exec::new(&ClientConfig::default(), &config, self.runs()).unwrap()
    }

    fn out(&self) -> String {
        let path = self.config.log_dir.join("web.stdout.0");
        fs::read_to_string(path).unwrap_or_default()
    }

    async fn until(&self, text: &str) {
        let ask = || drover_testkit::so(self.out().contains(text));
        let reported = drover_testkit::eventually("its output", drover_testkit::LONG, ask);
        reported.await.unwrap();
    }
}

async fn beside(task: &Arc<dyn RunningTask>, script: &str) -> String {
    let (_to, input) = mpsc::channel(4);
    let (output, mut from) = mpsc::channel(4);
    let command = ["/bin/sh", "-c", script].map(str::to_owned).into();
    let command = ExecCommand {
        command,
        tty: false,
    };
    task.exec(command, Wires { input, output }).await.unwrap();
    let mut out = Vec::new();
    while let Some(one) = from.recv().await {
        match one {
            ExecOut::Stdout(data) | ExecOut::Stderr(data) => out.extend(data),
            ExecOut::Exited { .. } => break,
            _ => {}
        }
    }
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn drv_06_drv_08_a_task_of_exec_is_found_again_and_commands_run_in_its_world() {
    let script = "trap 'echo bye; exit 3' INT; echo mine > /local/mine; echo x > /alloc/data/x; \
                  echo up $(pwd) $(id -un); while :; do sleep 0.02; done";
    let config = json!({"command": "sh", "args": ["-c", script]});
    let Some(given) = Given::new(config) else {
        return;
    };
    let driver = given.exec();
    let first = driver.start(given.config.clone()).await.unwrap();
    given.until("up").await;
    assert_eq!(given.out(), "up / nobody\n");
    // As an agent that began again does.
    let found = given
        .exec()
        .recover(given.config.clone(), Some(first.handle()));
    let Recovered::Live(task) = found.await.unwrap() else {
        panic!("it lives")
    };
    drop(first);
    let script = "cat /local/mine /alloc/data/x /proc/1/comm; id -un; pwd; ls -d /*; \
                  grep CapBnd /proc/self/status; grep -c memory:.*a1 /proc/self/cgroup; \
                  touch /usr/x 2>&1 | grep -c Read-only; kill -0 2 && echo sees it";
    let text = beside(&task, script).await;
    let mut samples = task.stats(drover_testkit::LONG);
    let used = samples.next().await.expect("one at once").unwrap();
    drop(samples);
    assert!(!used.pids.is_empty(), "the task is measured");
    let is_init = |pid: &String| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("drover-init"))
    };
    assert!(!used.pids.keys().any(is_init), "what holds it is not");
    let usual = format!("{:016x}", Set::usual().0);
    let begins = "mine\nx\ndrover-init\nnobody\n/\n/alloc\n/bin\n/dev\n";
    assert!(text.starts_with(begins), "{text}");
    let groups = u8::from(given.cgroups.v1.contains_key("memory"));
    let ends = format!("CapBnd:\t{usual}\n{groups}\n1\nsees it\n");
    assert!(text.ends_with(&ends) && !text.contains("/root"), "{text}");

    task.stop("SIGINT", Duration::from_secs(60)).unwrap();
    let exit = task.wait().await;
    assert_eq!((exit.exit_code, exit.signal), (3, 0), "{exit:?}");
    assert_eq!(given.out(), "up / nobody\nbye\n");
    driver.destroy("a1", "web", 1);
    let left = fs::read_dir(given.tmp.path().join("runs"));
    assert!(left.is_err() || left.unwrap().next().is_none());
    let all = given
        .cgroups
        .unified
        .iter()
        .chain(given.cgroups.v1.values());
    for parent in all {
        let left = fs::read_dir(parent).unwrap().flatten();
        let ours = left.filter(|e| e.file_name().to_string_lossy().starts_with("a1."));
        assert_eq!(ours.count(), 0, "{}", parent.display());
        cgroup::remove(parent);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&given.tmp.path().display().to_string()));
}

/// The cores on which a task may run.
fn allowed(task: &Arc<dyn RunningTask>) -> String {
    let status = format!("/proc/{}/status", task.handle().state["Pid"]);
    let status = fs::read_to_string(status).unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_task_that_is_found_again_leaves_the_cores_that_an_operator_keeps_since() {
    let Some(given) = Given::new(json!({"command": "sleep", "args": ["1000"]})) else {
        return;
    };
    let one = given.exec().start(given.config.clone()).await.unwrap();
    let all = allowed(&one);
    let last = all.rsplit(['-', ',']).next().unwrap();
    let mut client = ClientConfig::default();
    client.reserved.cores = last.to_owned();
    let later = Exec::new(&client, &PluginConfig::default(), given.runs()).unwrap();
    let found = later.recover(given.config.clone(), None).await.unwrap();
    assert!(matches!(found, Recovered::Live(_)));
    let left = allowed(&one);
    if last == all {
        assert_eq!(left, all, "it has to run");
    } else {
        let has_it = left.split(['-', ',']).any(|core| core == last);
        assert!(left != all && !has_it, "{left}");
    }
    one.stop("SIGKILL", Duration::ZERO).unwrap();
    one.wait().await;
    later.destroy("a1", "web", 1);
    let groups = &given.cgroups;
    let all = groups.unified.iter().chain(groups.v1.values());
    all.for_each(|parent| cgroup::remove(parent));
}

#[tokio::test]
async fn drv_06_a_task_without_cores_of_its_own_leaves_those_that_others_reserved() {
    let Some(given) = Given::new(json!({"command": "sleep", "args": ["1000"]})) else {
        return;
    };
    let driver = given.exec();
    let one = driver.start(given.config.clone()).await.unwrap();
    let all = allowed(&one);
    let last = all.rsplit(['-', ',']).next().unwrap();
    let mut config = given.config.clone();
    (config.run, config.cores) = (2, vec![last.parse().unwrap()]);
    config.log_dir = given.tmp.path().to_owned();
    let two = driver.start(config.clone()).await.unwrap();
    assert_eq!(allowed(&two), last);
    let others = allowed(&one);
    if last == all {
        assert_eq!(others, all, "no task is left without the only core");
    } else {
        let has_it = others.split(['-', ',']).any(|core| core == last);
        assert!(others != all && !has_it, "{others}");
    }

    // As an agent that began again has it.
    let later = given.exec();
    for config in [&given.config, &config] {
        let found = later.recover(config.clone(), None).await.unwrap();
        assert!(matches!(found, Recovered::Live(_)));
    }
    two.stop("SIGKILL", Duration::ZERO).unwrap();
    two.wait().await;
    assert_eq!(allowed(&one), others);
    later.destroy("a1", "web", 2);
    assert_eq!(allowed(&one), all, "they are everybody's again");
    one.stop("SIGKILL", Duration::ZERO).unwrap();
    one.wait().await;
    later.destroy("a1", "web", 1);
    let groups = &given.cgroups;
    let all = groups.unified.iter().chain(groups.v1.values());
    all.for_each(|parent| cgroup::remove(parent));
}

#[tokio::test]
async fn drv_06_a_raw_task_finds_what_is_mounted_for_it_in_its_directory_alone() {
    let script = "cat data/file deep/in/file; echo x > deep/in/new || echo read only; \
                  echo x > data/new; ls -d /root /proc/1 | tr '\\n' ' '; id -u";
    let config = json!({"command": "/bin/sh", "args": ["-c", script]});
    let Some(mut given) = Given::new(config) else {
        return;
    };
    let host = given.tmp.path().join("host");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "of the host\n").unwrap();
    let mount = |task_path: &str, read_only| Mount {
        host_path: host.clone(),
        task_path: task_path.into(),
        read_only,
        ..Mount::default()
    };
    given.config.mounts = vec![mount("/data", false), mount("deep/in", true)];
    let runs = given.tmp.path().join("raw");
    let driver = RawExec::new(true, launcher(), runs).in_cgroups(&given.cgroups);
    let task = driver.start(given.config.clone()).await.unwrap();
    assert_eq!(task.wait().await.exit_code, 0);
    let twice = "of the host\n".repeat(2);
    assert_eq!(given.out(), format!("{twice}read only\n/proc/1 /root 0\n"));
    assert!(host.join("new").exists());
    let inside = given.config.paths.root.join("data");
    assert_eq!(
        fs::read_dir(inside).unwrap().count(),
        0,
        "the host sees none of it"
    );
    for target in ["../../x", "/"] {
        given.config.mounts = vec![mount(target, false)];
        given.config.run += 1;
        let refused = driver.start(given.config.clone()).await.err().unwrap();
        assert!(refused.message.contains("cannot mount"), "{refused}");
    }
    let all = given
        .cgroups
        .unified
        .iter()
        .chain(given.cgroups.v1.values());
    all.for_each(|parent| cgroup::remove(parent));
}
