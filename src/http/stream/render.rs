//! From changes to events: topic, type, keys and the row as it was at that index.

use drover_events::topic::Publication;
use drover_projections::changes::Change;
use drover_projections::view::View;

use super::batch::{Batch, Event};
use crate::error::ApiError;
use crate::http::list::storage;

/// The published events of the indexes `first..=last`.
pub(super) fn batches(view: &View, first: u64, last: u64) -> Result<Vec<Batch>, ApiError> {
    let mut batches = Vec::new();
    for changes in view.changes(first) {
        let changes = changes.map_err(storage)?;
        let Some(index) = changes.first().map(|c| c.index) else {
            continue;
        };
        if index > last {
            break;
        }
        let mut events = Vec::new();
        for change in &changes {
            events.extend(event(view, change)?);
        }
        if !events.is_empty() {
            batches.push(Batch::new(index, events));
        }
    }
    Ok(batches)
}

fn event(view: &View, change: &Change) -> Result<Option<Event>, ApiError> {
    let (Some(topic), Publication::Event { event_type, .. }) =
        (change.topic, change.kind.publication())
    else {
        return Ok(None);
    };
    let Some(payload) = super::payload::payload(view, change)? else {
        return Ok(None);
    };
    let mut keys = change.stream_keys.iter().cloned();
    let key = keys.next().unwrap_or_default();
    let filter_keys: Vec<String> = keys.collect();
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list = match filter_keys.as_slice() {
        [] => "null".to_owned(),
        keys => serde_json::Value::from(keys.to_vec()).to_string(),
    };
    let json = format!(
        "{{\"Topic\":\"{topic}\",\"Type\":\"{event_type}\",\"Key\":{},\"Namespace\":{},\
         \"FilterKeys\":{list},\"Index\":{},\"Payload\":{payload}}}",
        quoted(&key),
        quoted(&change.namespace),
        change.index,
    );
    Ok(Some(Event {
        topic,
        namespace: change.namespace.clone(),
        key,
        filter_keys,
        json: json.into(),
    }))
}
