//! A list that knows nil from empty.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;

/// A Go slice: nil (`null` in JSON, absent in the binary form) or a list, maybe empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T>(Option<Vec<T>>);

impl<T> List<T> {
    /// The nil list.
    #[must_use]
    pub const fn nil() -> Self {
        Self(None)
    }

    /// An empty list that is not nil.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Some(Vec::new()))
    }

    /// True for the nil list only; an empty one is not nil.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        self.0.is_none()
    }

    /// The elements, to be changed; a nil list becomes an empty one.
    pub fn to_mut(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_with(Vec::new)
    }

    /// Appends an element.
    pub fn push(&mut self, value: T) {
        self.to_mut().push(value);
    }

    /// The elements as a vector; nil gives an empty one.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.0.unwrap_or_default()
    }

    /// The same list, nil replaced by empty, as handlers answer it.
    #[must_use]
    pub fn or_empty(self) -> Self {
        Self(Some(self.into_vec()))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::nil()
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(value: Vec<T>) -> Self {
        Self(Some(value))
    }
}

impl<T, const N: usize> From<[T; N]> for List<T> {
    fn from(value: [T; N]) -> Self {
        Self(Some(Vec::from(value)))
    }
}

impl<T> From<Option<Vec<T>>> for List<T> {
    fn from(value: Option<Vec<T>>) -> Self {
        Self(value)
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> Self {
        Self(Some(iter.into_iter().collect()))
    }
}

impl<T> Extend<T> for List<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, iter: I) {
        self.to_mut().extend(iter);
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut List<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T> Zero for List<T> {
    fn is_zero(&self) -> bool {
        self.is_nil()
    }

    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            // The name says what is absent, to the readers that use it.
            None => serializer.serialize_newtype_struct("List", &()),
            Some(items) => items.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self)
    }
}
