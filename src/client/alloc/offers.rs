//! What an allocation offers, kept in step with its tasks: registrations in the client's book, and
//! a watcher for every check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::status::check as check_status;
use drover_events::model::{Allocation, ServiceRegistration};
use tokio::task::JoinHandle;

use super::actor::Actor;
use super::machine::Input;
use super::runner::Msg;
use crate::service::check;
use crate::service::describe::{DescriptionSource, Offered, Probe, offered};

/// What is offered now. Watchers end with it.
#[derive(Default)]
pub(super) struct Offers {
    /// From what it was made.
    from: Option<(Option<BTreeSet<String>>, Arc<Allocation>)>,
    registrations: Vec<ServiceRegistration>,
    watchers: BTreeMap<String, (Probe, JoinHandle<()>)>,
}

impl Drop for Offers {
    fn drop(&mut self) {
        for (_, watcher) in self.watchers.values() {
            watcher.abort();
        }
    }
}

impl Actor {
    /// Brings what is offered in step with the machine.
    pub(super) fn offer(&mut self) {
        let alloc = self.shared.alloc.lock().clone();
        let up = self.shared.machine.lock().serving();
        let same = self
            .offered
            .from
            .as_ref()
            .is_some_and(|(tasks, from)| *tasks == up && Arc::ptr_eq(from, &alloc));
        if same {
            return;
        }
        let all = up.as_ref().map_or_else(Vec::new, |tasks| {
            let settings = self.factory.settings.get();
            let node = self.factory.node.lock().clone();
            let source = DescriptionSource {
                alloc: &alloc,
                node: &node,
                region: &settings.region,
            };
            offered(&source, tasks)
        });
        self.watch(&all);
        let registrations: Vec<_> = all.into_iter().map(|o| o.registration).collect();
        // What the servers show of an allocation from before this agent began may be gone.
        let first = self.offered.from.is_none() && has_services(&alloc);
        // What ends is taken away by its hook.
        let changed = up.is_some() && registrations != self.offered.registrations;
        if first || changed {
            self.factory.services.set(&alloc.id, registrations.clone());
        }
        self.offered.registrations = registrations;
        self.offered.from = Some((up, alloc));
    }

    /// Ends watchers that are not needed any more, and starts those that are.
    fn watch(&mut self, all: &[Offered]) {
        let wanted: BTreeMap<&str, &Probe> = all
            .iter()
            .flat_map(|o| &o.checks)
            .map(|probe| (probe.id.as_str(), probe))
            .collect();
        let shared = self.shared.clone();
        self.offered.watchers.retain(|id, (probe, watcher)| {
            let keep = wanted.get(id.as_str()).is_some_and(|new| **new == *probe);
            if !keep {
                watcher.abort();
                shared.checks.lock().remove(id);
            }
            keep
        });
        for (id, probe) in wanted {
            if self.offered.watchers.contains_key(id) {
                continue;
            }
            let first = check::pending(probe);
            shared.checks.lock().insert(id.to_owned(), first);
            let watcher = self.watcher(probe.clone());
            let entry = (probe.clone(), watcher);
            self.offered.watchers.insert(id.to_owned(), entry);
        }
    }

    fn watcher(&self, probe: Probe) -> JoinHandle<()> {
        let clock = self.factory.clock.clone();
        let shared = self.shared.clone();
        let tx = self.tx.clone();
        let counts = probe.counts();
        let mut strikes = check::Strikes::new(&probe, clock.now());
        let task = match probe.check.task_name.as_str() {
            "" => probe.task.clone(),
            named => named.to_owned(),
        };
        let reason = format!("healthcheck: check {:?} unhealthy", probe.check.name);
        let times = clock.clone();
        let reported = move |result: drover_events::model::CheckQueryResult| {
            let passes = result.status == check_status::SUCCESS;
            let good = counts.then_some(passes);
            let (id, old) = {
                let mut checks = shared.checks.lock();
                let id = result.id.clone();
                let old = checks.insert(id.clone(), result);
                (id, old)
            };
            let was = old.map(|o| o.status == check_status::SUCCESS);
            if let Some(good) = good.filter(|good| was != Some(*good)) {
                // An actor that has ended needs no input.
                let _ = tx.send(Msg::Input(Input::Check { id, good }));
            }
            if strikes.add(passes, times.now()) {
                let _ = tx.send(Msg::Input(Input::Unhealthy {
                    task: task.clone(),
                    reason: reason.clone(),
                }));
            }
        };
        tokio::spawn(check::watch(probe, move || clock.now(), reported))
    }
}

/// Whether the allocation's group has any service, of its own or of a task.
fn has_services(alloc: &Allocation) -> bool {
    alloc.group().is_some_and(|group| {
        !group.services.is_empty() || group.tasks.iter().any(|task| !task.services.is_empty())
    })
}
