//! What a token may do: its policies and those of its roles, compiled.
//!
//! Four caches, all bounded: what a secret was found to be, what a set of policies compiles to,
//! which all tokens with these policies share, the roles, and the policies themselves. What was
//! found is good as long as its table has not changed (of a secret, none of the three); after a
//! change it is found again, and compiled only if it is a policy of its own that changed.

use std::hash::Hash;
use std::sync::{Arc, LazyLock};

use drover_events::model::status::token_type;
use drover_events::model::{AclRole, AclToken};
use drover_projections::tables::acl_policies::AclPolicies;
use drover_projections::tables::acl_roles::AclRoles;
use drover_projections::tables::acl_tokens::{self, AclTokens};
use drover_projections::{StorageError, Table, View, query};
use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;

use crate::acl::{self, Acl, Policy, Strictness};
use crate::keyring::Claims;

/// Secrets that are remembered in each generation.
const SECRETS: usize = 8_192;
/// Sets of policies that are remembered in each generation.
const SETS: usize = 512;
/// Roles that are remembered in each generation.
const ROLES: usize = 4_096;
/// Policies that are remembered in each generation.
const POLICIES: usize = 16_384;
/// The policy of callers that give no token.
pub(super) const ANONYMOUS: &str = "anonymous";
/// What managers may: one and the same for all.
static MANAGER: LazyLock<Arc<Acl>> = LazyLock::new(|| Arc::new(Acl::management()));
/// What managers may.
pub(super) fn manager() -> Arc<Acl> {
    Arc::clone(&MANAGER)
}

/// A token's secret in the form it is stored in.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Secret(String);

impl Secret {
    /// The stored form of what was given.
    pub(super) fn of(given: &str) -> Self {
        Self(acl_tokens::secret_hash(given))
    }
}

/// What a secret was found to be.
#[derive(Clone)]
pub(super) enum ResolvedSecret {
    /// No token's.
    Nobody,
    /// None was given.
    Anonymous(Arc<Acl>),
    /// A token's, which may have expired.
    Bearer(Arc<CachedToken>),
    /// It is signed, of a workload that lives.
    Workload(Arc<Working>),
}

/// A workload, and what it may do.
pub(super) struct Working {
    /// What was signed of it.
    pub(super) claim: Arc<Claims>,
    /// What it may do.
    pub(super) acl: Arc<Acl>,
    /// The names of the policies that are attached to its job.
    pub(super) policies: Vec<String>,
}

impl Working {
    /// Whether the time of what was signed is over at a moment, Unix nanoseconds.
    pub(super) fn is_over(&self, now: i64) -> bool {
        let seconds = now.div_euclid(1_000_000_000);
        self.claim.exp.is_some_and(|end| end <= seconds)
    }
}

/// A token, and what it may do.
pub(super) struct CachedToken {
    /// The token, without its secret.
    pub(super) token: Arc<AclToken>,
    /// What it may do.
    pub(super) acl: Arc<Acl>,
    /// The names of its roles.
    pub(super) roles: Vec<String>,
    /// The names of its policies, its own and those of its roles.
    pub(super) policies: Vec<String>,
}

impl CachedToken {
    /// Whether its time is over at a moment, Unix nanoseconds.
    pub(super) fn is_over(&self, now: i64) -> bool {
        let expires = self.token.expiration_time.as_ref();
        expires.is_some_and(|time| time.0 <= now)
    }
}

/// The indexes of the three tables that say what a token may do.
type Stamp = [u64; 3];

fn stamp(view: &View) -> Stamp {
    [AclTokens::ID, AclRoles::ID, AclPolicies::ID].map(|table| view.last_changed_at(table))
}

/// The name of a policy and the index it was last changed at.
type PolicyVersion = (Arc<str>, u64);

/// A set of policies.
type SetKey = Vec<PolicyVersion>;

/// A policy as it was last written.
struct CachedPolicy {
    name: Arc<str>,
    modified: u64,
    /// None where its rules cannot be read.
    policy: Option<Arc<Policy>>,
}

/// What a table has under a key, and the table's index when that was so: as long as that is the
/// same, nothing need be read.
type Seen<T> = (u64, Option<Arc<T>>);

/// Finds and remembers.
#[derive(Default)]
pub(super) struct Resolver {
    secrets: Mutex<Generations<Option<Secret>, (Stamp, ResolvedSecret)>>,
    sets: Mutex<Generations<SetKey, Arc<Acl>>>,
    roles: Mutex<Generations<String, Seen<AclRole>>>,
    policies: Mutex<Generations<Arc<str>, Seen<CachedPolicy>>>,
}

impl Resolver {
    /// What a secret was found to be, if nothing has changed since.
    pub(super) fn known(&self, view: &View, secret: Option<&Secret>) -> Option<ResolvedSecret> {
        let mut secrets = self.secrets.lock();
        let (then, found) = secrets.get(&secret.cloned())?;
        (*then == stamp(view)).then(|| found.clone())
    }

    /// Finds out what a secret is. It reads tables.
    ///
    /// # Errors
    /// Those of the tables.
    pub(super) fn find(
        &self,
        view: &View,
        secret: Option<&Secret>,
    ) -> Result<ResolvedSecret, StorageError> {
        let found = match secret {
            None => ResolvedSecret::Anonymous(self.compiled(view, vec![ANONYMOUS])?.0),
            Some(secret) => match query::acl::acl_token_by_hash(view, &secret.0)? {
                None => return Ok(ResolvedSecret::Nobody),
                Some(token) => ResolvedSecret::Bearer(Arc::new(self.held(view, token)?)),
            },
        };
        let kept = (stamp(view), found.clone());
        self.secrets.lock().put(secret.cloned(), kept, SECRETS);
        Ok(found)
    }

    fn held(&self, view: &View, token: AclToken) -> Result<CachedToken, StorageError> {
        let mut found = Vec::with_capacity(token.roles.len());
        for link in token.roles.iter() {
            // A role that is gone gives nothing, and takes nothing away (ACL-06).
            found.extend(self.role(view, &link.id)?);
        }
        let mut roles: Vec<String> = found.iter().map(|role| role.name.clone()).collect();
        roles.sort();
        let (acl, policies) = match token.r#type == token_type::MANAGEMENT {
            true => (manager(), Vec::new()),
            false => {
                let own = token.policies.iter().map(String::as_str);
                let names = own.chain(found.iter().flat_map(|role| policies_of(role)));
                self.compiled(view, names.collect())?
            }
        };
        Ok(CachedToken {
            token: Arc::new(token),
            acl,
            roles,
            policies,
        })
    }

    /// What policies allow together, and the names of those that are there.
    fn compiled(
        &self,
        view: &View,
        names: Vec<&str>,
    ) -> Result<(Arc<Acl>, Vec<String>), StorageError> {
        let (known, held) = self.known_policies(view, names)?;
        let written = |one: &Arc<CachedPolicy>| (Arc::clone(&one.name), one.modified);
        let key: SetKey = known.iter().map(written).collect();
        if let Some(acl) = self.sets.lock().get(&key) {
            return Ok((Arc::clone(acl), held));
        }
        let acl = Arc::new(readable(&known).map_or_else(Acl::denied, |all| Acl::compile(&all)));
        self.sets.lock().put(key, Arc::clone(&acl), SETS);
        Ok((acl, held))
    }

    /// What a workload may by these policies, and by itself with the variables under its own paths.
    pub(super) fn of_workload(
        &self,
        view: &View,
        names: Vec<&str>,
        (namespace, own): (&str, &[String]),
    ) -> Result<(Acl, Vec<String>), StorageError> {
        let (known, held) = self.known_policies(view, names)?;
        let acl =
            readable(&known).map_or_else(Acl::denied, |all| Acl::of_workload(&all, namespace, own));
        Ok((acl, held))
    }

    /// The policies of these names that there are, and their names.
    fn known_policies(
        &self,
        view: &View,
        mut names: Vec<&str>,
    ) -> Result<(Vec<Arc<CachedPolicy>>, Vec<String>), StorageError> {
        names.sort_unstable();
        names.dedup();
        let mut known = Vec::with_capacity(names.len());
        for name in names {
            known.extend(self.policy(view, name)?);
        }
        let held = known.iter().map(|one| one.name.to_string()).collect();
        Ok((known, held))
    }

    /// A role; none where it is gone.
    fn role(&self, view: &View, id: &str) -> Result<Option<Arc<AclRole>>, StorageError> {
        let now = view.last_changed_at(AclRoles::ID);
        if let Some((_, role)) = self.roles.lock().get(id).filter(|seen| seen.0 == now) {
            return Ok(role.clone());
        }
        let role = view.get::<AclRoles>(id)?.map(Arc::new);
        let mut roles = self.roles.lock();
        roles.put(id.to_owned(), (now, role.clone()), ROLES);
        Ok(role)
    }

    /// A policy as it was last written; none where there is none.
    fn policy(&self, view: &View, name: &str) -> Result<Option<Arc<CachedPolicy>>, StorageError> {
        let now = view.last_changed_at(AclPolicies::ID);
        let seen = self.policies.lock().get(name).cloned();
        let before = match seen {
            Some((then, known)) if then == now => return Ok(known),
            Some((_, known)) => known,
            None => None,
        };
        let known = match view.modify_index::<AclPolicies>(name)? {
            None => None,
            // A row that is the same need not be read, nor its rules.
            Some(modified) => match before.filter(|known| known.modified == modified) {
                Some(same) => Some(same),
                None => Some(Arc::new(read(view, name, modified)?)),
            },
        };
        let name = known
            .as_ref()
            .map_or_else(|| name.into(), |known| Arc::clone(&known.name));
        let mut policies = self.policies.lock();
        policies.put(name, (now, known.clone()), POLICIES);
        Ok(known)
    }
}

/// What policies say. One that cannot be read might deny something: then there is none, and
/// everything is denied.
fn readable(known: &[Arc<CachedPolicy>]) -> Option<Vec<&Policy>> {
    known.iter().map(|one| one.policy.as_deref()).collect()
}

/// A policy that was last written at an index.
fn read(view: &View, name: &str, modified: u64) -> Result<CachedPolicy, StorageError> {
    let row = view.get::<AclPolicies>(name)?.unwrap_or_default();
    let policy = match acl::parse(&row.rules, Strictness::Lenient) {
        Ok(policy) => Some(Arc::new(policy)),
        Err(error) => {
            tracing::error!(policy = name, %error, "a stored policy cannot be read");
            None
        }
    };
    Ok(CachedPolicy {
        name: name.into(),
        modified,
        policy,
    })
}

pub(super) fn policies_of(role: &AclRole) -> impl Iterator<Item = &str> {
    role.policies.iter().map(|link| link.name.as_str())
}

/// A map that forgets what was not used lately: two generations of a bounded number of entries.
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq, V> Generations<K, V> {
    /// What is remembered of a key, which is young again by it.
    fn get<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.young.insert(key, value);
        }
        self.young.get(key)
    }

    fn put(&mut self, key: K, value: V, most: usize) {
        if self.young.len() >= most && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_what_was_put_last_is_there() {
        let mut map = Generations::default();
        for n in 0..100 {
            map.put(n, n, 10);
            assert_eq!(map.get(&n), Some(&n));
            assert!(map.young.len() + map.old.len() <= 20);
        }
        assert_eq!(map.get(&0), None);
    }
}
