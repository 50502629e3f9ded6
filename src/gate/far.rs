//! Who calls, where there are no tables: the servers are queried, and their answers are kept
//! (ACL-10, MOD-22).
//!
//! Tokens, roles and policies are kept apart, each as long as it is configured: so a role or a
//! policy that changes counts for all its tokens at once. A workload is kept as a token is, with
//! what it may do. Where no server answers, what was known last goes on counting, as with Nomad: a
//! client that is cut off still shows its logs. Servers that answer that they get too many requests
//! are there, and what was known does not count instead: a caller with a revoked token could go on
//! using it for as long as it sends enough requests.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_events::model::status::token_type;
use drover_events::model::{AclPolicy, AclRole, AclToken};
use parking_lot::Mutex;

use super::resolver::{
    ANONYMOUS, CachedToken, ResolvedSecret, Secret, Working, manager, policies_of,
};
use super::workload;
use crate::acl::{self, Acl, Policy, Strictness};
use crate::error::{Code, Refusal};
use crate::rpc::caller::Caller;
use crate::rpc::methods::{
    AclClaimPoliciesRequest, AclClaimPoliciesResponse, AclGetClaimPolicies, AclGetPolicies,
    AclGetRoles, AclPolicySetRequest, AclResolveToken, AclRolesByIdRequest, ResolveAclTokenRequest,
};
use crate::rpc::{Rpc, RpcError};

/// How long a query of the servers may take.
const ASKING: Duration = Duration::from_secs(3);
/// How long they are not queried again after none answered.
const AGAIN: Duration = Duration::from_secs(5);
/// What is kept of each kind; beyond it, servers are queried each time.
const MOST: usize = 8_192;
/// Names or ids that servers take in one call.
const AT_ONCE: usize = 1_000;

/// How long what servers say is kept.
#[derive(Clone, Copy, Debug)]
pub struct Ttls {
    pub token: Duration,
    pub policy: Duration,
    pub role: Duration,
}

/// A policy, and what its rules say; nothing where they cannot be read.
type ParsedPolicy = (AclPolicy, Option<Arc<Policy>>);

/// What sets of policies compile to, by their names and the indexes they were last changed at.
type Sets = HashMap<Vec<(String, u64)>, Arc<Acl>>;

/// Queries servers.
pub(super) struct Far {
    caller: Caller,
    ttls: Mutex<Ttls>,
    tokens: RemoteCache<Secret, Arc<AclToken>>,
    workloads: RemoteCache<Secret, Arc<Working>>,
    roles: RemoteCache<String, Option<AclRole>>,
    policies: RemoteCache<String, Option<ParsedPolicy>>,
    sets: Mutex<Sets>,
    /// How long a query of the servers may take, and for how long none is made after none answered.
    asking: Duration,
    again: Duration,
    /// When and why no server answered last.
    failed: Mutex<Option<(Instant, RpcError)>>,
}

impl Far {
    pub(super) fn new(caller: Caller, ttls: Ttls) -> Self {
        Self {
            caller,
            ttls: Mutex::new(ttls),
            asking: ASKING,
            again: AGAIN,
            tokens: RemoteCache::default(),
            workloads: RemoteCache::default(),
            roles: RemoteCache::default(),
            policies: RemoteCache::default(),
            sets: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// What is known from now on counts so long by itself.
    pub(super) fn keep(&self, ttls: Ttls) {
        *self.ttls.lock() = ttls;
    }

    fn ttls(&self) -> Ttls {
        *self.ttls.lock()
    }

    /// Whether what a secret is counts by itself now.
    pub(super) fn keeps(&self, secret: &str) -> bool {
        let (key, ttl) = (Secret::of(secret), self.ttls().token);
        match workload::is_signed(secret) {
            true => self.workloads.get(&key, ttl).1,
            false => self.tokens.get(&key, ttl).1,
        }
    }

    /// Finds out what a secret is.
    ///
    /// # Errors
    /// 503 where no server answers and nothing is known, 429 where they get too many requests.
    pub(super) async fn find(&self, secret: Option<&str>) -> Result<ResolvedSecret, Refusal> {
        let Some(secret) = secret else {
            let names = BTreeSet::from([ANONYMOUS.to_owned()]);
            return Ok(ResolvedSecret::Anonymous(self.compiled(names).await?.0));
        };
        if workload::is_signed(secret) {
            let working = self.workload(secret).await?;
            return Ok(working.map_or(ResolvedSecret::Nobody, ResolvedSecret::Workload));
        }
        let Some(token) = self.token(secret).await? else {
            return Ok(ResolvedSecret::Nobody);
        };
        let ids = token.roles.iter().map(|link| link.id.clone()).collect();
        let found = self.roles_of(ids).await?;
        let mut names: BTreeSet<String> = token.policies.iter().cloned().collect();
        names.extend(found.iter().flat_map(policies_of).map(str::to_owned));
        let mut roles: Vec<String> = found.into_iter().map(|role| role.name).collect();
        roles.sort();
        let (acl, policies) = match token.r#type == token_type::MANAGEMENT {
            true => (manager(), Vec::new()),
            false => self.compiled(names).await?,
        };
        Ok(ResolvedSecret::Bearer(Arc::new(CachedToken {
            token,
            acl,
            roles,
            policies,
        })))
    }

    /// The token of a secret. One that is none is not kept: it may be made in the next moment.
    async fn token(&self, secret: &str) -> Result<Option<Arc<AclToken>>, Refusal> {
        let requested = ResolveAclTokenRequest {
            secret_id: secret.to_owned(),
        };
        let ask = async { Ok(self.ask::<AclResolveToken>(&requested).await?.token) };
        self.tokens.one(secret, self.ttls().token, ask).await
    }

    /// The workload that this was signed of. One that is none is not kept either.
    async fn workload(&self, signed: &str) -> Result<Option<Arc<Working>>, Refusal> {
        let requested = AclClaimPoliciesRequest {
            signed: signed.to_owned(),
        };
        let ask = async { Ok(working(self.ask::<AclGetClaimPolicies>(&requested).await?)) };
        self.workloads.one(signed, self.ttls().token, ask).await
    }

    async fn roles_of(&self, ids: BTreeSet<String>) -> Result<Vec<AclRole>, Refusal> {
        let ask = move |role_ids: Vec<String>| async move {
            let requested = AclRolesByIdRequest { role_ids };
            let answer = self.ask::<AclGetRoles>(&requested).await?;
            Ok(answer.roles.into_iter().collect())
        };
        self.roles.all(ids, self.ttls().role, ask).await
    }

    /// What policies allow together, and the names of those that are there.
    async fn compiled(&self, names: BTreeSet<String>) -> Result<(Arc<Acl>, Vec<String>), Refusal> {
        let ask = move |names: Vec<String>| async move {
            let requested = AclPolicySetRequest { names };
            let answer = self.ask::<AclGetPolicies>(&requested).await?;
            let written = answer.policies.into_iter();
            Ok(written.map(|(name, policy)| (name, read(policy))).collect())
        };
        let mut found = self.policies.all(names, self.ttls().policy, ask).await?;
        found.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let held = found.iter().map(|(policy, _)| policy.name.clone());
        let held: Vec<String> = held.collect();
        let written = |(policy, _): &ParsedPolicy| (policy.name.clone(), policy.modify_index);
        let key: Vec<(String, u64)> = found.iter().map(written).collect();
        if let Some(acl) = self.sets.lock().get(&key) {
            return Ok((Arc::clone(acl), held));
        }
        let acl = Arc::new(readable(&found).map_or_else(Acl::denied, |all| Acl::compile(&all)));
        let mut sets = self.sets.lock();
        if sets.len() >= MOST {
            sets.clear();
        }
        sets.insert(key, Arc::clone(&acl));
        Ok((acl, held))
    }

    /// Queries servers; where none answered a moment ago, that is the answer.
    async fn ask<R: Rpc>(&self, requested: &R::Req) -> Result<R::Res, RpcError> {
        if let Some((when, error)) = &*self.failed.lock()
            && when.elapsed() < self.again
        {
            return Err(error.clone());
        }
        let answer = self.caller.call::<R>(requested, self.asking).await;
        let failed = answer.as_ref().err().filter(|error| are_away(error));
        *self.failed.lock() = failed.map(|error| (Instant::now(), error.clone()));
        answer
    }
}

/// A workload as servers report it, and what it may do.
fn working(reported: AclClaimPoliciesResponse) -> Option<Working> {
    let claim = reported.claims?;
    let policies: Vec<String> = reported.policies.keys().cloned().collect();
    let written: Vec<ParsedPolicy> = reported.policies.into_values().map(read).collect();
    let own = workload::own_paths(&claim, &reported.task_group);
    let of = |all: Vec<&Policy>| Acl::of_workload(&all, &claim.nomad_namespace, &own);
    Some(Working {
        acl: Arc::new(readable(&written).map_or_else(Acl::denied, of)),
        policies,
        claim: Arc::new(claim),
    })
}

/// What policies say. One that cannot be read might deny something: then there is none, and
/// everything is denied.
fn readable(written: &[ParsedPolicy]) -> Option<Vec<&Policy>> {
    written
        .iter()
        .map(|(_, policy)| policy.as_deref())
        .collect()
}

fn read(policy: AclPolicy) -> ParsedPolicy {
    let parsed = acl::parse(&policy.rules, Strictness::Lenient);
    if let Err(error) = &parsed {
        tracing::error!(policy = policy.name, %error, "a policy of the servers cannot be read");
    }
    (policy, parsed.ok().map(Arc::new))
}

/// Whether no server answers, so that what was known counts.
fn are_away(error: &RpcError) -> bool {
    let busy = matches!(error, RpcError::Api(error) if error.code == Code::TooManyRequests);
    error.is_transient() && !busy
}

fn unrequested(error: RpcError) -> Refusal {
    match error {
        RpcError::Api(error) if error.code == Code::TooManyRequests => error,
        error => {
            let text = format!("no server says what the token may do: {error}");
            Refusal::new(Code::Unavailable, text)
        }
    }
}

/// What servers answered, and when.
struct RemoteCache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for RemoteCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> RemoteCache<K, V> {
    /// What was answered, and whether that still counts by itself.
    fn get(&self, key: &K, ttl: Duration) -> (Option<V>, bool) {
        match self.0.lock().get(key) {
            Some((when, value)) => (Some(value.clone()), when.elapsed() < ttl),
            None => (None, false),
        }
    }

    fn put(&self, key: K, value: V) {
        let mut kept = self.0.lock();
        if kept.len() >= MOST && !kept.contains_key(&key) {
            kept.clear();
        }
        kept.insert(key, (Instant::now(), value));
    }

    fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

impl<V> RemoteCache<Secret, Arc<V>> {
    /// What a secret is; servers are queried where that is not known, or was found out long ago.
    /// Where none answers, what was known counts.
    async fn one(
        &self,
        secret: &str,
        ttl: Duration,
        ask: impl Future<Output = Result<Option<V>, RpcError>> + Send,
    ) -> Result<Option<Arc<V>>, Refusal> {
        let key = Secret::of(secret);
        let (known, fresh) = self.get(&key, ttl);
        if fresh {
            return Ok(known);
        }
        match ask.await {
            Ok(answer) => {
                let found = answer.map(Arc::new);
                match &found {
                    Some(found) => self.put(key, Arc::clone(found)),
                    None => self.forget(&key),
                }
                Ok(found)
            }
            Err(error) => match known.filter(|_| are_away(&error)) {
                Some(known) => Ok(Some(known)),
                None => Err(unrequested(error)),
            },
        }
    }
}

impl<V: Clone> RemoteCache<String, Option<V>> {
    /// What is known of each, and of the rest what servers say; what they do not name is not there.
    /// Where none answers, what was known counts.
    async fn all<Fut>(
        &self,
        keys: BTreeSet<String>,
        ttl: Duration,
        ask: impl Fn(Vec<String>) -> Fut + Send,
    ) -> Result<Vec<V>, Refusal>
    where
        Fut: Future<Output = Result<HashMap<String, V>, RpcError>> + Send,
    {
        let mut found = Vec::new();
        let mut wanted = Vec::new();
        for key in keys {
            match self.get(&key, ttl) {
                (Some(known), true) => found.extend(known),
                (known, _) => wanted.push((key, known)),
            }
        }
        for some in wanted.chunks(AT_ONCE) {
            match ask(some.iter().map(|(key, _)| key.clone()).collect()).await {
                Ok(mut answer) => {
                    for (key, _) in some {
                        let value = answer.remove(key);
                        self.put(key.clone(), value.clone());
                        found.extend(value);
                    }
                }
                Err(error) => {
                    for (_, known) in some {
                        let known = known.clone().filter(|_| are_away(&error));
                        found.extend(known.ok_or_else(|| unrequested(error.clone()))?);
                    }
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
#[path = "far_test.rs"]
mod tests;
