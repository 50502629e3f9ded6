//! The kinds of reading that settings name, and what their defaults and what is shown are made of.
//!
//! Each kind is a function of the field, its name in files, and the body that is read.

use super::read::{BodyReader, FromNode};
pub(super) use super::settings::block_to_json;
use super::settings::{Block, overlay};
pub(super) use super::size::{size, size_above_zero};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// A value: a scalar is replaced, a list grows, a map merges.
pub(super) fn set<V: FromNode + Clone + PartialEq>(
    out: &mut V,
    name: &str,
    r: &mut BodyReader<'_>,
) {
    r.set(name, out);
}

/// A switch that no later file turns off.
pub(super) fn switch(out: &mut bool, name: &str, r: &mut BodyReader<'_>) {
    r.switch(name, out);
}

/// A value that means no limit where it is 0 or no time.
pub(super) fn above_zero<V: FromNode + Clone + Default + PartialEq>(
    out: &mut Option<V>,
    name: &str,
    r: &mut BodyReader<'_>,
) {
    let mut value = V::default();
    r.set(name, &mut value);
    if value != V::default() {
        *out = Some(value);
    }
}

pub(super) fn block<V: Block>(out: &mut V, name: &str, r: &mut BodyReader<'_>) {
    r.block(name, |r| overlay(out, r));
}

/// A block that starts from its defaults in each file that has it.
pub(super) fn reset<V: Block>(out: &mut V, name: &str, r: &mut BodyReader<'_>) {
    r.block(name, |r| {
        *out = V::default();
        overlay(out, r);
    });
}

/// A block that may be absent.
pub(super) fn maybe<V: Block>(out: &mut Option<V>, name: &str, r: &mut BodyReader<'_>) {
    r.block(name, |r| overlay(out.get_or_insert_default(), r));
}

/// Blocks with labels.
pub(super) fn labelled<V: Block>(
    out: &mut BTreeMap<String, V>,
    name: &str,
    r: &mut BodyReader<'_>,
) {
    r.labelled(name, |label, r| {
        overlay(out.entry(label.to_owned()).or_default(), r);
    });
}

/// Settings that stand beside those of the block they are a field of.
pub(super) fn inline<V: Block>(out: &mut V, _: &str, r: &mut BodyReader<'_>) {
    overlay(out, r);
}

/// A value that is kept in a map under its name.
pub(super) fn kept<V: FromNode + Clone + Default + PartialEq>(
    all: &mut BTreeMap<String, V>,
    name: &str,
    r: &mut BodyReader<'_>,
) {
    let mut value = all.remove(name);
    r.set(name, &mut value);
    if let Some(value) = value {
        all.insert(name.to_owned(), value);
    }
}

/// What this does not read: no file says it, or another setting reads it.
pub(super) fn unread<V>(_: &mut V, _: &str, _: &mut BodyReader<'_>) {}

/// Shows a time in nanoseconds.
pub(super) fn ns(time: &Duration) -> Value {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Shows a time in seconds, `5s`.
pub(super) fn seconds(time: &Duration) -> Value {
    json!(format!("{}s", time.as_secs()))
}

/// Shows that there is such a setting, and nothing of its value.
pub(super) fn left_out<V>(_: &V) -> Value {
    json!("")
}
