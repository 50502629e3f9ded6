//! Calls of servers to CSI plugins on nodes of clients: one place that chooses the node, checks it
//! and calls it (PLG-05, PLG-06), whatever the call is for.
//!
//! It must not know: volumes, their users and what a call is for (PLG-08), commands, how events
//! are replicated ([`Lead`] is all it knows of that), sessions ([`Reach`] is the way to a client).
//!
//! Invariants:
//! 1. A call that changes something is made in the term in which it was decided, after a majority
//!    has confirmed that this server leads (VW-02). Lists change nothing and are made on
//!    every server.
//! 2. A call waits for its turn no longer than it may take itself; one that had no turn was not
//!    made, and its error states that.
//! 3. A caller of controllers learns whether all that were called have answered: where not, the
//!    call may be done yet.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_events::model::status::node as node_status;
use drover_projections::query::csi;
use drover_projections::tables::nodes;
use drover_projections::{Projections, StorageError, View};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::base::keyed_locks::{KeyGuard, KeyedLocks};
use crate::error::{Code, Refusal, chain};
use crate::rpc::Rpc;
use crate::rpc::client_calls::{Reach, Unanswered, call};
use crate::rpc::csi::AskController;

/// Whether this server may have anything changed at plugins.
pub trait Lead: Send + Sync {
    /// The term in which this server leads and takes commands; none where it does not.
    fn term(&self) -> Option<u64>;

    /// Queries a majority whether this server still leads: one that was cut off does not know by
    /// itself.
    fn confirm(&self) -> BoxFuture<'_, Result<(), Refusal>>;
}

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub struct PluginCallLimits {
    /// A controller: a little longer than its own client waits for the plugin.
    pub controller: Duration,
    /// A node: it makes two calls.
    pub node: Duration,
    /// A list, for which a caller waits.
    pub list: Duration,
    /// For how long an attach without an answer may still be done: a volume is detached again
    /// until then. A volume that was to be deleted is given back then.
    pub late: Duration,
    /// For how long no server attaches a volume to a node after a detach without an answer.
    pub quiet: Duration,
}

impl PluginCallLimits {
    /// Those of every server.
    pub const USUAL: Self = Self {
        controller: Duration::from_secs(150),
        node: Duration::from_secs(270),
        list: Duration::from_secs(60),
        // No client waits for a plugin longer than that.
        late: Duration::from_secs(150),
        quiet: Duration::from_secs(5),
    };
}

/// Calls of one plugin that are under way on one node: the rest waits here, where it is no burden
/// to the node, and no calls of other plugins wait with it.
pub(crate) const AT_ONCE: usize = 64;
/// Lists of one plugin that are under way: few, so that most of a line is left to calls that attach
/// and detach. A list is not cut where its caller is gone, so no caller waits for this turn.
pub(crate) const LISTS_AT_ONCE: usize = 8;

/// Calls to plugins on client nodes.
pub(crate) struct PluginCalls {
    /// By node and plugin.
    lines: KeyedLocks<(String, String)>,
    /// By plugin.
    lists: KeyedLocks<String>,
    projections: Arc<Projections>,
    lead: Arc<dyn Lead>,
    reach: Arc<dyn Reach>,
    /// Controllers have their turn one after the other.
    turn: AtomicUsize,
    limits: PluginCallLimits,
}

impl PluginCalls {
    pub(crate) fn new(
        projections: Arc<Projections>,
        lead: Arc<dyn Lead>,
        (reach, limits): (Arc<dyn Reach>, PluginCallLimits),
    ) -> Self {
        Self {
            limits,
            projections,
            lead,
            reach,
            turn: AtomicUsize::new(0),
            lines: KeyedLocks::of(AT_ONCE),
            lists: KeyedLocks::of(LISTS_AT_ONCE),
        }
    }

    /// Calls a controller of the plugin: the one on the node that the request names, or else one
    /// that is healthy on a node that is ready and reached, and the next where that cannot now. All
    /// calls bear being repeated, so one that may have been done is made again elsewhere.
    pub(crate) async fn controller<R>(&self, requested: R::Req) -> Result<R::Res, Unanswered>
    where
        R: AskController,
    {
        self.call_controllers::<R>(requested).await.0
    }

    /// The same, and whether all that were called have answered: where not, it may be done yet.
    pub(crate) async fn call_controllers<R>(
        &self,
        requested: R::Req,
    ) -> (Result<R::Res, Unanswered>, bool)
    where
        R: AskController,
    {
        self.call_controllers_with_hook::<R>(requested, &nothing)
            .await
    }

    /// The same, with a hook that records something before each of them is called: after its call
    /// has waited for its turn, so that the recorded time is that of the call.
    pub(crate) async fn call_controllers_with_hook<'b, R>(
        &self,
        requested: R::Req,
        before: &'b Before<'b>,
    ) -> (Result<R::Res, Unanswered>, bool)
    where
        R: AskController,
    {
        let mut all_answered = true;
        let answer = self
            .any_controller::<R>(requested, before, &mut all_answered)
            .await;
        (answer, all_answered)
    }

    async fn any_controller<'b, R>(
        &self,
        mut requested: R::Req,
        before: &'b Before<'b>,
        all_answered: &mut bool,
    ) -> Result<R::Res, Unanswered>
    where
        R: AskController,
    {
        let decided = Decided::now(self, !R::NAME.contains("List"));
        let begun = Begun { decided, before };
        let (plugin, node) = R::of(&mut requested);
        let nodes = self.controllers(plugin, node)?;
        let plugin = plugin.to_owned();
        let mut failed = None;
        for node in nodes {
            R::of(&mut requested).1.clone_from(&node);
            let limit = match R::NAME.contains("List") {
                true => self.limits.list,
                false => self.limits.controller,
            };
            let answer = self
                .ask::<R>((&node, &plugin), (&requested, begun), limit)
                .await;
            *all_answered &= answer.as_ref().err().is_none_or(Unanswered::has_ended);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_recoverable() && decided.holds(self) => {
                    let method = R::NAME;
                    tracing::debug!(method, node, %error, "the next controller is called");
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        // Those that were chosen are never none.
        Err(failed.unwrap_or_else(|| Unanswered::Unreached("no controller was called".to_owned())))
    }

    /// Calls a plugin on a node.
    pub(crate) async fn node<R: Rpc>(
        &self,
        (node, plugin): (&str, &str),
        requested: &R::Req,
    ) -> Result<R::Res, Unanswered> {
        let decided = Decided::now(self, true);
        let ready = is_ready(&self.projections.view(), node).map_err(unreadable)?;
        if !ready {
            let text = format!("node \"{node}\" is not ready");
            return Err(Unanswered::Unreached(text));
        }
        let before = &nothing;
        let begun = Begun { decided, before };
        self.ask::<R>((node, plugin), (requested, begun), self.limits.node)
            .await
    }

    async fn ask<R: Rpc>(
        &self,
        (node, plugin): (&str, &str),
        (requested, Begun { decided, before }): (&R::Req, Begun<'_>),
        limit: Duration,
    ) -> Result<R::Res, Unanswered> {
        let _guard = self.turn::<R>((node, plugin), limit).await?;
        before().await.map_err(Unanswered::Refused)?;
        if decided.changes {
            self.lead.confirm().await.map_err(Unanswered::Refused)?;
        }
        if !decided.holds(self) {
            return Err(Unanswered::Refused(Refusal::no_leader()));
        }
        let late = |_| Unanswered::Unsure(format!("no answer to {} within {limit:?}", R::NAME));
        let answered = timeout(limit, call::<R>(&*self.reach, node, requested, limit));
        answered.await.map_err(late)?
    }

    /// Waits for the turn of a call, no longer than it may take itself.
    async fn turn<R: Rpc>(
        &self,
        (node, plugin): (&str, &str),
        limit: Duration,
    ) -> Result<KeyGuard<'_, (String, String)>, Unanswered> {
        let turn = self.lines.lock((node.to_owned(), plugin.to_owned()));
        let late = |_| {
            let (name, many) = (R::NAME, AT_ONCE);
            let text = format!("{name} waited {limit:?} for {many} other calls of \"{plugin}\"");
            Unanswered::Unreached(text)
        };
        timeout(limit, turn).await.map_err(late)
    }

    /// A permit to list what a plugin's provider has, if there is one now; it is held while the
    /// list is made.
    ///
    /// # Errors
    /// 503: as many lists of the plugin are under way as may be.
    pub(crate) fn listing_permit(&self, plugin: &str) -> Result<KeyGuard<'_, String>, Refusal> {
        self.lists.try_lock(plugin.to_owned()).ok_or_else(|| {
            let text = format!(
                "{LISTS_AT_ONCE} lists of plugin \"{plugin}\" are under way; try again later"
            );
            Refusal::new(Code::Unavailable, text)
        })
    }

    /// The calls that wait or run, by node and plugin, and the lists.
    #[cfg(test)]
    pub(crate) fn in_line(&self) -> (&KeyedLocks<(String, String)>, &KeyedLocks<String>) {
        (&self.lines, &self.lists)
    }

    /// The nodes whose controllers may be called, in the order in which they are.
    fn controllers(&self, plugin: &str, named: &str) -> Result<Vec<String>, Unanswered> {
        let view = self.projections.view();
        let none = || {
            let text = format!("failed to find clients running controller plugin \"{plugin}\"");
            Unanswered::Unreached(text)
        };
        let known = csi::plugin(&view, plugin)
            .map_err(unreadable)?
            .ok_or_else(none)?;
        if !named.is_empty() && !known.controllers.contains_key(named) {
            let text = format!("plugin \"{plugin}\" has no controller on node \"{named}\"");
            return Err(Unanswered::Refused(Refusal::by_rule(text)));
        }
        let mut nodes = Vec::new();
        for (node, _) in known.healthy_controllers() {
            let wanted = named.is_empty() || named == node;
            if wanted && is_ready(&view, node).map_err(unreadable)? {
                nodes.push(node.clone());
            }
        }
        if nodes.is_empty() {
            return Err(none());
        }
        nodes.retain(|node| self.reach.reaches(node));
        if nodes.is_empty() {
            let text = format!("no path to a node with a controller of plugin \"{plugin}\"");
            return Err(Unanswered::Unreached(text));
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len();
        nodes.rotate_left(first);
        Ok(nodes)
    }
}

/// What is recorded before a call.
pub(crate) type Before<'b> = dyn Fn() -> BoxFuture<'b, Result<(), Refusal>> + Sync + 'b;

fn nothing<'n>() -> BoxFuture<'n, Result<(), Refusal>> {
    ready(Ok(())).boxed()
}

/// How a call begins.
#[derive(Clone, Copy)]
struct Begun<'b> {
    decided: Decided,
    before: &'b Before<'b>,
}

/// When a call was decided: what it rests on is true while no other server has led.
#[derive(Clone, Copy)]
struct Decided {
    term: Option<u64>,
    /// It changes something outside.
    changes: bool,
}

impl Decided {
    fn now(calls: &PluginCalls, changes: bool) -> Self {
        let term = calls.lead.term();
        Self { term, changes }
    }

    fn holds(self, calls: &PluginCalls) -> bool {
        !self.changes || (self.term.is_some() && self.term == calls.lead.term())
    }
}

/// Whether a node is there and ready.
fn is_ready(view: &View, node: &str) -> Result<bool, StorageError> {
    let node = nodes::get(view, node)?;
    Ok(node.is_some_and(|node| node.status == node_status::READY))
}

fn unreadable(error: StorageError) -> Unanswered {
    Unanswered::Refused(Refusal::internal(chain(&error)))
}
