//! A deletion by filter of many evaluations: what the log holds of it, and how long an apply takes.

use std::sync::Arc;

use drover_events::cluster::SchedulerConfigured;
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_events::{Event, EventKind};
use drover_projections::tables::evals::Evals;
use drover_projections::{Reply, Scan, View};

use super::proposer_test::{Server, entries_of, event_of_today, on_disk, run};
use super::*;
use crate::commands::eval::{DELETE_PAGE, DeleteEvalsPage, UpsertEvals};
use crate::commands::{Command, Decision, Stamp};
use crate::error::Refusal;

/// Pauses the broker.
struct Pause;

impl Command for Pause {
    fn decide(&self, _: &View, _: &Stamp) -> Result<Decision, Refusal> {
        let config = SchedulerConfiguration {
            pause_eval_broker: true,
            ..SchedulerConfiguration::default()
        };
        Ok(Decision::unguarded(SchedulerConfigured {
            config,
            cas: false,
        }))
    }
}

async fn fill(server: &Server, count: usize) {
    let one = |i: usize| Evaluation {
        id: format!(
            "{:08x}-0000-4000-8000-{i:012x}",
            i.wrapping_mul(0x9e37_79b1) as u32
        ),
        namespace: "default".to_owned(),
        job_id: format!("job-{}", i % 100),
        status: "pending".to_owned(),
        ..Evaluation::default()
    };
    let all: Vec<_> = (0..count).map(one).collect();
    for evals in all.chunks(1_000) {
        let put = UpsertEvals {
            evals: evals.to_vec(),
            decision: None,
        };
        server
            .proposer
            .submit(Arc::new(put), Origin::default())
            .await
            .unwrap();
    }
    server
        .proposer
        .submit(Arc::new(Pause), Origin::default())
        .await
        .unwrap();
}

/// Deletes everything; answers the count of every page.
async fn delete(server: &Server) -> Vec<u64> {
    let (mut page_token, mut pages) = (String::new(), Vec::new());
    loop {
        assert!(pages.len() < 10_000, "{page_token}");
        let page = DeleteEvalsPage {
            filter: "Status == \"pending\"".to_owned(),
            page_token,
        };
        let done = server
            .proposer
            .submit(Arc::new(page), Origin::default())
            .await
            .unwrap();
        let Reply::Page { count, next } = done.reply else {
            panic!("{:?}", done.reply)
        };
        pages.push(count);
        if next.is_empty() {
            return pages;
        }
        page_token = next;
    }
}

#[test]
fn ev_13_eval_04_eval_05_a_large_deletion_is_small_entries_and_short_applies() {
    const EVALS: usize = 50_000;
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let server = on_disk(dir.path()).await;
        fill(&server, EVALS).await;
        let node = Arc::clone(&server.node);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let barriers = tokio::spawn(async move {
            let mut indexes = Vec::new();
            while !*stopped.borrow() {
                let done = node.commit(event_of_today()).await.unwrap();
                indexes.push(done.index);
            }
            indexes
        });
        let pages = delete(&server).await;
        stop.send_replace(true);
        let barriers = barriers.await.unwrap();
        assert_eq!(pages.iter().sum::<u64>(), EVALS as u64);
        assert!(pages.iter().all(|count| *count <= u64::from(DELETE_PAGE)));
        let entries = entries_of(&server, EventKind::EvalsDeleted);
        assert_eq!(entries.len(), pages.len());
        for entry in &entries {
            let body = server.node.log().read(entry.index).unwrap().unwrap().body;
            assert!(
                body.len() < 1_000,
                "entry {} has {} bytes",
                entry.index,
                body.len()
            );
            let Some(Event::EvalsDeleted(ev)) = entry.envelope.as_ref().map(|e| &e.event) else {
                panic!("another event");
            };
            assert!(
                ev.eval_ids.is_empty() && ev.alloc_ids.is_empty(),
                "it holds ids"
            );
            assert_eq!(ev.per_page, DELETE_PAGE);
        }
        let left = server.projections.view().scan::<Evals>(Scan::all()).count();
        assert_eq!(left, 0);
        // EV-13: a barrier gets through between two applies. By their places in the log, not by
        // the time they take: mostly at most one page lies between two of them.
        let pages: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
        let between = |pair: &[u64]| {
            let within = pages.iter().filter(|at| (pair[0]..pair[1]).contains(at));
            within.count()
        };
        let mut between: Vec<usize> = barriers.windows(2).map(between).collect();
        between.sort_unstable();
        let half = between.get(between.len() / 2);
        assert!(half.is_some_and(|pages| *pages <= 1), "{between:?}");
        server.node.shutdown().await;
    });
}
