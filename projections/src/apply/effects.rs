//! What follows from writes of allocations, gathered over one event and written once at its end:
//! the use of nodes, the summaries and statuses of jobs, the counters of deployments, and the
//! specifications that allocations name.

use std::collections::BTreeMap;

use drover_events::gojson::Time;
use drover_events::model::status::client;
use drover_events::model::{Allocation, Deployment, TaskGroupSummary};

use super::csi_plugin;
use super::job::status::{self, JobTouch};
use super::job::{spec, summary};
use super::usage::{self, UseDelta};
use crate::engine::outcome::Refused;
use crate::engine::txn::{Ctx, Txn};
use crate::tables::allocs::AllocRow;
use crate::tables::deployments::Deployments;

/// The gathered effects of one event.
#[derive(Default)]
pub(super) struct Effects {
    jobs: BTreeMap<(String, String), JobEffect>,
    nodes: BTreeMap<String, UseDelta>,
    deployments: BTreeMap<String, BTreeMap<String, GroupEffect>>,
    specs: BTreeMap<spec::Name, SpecEffect>,
    plugins: csi_plugin::Moves,
    evals_deleted: bool,
}

#[derive(Default)]
struct JobEffect {
    live: bool,
    create_index: u64,
    groups: BTreeMap<String, TaskGroupSummary>,
}

#[derive(Default)]
struct SpecEffect {
    create_index: u64,
    runs_plugins: bool,
    count: i64,
    live: i64,
}

/// What changes of one group of a deployment.
#[derive(Default)]
struct GroupEffect {
    placed: i64,
    healthy: i64,
    unhealthy: i64,
    newly_healthy: bool,
    canaries: Vec<String>,
}

impl Effects {
    /// Notes that an allocation is written: `before` is the row there was.
    pub(super) fn written(
        &mut self,
        txn: &mut Txn<'_>,
        before: Option<&AllocRow>,
        after: &AllocRow,
    ) -> Result<(), Refused> {
        let create_index = self.move_spec(txn, before, after)?;
        let alloc = &after.alloc;
        let job = self
            .jobs
            .entry((alloc.namespace.clone(), alloc.job_id.clone()))
            .or_default();
        job.live |= !alloc.terminal_status();
        job.create_index = job.create_index.max(create_index);
        if job.create_index == create_index {
            let group = job.groups.entry(alloc.task_group.clone()).or_default();
            summary::count(group, before.map(|row| &row.alloc), alloc);
        }
        self.note_use(before.map(|row| &row.alloc), alloc);
        self.note_deployment(before.map(|row| &row.alloc), alloc);
        Ok(())
    }

    /// Notes that an allocation is removed.
    pub(super) fn removed(&mut self, txn: &mut Txn<'_>, before: &AllocRow) -> Result<(), Refused> {
        let alloc = &before.alloc;
        let effect = self.spec(txn, spec::Name::of(before), &alloc.id)?;
        effect.count -= 1;
        effect.live -= i64::from(!alloc.terminal_status());
        if effect.runs_plugins {
            self.plugins.note(txn, Some(before), None)?;
        }
        self.jobs
            .entry((alloc.namespace.clone(), alloc.job_id.clone()))
            .or_default();
        if usage::holds(alloc) {
            self.nodes
                .entry(alloc.node_id.clone())
                .or_default()
                .release(alloc);
        }
        Ok(())
    }

    /// The event deletes evaluations: a job of which nothing is left is dead then, not pending.
    pub(super) fn note_evals_deleted(&mut self) {
        self.evals_deleted = true;
    }

    /// The job is touched, and its status is derived again.
    pub(super) fn touch_job(&mut self, namespace: &str, id: &str) {
        self.jobs
            .entry((namespace.to_owned(), id.to_owned()))
            .or_default();
    }

    /// What fits on the node changed by this event, so plans made before it are rejected.
    pub(super) fn mark_node(&mut self, node: &str) {
        self.nodes.entry(node.to_owned()).or_default().mark = true;
    }

    /// Writes everything gathered.
    pub(super) fn write_gathered(self, txn: &mut Txn<'_>, ctx: &Ctx) -> Result<(), Refused> {
        for (name, effect) in &self.specs {
            spec::add_counts(txn, name, effect.count, effect.live)?;
        }
        for (node, delta) in &self.nodes {
            usage::apply(txn, ctx, node, delta)?;
        }
        for (id, groups) in &self.deployments {
            write_deployment(txn, ctx, id, groups)?;
        }
        for ((namespace, id), effect) in &self.jobs {
            summary::add(
                txn,
                ctx,
                (namespace, id),
                effect.create_index,
                &effect.groups,
            )?;
            let touch = JobTouch {
                live: effect.live,
                evals_deleted: self.evals_deleted,
            };
            status::refresh_after(txn, ctx, (namespace, id), touch)?;
        }
        self.plugins.write_moved(txn, ctx)?;
        Ok(())
    }

    /// Moves the counts of specifications; gives the create index of the one named now.
    fn move_spec(
        &mut self,
        txn: &mut Txn<'_>,
        before: Option<&AllocRow>,
        after: &AllocRow,
    ) -> Result<u64, Refused> {
        if let Some(before) = before {
            let live = i64::from(!before.alloc.terminal_status());
            let effect = self.spec(txn, spec::Name::of(before), &before.alloc.id)?;
            effect.count -= 1;
            effect.live -= live;
        }
        let live = i64::from(!after.alloc.terminal_status());
        let effect = self.spec(txn, spec::Name::of(after), &after.alloc.id)?;
        effect.count += 1;
        effect.live += live;
        let create_index = effect.create_index;
        if effect.runs_plugins {
            self.plugins.note(txn, before, Some(after))?;
        }
        Ok(create_index)
    }

    fn spec(
        &mut self,
        txn: &mut Txn<'_>,
        name: spec::Name,
        alloc: &str,
    ) -> Result<&mut SpecEffect, Refused> {
        use std::collections::btree_map::Entry;
        Ok(match self.specs.entry(name) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let job = spec::resolve(txn, entry.key(), alloc)?;
                entry.insert(SpecEffect {
                    create_index: job.create_index,
                    runs_plugins: csi_plugin::runs_plugins(&job),
                    ..SpecEffect::default()
                })
            }
        })
    }

    fn note_use(&mut self, before: Option<&Allocation>, after: &Allocation) {
        let held = before.filter(|alloc| usage::holds(alloc));
        let holds = usage::holds(after);
        if let Some(held) = held
            && holds
            && held.node_id == after.node_id
            && held.allocated_resources == after.allocated_resources
        {
            return;
        }
        if let Some(held) = held {
            self.nodes
                .entry(held.node_id.clone())
                .or_default()
                .release(held);
        }
        if holds {
            self.nodes
                .entry(after.node_id.clone())
                .or_default()
                .take(after);
        }
    }

    fn note_deployment(&mut self, before: Option<&Allocation>, after: &Allocation) {
        if after.deployment_id.is_empty() {
            return;
        }
        let was = before.filter(|alloc| alloc.deployment_id == after.deployment_id);
        let (health, now) = (was.and_then(Allocation::health), after.health());
        if was.is_some() && health == now {
            return;
        }
        let group = self
            .deployments
            .entry(after.deployment_id.clone())
            .or_default()
            .entry(after.task_group.clone())
            .or_default();
        if was.is_none() {
            group.placed += 1;
            if after.is_canary() {
                group.canaries.push(after.id.clone());
            }
        }
        if health != now {
            group.healthy += i64::from(now == Some(true)) - i64::from(health == Some(true));
            group.unhealthy += i64::from(now == Some(false)) - i64::from(health == Some(false));
            group.newly_healthy |= now == Some(true);
        }
    }
}

/// Moves a deployment's counters, and its deadlines by the servers' time (EV-15).
fn write_deployment(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    groups: &BTreeMap<String, GroupEffect>,
) -> Result<(), Refused> {
    let Some(known) = txn.get::<Deployments>(id)? else {
        return Ok(());
    };
    let mut row = Deployment::clone(&known);
    for (name, effect) in groups {
        let Some(group) = row.task_groups.get_mut(name) else {
            return Err(Refused::because(format!(
                "task group \"{name}\" is not part of deployment \"{id}\""
            )));
        };
        group.placed_allocs += effect.placed;
        group.healthy_allocs = (group.healthy_allocs + effect.healthy).max(0);
        group.unhealthy_allocs = (group.unhealthy_allocs + effect.unhealthy).max(0);
        for canary in &effect.canaries {
            if !group.placed_canaries.contains(canary) {
                group.placed_canaries.push(canary.clone());
            }
        }
        let starts = effect.placed > 0 && group.require_progress_by == Time::default();
        if group.progress_deadline != 0 && (starts || effect.newly_healthy) {
            let by = Time(ctx.time.saturating_add(group.progress_deadline));
            group.require_progress_by = group.require_progress_by.max(by);
        }
    }
    row.modify_index = ctx.index;
    row.modify_time = ctx.time;
    txn.put::<Deployments>(row)?;
    Ok(())
}

/// Whether a client brought an allocation back that was taken for unreachable.
pub(super) fn came_back(before: &Allocation, after: &Allocation) -> bool {
    before.client_status == client::UNKNOWN && after.client_status != client::UNKNOWN
}
