//! What can be queried: a thing by its type and name, living or long gone, as the rows it is.

use std::collections::{BTreeSet, HashSet};

use drover_events::Topic;
use drover_projections::key::{Id, Key};
use drover_projections::tables::*;
use drover_projections::{Prefix, Table, View};

use super::trail::Shown;
use super::{AuditError, Trail};

/// A row: its table's number and its encoded key.
pub(super) type RowKey = (u16, Vec<u8>);

/// Rows that a prefix may name before it is called ambiguous.
const NAMED: usize = 4;
/// Versions of one job that are looked at.
const VERSIONS: usize = 10_000;

macro_rules! types {
    ($($name:ident $($word:literal)+,)*) => {
        /// The types of things that are audited by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ObjectType {
            $(#[doc = concat!("`", $($word, " ",)+ "`.")] $name,)*
        }

        impl ObjectType {
            /// Every word that names a type, the usual one of each first.
            pub const WORDS: &'static [&'static [&'static str]] = &[$(&[$($word),+],)*];

            /// The type with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($($word)|+ => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its usual name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => [$($word),+][0],)*
                }
            }
        }
    };
}

types! {
    Job "job" "jobs",
    Eval "eval" "evaluation",
    Alloc "alloc" "allocation",
    Deployment "deployment",
    Node "node",
    NodePool "node-pool" "pool",
    Namespace "namespace",
    Variable "variable" "var",
    Service "service",
    RootKey "root-key" "key",
    Token "acl-token" "token",
    Policy "acl-policy" "policy",
    Role "acl-role" "role",
    AuthMethod "acl-auth-method" "auth-method",
    BindingRule "acl-binding-rule" "binding-rule",
    HostVolume "host-volume",
    CsiVolume "csi-volume" "volume",
    CsiPlugin "csi-plugin" "plugin",
    ScalingPolicy "scaling-policy",
    Scheduler "scheduler",
    Autopilot "autopilot",
}

impl ObjectType {
    /// Its usual name with an article.
    pub fn a_name(self) -> String {
        let name = self.name();
        let article = match name.starts_with(['a', 'e', 'i', 'o', 'u']) {
            true => "an",
            false => "a",
        };
        format!("{article} {name}")
    }

    /// Whether a cluster has exactly one of this type, without a name.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Scheduler | Self::Autopilot)
    }

    /// Whether its names are those of a namespace.
    pub fn is_in_namespace(self) -> bool {
        use ObjectType::*;
        matches!(self, Job | Variable | Service | HostVolume | CsiVolume)
    }
}

/// A thing that is queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its type.
    pub kind: ObjectType,
    /// Its namespace; without meaning for types that have none.
    pub namespace: String,
    /// Its id or name; where ids are UUIDs, the beginning of one.
    pub id: String,
    /// For a job: its evaluations, allocations and deployments as well.
    pub related: bool,
}

/// What is known of a thing: its rows, and when anything about it changed.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectHistory {
    pub(super) rows: HashSet<RowKey>,
    pub(super) change_indexes: BTreeSet<u64>,
}

impl Object {
    /// Finds the thing, wherever in the past it is.
    ///
    /// # Errors
    /// There never was such a thing, or not since the past is kept; or the beginning of an id names
    /// several.
    pub(super) fn find(&self, trail: &Trail<'_>) -> Result<ObjectHistory, AuditError> {
        let view = trail.view();
        let (mut rows, mut shown) = (HashSet::new(), Shown::default());
        for (table, key) in self.rows(trail)? {
            if trail.shows_row(&mut shown, table, &key)? {
                rows.insert((table, key));
            }
        }
        let mut known = ObjectHistory {
            rows,
            change_indexes: BTreeSet::new(),
        };
        for (table, key) in &known.rows {
            known
                .change_indexes
                .extend(view.change_indexes_of(*table, key, 0)?);
        }
        if known.change_indexes.is_empty() {
            return Err(self.unknown(view));
        }
        if self.related && self.kind == ObjectType::Job {
            for topic in [Topic::Evaluation, Topic::Allocation, Topic::Deployment] {
                let touched = view.touched(topic, &self.namespace, &self.id, 0)?;
                known.change_indexes.extend(touched.range(..=view.index()));
            }
        }
        Ok(known)
    }

    fn unknown(&self, view: &View) -> AuditError {
        let place = match self.kind.is_in_namespace() {
            true => format!(" in namespace {:?}", self.namespace),
            false => String::new(),
        };
        let name = self.kind.a_name();
        AuditError::unknown(view, format!("there never was {name} {:?}{place}", self.id))
    }

    fn rows(&self, trail: &Trail<'_>) -> Result<Vec<RowKey>, AuditError> {
        let view = trail.view();
        let named = || (self.namespace.clone(), self.id.clone());
        let text = || self.id.clone();
        Ok(match self.kind {
            ObjectType::Job => {
                let mut rows = vec![
                    row::<Jobs>(named()),
                    row::<PeriodicLaunches>(named()),
                    row::<ScalingEvents>(named()),
                ];
                let prefix = Prefix::new().str(&self.namespace).str(&self.id);
                let versions = view.keys_including_deleted::<JobVersions>(prefix, VERSIONS)?;
                rows.extend(versions.into_iter().map(|key| (JobVersions::ID, key)));
                rows
            }
            ObjectType::Eval => vec![row::<Evals>(self.id::<Evals>(trail)?)],
            ObjectType::Alloc => vec![row::<Allocs>(self.id::<Allocs>(trail)?)],
            ObjectType::Deployment => vec![row::<Deployments>(self.id::<Deployments>(trail)?)],
            ObjectType::Node => {
                let id = self.id::<Nodes>(trail)?;
                vec![row::<Nodes>(id.clone()), row::<NodeStates>(id)]
            }
            ObjectType::NodePool => vec![row::<NodePools>(text())],
            ObjectType::Namespace => vec![row::<Namespaces>(text())],
            ObjectType::Variable => vec![row::<Variables>(named())],
            ObjectType::Service => vec![row::<Services>(named())],
            ObjectType::RootKey => vec![row::<RootKeys>(self.id::<RootKeys>(trail)?)],
            ObjectType::Token => vec![row::<AclTokens>(self.id::<AclTokens>(trail)?)],
            ObjectType::Policy => vec![row::<AclPolicies>(text())],
            ObjectType::Role => vec![row::<AclRoles>(self.id::<AclRoles>(trail)?)],
            ObjectType::AuthMethod => vec![row::<AuthMethods>(text())],
            ObjectType::BindingRule => vec![row::<BindingRules>(self.id::<BindingRules>(trail)?)],
            ObjectType::HostVolume => {
                vec![row::<HostVolumes>((
                    self.namespace.clone(),
                    Id::new(self.id.as_str()),
                ))]
            }
            ObjectType::CsiVolume => vec![row::<CsiVolumes>(named())],
            ObjectType::CsiPlugin => vec![row::<CsiPlugins>(text())],
            ObjectType::ScalingPolicy => {
                vec![row::<ScalingPolicies>(self.id::<ScalingPolicies>(trail)?)]
            }
            ObjectType::Scheduler => vec![row::<SchedulerConfigTable>(())],
            ObjectType::Autopilot => vec![row::<AutopilotConfigTable>(())],
        })
    }

    /// The only identifier that begins with the one given.
    fn id<T: Table<Key = Id>>(&self, trail: &Trail<'_>) -> Result<Id, AuditError> {
        let view = trail.view();
        let found = trail.ids::<T>(&self.id, NAMED)?;
        if found.contains(&self.id) {
            return Ok(Id::new(self.id.as_str()));
        }
        match found.as_slice() {
            [] => Err(self.unknown(view)),
            [one] => Ok(Id::new(one.as_str())),
            several => Err(AuditError::Question(format!(
                "id {:?} names several: {}",
                self.id,
                several.join(", ")
            ))),
        }
    }
}

fn row<T: Table>(key: T::Key) -> RowKey {
    (T::ID, key.to_bytes().to_vec())
}
