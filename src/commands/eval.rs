//! Commands about evaluations.

use drover_events::codec::encoded_len;
use drover_events::eval::*;
use drover_events::model::status::ClientStatus;
use drover_events::model::{Evaluation, Job};
use drover_events::plan::DecisionInputs;
use drover_projections::apply::DELETE_SCAN_LIMIT;
use drover_projections::filter;
use drover_projections::tables::allocs::AllocsByEval;
use drover_projections::tables::evals::Evals;
use drover_projections::tables::jobs::Jobs;
use drover_projections::tables::scheduler_config::SchedulerConfigTable;
use drover_projections::{Id, Prefix, ReadRows, Reply, Scan, View};

use super::support::all_servers_support;
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// How many evaluations may be named in one request (EVAL-08).
pub const MAX_IDS: usize = 7_281;
/// How many evaluations one event removes; its apply stays below 20 ms (EV-13).
pub const DELETE_PAGE: u32 = 1_024;

/// How many evaluations of a long list go into one command.
pub const UPSERT_PAGE: usize = 512;

/// Evaluations are created or changed, by a reactor or an API call.
#[derive(Clone, Debug)]
pub struct UpsertEvals {
    pub evals: Vec<Evaluation>,
    /// From what the scheduler decided, when this ends an evaluation.
    pub decision: Option<DecisionInputs>,
}

impl Command for UpsertEvals {
    fn decide(&self, _view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.evals.is_empty() {
            return Ok(Decision::Nothing(Reply::None));
        }
        let mut evals = self.evals.clone();
        for eval in &mut evals {
            if eval.create_time == 0 {
                eval.create_time = stamp.now;
            }
            eval.modify_time = stamp.now;
        }
        let decision = self.decision.clone();
        Ok(Decision::unguarded(EvalsUpserted { evals, decision }))
    }
}

/// What an operator requests to delete: ids, or everything that matches a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those named.
    Ids(Vec<String>),
    /// Those that match.
    Filter(String),
}

/// Checks a request to delete (EVAL-01, EVAL-08).
///
/// # Errors
/// 400 with Nomad's texts.
pub fn selection(ids: Vec<String>, filter: String) -> Result<Selection, Refusal> {
    match (ids.is_empty(), filter.is_empty()) {
        (false, false) => Err(Refusal::bad_request(
            "evals cannot be deleted by both ID and filter",
        )),
        (true, true) => Err(Refusal::bad_request(
            "evals must be deleted by either ID or filter",
        )),
        (true, false) => {
            filter::compile(&filter, filter::FILTER_VERSION).map_err(|error| {
                Refusal::bad_request(format!("failed to read filter expression: {error}"))
            })?;
            Ok(Selection::Filter(filter))
        }
        (false, true) if ids.len() > MAX_IDS => Err(Refusal::bad_request(format!(
            "request includes {} evaluation IDs, must be {MAX_IDS} or fewer",
            ids.len()
        ))),
        (false, true) => Ok(Selection::Ids(ids)),
    }
}

/// One event's worth of an operator's deletion by ids: at most [`DELETE_PAGE`] of them.
#[derive(Clone, Debug)]
pub struct DeleteEvals {
    pub eval_ids: Vec<String>,
}

impl Command for DeleteEvals {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        check_paused(view)?;
        for id in &self.eval_ids {
            let Some(eval) = view.get::<Evals>(id.as_str())? else {
                return Err(Refusal::by_rule("eval not found"));
            };
            if !is_safe_to_delete(view, &eval)? {
                return Err(Refusal::by_rule(format!("eval {id} is not safe to delete")));
            }
        }
        let eval_ids = self.eval_ids.clone();
        let deleted = EvalsDeleted {
            eval_ids,
            user_initiated: true,
            ..Default::default()
        };
        Ok(Decision::guarded(
            deleted,
            vec![view.guard::<SchedulerConfigTable>(())?],
        ))
    }
}

/// One page of an operator's deletion by filter. Its reply is [`Reply::Page`]: how many went, and
/// the token of the next page (EVAL-02).
#[derive(Clone, Debug)]
pub struct DeleteEvalsPage {
    /// The filter expression.
    pub filter: String,
    /// Where the page begins; empty: at the start.
    pub page_token: String,
}

impl Command for DeleteEvalsPage {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        check_paused(view)?;
        let selection = selection(Vec::new(), self.filter.clone())?;
        let Selection::Filter(filter) = selection else {
            return Err(Refusal::bad_request(
                "evals must be deleted by either ID or filter",
            ));
        };
        let row_limit = match all_servers_support(view, ROW_LIMIT_LEVEL)? {
            true => page_rows(view, &filter, &self.page_token)?,
            false => 0,
        };
        Ok(Decision::unguarded(EvalsDeleted {
            filter,
            row_limit,
            filter_version: u32::from(filter::FILTER_VERSION),
            page_token: self.page_token.clone(),
            per_page: DELETE_PAGE,
            user_initiated: true,
            ..EvalsDeleted::default()
        }))
    }
}

/// The feature level that brought `EvalsDeleted.RowLimit`.
const ROW_LIMIT_LEVEL: u32 = 6;
/// What the rows of one page may cost, in comparisons of strings of [`COST_BYTES`]: the look at
/// each, and that those which match go. Apply, which looks again, does no more than that, and
/// deletes at most [`DELETE_PAGE`] rows (EVAL-04).
const PAGE_COST: u64 = 60_000;
/// Bytes of a row that cost as much as one comparison.
const COST_BYTES: u64 = 256;

/// Bytes of a row that cost as much to read as one comparison, whatever the filter: they are copied
/// out of their block, and decoded.
const READ_BYTES: u64 = 128;

/// What it costs that a row goes, however short it is.
const DELETE_COST: u64 = 48;
/// Bytes of a row that goes that cost as much as one comparison: history keeps them.
const DELETE_BYTES: u64 = 64;

/// What it costs to look at a row: to read it, and comparisons by how long it is.
fn look_cost(bytes: u64, steps: u32) -> u64 {
    bytes / READ_BYTES + u64::from(steps.max(1)) * (1 + bytes / COST_BYTES)
}

/// What it costs that a row goes.
fn delete_cost(bytes: u64) -> u64 {
    DELETE_COST + bytes / DELETE_BYTES
}

/// How many rows a page looks at: as many as the filter and the rows that exist now allow, at least
/// one.
///
/// # Errors
/// The filter cannot be read, or costs more than a whole page for one row alone.
fn page_rows(view: &View, filter: &str, page_token: &str) -> Result<u32, Refusal> {
    let wrong = |error: filter::FilterError| {
        Refusal::by_rule(format!("failed to read filter expression: {error}"))
    };
    let filter = filter::compile(filter, filter::FILTER_VERSION).map_err(wrong)?;
    let mut scan = Scan::all();
    if !page_token.is_empty() {
        scan = scan.from(Prefix::new().id(page_token).as_bytes());
    }
    let (mut rows, mut matching, mut cost) = (0, 0, 0);
    for eval in view.scan::<Evals>(scan) {
        let eval = eval?;
        let (matches, steps) = filter.matches_in_steps(&eval).map_err(wrong)?;
        let bytes = encoded_len(&eval) as u64;
        let look = look_cost(bytes, steps);
        if look > PAGE_COST && rows == 0 {
            return Err(Refusal::by_rule(format!(
                "failed to read filter expression: it is too costly for evaluation \"{}\" alone \
                 ({look} comparisons of {COST_BYTES} bytes, of at most {PAGE_COST}): delete that \
                 one by its id, or use a shorter expression",
                eval.id
            )));
        }
        cost += look;
        if matches {
            cost += delete_cost(bytes);
        }
        // The first one goes whatever it is: no page is without a row.
        if cost > PAGE_COST && rows > 0 {
            break;
        }
        rows += 1;
        matching += u32::from(matches);
        if matching > DELETE_PAGE || u64::from(rows) >= DELETE_SCAN_LIMIT {
            break;
        }
    }
    Ok(rows.max(1))
}

/// Garbage collection: evaluations and allocations whose time is over.
#[derive(Clone, Debug)]
pub struct ReapEvals {
    pub eval_ids: Vec<String>,
    pub alloc_ids: Vec<String>,
}

impl Command for ReapEvals {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        let (eval_ids, alloc_ids) = (self.eval_ids.clone(), self.alloc_ids.clone());
        Ok(Decision::unguarded(EvalsDeleted {
            eval_ids,
            alloc_ids,
            ..EvalsDeleted::default()
        }))
    }

    fn is_tried(&self) -> bool {
        true
    }
}

/// Deleting evaluations needs a paused broker (EVAL-09); apply checks it again.
fn check_paused(view: &View) -> Result<(), Refusal> {
    let config = view.get::<SchedulerConfigTable>(())?;
    if config.is_some_and(|config| config.pause_eval_broker) {
        return Ok(());
    }
    let text = "eval broker is enabled; eval broker must be paused to delete evals";
    Err(Refusal::by_rule(text))
}

/// Whether nothing needs the evaluation any more: its job is over, or so are its allocations, with
/// what they know of reschedules carried on.
fn is_safe_to_delete(view: &View, eval: &Evaluation) -> Result<bool, Refusal> {
    let job = view.get::<Jobs>((eval.namespace.as_str(), eval.job_id.as_str()))?;
    let Some(job) = job.filter(|job: &Job| !job.stop && !job.is_dead()) else {
        return Ok(true);
    };
    for row in view.rows_by::<AllocsByEval>(Scan::with_key_prefix::<Id>(eval.id.as_str())) {
        let row = row?;
        match row.client() {
            Some(ClientStatus::Running | ClientStatus::Unknown) => return Ok(false),
            Some(ClientStatus::Failed) => {}
            Some(ClientStatus::Pending | ClientStatus::Complete | ClientStatus::Lost) | None => {
                continue;
            }
        }
        let policy = job
            .task_group(&row.task_group)
            .and_then(|g| g.reschedule_policy.as_ref());
        let Some(policy) = policy.filter(|p| p.unlimited || p.attempts > 0) else {
            continue;
        };
        let tried = row
            .reschedule_tracker
            .as_ref()
            .is_some_and(|t| !t.events.is_empty());
        if row.next_allocation.is_empty() && (policy.unlimited || !tried) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
#[path = "eval_test.rs"]
mod tests;
