//! Removing what is over: many things with one event, and where that is refused, fewer and fewer,
//! until what is wrong is found and the others are gone. What apply could not read all of is
//! refused as well: the commands here are tried out first ([`Command::is_tried`]).

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::sync::Arc;

use drover_projections::StorageError;
use drover_projections::tables::allocs::Allocs;
use drover_projections::tables::deployments::Deployments;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::nodes::Nodes;

use super::Collected;
use super::over::{Over, What};
use crate::commands::Command;
use crate::commands::deployment::DeleteDeployments;
use crate::commands::eval::ReapEvals;
use crate::commands::job::PurgeJobs;
use crate::commands::node::DeregisterNodes;
use crate::error::{Code, Refusal};
use crate::reactors::each::Each;
use crate::reactors::runner::{Context, Failure};

/// How many rows one event removes, roughly.
pub(super) const BATCH: usize = 400;

/// One pass over what is over.
pub(super) struct Sweep<'a> {
    context: &'a Context,
    each: &'a mut Each,
    /// What failed in the pass before: the others have this one to themselves.
    deferred: BTreeSet<String>,
    failed: BTreeSet<String>,
    collected: Collected,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(
        context: &'a Context,
        each: &'a mut Each,
        deferred: BTreeSet<String>,
    ) -> Self {
        Self {
            context,
            each,
            deferred,
            failed: BTreeSet::new(),
            collected: Collected::default(),
        }
    }

    /// Where failures are noted.
    pub(super) fn each(&mut self) -> &mut Each {
        self.each
    }

    /// Whether this is left for the next pass.
    pub(super) fn is_deferred(&self, over: &Over) -> bool {
        !self.deferred.is_empty() && self.deferred.contains(&over.name())
    }

    /// What went, and what could not go.
    pub(super) fn end(self) -> (Collected, BTreeSet<String>) {
        (self.collected, self.failed)
    }

    /// Removes all of it.
    ///
    /// # Errors
    /// Nothing can be written here now.
    pub(super) async fn remove(&mut self, found: Vec<Over>) -> Result<(), Failure> {
        let mut todo = batches(found);
        todo.reverse();
        while let Some(mut batch) = todo.pop() {
            let Err(error) = self.submit(&batch).await else {
                self.note(&batch)?;
                continue;
            };
            if matches!(
                error.code,
                Code::NoLeader | Code::Unavailable | Code::Timeout
            ) {
                return Err(error.into());
            }
            let rest = batch.split_off(batch.len() / 2);
            match batch.is_empty() {
                true => self.fail(&rest, &error),
                false => todo.extend([rest, batch]),
            }
        }
        Ok(())
    }

    async fn submit(&self, batch: &[Over]) -> Result<(), Refusal> {
        for command in commands(batch) {
            self.context.proposer.submit(command, "core_gc").await?;
        }
        Ok(())
    }

    fn fail(&mut self, one: &[Over], error: &Refusal) {
        for over in one {
            let name = over.name();
            self.each.fail(&name, error);
            self.failed.insert(name);
        }
    }

    /// Counts what is not there any more. What was written to since it was found is passed over
    /// where it would have gone.
    fn note(&mut self, batch: &[Over]) -> Result<(), StorageError> {
        let view = self.context.projections.view();
        let to = &mut self.collected;
        for over in batch {
            for id in &over.evals {
                to.evals += usize::from(!view.contains::<Evals>(id.as_str())?);
            }
            for id in &over.allocs {
                to.allocs += usize::from(!view.contains::<Allocs>(id.as_str())?);
            }
            match &over.what {
                What::Eval => {}
                What::Job(namespace, id, _) => {
                    let key = (namespace.as_str(), id.as_str());
                    to.jobs += usize::from(!view.contains::<Jobs>(key)?);
                }
                What::Deployment(id) => {
                    let known = view.modify_index::<Deployments>(id.as_str())?;
                    to.deployments += usize::from(known.is_none());
                }
                What::Node(id) => {
                    to.nodes += usize::from(!view.contains::<Nodes>(id.as_str())?);
                }
            }
        }
        Ok(())
    }
}

/// Things of one kind in lists that one event removes.
fn batches(found: Vec<Over>) -> Vec<Vec<Over>> {
    let mut batches: Vec<Vec<Over>> = Vec::new();
    let mut rows = 0;
    for over in found {
        let more = over.rows();
        match batches.last_mut() {
            Some(last)
                if rows + more <= BATCH
                    && last.first().is_some_and(|first| {
                        discriminant(&first.what) == discriminant(&over.what)
                    }) =>
            {
                rows += more;
                last.push(over);
            }
            _ => {
                rows = more;
                batches.push(vec![over]);
            }
        }
    }
    batches
}

/// What removes a batch: evaluations and allocations first, then what they belonged to.
fn commands(batch: &[Over]) -> Vec<Arc<dyn Command>> {
    let eval_ids: Vec<String> = batch.iter().flat_map(|over| over.evals.clone()).collect();
    let alloc_ids: Vec<String> = batch.iter().flat_map(|over| over.allocs.clone()).collect();
    let (mut jobs, mut deployments, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    for over in batch {
        match &over.what {
            What::Eval => {}
            What::Job(namespace, id, index) => jobs.push((namespace.clone(), id.clone(), *index)),
            What::Deployment(id) => deployments.push(id.clone()),
            What::Node(id) => nodes.push(id.clone()),
        }
    }
    let mut commands: Vec<Arc<dyn Command>> = Vec::new();
    if !eval_ids.is_empty() || !alloc_ids.is_empty() {
        commands.push(Arc::new(ReapEvals {
            eval_ids,
            alloc_ids,
        }));
    }
    if !jobs.is_empty() {
        commands.push(Arc::new(PurgeJobs { jobs }));
    }
    if !deployments.is_empty() {
        commands.push(Arc::new(DeleteDeployments { ids: deployments }));
    }
    if !nodes.is_empty() {
        commands.push(Arc::new(DeregisterNodes { node_ids: nodes }));
    }
    commands
}
