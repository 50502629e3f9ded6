//! The searches of one evaluation: one for the job's own version, and one for each version before
//! it that is placed once more, for what that version requests and by its constraints. They share
//! what the plan has changed so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_events::model::Job;

use super::cluster::{Cluster, Demand};
use super::rank::{PlacementRequest, Search, Selection, Stack, StackOptions};

/// A version before the job's own, and how it is searched for.
pub(super) type Former = (Arc<Job>, StackOptions);

/// What the plan changed: the node, the group, and what is taken or given back there.
struct PlanChange {
    node: String,
    group: String,
    demand: Demand,
    adds: bool,
}

pub(super) struct Searches<'c> {
    own: Stack<'c>,
    version: u64,
    former: BTreeMap<u64, Stack<'c>>,
    /// The options of the versions before.
    options: BTreeMap<u64, StackOptions>,
    /// Live allocations before the plan: node and group.
    live: Vec<(String, String)>,
    changes: Vec<PlanChange>,
    explained: bool,
}

impl<'c> Searches<'c> {
    /// For a job, where these of its allocations are live, and these versions came before.
    pub(super) fn new(
        cluster: &'c Cluster,
        (job, options): Former,
        former: &[Former],
        live: Vec<(String, String)>,
        explained: bool,
    ) -> Self {
        let version = job.version;
        let own = made(cluster, job, options, &live, explained);
        let options = former.iter();
        let options = options.map(|(job, options)| (job.version, options.clone()));
        Self {
            own,
            version,
            former: BTreeMap::new(),
            options: options.collect(),
            live,
            changes: Vec::new(),
            explained,
        }
    }

    /// The search of the job's own version.
    pub(super) fn own(&mut self) -> &mut Stack<'c> {
        &mut self.own
    }

    /// The cluster that is searched.
    pub(super) fn cluster(&self) -> &'c Cluster {
        self.own.cluster()
    }

    /// The plan stops a live allocation of the job.
    pub(super) fn stop(&mut self, node: &str, group: &str, demand: &Demand) {
        self.change(node, group, demand, false);
    }

    /// The plan adds an allocation of the job, or takes a stop back.
    pub(super) fn add(&mut self, node: &str, group: &str, demand: &Demand) {
        self.change(node, group, demand, true);
    }

    fn change(&mut self, node: &str, group: &str, demand: &Demand, adds: bool) {
        let change = PlanChange {
            node: node.to_owned(),
            group: group.to_owned(),
            demand: demand.clone(),
            adds,
        };
        apply(&mut self.own, &change);
        if self.options.is_empty() {
            return;
        }
        for stack in self.former.values_mut() {
            apply(stack, &change);
        }
        self.changes.push(change);
    }

    /// Looks for a node for one allocation of a group of this version of the job.
    pub(super) fn select(
        &mut self,
        job: &Arc<Job>,
        wanted: PlacementRequest<'_>,
        penalty: &BTreeSet<u32>,
        preferred: Option<u32>,
    ) -> Selection {
        let options = self.options.get(&job.version);
        let Some(options) = options.filter(|_| job.version != self.version) else {
            return self.own.select(wanted, penalty, preferred);
        };
        let stack = self.former.entry(job.version).or_insert_with(|| {
            let cluster = self.own.cluster();
            let job = Arc::clone(job);
            let mut stack = made(cluster, job, options.clone(), &self.live, self.explained);
            for change in &self.changes {
                apply(&mut stack, change);
            }
            stack
        });
        stack.select(wanted, penalty, preferred)
    }

    /// Which classes of nodes may run the job in one of its versions, as far as was looked at.
    pub(super) fn class_eligibility(&self) -> BTreeMap<String, bool> {
        let mut classes = self.own.class_eligibility();
        for stack in self.former.values() {
            for (class, eligible) in stack.class_eligibility() {
                *classes.entry(class).or_default() |= eligible;
            }
        }
        classes
    }

    /// Whether some constraint depends on more than the class.
    pub(super) fn escaped(&self) -> bool {
        self.own.escaped() || self.former.values().any(Stack::escaped)
    }

    /// What was recorded, the job's own version first.
    pub(super) fn take_searches(&mut self) -> Vec<Search> {
        let mut searches = self.own.take_searches();
        for stack in self.former.values_mut() {
            searches.extend(stack.take_searches());
        }
        searches
    }
}

fn made<'c>(
    cluster: &'c Cluster,
    job: Arc<Job>,
    options: StackOptions,
    live: &[(String, String)],
    explained: bool,
) -> Stack<'c> {
    let mut stack = Stack::new(cluster, job, options);
    if explained {
        stack.record();
    }
    for (node, group) in live {
        stack.is_live(node, group);
    }
    stack
}

fn apply(stack: &mut Stack<'_>, change: &PlanChange) {
    let PlanChange {
        node,
        group,
        demand,
        adds,
    } = change;
    match adds {
        true => stack.add(node, group, demand),
        false => stack.stop(node, group, demand),
    }
}

#[cfg(test)]
mod tests {
    use drover_testkit::fixtures::{job, node};

    use super::*;

    fn of_version(version: u64) -> Former {
        let mut spec = job("service", 2);
        spec.version = version;
        let resources = spec.task_groups[0].tasks[0].resources.as_mut();
        resources.expect("it requests some").memory_mb = 5_000;
        let options = StackOptions {
            spread: false,
            oversubscription: false,
            wide_limit: 100,
            batch: false,
            seed: 1,
        };
        (Arc::new(spec), options)
    }

    #[test]
    fn the_search_of_a_former_version_knows_what_was_placed_since_and_is_recorded() {
        let mut cluster = Cluster::default();
        cluster.upsert_node(node(0));
        let former = [of_version(0)];
        let mut searches = Searches::new(&cluster, of_version(1), &former, Vec::new(), true);
        let wanted = PlacementRequest {
            group: "g",
            name: "j.g[0]",
        };
        let none = BTreeSet::new();
        let first = searches.select(&former[0].0, wanted, &none, None);
        let first = first.choice.expect("it fits");
        searches.add(&node(0).id, "g", &first.demand);
        let second = searches.select(&former[0].0, wanted, &none, None);
        assert!(second.choice.is_none(), "there is room for one");
        assert_eq!(second.metric.dimension_exhausted.get("memory"), Some(&1));
        let recorded = searches.take_searches();
        let chosen: Vec<Vec<String>> = recorded.into_iter().map(|search| search.chosen).collect();
        assert_eq!(chosen, [vec![node(0).id], Vec::new()]);
    }
}
