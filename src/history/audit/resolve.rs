//! What the id of a trace names.

use std::collections::BTreeSet;

use drover_projections::key::{Id, Key};
use drover_projections::tables::allocs::{AllocsByDeployment, AllocsByEval};
use drover_projections::tables::{Allocs, Deployments, Evals, Jobs};
use drover_projections::{Index, Table, View};

use super::object::RowKey;
use super::question::{OutcomeFilter, Question};
use super::trail::Shown;
use super::{AuditError, Detail, Trail};

/// Events of one request that begin a chain at most.
const BEGINS: usize = 16;
/// Characters of an id that are shown where not all of it fits.
const SHORT: usize = 8;
/// Pages of events that are searched for a request, newest first.
const PAGES: usize = 5;

/// What an id was found to name.
#[derive(Clone, Debug, Default)]
pub(super) struct ResolvedQuestion {
    /// What sort of thing it is.
    pub(super) kind: &'static str,
    /// Its whole id.
    pub(super) id: String,
    /// Events whose chains are shown.
    pub(super) begins: BTreeSet<u64>,
    /// The events that are about it.
    pub(super) focus: BTreeSet<u64>,
    pub(super) rows: Vec<RowKey>,
    /// Whether all that followed from those events is shown.
    pub(super) descendants: bool,
    /// Whether the whole chain is shown.
    pub(super) whole: bool,
}

/// Finds what an id names.
pub(super) fn resolve(
    trail: &Trail<'_>,
    id: &str,
    namespace: &str,
) -> Result<ResolvedQuestion, AuditError> {
    let (wanted, name) = match id.split_once(':') {
        Some((wanted, name)) if SORTS.contains(&wanted) => (Some(wanted), name),
        _ => (None, id),
    };
    let view = trail.view();
    let sorts = SORTS
        .iter()
        .filter(|sort| wanted.is_none_or(|wanted| wanted == **sort));
    // The beginning of an id, as it is shown, may be a number too: where no such event happened
    // yet, that is the answer only if it names nothing else.
    let mut no_event = None;
    let may_be_id = wanted.is_none() && name.len() >= SHORT;
    for sort in sorts {
        let found = match *sort {
            "event" => match event(trail, name, wanted.is_some()) {
                Err(error @ AuditError::Question(_)) if may_be_id => {
                    no_event = Some(error);
                    None
                }
                found => found?,
            },
            "alloc" => thing::<Allocs>(trail, "allocation", name, |_| Ok(Vec::new()))?,
            "eval" => {
                let along = |id: &str| keys::<AllocsByEval>(view, id);
                let found = thing::<Evals>(trail, "evaluation", name, along)?;
                // What could not be placed continues as another evaluation.
                found.map(|found| ResolvedQuestion {
                    descendants: true,
                    ..found
                })
            }
            "deployment" => thing::<Deployments>(trail, "deployment", name, |id| {
                keys::<AllocsByDeployment>(view, id)
            })?,
            "job" => job(trail, name, namespace)?,
            _ => request(trail, name)?,
        };
        if let Some(found) = found {
            return Ok(found);
        }
    }
    if let Some(error) = no_event {
        return Err(error);
    }
    let text = format!(
        "{id:?} names no event, allocation, evaluation, deployment, no job of namespace \
         {namespace:?}, and no request among the newest events"
    );
    Err(AuditError::unknown(view, text))
}

/// What an id can name, in the order in which an id is understood.
const SORTS: [&str; 6] = ["event", "alloc", "eval", "deployment", "job", "request"];

fn event(
    trail: &Trail<'_>,
    name: &str,
    sure: bool,
) -> Result<Option<ResolvedQuestion>, AuditError> {
    let begun = name.strip_prefix('0').is_some_and(|rest| !rest.is_empty());
    let digits = !begun && name.bytes().all(|byte| byte.is_ascii_digit());
    let Some(index) = name.parse::<u64>().ok().filter(|_| digits) else {
        return match sure {
            true => Err(AuditError::Question(format!("event {name:?} is no index"))),
            false => Ok(None),
        };
    };
    let (first, last) = (trail.first(), trail.last());
    let hint = if sure { String::new() } else { hint(name) };
    if index > last {
        return Err(AuditError::Question(format!(
            "id {index} has not happened yet: the last event is {last}{hint}"
        )));
    }
    if index < first {
        let text = format!("the event {index} is no longer kept; the first one is {first}{hint}");
        return Err(AuditError::Gone(text));
    }
    if !trail.shows(index)? {
        return Ok(None);
    }
    Ok(Some(ResolvedQuestion {
        kind: "event",
        id: index.to_string(),
        begins: BTreeSet::from([index]),
        focus: BTreeSet::from([index]),
        descendants: true,
        ..ResolvedQuestion::default()
    }))
}

/// What to do where the beginning of an id was meant.
fn hint(name: &str) -> String {
    match name.len() >= SHORT {
        true => format!(" (for the beginning of an id, write alloc:{name}, eval:{name} …)"),
        false => String::new(),
    }
}

/// A thing by its id or the beginning of it, with the rows that are shown along with it.
fn thing<T: Table<Key = Id>>(
    trail: &Trail<'_>,
    kind: &'static str,
    name: &str,
    along: impl Fn(&str) -> Result<Vec<RowKey>, AuditError>,
) -> Result<Option<ResolvedQuestion>, AuditError> {
    let mut found = match name.len() {
        0 | 1 => Vec::new(),
        _ => trail.ids::<T>(name, 3)?,
    };
    if let Some(exact) = found.iter().position(|id| id == name) {
        found = vec![found.swap_remove(exact)];
    }
    let id = match found.len() {
        0 => return Ok(None),
        1 => found.swap_remove(0),
        _ => {
            let all = found.join(", ");
            let text = format!("id {name:?} names several: {all}, ...");
            return Err(AuditError::Question(text));
        }
    };
    let view = trail.view();
    let mut rows = vec![(T::ID, Id::new(id.as_str()).to_bytes().to_vec())];
    rows.extend(along(&id)?);
    let mut focus = BTreeSet::new();
    for (table, key) in &rows {
        focus.extend(trail.unless_damaged(view.change_indexes_of(*table, key, 0))?);
    }
    // Without these nothing is known of the thing itself.
    let begins = view.change_indexes::<T>(id.as_str(), 0)?.first().copied();
    Ok(Some(ResolvedQuestion {
        kind,
        id,
        begins: begins.into_iter().collect(),
        focus,
        rows,
        ..ResolvedQuestion::default()
    }))
}

fn keys<I: Index<Group = Id>>(view: &View, group: &str) -> Result<Vec<RowKey>, AuditError> {
    let keys = view.members_ever::<I>(group)?;
    Ok(keys.into_iter().map(|key| (I::Table::ID, key)).collect())
}

/// A job: what its last registration brought.
fn job(
    trail: &Trail<'_>,
    name: &str,
    namespace: &str,
) -> Result<Option<ResolvedQuestion>, AuditError> {
    let view = trail.view();
    let key = (namespace.to_owned(), name.to_owned());
    if !trail.shows_row(&mut Shown::default(), Jobs::ID, &key.to_bytes())? {
        return Ok(None);
    }
    let change_indexes = view.change_indexes::<Jobs>((namespace, name), 0)?;
    let Some(&last) = change_indexes.last() else {
        return Ok(None);
    };
    let at = |index| view.get_at::<Jobs>((namespace, name), index);
    let (job, is_gone) = match at(last) {
        Ok(Some(job)) => (Some(job), false),
        // It is gone; its last version came before.
        Ok(None) => (trail.unless_damaged(at(last.saturating_sub(1)))?, true),
        // Which event registered it is not known then.
        Err(error) if error.is_damage() => (None, false),
        Err(error) => return Err(error.into()),
    };
    let begin = job.map_or(last, |job| job.job_modify_index);
    let mut begins = BTreeSet::from([begin]);
    if is_gone {
        begins.insert(last);
    }
    Ok(Some(ResolvedQuestion {
        kind: "job",
        id: name.to_owned(),
        focus: begins.clone(),
        begins,
        whole: true,
        ..ResolvedQuestion::default()
    }))
}

/// A request, among the newest events.
fn request(trail: &Trail<'_>, name: &str) -> Result<Option<ResolvedQuestion>, AuditError> {
    let mut question = Question {
        object: None,
        actor: None,
        kinds: Vec::new(),
        namespace: None,
        request_id: Some(name.to_owned()),
        value: None,
        wanted: OutcomeFilter::All,
        from: trail.first(),
        to: trail.last(),
        newest_first: true,
        limit: BEGINS,
        detail: Detail {
            changes: 0,
            ..Detail::default()
        },
    };
    let mut begins = BTreeSet::new();
    for _ in 0..PAGES {
        let page = trail.answer(&question, |entry| {
            begins.insert(entry.event.index);
            Ok::<bool, AuditError>(true)
        })?;
        match page.next {
            Some(next) if begins.is_empty() => question.to = next,
            _ => break,
        }
    }
    if begins.is_empty() {
        return Ok(None);
    }
    Ok(Some(ResolvedQuestion {
        kind: "request",
        id: name.to_owned(),
        focus: begins.clone(),
        begins,
        descendants: true,
        ..ResolvedQuestion::default()
    }))
}
