//! Arguments by position and kind.

use super::super::budget::Budget;
use super::super::value::Value;
use std::collections::BTreeMap;

/// The arguments of one call, taken from the left.
pub(super) struct Args<'b> {
    values: std::vec::IntoIter<Value>,
    taken: usize,
    /// What work is charged to whose cost is unknown before it is done.
    pub(super) budget: &'b Budget,
}

impl<'b> Args<'b> {
    pub(super) fn new(values: Vec<Value>, budget: &'b Budget) -> Args<'b> {
        Args {
            values: values.into_iter(),
            taken: 0,
            budget,
        }
    }

    pub(super) fn left(&self) -> usize {
        self.values.len()
    }

    /// The next argument, whatever it is.
    pub(super) fn any(&mut self) -> Result<Value, String> {
        self.taken += 1;
        self.values
            .next()
            .ok_or_else(|| format!("not enough arguments: number {} is missing", self.taken))
    }

    fn wrong<T>(&self, needed: &str) -> Result<T, String> {
        Err(format!("argument {}: {needed}", self.taken))
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        match self.any()?.to_text() {
            Some(text) => Ok(text),
            None => self.wrong("string required"),
        }
    }

    pub(super) fn number(&mut self) -> Result<f64, String> {
        match self.any()?.to_number().and_then(|n| n.as_f64()) {
            Some(x) => Ok(x),
            None => self.wrong("a number is required"),
        }
    }

    pub(super) fn whole(&mut self) -> Result<i64, String> {
        match self.any()?.to_number() {
            Some(Value::Int(n)) => match i64::try_from(n) {
                Ok(n) => Ok(n),
                Err(_) => self.wrong("the number is too large"),
            },
            _ => self.wrong("a whole number is required"),
        }
    }

    pub(super) fn list(&mut self) -> Result<Vec<Value>, String> {
        match self.any()? {
            Value::List(items) => Ok(items),
            _ => self.wrong("list required"),
        }
    }

    pub(super) fn texts(&mut self) -> Result<Vec<String>, String> {
        let items = self.list()?;
        match items.iter().map(Value::to_text).collect() {
            Some(texts) => Ok(texts),
            None => self.wrong("list of string required"),
        }
    }

    pub(super) fn map(&mut self) -> Result<BTreeMap<String, Value>, String> {
        match self.any()? {
            Value::Map(map) => Ok(map),
            _ => self.wrong("map required"),
        }
    }

    pub(super) fn rest(&mut self) -> Vec<Value> {
        self.taken += self.values.len();
        self.values.by_ref().collect()
    }

    /// Refuses surplus arguments.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.values.len() {
            0 => Ok(()),
            more => Err(format!("too many arguments: {more} more than expected")),
        }
    }
}
