//! The gate: who calls, from what a request carries and the tables of now.
//!
//! One step, which every HTTP request passes first, and every RPC that takes tokens. It refuses
//! nothing: a token that is
//! none yields an [`Identity`] that says so, and the request is refused where it is served, after
//! it was counted (AUTH-01, AUTH-06, AUTH-08). What a token may do is compiled once and shared by
//! all that hold the same policies (`resolver.rs`).
//!
//! What it must not know: routes, methods, what is requested.
//!
//! Invariants:
//! 1. What an identity may do is what the tables of now say: a change of a token, a role or a
//!    policy counts for the next request.
//! 2. Nothing is remembered of a connection (AUTH-05).

mod far;
mod resolver;
mod workload;

use std::sync::Arc;

use drover_projections::{Projections, StorageError, View};

use crate::acl::Acl;
use crate::base::clock::unix_nanos;
use crate::error::Refusal;
use crate::identity::{Identity, Rejection};
use crate::keyring::{Keyring, Verified};
use crate::rpc::caller::Caller;
use crate::table_reads::admitting;
use far::Far;
use resolver::{ResolvedSecret, Resolver};

pub use far::Ttls;
pub use workload::{Attested, is_signed};

/// Finds out who calls.
pub struct Gate(Kind);

enum Kind {
    /// ACLs are off: every caller may do everything.
    Open(Arc<Acl>),
    /// ACLs are on.
    Guarded {
        projections: Arc<Projections>,
        resolver: Arc<Resolver>,
        keyring: Arc<Keyring>,
        owed: Owed,
    },
    /// ACLs are on, and the tables are elsewhere.
    Far(Box<Far>),
    /// The identity that a test names.
    #[cfg(test)]
    Fixed(Box<Who>),
}

/// What tables must have before they say whose a token is.
pub struct Owed {
    /// As far as the log had been written when this server started.
    pub begun: u64,
    /// As far as it is written now: another leader may have cut off what was not committed.
    pub written: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Owed {
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            begun: 0,
            written: Box::new(|| 0),
        }
    }
}

/// What a test says of a token and an address.
#[cfg(test)]
type Who = dyn Fn(Option<&str>, &str) -> Identity + Send + Sync;

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gate").field(&self.is_guarded()).finish()
    }
}

impl Gate {
    /// A gate that stands open: ACLs are off (AUTH-13).
    #[must_use]
    pub fn open() -> Self {
        Self(Kind::Open(Arc::new(Acl::management())))
    }

    /// The gate of a server, which knows no caller before its tables have what is owed.
    #[must_use]
    pub fn of(
        guarded: bool,
        projections: &Arc<Projections>,
        keyring: &Arc<Keyring>,
        owed: Owed,
    ) -> Self {
        let mut gate = match guarded {
            true => Self::guarded(Arc::clone(projections), Arc::clone(keyring)),
            false => Self::open(),
        };
        if let Kind::Guarded { owed: until, .. } = &mut gate.0 {
            *until = owed;
        }
        gate
    }

    /// A gate that reads the tables, and the keys of what servers signed.
    #[must_use]
    pub fn guarded(projections: Arc<Projections>, keyring: Arc<Keyring>) -> Self {
        let resolver = Arc::new(Resolver::default());
        Self(Kind::Guarded {
            projections,
            resolver,
            keyring,
            owed: Owed::nothing(),
        })
    }

    /// The gate of an agent without tables, which queries servers.
    #[must_use]
    pub fn far(caller: Caller, ttls: Ttls) -> Self {
        Self(Kind::Far(Box::new(Far::new(caller, ttls))))
    }

    /// What servers say is kept so long from now on; nothing of it where there are tables.
    pub fn keep(&self, ttls: Ttls) {
        if let Kind::Far(far) = &self.0 {
            far.keep(ttls);
        }
    }

    /// A gate that answers as a test says.
    #[cfg(test)]
    pub(crate) fn fixed(
        who: impl Fn(Option<&str>, &str) -> Identity + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Fixed(Box::new(who)))
    }

    /// Whether tokens say anything here.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        !matches!(self.0, Kind::Open(_))
    }

    /// The identity of a caller that gives this token, or none, from this address.
    ///
    /// # Errors
    /// 500 where the tables cannot be read, 503 where no server answers a query for them.
    pub async fn authenticate(&self, token: Option<&str>, addr: &str) -> Result<Identity, Refusal> {
        self.authenticate_again(token, addr, &Verified::default())
            .await
    }

    /// The same once more for one request: what was verified of its token is not verified again.
    /// What its caller may do is found out anew.
    ///
    /// # Errors
    /// As [`Gate::authenticate`].
    pub async fn authenticate_again(
        &self,
        token: Option<&str>,
        addr: &str,
        verified: &Verified,
    ) -> Result<Identity, Refusal> {
        let (projections, resolver, keyring) = match &self.0 {
            Kind::Open(all) => return Ok(Identity::anonymous(addr, Arc::clone(all))),
            Kind::Guarded {
                projections,
                resolver,
                keyring,
                ..
            } => (projections, resolver, keyring),
            Kind::Far(far) => return Ok(identity(far.find(token).await?, addr, unix_nanos())),
            #[cfg(test)]
            Kind::Fixed(who) => return Ok(who(token, addr)),
        };
        let view = projections.view();
        if token.is_some() && self.is_early(&view) {
            // What was acknowledged before the end of the last process may say otherwise.
            return Ok(Identity::refused(addr, Rejection::Early));
        }
        if let Some(signed) = token.filter(|token| workload::is_signed(token)) {
            let (resolver, keyring) = (Arc::clone(resolver), Arc::clone(keyring));
            let (signed, verified) = (signed.to_owned(), verified.clone());
            let find = move || {
                let requested = (&view, signed.as_str(), unix_nanos());
                workload::find(&resolver, (&keyring, &verified), requested)
            };
            let found = admitting(find).await?.map_err(unread)?;
            return Ok(identity(found, addr, unix_nanos()));
        }
        let requested = token.map(resolver::Secret::of);
        let found = match resolver.known(&view, requested.as_ref()) {
            Some(found) => found,
            None => {
                let resolver = Arc::clone(resolver);
                let find = move || resolver.find(&view, requested.as_ref());
                admitting(find).await?.map_err(unread)?
            }
        };
        Ok(identity(found, addr, unix_nanos()))
    }
}

impl Gate {
    /// Whether the gate knows by itself what this token is, so that no server is queried.
    #[must_use]
    pub fn keeps(&self, token: &str) -> bool {
        match &self.0 {
            Kind::Far(far) => far.keeps(token),
            _ => true,
        }
    }

    /// Refuses to say whose a token is by a view that does not know yet.
    ///
    /// # Errors
    /// 503.
    pub fn knows(&self, view: &View) -> Result<(), Refusal> {
        match self.is_early(view) {
            true => Err(Rejection::Early.in_words()),
            false => Ok(()),
        }
    }

    /// Whether a view has less than was acknowledged before this server started: then it is not
    /// known whose token one is. A moment after the start it has it all.
    fn is_early(&self, view: &View) -> bool {
        let index = view.index();
        matches!(&self.0, Kind::Guarded { owed, .. }
            if index < owed.begun && index < (owed.written)())
    }

    /// The workload that this was signed of, if it lives (AUTH-06); none where ACLs are off, or the
    /// tables are elsewhere.
    ///
    /// # Errors
    /// 500 where the tables cannot be read, 503 where they are not yet what they were.
    pub async fn attested(&self, signed: &str) -> Result<Option<Attested>, Refusal> {
        let Kind::Guarded {
            projections,
            keyring,
            ..
        } = &self.0
        else {
            return Ok(None);
        };
        let (view, keyring) = (projections.view(), Arc::clone(keyring));
        self.knows(&view)?;
        let signed = signed.to_owned();
        let find = move || {
            let keys = (&*keyring, &Verified::default());
            workload::attested(keys, (&view, &signed, unix_nanos()))
        };
        admitting(find).await?.map_err(unread)
    }

    /// The identity behind this token, if that was found out lately; it reads nothing.
    #[must_use]
    pub fn known(&self, token: &str, addr: &str) -> Option<Identity> {
        let Kind::Guarded {
            projections,
            resolver,
            ..
        } = &self.0
        else {
            return None;
        };
        let secret = resolver::Secret::of(token);
        let found = resolver.known(&projections.view(), Some(&secret))?;
        Some(identity(found, addr, unix_nanos()))
    }
}

fn identity(found: ResolvedSecret, addr: &str, now: i64) -> Identity {
    match found {
        ResolvedSecret::Nobody => Identity::refused(addr, Rejection::Unknown),
        ResolvedSecret::Anonymous(acl) => Identity::anonymous(addr, acl),
        ResolvedSecret::Workload(working) if working.is_over(now) => {
            Identity::refused(addr, Rejection::Expired)
        }
        ResolvedSecret::Workload(working) => {
            let (claim, acl) = (Arc::clone(&working.claim), Arc::clone(&working.acl));
            let mut identity = Identity::workload(claim, addr, acl);
            identity.actor.policies.clone_from(&working.policies);
            identity
        }
        ResolvedSecret::Bearer(held) if held.is_over(now) => {
            Identity::refused(addr, Rejection::Expired)
        }
        ResolvedSecret::Bearer(held) => {
            let acl = Arc::clone(&held.acl);
            let mut identity = Identity::bearer(Arc::clone(&held.token), addr, acl);
            identity.actor.roles.clone_from(&held.roles);
            identity.actor.policies.clone_from(&held.policies);
            identity
        }
    }
}

fn unread(error: StorageError) -> Refusal {
    let error = crate::error::chain(&error);
    tracing::error!(error, "the tables of access control cannot be read");
    Refusal::internal(format!("state store error: {error}"))
}
