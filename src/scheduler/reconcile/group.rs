//! One group: from what there is to what should be, step by step.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_events::gojson::Time;
use drover_events::model::status::{client, trigger};
use drover_events::model::{AllocState, Allocation, DeploymentState, Job, TaskGroup};

use super::canary;
use super::classify::{Classes, is_server_terminal, is_terminal, lost_after, unknown_since};
use super::deploy::has_strategy;
use super::names::NameIndex;
use super::reschedule;
use super::stop::{Excess, MIGRATING, RESCHEDULED};
use super::{Alloc, Destructive, Place, Reconciler};

/// What a group has once everything was sorted.
struct Sorted {
    untainted: Vec<Alloc>,
    migrate: Vec<Alloc>,
    lost: Vec<Alloc>,
    reschedule_now: Vec<Alloc>,
    rescheduled_later: bool,
    canaries: Vec<Alloc>,
}

impl Reconciler<'_> {
    /// Works out one group; answers whether its deployment has nothing left to do.
    pub(super) fn group(&mut self, job: &Arc<Job>, name: &str, allocs: Vec<Alloc>) -> bool {
        self.result.desired.entry(name.to_owned()).or_default();
        let Some(group) = job.task_groups.iter().find(|g| g.name == name) else {
            let stopped = self.stop_all(allocs);
            self.desired(name).stop = stopped;
            return true;
        };
        let (mut state, existing) = self.deployment_state(group);
        let all = self.without_old_ones(job, name, allocs);
        let every = all.clone();
        let sorted = self.sort(name, all);
        let waiting = self.delay_lost(&sorted.lost);
        let taken = [
            &sorted.untainted,
            &sorted.migrate,
            &sorted.reschedule_now,
            &sorted.lost,
        ];
        let count = usize::try_from(group.count).unwrap_or(0);
        let taken = taken.into_iter().flatten().map(|a| a.name.as_str());
        let mut names = NameIndex::new(&job.id, name, count, taken);
        let canarying = state.desired_canaries != 0 && !state.promoted;
        let excess = Excess {
            group,
            names: &mut names,
            canaries: &sorted.canaries,
            canarying,
        };
        let (stopped, mut untainted, migrate) = self.stop_excess(
            excess,
            &sorted.lost,
            &waiting,
            sorted.untainted,
            sorted.migrate,
        );
        self.desired(name).stop += stopped;

        let (mut destructive, changed_in_place) = self.updates(job, group, &untainted);
        destructive.sort_by(|a, b| super::order_of(a).cmp(&super::order_of(b)));
        if !existing {
            state.desired_total += (destructive.len() + changed_in_place) as i64;
        }
        let canary_ids: BTreeSet<&str> = sorted.canaries.iter().map(|c| c.id.as_str()).collect();
        if canarying {
            untainted.retain(|a| !canary_ids.contains(a.id.as_str()));
        }
        let needs_canaries = canary::needed(group, &state, &destructive, &sorted.canaries);
        if needs_canaries {
            self.place_canaries(
                group,
                &mut state,
                &destructive,
                &sorted.canaries,
                &mut names,
            );
        }
        let canarying = state.desired_canaries != 0 && !state.promoted;
        let limit = self.limit(group, &untainted, canarying);
        let wants = Wants {
            former: self.former_count(name),
            placed: usize::try_from(state.placed_allocs).unwrap_or(0),
            name,
            count,
            canarying,
            untainted: untainted.len(),
            migrate: migrate.len(),
            reschedule: &sorted.reschedule_now,
            lost: &sorted.lost,
        };
        let place = if waiting.is_empty() {
            wants.placements(&mut names)
        } else {
            Vec::new()
        };
        if !existing {
            state.desired_total += place.len() as i64;
        }
        let left = (destructive.len(), migrate.len(), place.len());
        let ready = !self.paused && !self.failed && !canarying;
        let limit = self.limit_placements(ready, &wants, place, limit);
        self.replace(name, ready, destructive, limit);
        self.migrate(name, migrate, canarying);
        self.keep_state(
            job,
            group,
            existing,
            state,
            &every,
            left.0 + changed_in_place > 0,
        );
        let idle = left == (0, 0, 0)
            && changed_in_place == 0
            && sorted.reschedule_now.is_empty()
            && !sorted.rescheduled_later
            && !needs_canaries;
        idle && self.is_healthy(name)
    }

    /// How many the version before this one wanted.
    fn former_count(&self, name: &str) -> usize {
        let former = self.former.as_ref();
        let group = former.and_then(|job| job.task_groups.iter().find(|g| g.name == name));
        group.map_or(0, |group| usize::try_from(group.count).unwrap_or(0))
    }

    fn keep_state(
        &mut self,
        job: &Job,
        group: &TaskGroup,
        existing: bool,
        state: DeploymentState,
        all: &[Alloc],
        updating: bool,
    ) {
        if existing {
            let Some(deployment) = &mut self.deployment else {
                return;
            };
            let before = deployment.task_groups.get(&group.name);
            if before.is_some_and(|b| b.desired_canaries != state.desired_canaries) {
                deployment.task_groups.insert(group.name.as_str(), state);
                self.result.deployment = Some(deployment.clone());
            }
        } else {
            self.create_deployment(job, group, state, all, updating);
        }
    }

    pub(super) fn desired(&mut self, group: &str) -> &mut drover_events::model::DesiredUpdates {
        self.result.desired.entry(group.to_owned()).or_default()
    }

    /// For batch jobs, allocations of older versions that are over do not matter any more.
    fn without_old_ones(&mut self, job: &Job, name: &str, allocs: Vec<Alloc>) -> Vec<Alloc> {
        if !self.batch {
            return allocs;
        }
        let is_old = |alloc: &Allocation| {
            alloc
                .job
                .as_ref()
                .is_some_and(|own| own.version < job.version || own.create_index < job.create_index)
        };
        let before = allocs.len();
        let kept: Vec<Alloc> = allocs
            .into_iter()
            .filter(|a| !(is_old(a) && is_terminal(a)))
            .collect();
        self.desired(name).ignore += (before - kept.len()) as u64;
        kept
    }

    fn sort(&mut self, name: &str, all: Vec<Alloc>) -> Sorted {
        let (canaries, all) = self.reconcile_canaries(name, all);
        let classes = self.classify(all.clone());
        let Classes {
            mut untainted,
            migrate,
            mut lost,
            disconnecting,
            reconnecting,
            expired,
        } = classes;
        if !reconnecting.is_empty() {
            let (keep, stopped) = self.reconcile_reconnecting(reconnecting, &all);
            self.note_reconnected(name, &keep);
            self.desired(name).stop += stopped.len() as u64;
            untainted.retain(|a| !stopped.contains(&a.id));
            untainted.extend(keep);
        }
        lost.extend(expired);
        let mut now = Vec::new();
        let mut later = Vec::new();
        if !disconnecting.is_empty() {
            let sorted = self.rescheduling(disconnecting.clone(), true);
            now.extend(sorted.now);
            later.extend(sorted.later);
            untainted.extend(sorted.untainted);
            self.disconnect(name, disconnecting);
        }
        let sorted = self.rescheduling(untainted, false);
        now.extend(sorted.now);
        later.extend(sorted.later);
        let rescheduled_later = !later.is_empty();
        self.desired(name).reschedule_now += now.len() as u64;
        self.desired(name).reschedule_later += later.len() as u64;
        self.reschedule_later(later);
        let mut untainted = sorted.untainted;
        untainted.sort_by(|a, b| super::order_of(a).cmp(&super::order_of(b)));
        let reschedule_now = now;
        Sorted {
            untainted,
            migrate,
            lost,
            reschedule_now,
            rescheduled_later,
            canaries,
        }
    }

    /// Notes on allocations that their node is out of contact, and arranges for what happens if
    /// it stays so (SCH-01, SCH-02).
    fn disconnect(&mut self, name: &str, allocs: Vec<Alloc>) {
        self.desired(name).disconnect = allocs.len() as u64;
        let now = self.now;
        let mut due: Vec<(Alloc, i64)> = allocs
            .into_iter()
            .map(|alloc| {
                let window = lost_after(super::classify::own_group(&alloc));
                let since = if alloc.client_status == client::UNKNOWN {
                    unknown_since(&alloc).unwrap_or(now)
                } else {
                    now
                };
                (alloc, since.saturating_add(window))
            })
            .collect();
        due.sort_by(|a, b| (a.1, &a.0.id).cmp(&(b.1, &b.0.id)));
        let reason = (
            trigger::MAX_DISCONNECT_TIMEOUT,
            "created for delayed disconnect timeout",
        );
        for (alloc, follow_up) in self.batched(due, reason) {
            let mut updated = Allocation::clone(&alloc);
            updated.client_status = client::UNKNOWN.to_owned();
            updated.client_description =
                "alloc is unknown since its node is disconnected".to_owned();
            updated.followup_eval_id = follow_up;
            updated.alloc_states.push(AllocState {
                field: 0,
                value: client::UNKNOWN.to_owned(),
                time: Time(now),
            });
            self.result.attributes.push((alloc, updated));
        }
    }

    /// How many allocations may be replaced or added now.
    fn limit(&self, group: &TaskGroup, untainted: &[Alloc], canarying: bool) -> usize {
        let count = usize::try_from(group.count).unwrap_or(0);
        let Some(update) = group.update.as_ref().filter(|_| has_strategy(group)) else {
            return count;
        };
        let parallel = usize::try_from(update.max_parallel).unwrap_or(0);
        let Some(deployment) = &self.deployment else {
            return parallel;
        };
        if self.paused || self.failed || canarying {
            return 0;
        }
        let mut limit = parallel;
        for alloc in untainted
            .iter()
            .filter(|a| a.deployment_id == deployment.id)
        {
            match alloc.deployment_status.as_ref().and_then(|s| s.healthy) {
                Some(false) => return 0,
                Some(true) => {}
                None => limit = limit.saturating_sub(1),
            }
        }
        limit
    }

    /// Decides which of the wanted placements are made now.
    fn limit_placements(
        &mut self,
        ready: bool,
        wants: &Wants<'_>,
        place: Vec<Place>,
        limit: usize,
    ) -> usize {
        let name = wants.name;
        let failed: Vec<Alloc> = wants
            .reschedule
            .iter()
            .filter(|a| {
                let over = a.client_status == client::FAILED || reschedule::requested_for(a);
                over && !is_server_terminal(a)
            })
            .cloned()
            .collect();
        if ready {
            self.desired(name).place += place.len() as u64;
            self.desired(name).stop += failed.len() as u64;
            let left = limit.saturating_sub(place.len());
            for alloc in failed {
                self.stop_one(alloc, "", RESCHEDULED);
            }
            self.result.place.extend(place);
            return left;
        }
        let stoppable: BTreeSet<String> = failed.iter().map(|a| a.id.clone()).collect();
        let failed_deployment = self
            .deployment
            .as_ref()
            .filter(|_| self.failed)
            .map(|d| d.id.clone());
        let mut restored = wants.restored();
        for one in place {
            let previous = one.previous.clone();
            if one.reschedule {
                // What is gone already comes back; what is there stays, failed or not.
                let part_of_failed = previous.as_ref().is_some_and(|p| {
                    !is_server_terminal(p) && Some(&p.deployment_id) == failed_deployment.as_ref()
                });
                if part_of_failed {
                    continue;
                }
                if let Some(previous) = previous.filter(|p| stoppable.contains(&p.id)) {
                    self.desired(name).stop += 1;
                    self.stop_one(previous, "", RESCHEDULED);
                }
            } else if !one.lost {
                // What was there before comes back; what never had a place waits for the next
                // version.
                if restored == 0 {
                    continue;
                }
                restored -= 1;
            }
            self.desired(name).place += 1;
            self.result.place.push(one);
        }
        limit
    }

    fn replace(&mut self, name: &str, ready: bool, destructive: Vec<Alloc>, limit: usize) {
        let now = if ready {
            limit.min(destructive.len())
        } else {
            0
        };
        self.desired(name).destructive_update += now as u64;
        self.desired(name).ignore += (destructive.len() - now) as u64;
        let replaced = destructive.into_iter().take(now);
        self.result
            .destructive
            .extend(replaced.map(|old| Destructive { old }));
    }

    fn migrate(&mut self, name: &str, migrate: Vec<Alloc>, canarying: bool) {
        self.desired(name).migrate += migrate.len() as u64;
        for alloc in migrate {
            self.stop_one(Alloc::clone(&alloc), "", MIGRATING);
            if alloc.desired_transition.migrate_disable_placement == Some(true) {
                continue;
            }
            self.result.place.push(after(alloc, canarying));
        }
    }
}

fn is_canary(alloc: &Allocation) -> bool {
    alloc
        .deployment_status
        .as_ref()
        .is_some_and(|status| status.canary)
}

/// The one that takes over from an allocation.
fn after(previous: Alloc, canarying: bool) -> Place {
    let canary = is_canary(&previous);
    Place {
        name: previous.name.clone(),
        group: previous.task_group.clone(),
        canary,
        downgrade: canarying && !canary,
        min_version: previous.job.as_ref().map_or(0, |job| job.version),
        previous: Some(previous),
        ..Place::default()
    }
}

/// What a group has and wants.
struct Wants<'a> {
    name: &'a str,
    /// The count of the version before.
    former: usize,
    /// How many this version's deployment has placed.
    placed: usize,
    count: usize,
    canarying: bool,
    untainted: usize,
    migrate: usize,
    reschedule: &'a [Alloc],
    lost: &'a [Alloc],
}

impl Wants<'_> {
    /// How many that were there are missing while nothing new is placed: their node was drained,
    /// say, and there was no other. While canaries are out it is the former version that keeps its
    /// count; where a version was given up halfway, what it had placed is missing too.
    fn restored(&self) -> usize {
        let had = if self.canarying {
            self.former
        } else {
            self.former + self.placed
        };
        let there = self.untainted + self.migrate + self.reschedule.len() + self.lost.len();
        self.count.min(had).saturating_sub(there)
    }

    /// Reschedules first, then the lost, then new names, up to the count.
    fn placements(&self, names: &mut NameIndex) -> Vec<Place> {
        let mut place: Vec<Place> = Vec::new();
        let mut space = self.count.saturating_sub(self.untainted + self.migrate);
        for alloc in self.reschedule {
            // What is gone already is replaced up to the count only.
            if is_server_terminal(alloc) {
                if space == 0 {
                    continue;
                }
                space -= 1;
            }
            let wanted = after(Alloc::clone(alloc), self.canarying);
            place.push(Place {
                reschedule: true,
                ..wanted
            });
        }
        let mut existing = self.untainted + self.migrate + self.reschedule.len();
        for alloc in self.lost.iter().take(self.count.saturating_sub(existing)) {
            let wanted = after(Alloc::clone(alloc), self.canarying);
            place.push(Place {
                lost: true,
                ..wanted
            });
            existing += 1;
        }
        for name in names.next(self.count.saturating_sub(existing)) {
            place.push(Place {
                name,
                group: self.name.to_owned(),
                downgrade: self.canarying,
                ..Place::default()
            });
        }
        place
    }
}
