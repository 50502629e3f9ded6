//! Several servers, one log.

use drover_events::Event;
use drover_events::cluster::SchedulerConfigured;
use drover_events::eval::{EvalsDeleted, EvalsUpserted};
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_projections::tables::evals::Evals;
use drover_projections::{Outcome, Reply};

use crate::support::{Replica, recorded};

/// Evaluations of three jobs, some of which are done.
fn evaluations(count: usize) -> Vec<Evaluation> {
    let status = |number| {
        if number % 4 == 0 {
            "complete"
        } else {
            "pending"
        }
    };
    let all = (0..count).map(|number| Evaluation {
        id: format!(
            "{:08x}-0000-4000-8000-{number:012x}",
            number.wrapping_mul(2_654_435_761)
        ),
        namespace: "default".into(),
        job_id: format!("job-{}", number % 3),
        status: status(number).into(),
        priority: i64::try_from(number % 100).unwrap_or_default(),
        ..Evaluation::default()
    });
    all.collect()
}

/// One page of a deletion by filter.
fn page(token: &str) -> Event {
    EvalsDeleted {
        filter: "JobID == \"job-1\" and Status == \"pending\"".into(),
        filter_version: 1,
        page_token: token.into(),
        per_page: 7,
        ..EvalsDeleted::default()
    }
    .into()
}

/// Applies an event to all; they have to agree about what became of it.
fn all(replicas: &mut [Replica], index: u64, event: &Event) -> Reply {
    let mut replies = replicas.iter_mut().map(|replica| {
        match replica
            .apply(&[recorded(index, event.clone())], 1)
            .pop()
            .expect("one")
            .outcome
        {
            Outcome::Applied(reply) => reply,
            Outcome::Rejected(refusal) => panic!("refused: {refusal:?}"),
        }
    });
    let first = replies.next().expect("a replica");
    for other in replies {
        assert_eq!(first, other);
    }
    first
}

#[test]
fn ev_12_three_servers_delete_the_same_rows_by_filter() {
    let mut replicas = [Replica::new(), Replica::new(), Replica::new()];
    let config = SchedulerConfiguration {
        pause_eval_broker: true,
        ..Default::default()
    };
    let config = SchedulerConfigured {
        config,
        ..Default::default()
    };
    all(&mut replicas, 1, &config.into());
    let mut index = 1;
    for evals in evaluations(120).chunks(20) {
        index += 1;
        let evals = EvalsUpserted {
            evals: evals.to_vec(),
            ..Default::default()
        };
        all(&mut replicas, index, &evals.into());
    }
    let (mut token, mut deleted, mut pages) = (String::new(), 0, 0);
    loop {
        index += 1;
        pages += 1;
        assert!(pages < 100, "{token}");
        match all(&mut replicas, index, &page(&token)) {
            Reply::Page { count, next } => {
                assert!(count <= 7, "a page of {count}");
                deleted += count;
                token = next;
            }
            other => panic!("{other:?}"),
        }
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((deleted, pages), (30, 5));
    let digests: Vec<_> = replicas.iter().map(Replica::digests).collect();
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]));
    for eval in evaluations(120) {
        let gone = eval.job_id == "job-1" && eval.status == "pending";
        let row = replicas[0]
            .projections
            .view()
            .get::<Evals>(eval.id.as_str())
            .expect("a read");
        assert_eq!(row.is_none(), gone, "{}", eval.id);
    }
}
