//! Brings inputs to the machine, and its state to the journal and to the servers.
//!
//! One actor per allocation. For every input: step, journal, then effects; so what is done is
//! always in the journal before. Where the journal cannot be written, what would begin something
//! fails; what ends or finds something again is done all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::Allocation;
use drover_events::model::status::client;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::counted::{self, Counted};
use super::jobs::Jobs;
use super::machine::{Action, AllocSpec, Input, Phase};
use super::offers::Offers;
use super::runner::{Msg, RunnerFactory, RunnerShared, spec_of};
use crate::alloc_runner::{AllocRunner, Report};
use crate::clock::{SECOND, nanos};
use crate::hooks::alloc::list::AllocHooks;
use crate::hooks::task::list::TaskHooks;
use crate::journal::{alloc_key, state_key};

/// How many inputs that wait together are taken in one step of the journal.
const BATCH: usize = 64;
/// The longest sleep; also a bound for steps of the system's clock.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The longest grace of tasks whose agent keeps nothing, nanoseconds.
const EPHEMERAL_GRACE: i64 = SECOND;

/// Waits until the journal has what was sent with it.
type Ack = oneshot::Sender<Result<(), String>>;

/// The actor of one allocation.
pub(super) struct Actor {
    pub(super) factory: RunnerFactory,
    pub(super) shared: Arc<RunnerShared>,
    pub(super) spec: AllocSpec,
    pub(super) tx: mpsc::UnboundedSender<Msg>,
    pub(super) report: Report,
    pub(super) previous: Vec<Arc<dyn AllocRunner>>,
    pub(super) hooks: AllocHooks,
    pub(super) task_hooks: BTreeMap<String, TaskHooks>,
    /// What hooks of the allocation leave for others is there.
    pub(super) ready: Arc<OnceCell<()>>,
    /// What hooks do now.
    pub(super) jobs: Jobs,
    pub(super) last_report: Option<Allocation>,
    pub(super) counted: Counted,
    pub(super) offered: Offers,
    /// The allocation as the servers last sent it is not known to be durable.
    pub(super) alloc_unwritten: bool,
    /// The time of the machine's last step, unix nanoseconds.
    pub(super) stepped_at: i64,
}

impl Actor {
    pub(super) async fn run(mut self, mut rx: mpsc::UnboundedReceiver<Msg>) {
        self.remember_alloc().await;
        counted::begun(&self.shared.alloc.lock());
        let mut first = self.shared.machine.lock().begin();
        // What was restored looks around once: nothing else might happen to it.
        first.extend(self.step(Input::Tick));
        first.extend(self.catch_up());
        if self.shared.machine.lock().phase != Phase::Prerun {
            // What is to end is not begun first (CL-26).
            first.retain(|action| *action != Action::Prerun);
        }
        self.after(first, Vec::new()).await;
        let mut destroying: Option<oneshot::Sender<()>> = None;
        // What came behind a batch of inputs: it is next, before all that came later.
        let mut held: Option<Msg> = None;
        loop {
            if let Some(reply) = destroying.take_if(|_| *self.shared.done.borrow()) {
                self.remove().await;
                let _ = reply.send(());
                return;
            }
            let (mut actions, mut acks) = (Vec::new(), Vec::new());
            let next = match held.take() {
                Some(msg) => Some(msg),
                None => self.next(&mut rx).await,
            };
            match next {
                Some(msg @ (Msg::Input(_) | Msg::Noted(..))) => {
                    held = self.take_inputs(msg, &mut rx, (&mut actions, &mut acks));
                }
                Some(Msg::Seen(reply)) => {
                    // A caller that was dropped meanwhile needs no answer.
                    let _ = reply.send(());
                    continue;
                }
                Some(Msg::Update(alloc)) => actions.extend(self.take_update(alloc).await),
                Some(Msg::Destroy(reply)) => {
                    destroying = Some(reply);
                    self.hurry();
                    actions.extend(self.step(Input::Stop { no_delay: true }));
                }
                Some(Msg::Detach(reply)) => {
                    self.end_hooks().await;
                    // The journal is let go before the end is reported.
                    drop(self);
                    let _ = reply.send(());
                    return;
                }
                None => actions.extend(self.step(Input::Tick)),
            }
            self.after(actions, acks).await;
        }
    }

    /// Takes an input and those that wait behind it; returns what follows and is no input.
    fn take_inputs(
        &mut self,
        first: Msg,
        rx: &mut mpsc::UnboundedReceiver<Msg>,
        (actions, acks): (&mut Vec<Action>, &mut Vec<Ack>),
    ) -> Option<Msg> {
        let mut next = Some(first);
        for _ in 0..=BATCH {
            match next {
                Some(Msg::Input(input)) => actions.extend(self.step(input)),
                Some(Msg::Noted(input, ack)) => {
                    actions.extend(self.step(input));
                    acks.push(ack);
                }
                other => return other,
            }
            next = rx.try_recv().ok();
        }
        next
    }

    /// The next message; `None` when it is time for a tick.
    async fn next(&self, rx: &mut mpsc::UnboundedReceiver<Msg>) -> Option<Msg> {
        let at = self
            .shared
            .machine
            .lock()
            .wakes_at(&self.spec, self.stepped_at);
        let now = self.factory.clock.now();
        let sleep = at.map_or(MAX_SLEEP, |at| nanos(at - now).min(MAX_SLEEP));
        tokio::select! {
            biased;
            msg = rx.recv() => msg,
            () = tokio::time::sleep(sleep) => None,
        }
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        let now = self.factory.clock.now();
        self.stepped_at = now;
        // Before the other lock is taken: others hold this one while they wait for that.
        let alloc = self.shared.alloc.lock().clone();
        let mut machine = self.shared.machine.lock();
        counted::heard(&alloc, &input);
        let actions = machine.step(&self.spec, input, now);
        self.counted.go_on(&alloc, &machine);
        actions
    }

    /// What the servers want is in the journal before the machine has followed it; after a crash
    /// between the two it follows now (CL-16).
    fn catch_up(&mut self) -> Vec<Action> {
        let alloc = self.shared.alloc.lock().clone();
        if alloc.server_terminal() {
            let no_delay = alloc.desired_transition.no_shutdown_delay == Some(true);
            return self.step(Input::Stop { no_delay });
        }
        self.follow_deployment(&alloc)
    }

    /// Health is reported anew to another deployment.
    fn follow_deployment(&mut self, alloc: &Allocation) -> Vec<Action> {
        let id = &alloc.deployment_id;
        if id.is_empty() || self.shared.machine.lock().follows(id) {
            return Vec::new();
        }
        self.step(Input::Deployment {
            id: id.clone(),
            canary: alloc.is_canary(),
        })
    }

    /// First the journal, then the report, then the actions.
    async fn after(&mut self, actions: Vec<Action>, acks: Vec<Ack>) {
        self.jobs.reap();
        if self.alloc_unwritten {
            self.remember_alloc().await;
        }
        let id = self.shared.alloc.lock().id.clone();
        let bytes = rmp_serde::to_vec_named(&*self.shared.machine.lock())
            .expect("the machine is made of plain values");
        let written = self.factory.journal.put(&state_key(&id), bytes).await;
        self.report();
        self.offer();
        match written {
            Ok(()) => {
                acks.into_iter().for_each(|ack| drop(ack.send(Ok(()))));
                actions.into_iter().for_each(|one| self.carry_out(one));
            }
            Err(e) => {
                tracing::error!(alloc = %id, "state is not durable: {e}");
                let why = format!("the client's state cannot be written: {e}");
                for ack in acks {
                    // A caller that was dropped meanwhile needs no answer.
                    let _ = ack.send(Err(why.clone()));
                }
                for action in actions {
                    self.refuse(action, &why);
                }
            }
        }
        self.shared.steps.send_modify(|steps| *steps += 1);
    }

    async fn remember_alloc(&mut self) {
        let alloc = self.shared.alloc.lock().clone();
        let bytes = rmp_serde::to_vec_named(&*alloc).expect("an allocation is plain values");
        let written = self.factory.journal.put(&alloc_key(&alloc.id), bytes).await;
        self.alloc_unwritten = written.is_err();
        if let Err(e) = written {
            tracing::error!(alloc = %alloc.id, "allocation is not durable: {e}");
        }
    }

    fn report(&mut self) {
        let update = self.shared.reported();
        if self.last_report.as_ref() != Some(&update) {
            self.last_report = Some(update.clone());
            (self.report)(update);
        }
        if self.shared.machine.lock().phase == Phase::Done {
            self.shared.done.send_replace(true);
        }
    }

    async fn take_update(&mut self, alloc: Arc<Allocation>) -> Vec<Action> {
        let max_kill = self.factory.settings.get().client.max_kill_timeout;
        let before = std::mem::replace(&mut *self.shared.alloc.lock(), alloc.clone());
        self.remember_alloc().await;
        match spec_of(&alloc, &max_kill) {
            Ok(spec) if spec.tasks.keys().eq(self.spec.tasks.keys()) => self.spec = spec,
            Ok(_) => tracing::error!(alloc = %alloc.id, "the tasks of a group cannot change"),
            Err(e) => tracing::error!(alloc = %alloc.id, "{e}"),
        }
        let mut actions = self.catch_up();
        if is_reconnected(&before, &alloc) {
            actions.extend(self.step(Input::Reconnected));
        }
        actions.extend(self.step(Input::Updated));
        actions
    }

    /// Where nothing is kept the agent's end waits for its tasks: not for long.
    fn hurry(&mut self) {
        if self.factory.settings.get().ephemeral {
            for task in self.spec.tasks.values_mut() {
                task.kill_timeout = task.kill_timeout.min(EPHEMERAL_GRACE);
            }
        }
    }

    async fn remove(&mut self) {
        self.destroy_hooks().await;
        let id = self.shared.alloc.lock().id.clone();
        if let Err(e) = self.factory.journal.delete(&format!("alloc/{id}/")).await {
            tracing::error!(alloc = %id, "cannot be forgotten: {e}");
        }
        let dir = self.shared.dir.clone();
        let removed = tokio::task::spawn_blocking(move || dir.destroy()).await;
        if let Ok(Err(e)) = removed {
            tracing::warn!(alloc = %id, "cannot remove its directory: {e}");
        }
        counted::removed(&self.shared.alloc.lock());
    }
}

/// The servers lost sight of it meanwhile and want it still. What is stopped by then is not
/// reconnected: it only ends (HB-11).
fn is_reconnected(before: &Allocation, now: &Allocation) -> bool {
    let unknown = |alloc: &Allocation| alloc.client_status == client::UNKNOWN;
    unknown(now) && !unknown(before) && !now.server_terminal()
}
