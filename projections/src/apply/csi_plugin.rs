//! CSI plugins: counts that follow from what nodes report and from the jobs that run them, moved
//! in the same batch as those (EV-08). A plugin of which nothing is left has no row (PLG-01).

use std::collections::BTreeSet;

use drover_events::csi::{CLAIMS_LEVEL, CSI_LEVEL, CsiPluginDeleted};
use drover_events::gojson::{Any, Map};
use drover_events::model::{CsiInfo, Job, Node};

use super::ApplyResult;
use super::cluster::supports;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::scan::Scan;
use crate::engine::txn::{Ctx, Txn};
use crate::query::csi;
use crate::tables::alloc_jobs::AllocJobs;
use crate::tables::allocs::AllocRow;
use crate::tables::csi_plugins::{CsiPluginRow, CsiPlugins};
use crate::tables::job_summaries::JobSummaries;
use crate::tables::jobs::Jobs;
use crate::tables::nodes::Nodes;

/// A plugin left over is removed; one that something still stands for is kept (PLG-03).
pub(super) fn deleted(txn: &mut Txn<'_>, _ctx: &Ctx, ev: &CsiPluginDeleted) -> ApplyResult {
    let Some(row) = txn.get::<CsiPlugins>(ev.id.as_str())? else {
        return Err(Refused::because(format!("plugin \"{}\" not found", ev.id)));
    };
    if row.in_use() {
        return Err(Refused::because("plugin in use"));
    }
    txn.delete::<CsiPlugins>(ev.id.as_str())?;
    Ok(Reply::None)
}

/// Whether a job runs plugins: most do not, and cost nothing more than this question.
pub(super) fn runs_plugins(job: &Job) -> bool {
    let mut tasks = job.task_groups.iter().flat_map(|group| group.tasks.iter());
    tasks.any(|task| task.csi_plugin_config.is_some())
}

/// Before every server derives plugins, none does: rows would differ.
fn derived(txn: &Txn<'_>) -> Result<bool, Refused> {
    supports(txn, CSI_LEVEL)
}

/// A node reports other plugins than before, or goes. To be called before its row is written.
pub(super) fn node_changed(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    old: Option<&Node>,
    new: Option<&Node>,
) -> Result<(), Refused> {
    let reports =
        |node: &Node| !node.csi_controller_plugins.is_empty() || !node.csi_node_plugins.is_empty();
    let same = old.zip(new).is_some_and(|(old, new)| {
        old.csi_controller_plugins == new.csi_controller_plugins
            && old.csi_node_plugins == new.csi_node_plugins
    });
    let any = old.is_some_and(reports) || new.is_some_and(reports);
    if same || !any || !derived(txn)? {
        return Ok(());
    }
    let nodes = old.into_iter().chain(new);
    let ids: BTreeSet<String> = nodes
        .flat_map(|node| {
            node.csi_controller_plugins
                .keys()
                .chain(node.csi_node_plugins.keys())
        })
        .cloned()
        .collect();
    let only_counting = supports(txn, CLAIMS_LEVEL)?;
    for id in ids {
        let was = reported(txn, old, &id)?;
        let is = reported(txn, new, &id)?;
        // What does not count is not believed either: one node would speak for all.
        let [by_controller, by_node] = is.map(|reported| reported.is_some() || !only_counting);
        let controller = new.and_then(|node| node.csi_controller_plugins.get(&id));
        let controller = controller.filter(|_| by_controller);
        let node = new.and_then(|node| node.csi_node_plugins.get(&id));
        let news = node.filter(|_| by_node).or(controller);
        change(txn, ctx, &id, |row| {
            row.add(&was, -1);
            row.add(&is, 1);
            if let Some(info) = news {
                row.describe(info, controller);
            }
        })?;
    }
    Ok(())
}

/// What counts of a node's report of one plugin: (controller, node), each with its health.
type Reported = [Option<bool>; 2];

fn reported(txn: &Txn<'_>, node: Option<&Node>, id: &str) -> Result<Reported, Refused> {
    let Some(node) = node else {
        return Ok([None, None]);
    };
    let mut reported = [None, None];
    let parts = [&node.csi_controller_plugins, &node.csi_node_plugins];
    for (reported, part) in reported.iter_mut().zip(parts) {
        if let Some(info) = part.get(id)
            && csi::counts(txn, id, info)?
        {
            *reported = Some(info.healthy);
        }
    }
    Ok(reported)
}

impl CsiPluginRow {
    fn add(&mut self, reported: &Reported, by: i64) {
        let plugin = &mut self.plugin;
        let [controller, node] = *reported;
        for (health, all, healthy) in [
            (
                controller,
                &mut self.controllers,
                &mut plugin.controllers_healthy,
            ),
            (node, &mut self.nodes, &mut plugin.nodes_healthy),
        ] {
            let Some(is_healthy) = health else {
                continue;
            };
            *all = (*all + by).max(0);
            if is_healthy {
                *healthy = (*healthy + by).max(0);
            }
        }
    }

    /// Takes over what the plugin says of itself.
    fn describe(&mut self, info: &CsiInfo, controller: Option<&CsiInfo>) {
        self.plugin.provider.clone_from(&info.provider);
        self.plugin.version.clone_from(&info.provider_version);
        self.plugin.controller_required = info.requires_controller_plugin;
        if let Some(can) = controller.and_then(|info| info.controller_info.as_ref()) {
            self.reported = true;
            self.attaches = can.supports_attach_detach;
        }
    }

    /// Whether a node reports it or a job wants it.
    pub fn in_use(&self) -> bool {
        let any = |jobs: &Map<Map<Any>>| jobs.values().any(|jobs| !jobs.is_empty());
        let plugin = &self.plugin;
        self.controllers > 0
            || self.nodes > 0
            || any(&plugin.controller_jobs)
            || any(&plugin.node_jobs)
    }

    fn expect(&mut self) {
        let sum = |jobs: &Map<Map<Any>>| -> i64 {
            let jobs = jobs.values().flat_map(|jobs| jobs.values());
            jobs.filter_map(|job| job.get("Expected")?.as_i64()).sum()
        };
        self.plugin.controllers_expected = sum(&self.plugin.controller_jobs);
        self.plugin.nodes_expected = sum(&self.plugin.node_jobs);
    }
}

/// Changes the row of a plugin: it is made if it is not there, and goes when nothing is left.
fn change(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    change: impl FnOnce(&mut CsiPluginRow),
) -> Result<(), Refused> {
    let known = txn.get::<CsiPlugins>(id)?;
    let mut row = known.as_deref().cloned().unwrap_or_else(|| {
        let mut row = CsiPluginRow::default();
        row.plugin.id = id.to_owned();
        row.plugin.create_index = ctx.index;
        row.plugin.create_time = ctx.time;
        row
    });
    change(&mut row);
    row.expect();
    if !row.in_use() {
        txn.delete::<CsiPlugins>(id)?;
    } else if known.is_none_or(|known| *known != row) {
        row.plugin.modify_index = ctx.index;
        row.plugin.modify_time = ctx.time;
        txn.put::<CsiPlugins>(row)?;
    }
    Ok(())
}

/// A job is registered, changed, stopped or purged. To be called before its row is written.
pub(super) fn job_changed(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    old: Option<&Job>,
    new: Option<&Job>,
) -> Result<(), Refused> {
    let any = |job: Option<&Job>| job.is_some_and(runs_plugins);
    if !(any(old) || any(new)) || !derived(txn)? {
        return Ok(());
    }
    let jobs = old.into_iter().chain(new);
    let ids: BTreeSet<String> = jobs.flat_map(csi::plugins_of_job).collect();
    for id in ids {
        expect_of(txn, ctx, &id, old.or(new), new)?;
    }
    Ok(())
}

/// Sets what is expected of a plugin from one job; `named` says which job, `job` is as it is now.
fn expect_of(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    id: &str,
    named: Option<&Job>,
    job: Option<&Job>,
) -> Result<(), Refused> {
    let Some(named) = named else {
        return Ok(());
    };
    let expected = match job.filter(|job| !job.stop && !job.has_children()) {
        Some(job) => expected(txn, job, id)?,
        None => [None, None],
    };
    change(txn, ctx, id, |row| {
        let parts = [&mut row.plugin.controller_jobs, &mut row.plugin.node_jobs];
        for (jobs, expected) in parts.into_iter().zip(expected) {
            set_job(jobs, named, expected);
        }
    })
}

fn set_job(jobs: &mut Map<Map<Any>>, job: &Job, expected: Option<i64>) {
    match expected {
        Some(expected) => {
            let job_entry = serde_json::json!({
                "Namespace": job.namespace, "ID": job.id, "Expected": expected,
            });
            let known = jobs.to_mut().entry(job.namespace.clone()).or_default();
            known.insert(job.id.as_str(), job_entry);
        }
        None => {
            if let Some(known) = jobs.get_mut(&job.namespace) {
                known.remove(&job.id);
                if known.is_empty() {
                    jobs.remove(&job.namespace);
                }
            }
        }
    }
}

/// How many controllers and nodes of the plugin the job wants: by the counts of its groups, or for
/// one that runs on every node by how many there are.
fn expected(txn: &Txn<'_>, job: &Job, id: &str) -> Result<[Option<i64>; 2], Refused> {
    let everywhere = job.is_system();
    let summary = match everywhere {
        true => txn.get::<JobSummaries>((job.namespace.as_str(), job.id.as_str()))?,
        false => None,
    };
    let mut expected = [None, None];
    for group in job.task_groups.iter() {
        let Some((controller, node)) = csi::runs(group, id) else {
            continue;
        };
        let count = match everywhere {
            false => group.count,
            true => summary
                .as_ref()
                .and_then(|summary| summary.summary.get(&group.name))
                .map_or(0, |group| group.starting + group.running + group.unknown),
        };
        for (expected, runs) in expected.iter_mut().zip([controller, node]) {
            if runs {
                *expected = Some(expected.unwrap_or(0) + count);
            }
        }
    }
    Ok(expected)
}

/// Allocations of jobs that run plugins, as one event moves them.
#[derive(Default)]
pub(super) struct Moves {
    jobs: BTreeSet<(String, String)>,
    parts: Vec<PluginPart>,
}

/// A part of a plugin whose allocation ended, or is there again.
struct PluginPart {
    plugin: String,
    reported: Reported,
    by: i64,
}

impl Moves {
    /// Notes that an allocation is written or removed.
    pub(super) fn note(
        &mut self,
        txn: &Txn<'_>,
        before: Option<&AllocRow>,
        after: Option<&AllocRow>,
    ) -> Result<(), Refused> {
        let Some(row) = after.or(before) else {
            return Ok(());
        };
        let alloc = &row.alloc;
        self.jobs
            .insert((alloc.namespace.clone(), alloc.job_id.clone()));
        let stands = |row: Option<&AllocRow>| row.is_some_and(|row| !row.alloc.client_terminal());
        let by = i64::from(stands(after)) - i64::from(stands(before));
        if by == 0 {
            return Ok(());
        }
        let Some(node) = txn.get::<Nodes>(alloc.node_id.as_str())? else {
            return Ok(());
        };
        let ours = |info: Option<&CsiInfo>| {
            let info = info.filter(|info| info.alloc_id == alloc.id);
            info.map(|info| info.healthy)
        };
        let Some(job) = txn.get::<AllocJobs>(&row.job_key())? else {
            return Ok(());
        };
        let group = csi::group_of(&job, &alloc.task_group);
        let (controllers, nodes) = (&node.csi_controller_plugins, &node.csi_node_plugins);
        let ids: BTreeSet<&String> = controllers.keys().chain(nodes.keys()).collect();
        for id in ids {
            if group.and_then(|group| csi::runs(group, id)).is_none() {
                continue;
            }
            let reported = [ours(controllers.get(id)), ours(nodes.get(id))];
            if reported != [None, None] {
                let plugin = id.clone();
                self.parts.push(PluginPart {
                    plugin,
                    reported,
                    by,
                });
            }
        }
        Ok(())
    }

    /// Writes the plugins that moved. To be called when summaries are written.
    pub(super) fn write_moved(self, txn: &mut Txn<'_>, ctx: &Ctx) -> Result<(), Refused> {
        if self.jobs.is_empty() || !derived(txn)? {
            return Ok(());
        }
        for part in &self.parts {
            change(txn, ctx, &part.plugin, |row| {
                row.add(&part.reported, part.by)
            })?;
        }
        for (namespace, id) in &self.jobs {
            let key = (namespace.as_str(), id.as_str());
            if let Some(job) = txn.get::<Jobs>(key)? {
                for plugin in csi::plugins_of_job(&job) {
                    expect_of(txn, ctx, &plugin, Some(&job), Some(&job))?;
                }
            }
        }
        Ok(())
    }
}

/// Counts what nodes report, once, when every server begins to derive plugins. Jobs that run
/// plugins were refused until then.
pub(super) fn count_nodes(txn: &mut Txn<'_>, ctx: &Ctx) -> Result<(), Refused> {
    let scan = txn.by_index_scan::<crate::tables::nodes::NodesByPlugin>(Scan::all());
    let nodes: Vec<_> = scan.collect::<Result<_, _>>()?;
    let mut seen = BTreeSet::new();
    for node in nodes {
        if seen.insert(node.id.clone()) {
            node_changed(txn, ctx, None, Some(&node))?;
        }
    }
    Ok(())
}
