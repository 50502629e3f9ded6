//! What is proposed of the events that a leader begins with.
//!
//! No caller could correct such an event, and a second try would show no more. So what no server
//! could apply, and what no log can take, is left out of it, member by member, and the rest is
//! proposed.

use drover_events::Event;
use drover_events::codec::Draft;
use drover_projections::View;

use super::fit::{fit, halve};
use super::{Origin, caught, encode, new_id};
use crate::error::{Refusal, chain};

/// How much of what an event is about is in the log.
const SUBJECT: usize = 200;

/// What can be applied of one of the leader's own events. A part that fails, however it does, is
/// cut until what is wrong with it stands alone.
pub(super) fn drafts(view: &View, event: Event, origin: &Origin) -> Vec<Draft> {
    let mut drafts = Vec::with_capacity(1);
    let mut todo = vec![event];
    while let Some(event) = todo.pop() {
        let error = match caught(|| drafts_of(view, event.clone(), origin)) {
            Ok(parts) => {
                drafts.extend(parts);
                continue;
            }
            Err(error) => error,
        };
        let (kind, of) = (event.kind(), subject(&event));
        match halve(event, Vec::new()) {
            Some(((first, _), (second, _))) => todo.extend([second, first]),
            None => tracing::error!(%error, %kind, of, "a leader's first event is left out"),
        }
    }
    drafts
}

/// The drafts of a part, where all of it can be applied. A row that cannot be read may not have
/// been met yet, so the part is tried in any case. Where the database fails, nothing is known of
/// it: it is proposed as it is.
fn drafts_of(view: &View, event: Event, origin: &Origin) -> Result<Vec<Draft>, Refusal> {
    match view.try_out(&event, &[]) {
        Ok(()) => {}
        Err(error) if error.is_single_entry() => return Err(Refusal::internal(chain(&error))),
        Err(error) => {
            let (error, kind) = (chain(&error), event.kind());
            tracing::warn!(error, %kind, "a leader's first event could not be tried out");
        }
    }
    fit(event, Vec::new(), |event, guards| {
        encode(origin, new_id(), guards, event)
    })
}

/// The jobs that an event of evaluations is about, as the log names them; of another event its kind
/// says all.
fn subject(event: &Event) -> String {
    let Event::EvalsUpserted(upserted) = event else {
        return String::new();
    };
    let jobs = upserted.evals.iter();
    let jobs = jobs.map(|eval| format!("{}/{}", eval.namespace, eval.job_id));
    let jobs: Vec<String> = jobs.collect();
    jobs.join(", ").chars().take(SUBJECT).collect()
}

#[cfg(test)]
mod tests {
    use drover_events::eval::EvalsUpserted;
    use drover_events::model::Evaluation;

    use super::*;
    use crate::reactors::testing::Direct;

    #[test]
    fn what_no_log_can_take_of_a_first_event_is_named_and_keeps_no_other_part_from_it() {
        let eval = |number: usize| Evaluation {
            id: format!("00000000-0000-4000-8000-{number:012x}"),
            namespace: "default".to_owned(),
            job_id: "j".repeat(if number == 1 { 5_000_000 } else { 1 }),
            status: "pending".to_owned(),
            ..Evaluation::default()
        };
        let event = |numbers: std::ops::Range<usize>| -> Event {
            EvalsUpserted {
                evals: numbers.map(eval).collect(),
                decision: None,
            }
            .into()
        };
        let direct = Direct::new();
        let drafts = drafts(&direct.projections.view(), event(0..4), &Origin::default());
        let bytes: usize = drafts.iter().map(Draft::size).sum();
        assert!(drafts.len() > 1 && bytes < 10_000, "{bytes}");
        assert_eq!(subject(&event(2..4)), "default/j, default/j");
        assert_eq!(subject(&event(1..2)).len(), SUBJECT);
    }
}
