//! Puts a client together that runs tasks on this machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use drover_events::model::TaskState;
use drover_events::model::status::task as status;
use parking_lot::Mutex;

use super::agent::{Client, ClientStart};
use super::alloc::runner::RunnerFactory;
use super::alloc_dir::make_path;
use super::alloc_runner::AllocRunner;
use super::clock::Clock;
use super::config::ClientSettings;
use super::devices::Devices;
use super::drivers::isolated::{self, Exec};
use super::drivers::raw_exec::{RawExec, Runs};
use super::drivers::{Driver, Registry, mock::Mock};
use super::executor::cgroup::Parents;
use super::executor::launch::Launcher;
use super::fingerprint;
use super::hooks::alloc::list::AllocHookList;
use super::hooks::task::list::TaskHookList;
use super::ids::NodeIds;
use super::journal::{JournalError, LogJournal};
use super::service::book::Book;
use super::volumes::csi::{AllocKnowledge, Csi, answer};
use super::volumes::host::{self, HostVolumes};
use super::volumes::task::VolumeHook;
use drover_config::{Shared, option};
use drover_rpc::caller::Caller;

/// Why a client does not start.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file or directory of the client.
    #[error("client: {0}")]
    Io(#[from] io::Error),
    /// What it remembers.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Starts the client of this machine; `reach` makes the way to the servers for its secret.
///
/// # Errors
/// What it keeps on disk cannot be read or made, or it has no such network interface.
pub fn open(
    settings: ClientSettings,
    reach: impl FnOnce(&str) -> Caller,
) -> Result<Arc<Client>, ClientError> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    fingerprint::network::check(&settings.client).map_err(invalid)?;
    make_path(&settings.alloc_dir)?;
    make_state_dir(&settings.state_dir)?;
    let ids = NodeIds::load(&settings.state_dir)?;
    let (journal, report) = LogJournal::open(&settings.state_dir.join("journal"))?;
    tracing::debug!(?report, "opened the client's journal");
    let clock = Clock::System;
    let drivers = drivers(&settings)?;
    let facts = fingerprint::probe(&settings);
    let node = fingerprint::node(&settings, &ids, facts, &drivers, clock.now());
    let node = Arc::new(Mutex::new(Arc::new(node)));
    let settings = Shared::new(settings);
    let journal: Arc<dyn super::journal::Journal> = Arc::new(journal);
    let services = Arc::new(Book::default());
    let caller = reach(&ids.secret).of_node(&ids.id);
    let csi = {
        let state_dir = settings.get().state_dir.clone();
        Csi::restore(&state_dir, &node, &journal, (caller.clone(), clock.clone()))
    };
    let host_volumes = HostVolumes::restore(&settings, &node, &journal);
    let devices = Devices::restore(&settings.get(), &node, &journal).map_err(invalid)?;
    let factory = RunnerFactory {
        settings: settings.clone(),
        drivers,
        journal: journal.clone(),
        services: services.clone(),
        clock: clock.clone(),
        node: node.clone(),
        alloc_hooks: AllocHookList::default()
            .and(host_volumes.alloc_hook())
            .and(csi.alloc_hook()),
        task_hooks: TaskHookList::with(VolumeHook::maker())
            .and(devices.task_hook())
            .and(csi.task_hook()),
    };
    let client = Client::start(ClientStart {
        settings,
        node,
        caller,
        factory: Arc::new(factory),
        journal,
        services,
        clock,
        csi: Some(Arc::clone(&csi)),
    });
    let here = Arc::downgrade(&client);
    csi.knows(move |alloc| {
        // While the agent ends, executors run on.
        let client = here.upgrade();
        client.map_or(AllocKnowledge::Lives, |client| client.known(alloc))
    });
    client.handle_calls(Arc::new(host::answer::Beside {
        volumes: host::answer::service(&host_volumes),
        others: answer::service(&csi),
    }));
    client.offer(host_volumes);
    client.manage(devices);
    Ok(client)
}

impl Client {
    /// What is known of an allocation.
    fn known(&self, alloc: &str) -> AllocKnowledge {
        match self.any_runner(alloc) {
            Some(runner) => known(&*runner),
            // Executors of a former agent run on, and nothing follows them.
            None if self.core.unrestored.lock().contains(alloc) => AllocKnowledge::Lives,
            None => AllocKnowledge::Not,
        }
    }
}

/// Whether something of an allocation may still run.
fn known(runner: &dyn AllocRunner) -> AllocKnowledge {
    let reported = runner.reported();
    let is_live = |state: &TaskState| state.state != status::DEAD;
    match reported.is_none_or(|reported| reported.task_states.values().any(is_live)) {
        true => AllocKnowledge::Lives,
        false => AllocKnowledge::Ended,
    }
}

fn drivers(settings: &ClientSettings) -> io::Result<Registry> {
    let options = &settings.client.options;
    let enabled = match options.get(option::RAW_EXEC_ENABLE) {
        Some(text) => text == "1" || text == "true",
        None => settings.dev,
    };
    let dir = settings.state_dir.join("tasks");
    make_private(&dir)?;
    let cgroups = Parents::of_host(&settings.client.cgroup_parent);
    let launcher = Launcher::current();
    let raw = RawExec::new(enabled, launcher.clone(), dir.clone()).in_cgroups(&cgroups);
    let runs = Runs {
        launcher,
        dir,
        cgroups,
    };
    let plugin = settings.plugins.get(isolated::NAME).cloned();
    let exec = Exec::new(&settings.client, &plugin.unwrap_or_default(), runs);
    let exec = exec.map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    // It waits for the ends of what it kills, and nothing needs to wait for it.
    std::thread::spawn(exec.sweeper());
    let all: [Arc<dyn Driver>; 3] = [Arc::new(raw), Arc::new(exec), Arc::new(Mock)];
    Ok(Registry::new(all, options))
}

/// The node's secret lies there. Who may pass through one that is there was decided before: the
/// directories of allocations may lie in it.
fn make_state_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)
}

/// The environments of tasks lie there, with their secrets.
fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(test)]
#[path = "start_test.rs"]
mod tests;
