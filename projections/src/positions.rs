//! Where a filtered subscription finds its events: the indexes at which a topic's key changed.
//!
//! A row's own key is answered by its history, a filter key by an index of its table, living and
//! dead entries alike, and what no index answers by `postings`. The cost follows what matches, not
//! what is skipped. An index may be named where the row had the key only before or after; whoever
//! reads the change compares its stream keys, so nothing is missed and nothing told wrongly.

use std::collections::BTreeSet;

use drover_events::Topic;

use crate::error::StorageError;
use crate::history;
use crate::key::{AsKey, Key, KeyBuf};
use crate::scan::Scan;
use crate::table::{Index, Table};
use crate::tables::*;
use crate::txn::encoded;
use crate::view::View;

impl View {
    /// The encoded keys of the rows that a group of an index has or ever had.
    pub fn members_ever<I: Index>(
        &self,
        group: impl AsKey<I::Group>,
    ) -> Result<BTreeSet<Vec<u8>>, StorageError> {
        self.members_since::<I>(group, 0)
    }

    /// As [`View::members_ever`], without those that had left before `first`.
    fn members_since<I: Index>(
        &self,
        group: impl AsKey<I::Group>,
        first: u64,
    ) -> Result<BTreeSet<Vec<u8>>, StorageError> {
        let mut bytes = KeyBuf::new();
        group.encode_as(&mut bytes);
        let mut rows = BTreeSet::new();
        for entry in history::dead_since::<I>(self.source(), &bytes, first)? {
            let mut key = entry.as_slice();
            I::Order::skip(&mut key).map_err(|_| StorageError::damaged("dead entry", &entry))?;
            rows.insert(key.to_vec());
        }
        let mut cursor = self.index_cursor::<I>(&Scan::bytes(&bytes));
        while let Some(entry) = cursor.advance()? {
            rows.insert(entry.primary.to_vec());
        }
        Ok(rows)
    }
}

struct Finder<'a> {
    view: &'a View,
    first: u64,
    found: BTreeSet<u64>,
}

impl View {
    /// The indexes from `first` on at which rows with this stream key or filter key changed, in
    /// order; changes by rule in the namespace are among them.
    pub fn positions(
        &self,
        topic: Topic,
        namespace: &str,
        key: &str,
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        let mut found = self.touched(topic, namespace, key, first)?;
        for index in self.postings(topic, namespace, "*", first) {
            found.insert(index?);
        }
        Ok(found)
    }

    /// As [`View::positions`], without changes by rule that deleted none of these rows.
    pub fn touched(
        &self,
        topic: Topic,
        namespace: &str,
        key: &str,
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        let mut finder = Finder {
            view: self,
            first,
            found: BTreeSet::new(),
        };
        finder.topic(topic, namespace, key)?;
        for index in self.postings(topic, namespace, key, first) {
            finder.found.insert(index?);
        }
        Ok(finder.found)
    }
}

impl Finder<'_> {
    fn topic(&mut self, topic: Topic, space: &str, key: &str) -> Result<(), StorageError> {
        match topic {
            Topic::Job => self.row::<Jobs>((space, key)),
            Topic::Evaluation => {
                self.row::<Evals>(key)?;
                self.group::<evals::EvalsByJob>((space, key))
            }
            Topic::Allocation => {
                self.row::<Allocs>(key)?;
                self.group::<allocs::AllocsByJob>((space, key))?;
                self.group::<allocs::AllocsByDeployment>(key)
            }
            Topic::Deployment => {
                self.row::<Deployments>(key)?;
                self.group::<deployments::DeploymentsByJob>((space, key))
            }
            Topic::Node => {
                self.row::<Nodes>(key)?;
                self.row::<NodeStates>(key)
            }
            Topic::NodePool => self.row::<NodePools>(key),
            Topic::Service => {
                self.row::<Services>((space, key))?;
                self.group::<services::ServicesByJob>((space, key))?;
                self.group::<services::ServicesByName>((space, key))
            }
            Topic::AclToken => self.row::<AclTokens>(key),
            Topic::AclPolicy => self.row::<AclPolicies>(key),
            Topic::AclRole => {
                self.row::<AclRoles>(key)?;
                self.group::<acl_roles::AclRolesByName>(key)
            }
            Topic::AclAuthMethod => self.row::<AuthMethods>(key),
            Topic::AclBindingRule => {
                self.row::<BindingRules>(key)?;
                self.group::<binding_rules::BindingRulesByMethod>(key)
            }
            Topic::HostVolume => self.row::<HostVolumes>((space, key)),
            Topic::CsiVolume => {
                self.row::<CsiVolumes>((space, key))?;
                self.group::<csi_volumes::CsiVolumesByPlugin>(key)
            }
            Topic::CsiPlugin => self.row::<CsiPlugins>(key),
            Topic::Variable => self.row::<Variables>((space, key)),
            Topic::Operator => Ok(()),
        }
    }

    fn row<T: Table>(&mut self, key: impl AsKey<T::Key>) -> Result<(), StorageError> {
        self.moments::<T>(&encoded::<T>(key))
    }

    fn moments<T: Table>(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let first = self.first;
        let mut note = |index: u64| {
            if index >= first {
                self.found.insert(index);
            }
        };
        if let Some(modified) = self.view.modified_encoded::<T>(key)? {
            note(modified);
        }
        history::moments(self.view.source(), T::ID, key, first, note)
    }

    fn group<I: Index>(&mut self, group: impl AsKey<I::Group>) -> Result<(), StorageError> {
        for key in self.view.members_since::<I>(group, self.first)? {
            self.moments::<I::Table>(&key)?;
        }
        Ok(())
    }
}
