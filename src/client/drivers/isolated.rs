//! `exec`: a process that sees a root, processes and queues of its own, with the rights and the
//! part of the machine that it is given, under an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use drover_events::model::DriverInfo;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::capabilities::{self, Set};
use super::config::DriverConfigReader;
use super::raw_exec::Runs;
use super::{Driver, Handle, Mount, Namespaces, Recovered, RunningTask, StartError, TaskConfig};
use crate::executor::cgroup::Parents;
use crate::executor::cores::Cores;
use crate::executor::devices;
use crate::executor::files::{Capabilities, ExecSpec};
use crate::executor::mounts;
use drover_config::{ClientConfig, PluginConfig};

/// The driver's name.
pub const NAME: &str = "exec";
/// The user of tasks whose job names no user.
pub const USER: &str = "nobody";
/// What tasks see of the host where the configuration does not say.
const CHROOT: [&str; 8] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/run/resolvconf",
    "/sbin",
    "/usr",
];
/// Says which servers resolve names.
const RESOLVER: &str = "/etc/resolv.conf";
/// Where a task finds what it shares with the others of its allocation.
const SHARED: &str = "/alloc";
/// What a mode of sharing is called.
const PRIVATE: &str = "private";
const HOST: &str = "host";
/// The kernel's number of the right to change what a process sees.
const SYS_ADMIN: u64 = 1 << 21;

/// Runs commands apart from the host.
pub struct Exec {
    runs: Runs,
    cores: Arc<Cores>,
    plugin: IsolatedPlugin,
    /// Why it cannot; `None` where it can.
    missing: Option<String>,
}

/// What an operator says about all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IsolatedPlugin {
    /// What they see of the host, and where.
    chroot: Vec<Mount>,
    pid: String,
    ipc: String,
    allowed: Set,
}

impl IsolatedPlugin {
    fn of(client: &ClientConfig, config: &PluginConfig) -> Result<Self, String> {
        let allowed = match &config.allow_caps {
            None => Set::usual(),
            Some(names) => Set::named(names)
                .map_err(|unknown| format!("allow_caps: unknown capabilities: {unknown}"))?,
        };
        let mode = |name: &str, mode: &Option<String>| {
            let mode = mode.as_deref().unwrap_or(PRIVATE);
            checked(name, mode)?;
            Ok::<_, String>(mode.to_owned())
        };
        let mount = |host: &str, task: &str| Mount {
            host_path: host.into(),
            task_path: task.into(),
            read_only: true,
            ..Mount::default()
        };
        let chroot = match client.chroot_env.is_empty() {
            true => CHROOT.iter().map(|path| mount(path, path)).collect(),
            false => {
                let env = client.chroot_env.iter();
                env.map(|(host, task)| mount(host, task)).collect()
            }
        };
        Ok(Self {
            chroot,
            pid: mode("default_pid_mode", &config.default_pid_mode)?,
            ipc: mode("default_ipc_mode", &config.default_ipc_mode)?,
            allowed,
        })
    }
}

fn checked(name: &str, mode: &str) -> Result<(), String> {
    match mode {
        PRIVATE | HOST => Ok(()),
        other => Err(format!(
            "{name} must be {PRIVATE:?} or {HOST:?}, got {other:?}"
        )),
    }
}

/// The configuration of a task.
#[derive(Debug, PartialEq, Eq)]
struct IsolatedConfig {
    command: String,
    args: Vec<String>,
    work_dir: String,
    pid: String,
    ipc: String,
    capabilities: Capabilities,
}

impl IsolatedConfig {
    fn read(config: &BTreeMap<String, Value>, plugin: &IsolatedPlugin) -> Result<Self, String> {
        let mut r = DriverConfigReader::new(config);
        let mode = |r: &mut DriverConfigReader<'_>, name, usual: &String| {
            let text = r.text(name).filter(|mode| !mode.is_empty());
            let text = text.unwrap_or_else(|| usual.clone());
            if let Err(why) = checked(name, &text) {
                r.problem(why);
            }
            text
        };
        let out = Self {
            command: r.text("command").unwrap_or_default(),
            args: r.texts("args"),
            work_dir: r.text("work_dir").unwrap_or_default(),
            pid: mode(&mut r, "pid_mode", &plugin.pid),
            ipc: mode(&mut r, "ipc_mode", &plugin.ipc),
            capabilities: read_rights(&mut r, plugin.allowed),
        };
        if out.command.is_empty() {
            r.problem("missing command for exec driver");
        }
        if !out.work_dir.is_empty() && !Path::new(&out.work_dir).is_absolute() {
            r.problem("work_dir must be an absolute path");
        }
        r.finish(out)
    }
}

fn read_rights(r: &mut DriverConfigReader<'_>, allowed: Set) -> Capabilities {
    let mut named = |key| {
        let names = r.texts(key);
        Set::named(&names).unwrap_or_else(|unknown| {
            r.problem(format!(
                "{key} configured with capabilities not supported by system: {unknown}"
            ));
            Set(0)
        })
    };
    let (requested, dropped) = (named("cap_add"), named("cap_drop"));
    match capabilities::given(allowed, requested, dropped) {
        Ok(given) => Capabilities {
            bounding: given.0,
            // Without being root a task has what it names only.
            ambient: given.0 & requested.0,
        },
        Err(why) => {
            r.problem(why);
            Capabilities::default()
        }
    }
}

impl Exec {
    /// Keeps its run directories as `runs` says.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn new(client: &ClientConfig, config: &PluginConfig, runs: Runs) -> Result<Self, String> {
        let plugin =
            IsolatedPlugin::of(client, config).map_err(|e| format!("plugin {NAME:?}: {e}"))?;
        let kept = drover_config::core_list(&client.reserved.cores)
            .map_err(|why| format!("client.reserved.cores: {why}"))?;
        let missing = missing(&runs.cgroups);
        let cores = Cores::keeping(kept);
        let mut specs = runs.recorded();
        // Those of `raw_exec` lie there too; nothing here follows them to their ends.
        specs.retain(|spec| spec.chroot.is_some());
        cores.restore(&runs.cgroups, specs);
        Ok(Self {
            runs,
            cores: Arc::new(cores),
            plugin,
            missing,
        })
    }

    /// Ends what runs of former agents left behind, of every driver, and gives the cores that it
    /// held to the tasks that share.
    pub fn sweeper(&self) -> impl FnOnce() + Send + 'static {
        let (runs, cores) = (self.runs.clone(), Arc::clone(&self.cores));
        move || {
            runs.sweep();
            cores.share_anew(&runs.cgroups);
        }
    }

    fn spec(
        task: &TaskConfig,
        plugin: &IsolatedPlugin,
        runs: &Runs,
    ) -> Result<ExecSpec, StartError> {
        let config = IsolatedConfig::read(&task.config, plugin).map_err(StartError::fatal)?;
        let held = runs.cgroups.hold_devices();
        let mut devices = task.devices.iter();
        if let Some(why) = devices.find_map(|device| devices::refused(device, held)) {
            return Err(StartError::fatal(why));
        }
        let mut spec = ExecSpec {
            command: find_command(&config.command, task),
            args: config.args,
            env: task.env.clone().into_iter().collect(),
            cwd: match config.work_dir.is_empty() {
                true => "/".into(),
                false => config.work_dir.into(),
            },
            user: user(&task.user).to_owned(),
            cores: task.cores.clone(),
            mounts: task.mounts.clone(),
            devices: task.devices.clone(),
            limits: task.limits,
            namespaces: Namespaces {
                mount: true,
                pid: config.pid == PRIVATE,
                ipc: config.ipc == PRIVATE,
                network: task.namespaces.network.clone(),
            },
            root: task.paths.root.clone(),
            chroot: Some(chroot(task, plugin)),
            capabilities: Some(config.capabilities),
            log_dir: task.log_dir.clone(),
            log_name: task.task.clone(),
            log_max_files: task.log_max_files,
            log_max_bytes: task.log_max_bytes,
            log_disabled: task.log_disabled,
            ..ExecSpec::default()
        };
        runs.group(&task.alloc_id, &mut spec);
        Ok(spec)
    }
}

/// The user that a task runs as.
#[must_use]
pub fn user(named: &str) -> &str {
    match named {
        "" => USER,
        name => name,
    }
}

/// What is below a task's root besides its own files.
fn chroot(task: &TaskConfig, plugin: &IsolatedPlugin) -> Vec<Mount> {
    let mut all = plugin.chroot.clone();
    all.extend(resolver(&all, Path::new(RESOLVER)));
    if !task.paths.alloc.as_os_str().is_empty() {
        all.push(Mount {
            host_path: task.paths.alloc.clone(),
            task_path: SHARED.into(),
            ..Mount::default()
        });
    }
    all
}

/// The file that says which servers resolve names, where it is a link to what is not there
/// otherwise.
fn resolver(mounts: &[Mount], path: &Path) -> Option<Mount> {
    let real = path.canonicalize().ok()?;
    let shown = |path: &Path| {
        let whole = |mount: &&Mount| mount.host_path == mount.task_path;
        let mut whole = mounts.iter().filter(whole);
        whole.any(|mount| path.starts_with(&mount.host_path))
    };
    (shown(path) && !shown(&real)).then(|| Mount {
        host_path: real.clone(),
        task_path: real,
        read_only: true,
        ..Mount::default()
    })
}

/// A command named without a directory is looked for in the task's own directories first; the
/// answer is where the task sees it.
fn find_command(command: &str, task: &TaskConfig) -> String {
    if !Path::new(command).is_absolute() {
        let local = (&task.paths.local, Path::new("/local"));
        let root = (&task.paths.root, Path::new("/"));
        for (outside, inside) in [local, root] {
            if outside.join(command).is_file() {
                return inside.join(command).display().to_string();
            }
        }
    }
    command.to_owned()
}

/// Why tasks cannot be kept apart here.
fn missing(cgroups: &Parents) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("Driver must run as root".to_owned());
    }
    let spaces = ["mnt", "pid", "ipc"].map(|name| PathBuf::from("/proc/self/ns").join(name));
    if spaces.iter().any(|path| !path.exists()) {
        return Some("the kernel has no namespaces".to_owned());
    }
    let rights = rustix::thread::capabilities(None);
    if rights.map_or(0, |sets| sets.effective.bits()) & SYS_ADMIN == 0 {
        return Some("the agent has no right to make namespaces (CAP_SYS_ADMIN)".to_owned());
    }
    let missing = mounts::missing().or_else(|| cgroups.missing());
    missing.map(str::to_owned)
}

impl Driver for Exec {
    fn name(&self) -> &'static str {
        NAME
    }

    fn fingerprint(&self, now: i64) -> DriverInfo {
        let why = self.missing.as_deref();
        super::registry::info(NAME, why.is_none(), now, why.unwrap_or("Healthy"))
    }

    fn validate(&self, config: &BTreeMap<String, Value>) -> Result<(), String> {
        IsolatedConfig::read(config, &self.plugin).map(|_| ())
    }

    fn start(
        &self,
        config: TaskConfig,
    ) -> BoxFuture<'static, Result<Arc<dyn RunningTask>, StartError>> {
        if let Some(why) = &self.missing {
            let error = StartError::fatal(format!("{NAME} driver: {why}"));
            return std::future::ready(Err(error)).boxed();
        }
        let (plugin, runs) = (self.plugin.clone(), self.runs.clone());
        let (cores, begun) = (Arc::clone(&self.cores), Arc::new(OnceLock::new()));
        let (own, to) = ((Arc::clone(&cores), runs.clone()), Arc::clone(&begun));
        let run = (config.alloc_id.clone(), config.task.clone(), config.run);
        let spec = move |task: &TaskConfig| {
            let (cores, runs) = own;
            let mut spec = Self::spec(task, &plugin, &runs)?;
            cores.begin(&runs.cgroups, &mut spec);
            // It is not shared yet.
            let _ = to.set(spec.clone());
            Ok(spec)
        };
        let started = self.runs.start(config, spec);
        async move {
            let started = started.await;
            let failed = started.is_err();
            let reported = tokio::task::spawn_blocking(move || {
                // No other hook ends what left nothing behind.
                match begun.get().filter(|_| failed) {
                    Some(spec) if runs.spec_of((&run.0, &run.1, run.2)).is_none() => {
                        cores.end(&runs.cgroups, spec);
                    }
                    // Others may have reserved some while its groups were made.
                    _ => cores.share_anew(&runs.cgroups),
                }
            });
            reported
                .await
                .map_err(|e| StartError::fatal(e.to_string()))?;
            started
        }
        .boxed()
    }

    fn recover(
        &self,
        config: TaskConfig,
        _handle: Option<Handle>,
    ) -> BoxFuture<'static, Result<Recovered, StartError>> {
        let (cores, runs) = (Arc::clone(&self.cores), self.runs.clone());
        let found = self.runs.recover(&config);
        async move {
            let found = found.await;
            if matches!(found, Ok(Recovered::Live(_))) {
                let again = move || {
                    let run = (&*config.alloc_id, &*config.task, config.run);
                    let mut spec = runs.spec_of(run).unwrap_or_default();
                    cores.begin(&runs.cgroups, &mut spec);
                    // It has what it had, and an operator may keep some of these cores since.
                    cores.share_anew(&runs.cgroups);
                };
                let begun = tokio::task::spawn_blocking(again).await;
                begun.map_err(|e| StartError::fatal(e.to_string()))?;
            }
            found
        }
        .boxed()
    }

    fn destroy(&self, alloc_id: &str, task: &str, run: u64) {
        if let Some(spec) = self.runs.spec_of((alloc_id, task, run)) {
            self.cores.end(&self.runs.cgroups, &spec);
        }
        self.runs.destroy(alloc_id, task, run);
    }
}

#[cfg(test)]
#[path = "isolated_test.rs"]
mod tests;
