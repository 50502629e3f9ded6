//! Names and their values, innermost first.

use super::super::value::Value;

/// One level of names over an outer one.
#[derive(Debug, Default)]
pub(crate) struct Scope<'a> {
    outer: Option<&'a Scope<'a>>,
    names: Vec<(String, Value)>,
}

impl<'a> Scope<'a> {
    /// A level on top of this one.
    pub(crate) fn child(&'a self) -> Scope<'a> {
        Scope {
            outer: Some(self),
            names: Vec::new(),
        }
    }

    /// Gives a name a value on this level.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.names.retain(|(n, _)| n != name);
        self.names.push((name.to_owned(), value));
    }

    /// Takes a name's value from this level.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        let at = self.names.iter().position(|(n, _)| n == name)?;
        Some(self.names.swap_remove(at).1)
    }

    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let mut level = Some(self);
        while let Some(scope) = level {
            if let Some((_, value)) = scope.names.iter().find(|(n, _)| n == name) {
                return Some(value);
            }
            level = scope.outer;
        }
        None
    }
}
