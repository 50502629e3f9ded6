//! Where a filtered subscription finds its events: the indexes at which a topic's key changed.
//!
//! A row's own key is answered by its history, a filter key by an index of its table, living and
//! dead entries alike, and what no index answers by `postings`. The cost follows what matches, not
//! what is skipped. An index may be named where the row had the key only before or after; the
//! reader of the change compares its stream keys, so nothing is missed and nothing reported
//! wrongly.

use std::collections::BTreeSet;

use drover_events::Topic;

use crate::engine::error::StorageError;
use crate::engine::key::{AsKey, Key, KeyBuf};
use crate::engine::scan::Scan;
use crate::engine::table::{Index, Table};
use crate::engine::txn::encoded;
use crate::past::history;
use crate::read::view::View;
use crate::tables::*;

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
    /// The last index of interest: lower once there are too many.
    last: u64,
    most: usize,
    found: BTreeSet<u64>,
}

impl View {
    /// The indexes from `first` on at which rows with this stream key or filter key changed, in
    /// order; without changes by rule that deleted none of these rows.
    pub fn touched(
        &self,
        topic: Topic,
        namespace: &str,
        key: &str,
        first: u64,
    ) -> Result<BTreeSet<u64>, StorageError> {
        let mut finder = self.finder(first, usize::MAX);
        finder.topic(topic, namespace, key)?;
        finder.posted(topic, namespace, key)?;
        Ok(finder.found)
    }

    /// As [`View::touched`], for several keys together, with all changes by rule in the namespace;
    /// at most `most` indexes (1 at least), and the index up to which they are all, the view's own
    /// where none was left out.
    pub fn first_positions(
        &self,
        keys: &[(Topic, &str, &str)],
        first: u64,
        most: usize,
    ) -> Result<(BTreeSet<u64>, u64), StorageError> {
        let mut finder = self.finder(first, most);
        for (topic, namespace, key) in keys {
            finder.topic(*topic, namespace, key)?;
            finder.posted(*topic, namespace, key)?;
            finder.posted(*topic, namespace, "*")?;
        }
        Ok((finder.found, finder.last))
    }

    fn finder(&self, first: u64, most: usize) -> Finder<'_> {
        Finder {
            view: self,
            first,
            last: self.index(),
            most: most.max(1),
            found: BTreeSet::new(),
        }
    }
}

impl Finder<'_> {
    /// Keeps an index, and lets go of the greatest one when there are too many.
    fn note(&mut self, index: u64) {
        if !(self.first..=self.last).contains(&index) {
            return;
        }
        self.found.insert(index);
        if self.found.len() > self.most
            && let Some(greatest) = self.found.pop_last()
        {
            self.last = greatest - 1;
        }
    }

    /// What no index answers, or `*` for changes by rule.
    fn posted(&mut self, topic: Topic, namespace: &str, key: &str) -> Result<(), StorageError> {
        for index in self.view.postings(topic, namespace, key, self.first) {
            let index = index?;
            if index > self.last {
                break;
            }
            self.note(index);
        }
        Ok(())
    }

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
            // Events of these topics are published themselves: no row stands for them.
            Topic::Operator
            | Topic::Cluster
            | Topic::Configuration
            | Topic::Namespace
            | Topic::JobVersion
            | Topic::JobSummary
            | Topic::PeriodicLaunch
            | Topic::Removal
            | Topic::RootKey
            | Topic::Scaling
            | Topic::AclBootstrap
            | Topic::OneTimeToken
            | Topic::HostVolumeClaim => Ok(()),
        }
    }

    fn row<T: Table>(&mut self, key: impl AsKey<T::Key>) -> Result<(), StorageError> {
        self.change_indexes::<T>(&encoded::<T>(key))
    }

    fn change_indexes<T: Table>(&mut self, key: &[u8]) -> Result<(), StorageError> {
        let (view, first) = (self.view, self.first);
        if let Some(modified) = view.modified_encoded::<T>(key)? {
            self.note(modified);
        }
        history::change_indexes(view.source(), T::ID, key, first, |index| self.note(index))
    }

    fn group<I: Index>(&mut self, group: impl AsKey<I::Group>) -> Result<(), StorageError> {
        for key in self.view.members_since::<I>(group, self.first)? {
            self.change_indexes::<I::Table>(&key)?;
        }
        Ok(())
    }
}
