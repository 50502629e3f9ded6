//! A string-keyed map that knows nil from empty.

use std::collections::{BTreeMap, btree_map};
use std::marker::PhantomData;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Zero;

/// A Go map with string keys: nil (`null`, absent in the binary form) or a map, in key order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map<V>(Option<BTreeMap<String, V>>);

struct Empty<V>(PhantomData<V>);

impl<V: 'static> Empty<V> {
    const MAP: &'static BTreeMap<String, V> = &BTreeMap::new();
}

impl<V> Map<V> {
    /// The nil map.
    #[must_use]
    pub const fn nil() -> Self {
        Self(None)
    }

    /// An empty map that is not nil.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Some(BTreeMap::new()))
    }

    /// True for the nil map only; an empty one is not nil.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        self.0.is_none()
    }

    /// The map, to be changed; a nil map becomes an empty one.
    pub fn to_mut(&mut self) -> &mut BTreeMap<String, V> {
        self.0.get_or_insert_with(BTreeMap::new)
    }

    /// Sets a key and gives back what it held.
    pub fn insert(&mut self, key: impl Into<String>, value: V) -> Option<V> {
        self.to_mut().insert(key.into(), value)
    }

    /// Removes a key; a nil map stays nil.
    pub fn remove(&mut self, key: &str) -> Option<V> {
        self.0.as_mut()?.remove(key)
    }

    /// A value to be changed in place.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.0.as_mut()?.get_mut(key)
    }

    /// The values, to be changed in place; a nil map stays nil.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().flat_map(BTreeMap::values_mut)
    }

    /// Entries whose values can be changed in place; a nil map stays nil.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut V)> {
        self.0.iter_mut().flat_map(BTreeMap::iter_mut)
    }

    /// The entries as a map; nil gives an empty one.
    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, V> {
        self.0.unwrap_or_default()
    }

    /// The same map, nil replaced by empty, as handlers answer it.
    #[must_use]
    pub fn or_empty(self) -> Self {
        Self(Some(self.into_map()))
    }
}

impl<V> Default for Map<V> {
    fn default() -> Self {
        Self::nil()
    }
}

impl<V: 'static> Deref for Map<V> {
    type Target = BTreeMap<String, V>;

    fn deref(&self) -> &BTreeMap<String, V> {
        self.0.as_ref().unwrap_or(Empty::MAP)
    }
}

impl<V> From<BTreeMap<String, V>> for Map<V> {
    fn from(value: BTreeMap<String, V>) -> Self {
        Self(Some(value))
    }
}

impl<K: Into<String>, V, const N: usize> From<[(K, V); N]> for Map<V> {
    fn from(value: [(K, V); N]) -> Self {
        value.into_iter().collect()
    }
}

impl<K: Into<String>, V> FromIterator<(K, V)> for Map<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(iter: I) -> Self {
        Self(Some(iter.into_iter().map(|(k, v)| (k.into(), v)).collect()))
    }
}

impl<K: Into<String>, V> Extend<(K, V)> for Map<V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, iter: I) {
        self.to_mut()
            .extend(iter.into_iter().map(|(k, v)| (k.into(), v)));
    }
}

impl<V> IntoIterator for Map<V> {
    type Item = (String, V);
    type IntoIter = btree_map::IntoIter<String, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_map().into_iter()
    }
}

impl<'a, V: 'static> IntoIterator for &'a Map<V> {
    type Item = (&'a String, &'a V);
    type IntoIter = btree_map::Iter<'a, String, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<V> Zero for Map<V> {
    fn is_zero(&self) -> bool {
        self.is_nil()
    }

    fn is_blank(&self) -> bool {
        self.0.as_ref().is_none_or(BTreeMap::is_empty)
    }
}

impl<V: Serialize> Serialize for Map<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            // The name says what is absent, to the readers that use it.
            None => serializer.serialize_newtype_struct("Map", &()),
            Some(entries) => entries.serialize(serializer),
        }
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Map<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self)
    }
}
