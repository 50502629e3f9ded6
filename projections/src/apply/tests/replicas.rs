//! EV-12: databases that are fed one log are equal, however it is cut into batches.

use drover_events::cluster::SchedulerConfigured;
use drover_events::eval::EvalsDeleted;
use drover_events::job::JobDeregistered;
use drover_events::model::SchedulerConfiguration;
use drover_events::node::{NodeStatusUpdated, NodesDeregistered};
use drover_events::plan::{PlanApplied, StoppedAlloc};
use drover_events::variable::{VarOp, VariableApplied};
use proptest::prelude::*;

use super::*;

/// One of a few events on a few objects; many of them are refused.
fn event(choice: u8, a: u32, b: u32) -> Event {
    let jobs = ["web", "db", "cron"];
    let name = jobs[(a % 3) as usize];
    let statuses = [
        "pending", "running", "complete", "failed", "lost", "unknown",
    ];
    let alloc_number = 40 + b % 12;
    match choice % 12 {
        0 => registered(node(10 + a % 3)).into(),
        1 => {
            let mut spec = job(name);
            spec.task_groups[0].count = i64::from(b);
            JobRegistered {
                eval: Some(eval(a, name, "pending")),
                ..submitted(spec)
            }
            .into()
        }
        2 | 3 => placed(
            vec![alloc(alloc_number, name, 10 + a % 3)],
            u64::from(b % 40),
        )
        .into(),
        4 => super::allocs::update(alloc_number, statuses[(a % 6) as usize]).into(),
        5 => evals(vec![eval(
            a % 30,
            name,
            ["complete", "blocked", "pending"][(b % 3) as usize],
        )])
        .into(),
        6 => {
            let stopped = StoppedAlloc {
                id: id(alloc_number),
                ..Default::default()
            };
            PlanApplied {
                stopped: vec![stopped],
                ..Default::default()
            }
            .into()
        }
        7 => JobDeregistered {
            namespace: "default".into(),
            job_id: name.into(),
            purge: b.is_multiple_of(2),
            no_shutdown_delay: a.is_multiple_of(2),
            ..Default::default()
        }
        .into(),
        8 => EvalsDeleted {
            filter: "Status == \"complete\" or Priority > 90".into(),
            filter_version: 1,
            page_token: if b.is_multiple_of(2) {
                String::new()
            } else {
                id(a % 30)
            },
            per_page: 1 + b % 4,
            user_initiated: true,
            ..Default::default()
        }
        .into(),
        9 => {
            let config = SchedulerConfiguration {
                pause_eval_broker: !b.is_multiple_of(3),
                ..Default::default()
            };
            SchedulerConfigured { config, cas: false }.into()
        }
        10 => NodeStatusUpdated {
            node_id: id(10 + a % 3),
            status: ["ready", "down", "disconnected"][(b % 3) as usize].into(),
            ..Default::default()
        }
        .into(),
        _ if b.is_multiple_of(5) => NodesDeregistered {
            node_ids: vec![id(10 + a % 3)],
            evals: Vec::new(),
        }
        .into(),
        _ => {
            let var = drover_events::model::VariableEncrypted {
                namespace: "default".into(),
                path: format!("p{}", a % 3),
                modify_index: u64::from(b % 20),
                ..Default::default()
            };
            let op = [VarOp::Set, VarOp::Cas, VarOp::Delete, VarOp::DeleteCas];
            VariableApplied {
                op: op[(b % 4) as usize],
                var,
                quota: u64::from(b) * 16,
            }
            .into()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn ev_12_three_databases_fed_one_log_are_equal(
        steps in prop::collection::vec((any::<u8>(), 0_u32..60, 0_u32..60), 1..120),
        cut in 1_usize..40,
    ) {
        let log: Vec<Recorded> = steps
            .iter()
            .enumerate()
            .map(|(at, (choice, a, b))| recorded(at as u64 + 1, event(*choice, *a, *b), Vec::new()))
            .collect();
        let mut worlds = [World::new(), World::new(), World::new()];
        worlds[0].apply_all(&log);
        for one in &log {
            worlds[1].apply_all(std::slice::from_ref(one));
        }
        for chunk in log.chunks(cut) {
            worlds[2].apply_all(chunk);
        }
        let digests = worlds.each_ref().map(World::digests);
        prop_assert_eq!(&digests[0], &digests[1]);
        prop_assert_eq!(&digests[0], &digests[2]);
        for table in worlds[0].view().digests() {
            let again = worlds[0].view().digest_of_rows(table.table).unwrap();
            prop_assert_eq!(again, table.digest, "digest of {} drifted", table.name);
        }
        invariants(&worlds[0].view());
    }
}

/// What follows from other rows is as a recount from scratch has it.
fn invariants(view: &View) {
    use crate::tables::alloc_job_counts::AllocJobCounts;
    use crate::tables::alloc_jobs::AllocJobs;
    use crate::tables::allocs::Allocs;
    use crate::tables::node_use::NodeUses;
    let all = || crate::Scan::all();
    let mut uses: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    let mut specs: BTreeMap<(String, String, u64), (u64, u64)> = BTreeMap::new();
    for row in view.scan::<Allocs>(all()) {
        let row = row.unwrap();
        let spec = specs.entry(row.job_key()).or_default();
        spec.0 += 1;
        if !row.terminal_status() {
            spec.1 += 1;
            let node = uses.entry(row.node_id.clone()).or_default();
            node.0 += 1;
            node.1 += row.comparable_resources().cpu_shares;
        }
    }
    let counted: BTreeMap<_, _> = view
        .scan::<AllocJobCounts>(all())
        .map(|row| row.unwrap())
        .map(|row| {
            (
                (row.namespace, row.job_id, row.job_modify_index),
                (row.count, row.live),
            )
        })
        .collect();
    assert_eq!(counted, specs);
    let named = view.scan::<AllocJobs>(all()).map(|row| row.unwrap());
    let named: Vec<_> = named
        .map(|job| (job.namespace, job.id, job.job_modify_index))
        .collect();
    assert_eq!(named, specs.keys().cloned().collect::<Vec<_>>());
    for row in view.scan::<NodeUses>(all()) {
        let row = row.unwrap();
        let expected = uses.get(&row.node_id).copied().unwrap_or_default();
        assert_eq!((row.allocs, row.cpu), expected, "{}", row.node_id);
    }
}
