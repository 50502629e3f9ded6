//! Calls to plugins: one place that chooses the node, checks it and asks it (PLG-05, PLG-06).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drover_projections::query::csi;
use drover_projections::{Projections, StorageError};
use tokio::time::timeout;

use super::is_ready;
use super::keyed::Keyed;
use crate::error::{ApiError, chain};
use crate::rpc::Rpc;
use crate::rpc::asked::{Reach, Unanswered, call};
use crate::rpc::csi::AskController;

/// How long calls may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A controller: a little longer than its own client waits for the plugin.
    pub controller: Duration,
    /// A node: it makes two calls.
    pub node: Duration,
    /// A list, for which somebody waits.
    pub list: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            controller: Duration::from_secs(150),
            node: Duration::from_secs(270),
            list: Duration::from_secs(60),
        }
    }
}

/// Calls of one plugin that are under way on one node: the rest waits here, where it is no burden
/// to the node, and nobody else's calls wait with it.
const AT_ONCE: usize = 64;

/// Calls to plugins on client nodes.
pub(super) struct Shim {
    /// By node and plugin.
    lines: Keyed<(String, String)>,
    projections: Arc<Projections>,
    reach: Arc<dyn Reach>,
    /// Controllers have their turn one after the other.
    turn: AtomicUsize,
    limits: Limits,
}

impl Shim {
    pub(super) fn new(
        projections: Arc<Projections>,
        reach: Arc<dyn Reach>,
        limits: Limits,
    ) -> Self {
        Self {
            limits,
            projections,
            reach,
            turn: AtomicUsize::new(0),
            lines: Keyed::of(AT_ONCE),
        }
    }

    /// Asks a controller of the plugin: the one on the node that the request names, or else one
    /// that is healthy on a node that is ready and reached, and the next where that cannot now. All
    /// calls bear being repeated, so one that may have been done is made again elsewhere.
    pub(super) async fn controller<R>(&self, mut asked: R::Req) -> Result<R::Res, Unanswered>
    where
        R: AskController,
    {
        let (plugin, node) = R::of(&mut asked);
        let nodes = self.controllers(plugin, node)?;
        let plugin = plugin.to_owned();
        let mut failed = None;
        for node in nodes {
            R::of(&mut asked).1.clone_from(&node);
            let limit = match R::NAME.contains("List") {
                true => self.limits.list,
                false => self.limits.controller,
            };
            match self.ask::<R>((&node, &plugin), &asked, limit).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_recoverable() => {
                    tracing::debug!(method = R::NAME, node, %error, "the next controller is asked");
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        // Those that were chosen are never none.
        Err(failed.unwrap_or_else(|| Unanswered::Unreached("no controller was asked".to_owned())))
    }

    /// Asks a plugin on a node.
    pub(super) async fn node<R: Rpc>(
        &self,
        (node, plugin): (&str, &str),
        asked: &R::Req,
    ) -> Result<R::Res, Unanswered> {
        let ready = is_ready(&self.projections.view(), node).map_err(unreadable)?;
        if !ready {
            let text = format!("node \"{node}\" is not ready");
            return Err(Unanswered::Unreached(text));
        }
        self.ask::<R>((node, plugin), asked, self.limits.node).await
    }

    async fn ask<R: Rpc>(
        &self,
        (node, plugin): (&str, &str),
        asked: &R::Req,
        limit: Duration,
    ) -> Result<R::Res, Unanswered> {
        let _turn = self.lines.turn((node.to_owned(), plugin.to_owned())).await;
        let late = |_| Unanswered::Unsure(format!("no answer to {} within {limit:?}", R::NAME));
        let answered = timeout(limit, call::<R>(&*self.reach, node, asked, limit));
        answered.await.map_err(late)?
    }

    /// The nodes whose controllers may be asked, in the order in which they are.
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
            return Err(Unanswered::Refused(ApiError::refused(text)));
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

fn unreadable(error: StorageError) -> Unanswered {
    Unanswered::Refused(ApiError::internal(chain(&error)))
}
