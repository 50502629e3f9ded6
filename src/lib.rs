//! drover: a workload orchestrator whose state is its history.
//!
//! It runs jobs on machines as Nomad does, speaks Nomad's HTTP API and job specification, and keeps
//! every change that ever happened as a versioned event in one append-only, verifiable log. Lists,
//! indexes, the past, the event stream and the scheduler's view are derived from that log and can
//! be thrown away and built again.
//!
//! **One command → one event → one apply → projections → reactors (→ commands).**
//!
//! ```text
//!  command ──decide──▶ event ──replicate──▶ log ──apply──▶ projections ──notify──▶ reactors
//!  (HTTP, RPC,        (past tense,         (Raft,         (RocksDB)      │            │
//!   reactor)           versioned)           segments)                    └──▶ readers │
//!      ▲                                                                              │
//!      └──────────────────────────────── commands ◀───────────────────────────────────┘
//! ```
//!
//! # The way of a change
//!
//! 1. A **command** ([`commands`]) is somebody's intention. It lives in memory on the leader and may
//!    be refused. `decide` is a pure function of a view and the command; it answers with the event
//!    that should happen, and with guards: what must still hold when it does.
//! 2. An **event** (crate [`drover_events`]) is the fact. One Raft entry is one event, and the
//!    event's index is the log's index: the `CreateIndex` and `ModifyIndex` of the rows it writes.
//! 3. The **log** ([`log`]) is plain segment files, synced before anything is acknowledged; Raft
//!    ([`raft`]) replicates bytes that it never looks into.
//! 4. **Apply** (crate [`drover_projections`]) checks the guards and writes rows, in one batch with
//!    the applied index. It is total and deterministic. A failed guard is a normal outcome: the
//!    leader decides again on newer state.
//! 5. **Reactors** ([`reactors`]) are woken by what was applied. They read a view, do what follows
//!    (schedule, expire, publish) and send commands, as every caller does. They hold no truth.
//!
//! # Two walks
//!
//! What happens, folder by folder, each with the functions that lead to the next. What is only
//! looked into on the way is left out: [`acl`] and [`identity`] (what a caller may), [`net`] (the
//! bytes and the time that a caller may take), [`table_reads`] (the thread that reads).
//!
//! A job is registered, `PUT /v1/jobs`:
//!
//! 1. [`http`]: the route of `src/http/router/work.rs` hands the request to
//!    `src/http/front.rs::late`, which reads its head, identifies its caller (2), lets in a
//!    caller that may register jobs somewhere (`src/http/front.rs::admit`), and only then takes the
//!    body.
//! 2. [`gate`]: [`Gate::authenticate_again`](gate::Gate::authenticate_again) makes an identity of
//!    a token, by the tables of now. It is called before the body, so that a stranger sends none,
//!    and again once it has come (`src/http/entrance.rs::taken_in`): a body may take its time,
//!    rights may be taken away meanwhile, and what counts are those of when all of the request is
//!    there. What was verified of a signed token is not verified twice.
//! 3. [`jobspec`]: `src/http/jobs/write.rs::register` has the body read
//!    ([`ParsedJob`](jobspec::ParsedJob)), made canonical and held to every rule
//!    ([`validate`](jobspec::validate())), away from the threads that serve. Now it is known which
//!    namespace the job is in: `src/http/jobs/write.rs::admitted` checks that the identity of (2)
//!    has the right there, and makes the only thing that can submit a command.
//! 4. [`proposer`]: [`Proposer::submit`](proposer::Proposer::submit) waits for the lead and for
//!    space, takes a view, and has the command decided on it (5). The event is cut if it is too
//!    large (`src/proposer/fit.rs::fit`), encoded, and stamped in one order with all others
//!    (`src/proposer/mod.rs::hand_over`). If apply refuses it because the world moved, all of this
//!    is done again.
//! 5. [`commands`]: [`decide`](commands::Command::decide) of
//!    [`RegisterJob`](commands::job::RegisterJob) answers with the event `JobRegistered`, the
//!    evaluation in it, and the guards; or with the refusal that the caller reads.
//! 6. [`raft`]: [`LogWriter::write`](raft::LogWriter::write) gives the bytes to openraft, which
//!    sends them to the other servers and has them written here (7). When a majority has them
//!    (today there is one server; see README, Status), the one applier's thread
//!    (`src/raft/state_machine.rs::advance`) decodes them ([`drover_migrations::decode`]) and
//!    applies them (8); the answer goes back the whole way.
//! 7. [`log`]: [`LogEngine::append`](log::LogEngine::append) writes and syncs them.
//! 8. [`drover_projections`]: [`Writer::apply_each`](drover_projections::Writer::apply_each) checks
//!    the guards, has [`dispatch`](drover_projections::apply::dispatch) write the rows
//!    (`projections/src/apply/job.rs::registered`), and wakes what waits for them: the scheduler
//!    finds the new evaluation.
//!
//! A client says what became of its allocations:
//!
//! 1. [`client`]: the runner of an allocation puts its latest state into the buffer
//!    (`src/client/sync.rs::put`), which keeps one of each; `src/client/send.rs::keep` sends what
//!    is due in one call.
//! 2. [`rpc`]: [`Caller::once`](rpc::caller::Caller::once) carries `Node.UpdateAlloc` to a server,
//!    where `src/rpc/server.rs::call` bounds the body and `src/rpc/service.rs::dispatch` finds the
//!    method and checks what it requires of the caller: to be a node.
//! 3. [`endpoints`]: `src/endpoints/auth.rs::admit` compares the secret with the hash in the node's
//!    row; `src/endpoints/node.rs::update_alloc` checks again that it is this node, whose
//!    allocations they are, and queues its part (`src/endpoints/alloc_batch.rs::submit`). What many
//!    nodes say within a moment is gathered (`src/endpoints/alloc_batch.rs::run`) and becomes one
//!    command (`src/endpoints/alloc_batch.rs::send`); each gets the outcome of its own part.
//! 4. [`proposer`]: as above; what it has decided is the gathered command, which is of endpoints
//!    again (`src/endpoints/alloc_batch.rs::decide`) and hands each part on (5).
//! 5. [`commands`]: [`report`](commands::alloc::UpdateAllocsFromClient::report) leaves of a
//!    part what is new and adds the evaluations that follow. What is refused is left out, and
//!    reported to its node alone.
//! 6. [`raft`]: as above; the event is `AllocsUpdatedByClient`.
//! 7. [`log`]: as above.
//! 8. [`drover_projections`]: `projections/src/apply/alloc.rs::updated_by_client` writes the rows,
//!    and what is counted of them. The reactors of what follows, deployments or drains, are woken.
//!
//! # Where things are
//!
//! The crates form a line; each can be read knowing only those before it:
//! [`drover_events`] (the language of today) ← [`drover_projections`] (the state today) ←
//! [`drover_migrations`] (what both used to be) ← [`commands`] (what may be requested) ← this crate
//! (behaviour). Beside that line stand [`error`], [`log`], [`keyring`], [`jobspec`], [`scheduler`],
//! [`acl`] with the small language `drover_hcl1` that its policies are written in, the language of
//! filters ([`drover_projections::filter`]), the agents' settings, [`config`], and what they speak
//! over: [`net`], [`identity`], [`rpc`], with [`telemetry`] and [`base`]; above these the
//! [`client`], which reaches servers by calls alone. They know no table, and a change in one is
//! compiled and tested without the rest (`cargo test -p drover-client`); what the scheduler decides
//! over real tables is the suite `tests/scheduler`, what a client does at a real server is in
//! `src/agent/with_server`.
//!
//! A resource has the same name everywhere: `job.rs`, or the folder `job`, in `events/src`,
//! `projections/src/apply` and `src/commands`, and `jobs` in `src/http`, are a job's whole life.
//!
//! | module | what | knows nothing of |
//! |---|---|---|
//! | [`log`] | segments, group commit, recovery, the tree over all bodies | Raft, events |
//! | [`raft`] | openraft as one thin part, the applier | what an event means |
//! | [`proposer`] | commands decided, stamped and proposed, in one order | who the caller is |
//! | [`commands`] | intentions and their rules | HTTP, RPC |
//! | [`reactors`] | what follows from what happened | who requested it |
//! | [`scheduler`] | where allocations go; pure | async, clocks, I/O |
//! | [`scheduling_view`] | what the scheduler reads: tables and cluster of one index | who plans |
//! | [`http`] | routes, parameters, answers | how rows are encoded |
//! | [`jobspec`] | HCL and JSON to jobs | servers |
//! | [`client`] | tasks on this machine, their journal | projections |
//! | [`acl`] | policies to what they allow; pure | tables, callers, clocks |
//! | [`keyring`] | keys in files, ciphertext, tokens | what is in the log |
//! | [`history::proof`] | checkpoints, proofs, verification of the log | what an event means |
//! | [`history::audit`] | who changed what, when, why; cause chains; states compared | HTTP |
//! | [`history::explain`] | a decision made again, and compared with what was committed | HTTP |
//! | [`history::record`] | an event as the outside sees it, in one document | who reads it |
//! | [`history::replay`] | a log folded into fresh tables, from outside | Raft |
//! | [`history::rebuild`] | the tables made again beside those in use | who requests it |
//! | [`history::export`], [`history::backup`] | what leaves as files, and comes back | HTTP |
//! | [`history::store`] | where dropped segments are kept, and read | what an event means |
//! | [`diagnostics`] | an agent's log as it is written, machine, profiles | who the caller is |
//! | [`requests`] | requests that change nothing but matter, on each server | HTTP |
//! | [`csi_calls`] | calls of servers to CSI plugins: where, when, how many at once | volumes |
//! | [`volumes`] | CSI volumes taken, given back, made at plugins | HTTP, sessions |
//! | [`host_volumes`] | volumes of hosts, made and deleted on their nodes | HTTP, sessions |
//! | [`rpc`] | the typed calls between servers and clients | what they cause |
//! | [`gate`] | who calls, and what that caller may do, by the tables of now | what is requested |
//! | [`endpoints`] | what each call means: a view is read, a command submitted | how calls travel |
//! | [`net`] | connections, bytes and time that callers may take; statuses | routes, methods |
//! | [`nodesim`] | thousands of clients without tasks, for load | servers |
//! | [`config`] | the settings of an agent, checked as a whole | who acts on it |
//! | [`cli`] | nouns and verbs, over the API or a data directory | servers |
//! | [`table_reads`] | reads of tables, off the threads that serve | what is read |
//! | [`identity`], [`error`] | who calls, why not | the rest |
//! | [`base`] | the clock, the version, one at a time by key | the rest |
//! | [`telemetry`] | how much | the rest |
//! | [`log::atomic_file`] | small files, replaced whole or not at all | what is in them |
//! | [`server`], [`agent`] | the parts put together | what they do |
//!
//! Imports of folders form no cycle, at any depth and also by way of single files: `cargo xtask
//! graph` prints who imports whom, here and in `projections/src`, and `tidy` refuses a cycle. The
//! lowest import no other; [`server`] is made of what runs in a server, what is offered to others
//! ([`endpoints`], [`http`]) works on it, and [`agent`] puts all together.
//!
//! # Invariants
//!
//! What is deliberately absent matters as much as what is there.
//!
//! 1. There is one way to change state: an event that was committed. No handler, reactor, tool or
//!    restore writes a table.
//! 2. Only the applier holds the `Writer` of the projections; its type cannot be copied.
//! 3. Apply asks no clock, no random source, no environment and no network; lints refuse them in the
//!    crates it lives in.
//! 4. Apply never meets an old event: [`drover_migrations::decode`] brings each to today's form.
//! 5. Every invariant of the state is enforced in apply, by guards or in the row functions; a check
//!    in a handler only saves a round trip.
//! 6. An answer is given after the event is applied, with the event's own index.
//! 7. A read takes one view and answers from it alone; it holds no view while it waits.
//! 8. What is acknowledged is on the disk, of a majority where there is one.
//! 9. Secrets are ciphertext or hashes before they are events; key material is never in the log.
//! 10. Reactors take no input but the view; woken twice or late they do the same thing.
//! 11. The scheduler is a pure function that can be run again on any past view.
//! 12. A task does not depend on its agent: it outlives it, and is found again from the journal.
//! 13. Nothing on the way of a request panics on input; whatever is unbounded from outside is
//!     bounded here.
//!
//! # Why it is so
//!
//! Decisions with their reasons and prices are in `src/docs/decisions/`, among them: [events, not
//! commands, are replicated](decisions::events_not_commands), [one model for log, tables and
//! API](decisions::one_model), [the log is ours](decisions::own_log), [filters are frozen by a
//! corpus](decisions::frozen_filters), [key material stays outside](decisions::keys_outside).
//! What a word means here is in the [glossary].
//! Behaviours that tests show are listed in `src/docs/behaviours.md`. Whoever reads events from
//! outside begins at [consuming events](consuming_events); what goes between drover and Nomad is in
//! `src/docs/backups.md`.

// Crates of their own, so that the compiler holds their walls.
pub use drover_acl as acl;
pub use drover_base as base;
pub use drover_client as client;
pub use drover_commands as commands;
pub use drover_config as config;
pub use drover_error as error;
pub use drover_identity as identity;
pub use drover_jobspec as jobspec;
pub use drover_keyring as keyring;
pub use drover_log as log;
pub use drover_net as net;
pub use drover_rpc as rpc;
pub use drover_scheduler as scheduler;
pub use drover_telemetry as telemetry;

pub mod agent;
pub mod cli;
pub mod csi_calls;
pub mod diagnostics;
pub mod endpoints;
pub mod gate;
pub mod history;
pub mod host_volumes;
pub mod http;
pub mod nodesim;
pub mod proposer;
pub mod raft;
pub mod reactors;
pub mod requests;
pub mod scheduling_view;
pub mod server;
pub mod table_reads;
pub mod volumes;

/// What was measured, and what stays short of its goal.
#[cfg(doc)]
#[doc = include_str!("docs/figures.md")]
pub mod figures {}

/// Every route, and what it asks of its caller.
#[cfg(doc)]
#[doc = include_str!("docs/routes.md")]
pub mod routes {}

/// What an attacker would try, and the tests that try it.
#[cfg(doc)]
#[doc = include_str!("docs/attacks.md")]
pub mod attacks {}

/// What runs tasks, and what jobs and operators say to it.
#[cfg(doc)]
#[doc = include_str!("docs/drivers.md")]
pub mod drivers {}

/// The words that the code uses, and those that it does not.
#[cfg(doc)]
#[doc = include_str!("docs/glossary.md")]
pub mod glossary {}

/// For readers of events: formats, topics, kinds, filters, positions, what is promised on each
/// way, and clients that run.
#[cfg(doc)]
#[doc = include_str!("docs/consuming-events.md")]
pub mod consuming_events {}

/// The decisions that shaped the code, each with its context, its reasons and its price.
#[cfg(doc)]
pub mod decisions {
    #[doc = include_str!("docs/decisions/0001-events-not-commands.md")]
    pub mod events_not_commands {}
    #[doc = include_str!("docs/decisions/0002-one-model.md")]
    pub mod one_model {}
    #[doc = include_str!("docs/decisions/0003-own-log.md")]
    pub mod own_log {}
    #[doc = include_str!("docs/decisions/0004-frozen-filters.md")]
    pub mod frozen_filters {}
    #[doc = include_str!("docs/decisions/0005-keys-outside-the-log.md")]
    pub mod keys_outside {}
    #[doc = include_str!("docs/decisions/0006-bases-are-raft-snapshots.md")]
    pub mod bases {}
    #[doc = include_str!("docs/decisions/0007-a-chroot-of-mounts.md")]
    pub mod a_chroot_of_mounts {}
    #[doc = include_str!("docs/decisions/0008-who-asks-is-found-out-where-it-is-answered.md")]
    pub mod who_asks {}
    #[doc = include_str!("docs/decisions/0009-a-watcher-that-keeps-nothing.md")]
    pub mod a_watcher_that_keeps_nothing {}
    #[doc = include_str!("docs/decisions/0010-own-code-that-stays.md")]
    pub mod own_code_that_stays {}
}

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: drover_testkit::counting::Counting = drover_testkit::counting::Counting;
