//! Tasks that are kept apart from the host, by a real executor.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::{Groups, Parents};
use super::executor_test::{Run, launcher, until};
use super::files::{Capabilities, ExecSpec, ExitRecord};
use super::launch::{Executor, LaunchError};
use crate::drivers::capabilities::Set;
use crate::drivers::{Device, Mount, Namespaces, Propagation, TaskLimits};
use crate::proc;

const FROM_HOST: [&str; 6] = ["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr"];

/// Whether the tests of this file can run; printed where they cannot.
pub(super) fn can(what: &str) -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        drover_testkit::skip(what, "namespaces need root");
    }
    is_root
}

/// A run whose task has a directory of its own for its root.
pub(super) struct Apart {
    pub(super) run: Run,
    tmp: tempfile::TempDir,
}

impl Apart {
    pub(super) fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        for name in ["root", "host"] {
            let dir = tmp.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let run = Run::new();
        Self { run, tmp }
    }

    fn root(&self) -> PathBuf {
        self.tmp.path().join("root")
    }

    /// A directory of the host that the task may be given.
    fn host(&self) -> PathBuf {
        self.tmp.path().join("host")
    }

    fn mount(&self, task_path: &str) -> Mount {
        Mount {
            host_path: self.host(),
            task_path: task_path.into(),
            ..Mount::default()
        }
    }

    pub(super) fn spec(&self, script: &str) -> ExecSpec {
        let chroot = FROM_HOST.iter().chain(&["/nowhere/at/all"]);
        let chroot = chroot.map(|path| Mount {
            host_path: path.into(),
            task_path: path.into(),
            read_only: true,
            ..Mount::default()
        });
        ExecSpec {
            user: "nobody".into(),
            root: self.root(),
            chroot: Some(chroot.collect()),
            namespaces: Namespaces {
                mount: true,
                pid: true,
                ipc: true,
                network: None,
            },
            capabilities: Some(Capabilities {
                bounding: Set::usual().0,
                ambient: 0,
            }),
            ..self.run.shell(script)
        }
    }

    pub(super) async fn launch(&self, spec: &ExecSpec) -> Result<Executor, LaunchError> {
        launcher().launch(&self.run.dir, spec).await
    }

    /// Runs it to its end.
    pub(super) async fn end(&self, spec: &ExecSpec) -> (String, ExitRecord) {
        let executor = self.launch(spec).await.unwrap();
        let exit = executor.wait().await;
        (self.run.out("stdout"), exit)
    }

    /// The mounts of this test on the host.
    fn mounted(&self) -> Vec<String> {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = self.tmp.path().display().to_string();
        let ours = all.lines().filter(|line| line.contains(&here));
        ours.map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn drv_06_a_task_apart_sees_its_root_its_processes_and_nothing_of_the_host() {
    if !can("a task apart") {
        return;
    }
    let apart = Apart::new();
    let script = "echo /*; (cd /proc && echo [0-9]*); cat /proc/1/comm; id -un; \
                  touch /usr/x /etc/x 2>/dev/null || echo read only; touch /mine && echo writes; \
                  ls -ld /dev/null | cut -c1-10; echo hi > /dev/shm/x && cat /dev/shm/x; \
                  ls /proc/1/root /proc/1/fd 2>/dev/null || echo closed; \
                  echo 1 2>/dev/null > /proc/sys/vm/swappiness || echo kernel; \
                  cat /proc/kcore | wc -c; grep NoNewPrivs /proc/self/status | cut -f2; \
                  (cd /proc/self/fd && echo *); touch /dev/x 2>/dev/null || echo no devices";
    let (text, exit) = apart.end(&apart.spec(script)).await;
    assert_eq!((exit.exit_code, exit.error.as_str()), (0, ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0], "/bin /dev /etc /lib /lib64 /proc /sbin /sys /usr",
        "{text}"
    );
    let processes: Vec<i32> = lines[1].split(' ').map(|p| p.parse().unwrap()).collect();
    assert!(processes.len() <= 3 && processes[..2] == [1, 2], "{text}");
    let rest = [
        "drover-init",
        "nobody",
        "read only",
        "writes",
        "crw-rw-rw-",
        "hi",
        "closed",
        "kernel",
        "0",
        "1",
    ];
    assert_eq!(lines[2..12], rest, "{text}");
    let open = lines[12]
        .split(' ')
        .all(|fd| ["0", "1", "2", "3", "10"].contains(&fd));
    assert!(open && lines[13] == "no devices", "{text}");
    assert!(
        apart.root().join("mine").exists(),
        "its files are where they were"
    );
    assert!(apart.mounted().is_empty(), "nothing is mounted on the host");
    assert!(!Path::new("/dev/shm/x").exists());
}

#[tokio::test]
async fn drv_06_root_apart_has_the_rights_it_is_given_and_cannot_reach_the_hosts_disks() {
    if !can("root in a root of its own") {
        return;
    }
    let apart = Apart::new();
    let script = "for set in Eff Bnd; do grep Cap$set /proc/self/status | cut -f2; done; \
                  mount -t tmpfs x /usr 2>/dev/null || echo no mounts; \
                  mknod /null c 1 3 && (echo > /null) 2>/dev/null || echo no device opens; \
                  mknod /dev/null2 c 1 3 2>/dev/null || echo none is made; \
                  touch /usr/x 2>/dev/null || echo read only; \
                  ls /proc/1/root/ >/dev/null 2>&1 || echo closed; \
                  readlink /proc/1/exe || echo hidden; kill -9 1; echo alive";
    let mut spec = apart.spec(script);
    spec.user = "root".into();
    let (text, exit) = apart.end(&spec).await;
    assert_eq!((exit.exit_code, exit.error.as_str()), (0, ""), "{text}");
    let usual = format!("{:016x}", Set::usual().0);
    let wanted = [
        usual.as_str(),
        usual.as_str(),
        "no mounts",
        "no device opens",
        "none is made",
        "read only",
        "closed",
        "hidden",
        "alive",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn drv_06_a_user_has_the_rights_that_were_asked_for_by_name() {
    if !can("rights of a user") {
        return;
    }
    let apart = Apart::new();
    let bind = Set::named(&["net_bind_service"]).unwrap().0;
    let mut spec = apart.spec(
        "for set in Eff Prm Inh Bnd Amb; do \
                               grep Cap$set /proc/self/status | cut -f2; done",
    );
    spec.capabilities = Some(Capabilities {
        bounding: bind | 1,
        ambient: bind,
    });
    let (text, _) = apart.end(&spec).await;
    let own = format!("{bind:016x}");
    let all = format!("{:016x}", bind | 1);
    let wanted = [&own, &own, &own, &all, &own];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[tokio::test]
async fn drv_06_what_a_task_is_given_is_mounted_for_it_alone() {
    if !can("mounts of a task") {
        return;
    }
    let apart = Apart::new();
    let of_host = apart.host().join("file");
    fs::write(&of_host, "of the host\n").unwrap();
    fs::set_permissions(&of_host, fs::Permissions::from_mode(0o666)).unwrap();
    let zero = Device {
        host_path: "/dev/zero".into(),
        task_path: "/dev/mine".into(),
        permissions: "rw".into(),
        ..Device::default()
    };
    let script = "cat /deep/in/file /data/file /one; echo x > /data/new && echo written; \
                  echo x > /deep/in/new || echo read only; \
                  mkdir /data/inner && ls -d /data/inner/below; \
                  head -c 3 /dev/mine | wc -c; echo x > /one";
    let mut spec = apart.spec(script);
    let read_only = Mount {
        read_only: true,
        ..apart.mount("deep/in")
    };
    let file = Mount {
        host_path: of_host.clone(),
        ..apart.mount("/one")
    };
    fs::create_dir(apart.host().join("inner")).unwrap();
    // The one that is inside of the other comes first, and is not hidden.
    spec.mounts = vec![
        apart.mount("/data/inner/below"),
        read_only,
        apart.mount("/data"),
        file,
    ];
    spec.devices = vec![zero];
    spec.args[1] = spec.args[1].replace("mkdir /data/inner && ", "");
    let (text, exit) = apart.end(&spec).await;
    assert_eq!(exit.exit_code, 0, "{text} {}", apart.run.out("stderr"));
    let cat = "of the host\n".repeat(3);
    assert_eq!(
        text,
        format!("{cat}written\nread only\n/data/inner/below\n3\n")
    );
    assert_eq!(
        fs::read_to_string(apart.host().join("file")).unwrap(),
        "x\n"
    );
    assert!(apart.host().join("new").exists() && apart.mounted().is_empty());
}

#[tokio::test]
async fn drv_06_mounts_lead_nowhere_else_whatever_a_job_or_a_task_makes_of_their_paths() {
    if !can("hostile paths") {
        return;
    }
    for (target, why) in [
        ("../../etc", "leads out"),
        ("/data/../../x", "leads out"),
        ("..", "leads out"),
        ("/", "hide the task's directory"),
        ("", "hide the task's directory"),
        (".", "hide the task's directory"),
        ("/proc", "system's own files"),
        ("proc/self/fd", "system's own files"),
        ("/sys/fs/cgroup", "system's own files"),
        ("/dev", "system's own files"),
        ("/dev/shm", "system's own files"),
        ("/link", "link is a link"),
        ("/link/below", "link is a link"),
        ("/etc/of-nobody/x", "Read-only"),
        ("/file/x", "file is not a directory"),
        ("/file", "file is not a directory"),
    ] {
        let apart = Apart::new();
        symlink("/var", apart.root().join("link")).unwrap();
        fs::write(apart.root().join("file"), "").unwrap();
        let mut spec = apart.spec("echo no");
        spec.mounts = vec![apart.mount(target)];
        let error = apart.launch(&spec).await.unwrap_err().to_string();
        assert!(
            error.contains(why) && error.contains("cannot"),
            "{target}: {error}"
        );
        assert_eq!(apart.run.out("stdout"), "", "{target}");
        assert!(apart.mounted().is_empty());
    }
    // What its root holds cannot lead elsewhere either.
    for (name, to) in [
        ("etc", "/root"),
        ("proc", "/"),
        ("dev", "../../dev"),
        ("bin", "/var"),
    ] {
        let apart = Apart::new();
        symlink(to, apart.root().join(name)).unwrap();
        let error = apart.launch(&apart.spec("echo no")).await.unwrap_err();
        let wanted = format!("{name} is a link");
        assert!(error.to_string().contains(&wanted), "{error}");
    }
    let apart = Apart::new();
    let mut spec = apart.spec("echo no");
    spec.mounts = vec![Mount {
        host_path: "/nowhere/at/all".into(),
        ..apart.mount("/data")
    }];
    let error = apart.launch(&spec).await.unwrap_err().to_string();
    assert!(
        error.contains("/nowhere/at/all at /data: No such file"),
        "{error}"
    );
}

/// A file system of a test on the host, whose mounts others see.
struct Shared(PathBuf);

impl Shared {
    fn new(path: PathBuf) -> Self {
        let none: Option<&str> = None;
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        mount(none, &path, none, MsFlags::MS_SHARED, none).unwrap();
        for name in ["by-host", "by-task"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        Self(path)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for path in [
            self.0.join("by-host"),
            self.0.join("by-task"),
            self.0.clone(),
        ] {
            let _ = umount(&path);
        }
    }
}

#[tokio::test]
async fn drv_06_mounts_that_come_later_are_seen_as_the_job_says() {
    if !can("propagation of mounts") {
        return;
    }
    let apart = Apart::new();
    let spread = |task_path: &str, propagation| Mount {
        propagation,
        ..apart.mount(task_path)
    };
    let mut spec = apart.spec(
        "mount -t tmpfs x /both/by-task && touch /both/by-task/y && echo up; \
         until [ -e /both/by-host/x ]; do sleep 0.02; done; \
         for at in private slave both; do ls /$at/by-host /$at/by-task | tr '\\n' ' '; done",
    );
    spec.user = "root".into();
    spec.capabilities = None;
    spec.mounts = vec![
        spread("/private", Propagation::Private),
        spread("/slave", Propagation::HostToTask),
        spread("/both", Propagation::Bidirectional),
    ];
    let error = apart.launch(&spec).await.unwrap_err().to_string();
    assert!(
        error.contains("/slave: it is not on a shared mount"),
        "{error}"
    );
    let with_both = ExecSpec {
        mounts: vec![spread("/both", Propagation::Bidirectional)],
        ..spec.clone()
    };
    let error = Apart::new().launch(&with_both).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("/both: it is not on a shared mount"),
        "{error}"
    );

    let shared = Shared::new(apart.host());
    let second = Run::new();
    spec.log_dir = second.logs.clone();
    let executor = launcher().launch(&second.dir, &spec).await.unwrap();
    until("the task has mounted something", || {
        second.out("stdout").contains("up")
    })
    .await;
    assert!(shared.0.join("by-task/y").exists(), "the host sees it");
    let none: Option<&str> = None;
    let at = shared.0.join("by-host");
    mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), none).unwrap();
    fs::write(at.join("x"), "").unwrap();
    let exit = executor.wait().await;
    assert_eq!(exit.exit_code, 0, "{}", second.out("stderr"));
    let text = second.out("stdout");
    let seen = text.lines().nth(1).unwrap_or_default();
    let of =
        |at: &str, host: &str, task: &str| format!("/{at}/by-host: {host} /{at}/by-task: {task} ");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = of("private", "", "") + &of("slave", "x", "y") + &of("both", "x", "y");
    assert_eq!(plain(seen), plain(&wanted));
}

#[tokio::test]
async fn drv_06_a_task_that_takes_more_memory_than_it_has_is_killed_and_that_is_told() {
    if !can("limits of memory") {
        return;
    }
    let name = format!("drover-limit-{}", std::process::id());
    let parents = Parents::of_host(&name);
    if let Some(why) = parents.missing() {
        return drover_testkit::skip("limits of memory", why);
    }
    let apart = Apart::new();
    let mut spec = apart.spec("exec tail /dev/zero");
    parents.run("a.1", &mut spec);
    spec.limits = TaskLimits {
        cpu_shares: 300,
        memory: 16 << 20,
        memory_max: 0,
    };
    let (_, exit) = apart.end(&spec).await;
    assert_eq!((exit.signal, exit.exit_code), (9, 137));
    assert!(exit.oom_killed && exit.error == "OOM Killed", "{exit:?}");
    // One that is killed for another reason is not reported to have taken too much.
    let second = Apart::new();
    let mut spec = second.spec("kill -9 $$");
    parents.run("a.2", &mut spec);
    spec.limits.memory = 64 << 20;
    let (_, exit) = second.end(&spec).await;
    assert!(
        !exit.oom_killed && exit.error.is_empty() && exit.signal == 9,
        "{exit:?}"
    );
    let all = || parents.unified.iter().chain(parents.v1.values());
    for (number, parent) in [1, 2].into_iter().flat_map(|n| all().map(move |p| (n, p))) {
        let group = parent.join(format!("a.{number}"));
        assert!(!group.exists(), "{} is left", group.display());
    }
    // Limits that cannot be set are no limits: such a task does not run.
    let third = Apart::new();
    let mut spec = third.spec("echo no");
    parents.run("a.3", &mut spec);
    let lost = |path: &mut PathBuf| *path = "/proc/nowhere".into();
    spec.cgroup
        .iter_mut()
        .chain(spec.cgroups_v1.values_mut())
        .for_each(lost);
    spec.limits.memory = 64 << 20;
    let error = third.launch(&spec).await.unwrap_err().to_string();
    assert!(error.contains("cannot limit the task"), "{error}");
    for parent in all() {
        super::cgroup::remove(parent);
        assert!(!parent.exists(), "{} is left", parent.display());
    }
}

/// Processes that run under a name.
pub(super) fn named(mark: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let alive = proc::stat(*pid).is_some_and(|stat| stat.state != 'Z');
        alive && String::from_utf8_lossy(&line).contains(mark)
    };
    pids.filter(is_it).collect()
}

#[tokio::test]
async fn drv_06_what_forks_without_end_ends_with_its_task_or_its_executor() {
    if !can("a task that forks") {
        return;
    }
    for by_agent in [true, false] {
        let apart = Apart::new();
        let mark = format!("9{}.{}", std::process::id(), u8::from(by_agent));
        let script = format!(
            "trap '' INT TERM; for i in 1 2 3; do \
             (setsid sh -c 'while :; do (setsid sleep {mark} &); sleep 0.02; done' &); done; \
             echo up; exec sleep {mark}"
        );
        let executor = apart.launch(&apart.spec(&script)).await.unwrap();
        until("there are many", || named(&mark).len() > 20).await;
        if by_agent {
            executor.stop(15, Duration::from_millis(50)).unwrap();
        } else {
            let pid = Pid::from_raw(executor.state().executor_pid);
            kill(pid, Signal::SIGKILL).unwrap();
        }
        let exit = executor.wait().await;
        assert_eq!((exit.signal, exit.exit_code), (9, 137));
        until("none is left", || named(&mark).is_empty()).await;
    }
}

#[tokio::test]
async fn drv_06_control_groups_of_each_version_end_what_a_killed_executor_left() {
    if !can("control groups of each version") {
        return;
    }
    let name = format!("drover-each-{}", std::process::id());
    let parents = Parents::of_host(&name);
    let (mut first, mut second) = (parents.clone(), parents.clone());
    first.unified = None;
    second.v1.clear();
    // Hosts have one of them or both: each that is there has to do it alone.
    let each = [first.holding(), second.holding()];
    let mut tried = 0;
    for holding in each.iter().filter(|held| **held != Parents::default()) {
        for by_agent in [false, true] {
            end_what_left_its_session(holding, by_agent).await;
        }
        tried += 1;
    }
    for path in parents.unified.iter().chain(parents.v1.values()) {
        super::cgroup::remove(path);
    }
    if tried == 0 {
        drover_testkit::skip("control groups of each version", "this host has none");
    }
}

async fn end_what_left_its_session(holding: &Parents, by_agent: bool) {
    let mark = format!("8{}", std::process::id());
    // As a raw task is: nothing else would end what left its session.
    let run = Run::new();
    let mut spec = run.shell(&format!("setsid sleep {mark} & exec sleep {mark}"));
    holding.run(&format!("r.{by_agent}"), &mut spec);
    let is_first = spec.cgroups_v1.contains_key("freezer");
    assert_ne!(is_first, spec.cgroup.is_some(), "one of them, not both");
    let executor = launcher().launch(&run.dir, &spec).await.unwrap();
    until("both run", || named(&mark).len() == 2).await;
    if by_agent {
        executor.stop(15, Duration::from_secs(60)).unwrap();
    } else {
        let pid = Pid::from_raw(executor.state().executor_pid);
        kill(pid, Signal::SIGKILL).unwrap();
    }
    executor.wait().await;
    until("nothing is left", || named(&mark).is_empty()).await;
    super::launch::clear(&run.dir);
    let all = spec.cgroup.iter().chain(spec.cgroups_v1.values());
    until("its groups are gone", || {
        Groups::of(&spec).remove();
        all.clone().all(|path| !path.exists())
    })
    .await;
}

#[tokio::test]
async fn drv_06_modes_of_the_host_share_its_processes_and_queues_but_not_its_files() {
    if !can("modes of the host") {
        return;
    }
    let apart = Apart::new();
    let mut spec =
        apart.spec("echo $$; readlink /proc/self/ns/ipc; readlink /proc/self/ns/pid; echo /*");
    (spec.namespaces.pid, spec.namespaces.ipc) = (false, false);
    let executor = apart.launch(&spec).await.unwrap();
    let task = executor.state().task_pid;
    assert_eq!(executor.wait().await.exit_code, 0);
    let text = apart.run.out("stdout");
    let own = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    let wanted = format!(
        "{task}\n{}\n{}\n",
        own("ipc").display(),
        own("pid").display()
    );
    assert!(
        text.starts_with(&wanted) && !text.contains("/root"),
        "{text}"
    );
}
