//! Deletion by filter, page by page as it is decided, at what costs the most: filters that are
//! long, rows that are, rows that pass none, and rows of a job each that all go.

use std::path::Path;

use anyhow::{Result, bail};
use drover::commands::cluster::SetSchedulerConfig;
use drover::commands::eval::{DELETE_PAGE, DeleteEvalsPage};
use drover::commands::{Command, Decision, Stamp};
use drover_benchkit::Line;
use drover_benchkit::sample::{namespace, uuid};
use drover_events::cluster::VersionBarrierRaised;
use drover_events::eval::EvalsUpserted;
use drover_events::job::JobRegistered;
use drover_events::model::{Evaluation, SchedulerConfiguration};
use drover_events::{Event, EventId};
use drover_projections::{Projections, Reply};

use super::{Bench, job};

/// What there is to delete, and by what.
struct Shape {
    what: &'static str,
    filter: String,
    rows: u64,
    /// Bytes of a row's description.
    long: usize,
}

/// Prints a line for each shape, with the longest apply of a page.
pub(crate) fn measure(dir: &Path) -> Result<()> {
    let long = vec!["JobID == \"none\""; 120].join(" or ");
    let shape = |what, filter: &str, rows, long| Shape {
        what,
        filter: filter.to_owned(),
        rows,
        long,
    };
    let shapes = [
        shape("all go, of a job each", "ID != \"\"", 8_192, 40),
        shape("none goes", "JobID == \"none\"", 16_384, 40),
        shape("a long filter", &long, 4_096, 40),
        shape(
            "long rows",
            "StatusDescription contains \"y\"",
            4_096,
            20_000,
        ),
        shape(
            "long rows go",
            "StatusDescription contains \"x\"",
            4_096,
            4_000,
        ),
    ];
    for (number, shape) in shapes.iter().enumerate() {
        delete(&dir.join(number.to_string()), shape)?;
    }
    Ok(())
}

fn delete(path: &Path, shape: &Shape) -> Result<()> {
    let (projections, mut bench) = Bench::open(path)?;
    fill(&projections, &mut bench, shape)?;
    bench.worst = 0.0;
    let (mut token, mut pages, mut gone) = (String::new(), 0, 0);
    loop {
        let page = DeleteEvalsPage {
            filter: shape.filter.clone(),
            page_token: token,
        };
        let event = decided(&projections, &page)?;
        let entry = bench.recorded(event);
        let replies = bench.apply(&[entry])?;
        let [Reply::Page { count, next }] = &replies[..] else {
            bail!("{replies:?}");
        };
        (pages, gone) = (pages + 1, gone + count);
        token = next.clone();
        if token.is_empty() {
            break;
        }
    }
    Line::new(&format!("pages of a deletion by filter ({})", shape.what))
        .number("evaluations", shape.rows as f64)
        .number("gone", gone as f64)
        .number("pages", f64::from(pages))
        .number("longest_apply_ms", bench.worst)
        .print();
    Ok(())
}

fn fill(projections: &Projections, bench: &mut Bench, shape: &Shape) -> Result<()> {
    let jobs = u64::from(DELETE_PAGE);
    let barrier = VersionBarrierRaised {
        level: drover_migrations::FEATURE_LEVEL,
        ..VersionBarrierRaised::default()
    };
    let mut setup = vec![bench.recorded(namespace()), bench.recorded(barrier.into())];
    for number in 0..jobs {
        let registered = JobRegistered {
            job: job(number).into(),
            ..JobRegistered::default()
        };
        setup.push(bench.recorded(registered.into()));
    }
    bench.apply(&setup)?;
    let config = SchedulerConfiguration {
        pause_eval_broker: true,
        ..SchedulerConfiguration::default()
    };
    let pause = SetSchedulerConfig {
        config,
        cas: false,
        initial: false,
    };
    let entry = bench.recorded(decided(projections, &pause)?);
    bench.apply(&[entry])?;
    let one = |number: u64| Evaluation {
        id: uuid(8, number),
        namespace: "default".into(),
        priority: 50,
        r#type: "service".into(),
        triggered_by: "job-register".into(),
        job_id: format!("job-{}", number % jobs),
        status: "complete".into(),
        status_description: "x".repeat(shape.long),
        ..Evaluation::default()
    };
    for first in (0..shape.rows).step_by(64) {
        let event = EvalsUpserted {
            evals: (first..first + 64).map(one).collect(),
            decision: None,
        };
        let entry = bench.recorded(event.into());
        bench.apply(&[entry])?;
    }
    Ok(())
}

fn decided(projections: &Projections, command: &dyn Command) -> Result<Event> {
    let stamp = Stamp {
        id: EventId([9; 16]),
        now: drover_benchkit::sample::NOW,
    };
    match command.decide(&projections.view(), &stamp) {
        Ok(Decision::Event { event, .. } | Decision::Page { event, .. }) => Ok(event),
        other => bail!("{other:?}"),
    }
}
