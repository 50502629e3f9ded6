//! What a caller must be allowed for each route, and the proof that it was.
//!
//! Every route names its [`Access`] where it is registered. What a request alone decides is
//! checked before anything of it runs or waits; what depends on an object that must be read first
//! is checked in the view ([`Access::Object`]) each time it is read. A write that learns only from
//! its body what it is about gets a [`Late`], to be authorized late: only that makes a [`Write`],
//! which alone submits commands: `cargo xtask tidy` finds the usual other ways here.
//!
//! Invariants:
//! 1. A caller that is denied waits for nothing, and is answered nothing but that; by the agent
//!    about itself also why its token is none.
//! 2. Rows of lists are checked one by one, unless the access covers all of them at once: rows that
//!    were not checked cannot be walked (`sight.rs`).

use std::ops::Deref;

use super::front::{FrontCall, Read};
use super::request::Request;
use super::sight::SeesAll;
use super::state::Settings;
use crate::acl::{Acl, Capability as _, NamespaceCapability as Ns, OperatorCapability};
use crate::error::Refusal;
use crate::identity::Identity;

/// Seeing jobs in lists.
pub(super) const LIST_JOBS: &[Ns] = &[Ns::ListJobs];
/// Seeing jobs, and what becomes of them.
pub(super) const READ_JOB: &[Ns] = &[Ns::ReadJob];

/// Reading or changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

/// Checks whether the object of a read may be seen.
pub(super) type ObjectRule = fn(&Read<'_>) -> Result<(), Refusal>;

/// What a route requires of its caller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Nothing; a token is not looked at.
    Public,
    /// A good token or none: what is shown is decided row by row.
    Anyone,
    /// A good token or none: it is refused as what is not there.
    Absent,
    /// One of these in the namespace that the request names.
    Namespace(&'static [Ns]),
    /// Rights on the agent.
    Agent(Right),
    /// Rights on nodes.
    Node(Right),
    /// Rights on the cluster's operation.
    Operator(Right),
    /// One right on the cluster's operation.
    Operation(OperatorCapability),
    /// Rights on plugins of volumes.
    Plugins,
    /// Nothing, or rights on the agent where the telemetry requires them.
    Metrics,
    /// Everything.
    Management,
    /// What the object says that is read: a rule over the view, with its name in lists of routes.
    Object(&'static str, ObjectRule),
    /// That some rows of a list may be there for the caller: a rule over its rights, with its name
    /// in lists of routes. Each row is checked by itself.
    Listed(&'static str, ObjectRule),
    /// The handler checks once it has read what the request is about; the name says what. Before
    /// that the caller must be one that may do such a thing somewhere.
    Late(&'static str, Somewhere),
}

/// What a caller must be allowed somewhere, before anything of a request is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Somewhere {
    /// Nothing that can be named before.
    Anything,
    /// One of these in some namespace.
    Namespace(&'static [Ns]),
    /// Something with some variable.
    Variable,
}

/// The refusal; it says nothing else.
pub(super) fn denied() -> Refusal {
    Refusal::permission_denied()
}

/// Turns an answer into a refusal.
pub(super) fn demand(allowed: bool) -> Result<(), Refusal> {
    if allowed { Ok(()) } else { Err(denied()) }
}

/// Checks whether an object of a namespace may be seen, for its read-job; none: there is no such
/// object, which its handler says. A caller that may see jobs nowhere is denied before it learns of
/// either.
///
/// # Errors
/// 403; `hidden` for an object that may not be seen.
pub(super) fn object(
    read: &Read<'_>,
    namespace: Option<String>,
    hidden: impl FnOnce() -> Refusal,
) -> Result<(), Refusal> {
    demand(in_namespace(&read.identity.acl, "*", READ_JOB))?;
    match namespace {
        Some(name) if !read.sees(&name, READ_JOB) => Err(hidden()),
        _ => Ok(()),
    }
}

/// Whether one of these is allowed in a namespace, or in any where it is `*`.
pub(super) fn in_namespace(acl: &Acl, namespace: &str, any_of: &[Ns]) -> bool {
    match namespace {
        "*" => any_of.iter().any(|one| acl.any_namespace_allows(*one)),
        name => acl.namespace_allows_any(name, any_of),
    }
}

/// The same where what is not there is refused here too, in the same words and as soon: a caller
/// that may wait for the one and not for the other learns which it is.
///
/// # Errors
/// 403; `hidden` for an object that may not be seen, and for none.
pub(super) fn object_there(
    read: &Read<'_>,
    namespace: Option<String>,
    hidden: impl Fn() -> Refusal,
) -> Result<(), Refusal> {
    let is_none = namespace.is_none();
    object(read, namespace, &hidden)?;
    match is_none {
        true => Err(hidden()),
        false => Ok(()),
    }
}

impl Access {
    /// Whether what is requested is in a namespace, or may be.
    pub(super) fn is_within(self) -> bool {
        match self {
            Self::Anyone
            | Self::Namespace(_)
            | Self::Object(..)
            | Self::Listed(..)
            | Self::Late(..) => true,
            Self::Public
            | Self::Absent
            | Self::Agent(_)
            | Self::Node(_)
            | Self::Operator(_)
            | Self::Operation(_)
            | Self::Plugins
            | Self::Metrics
            | Self::Management => false,
        }
    }

    /// Whether a caller that it lets in sees every row that the request names: none of them is
    /// checked by itself.
    pub(super) fn is_whole(self, request: &Request) -> bool {
        match self {
            Self::Public | Self::Anyone | Self::Absent => false,
            Self::Listed(..) | Self::Late(..) => false,
            Self::Namespace(_) => request.namespace() != "*",
            Self::Agent(_)
            | Self::Node(_)
            | Self::Operator(_)
            | Self::Operation(_)
            | Self::Plugins
            | Self::Metrics
            | Self::Management
            | Self::Object(..) => true,
        }
    }

    /// What it comes to under these settings.
    pub(super) fn under(self, settings: &Settings) -> Self {
        match self {
            Self::Metrics if !settings.now().metrics_require_acl => Self::Public,
            other => other,
        }
    }

    /// Checks what can be checked of the request alone.
    ///
    /// # Errors
    /// 403.
    pub(super) fn admit(self, request: &Request, identity: &Identity) -> Result<(), Refusal> {
        if let (false, Some(refusal)) = (matches!(self, Self::Public), identity.refusal) {
            // Of the agent itself the refusal says why; of everything else only that the caller may
            // not.
            return Err(match self {
                Self::Agent(_) => refusal.in_words(),
                _ => refusal.at_large(),
            });
        }
        let acl = &identity.acl;
        demand(match self {
            Self::Public | Self::Anyone | Self::Absent => true,
            Self::Object(..) | Self::Listed(..) => true,
            Self::Late(_, Somewhere::Anything) => true,
            Self::Late(_, Somewhere::Namespace(any_of)) => in_namespace(acl, "*", any_of),
            Self::Late(_, Somewhere::Variable) => acl.variable_anywhere(),
            Self::Namespace(any_of) => in_namespace(acl, request.namespace(), any_of),
            Self::Agent(Right::Read) => acl.agent_read(),
            Self::Agent(Right::Write) => acl.agent_write(),
            Self::Node(Right::Read) => acl.node_read(),
            Self::Node(Right::Write) => acl.node_write(),
            Self::Operator(Right::Read) => acl.operator_read(),
            Self::Operator(Right::Write) => acl.operator_write(),
            Self::Operation(one) => acl.operator_allows(one),
            Self::Plugins => acl.plugin_read(),
            Self::Management => acl.is_management(),
            Self::Metrics => acl.agent_read(),
        })
    }

    /// Whether something must be checked in the view.
    pub(super) fn has_rule(self) -> bool {
        matches!(self, Self::Object(..) | Self::Listed(..))
    }

    /// Checks what must be checked in the view.
    ///
    /// # Errors
    /// 403, or that of the tables.
    pub(super) fn admit_object(self, read: &Read<'_>) -> Result<(), Refusal> {
        match self {
            _ if read.identity.is_management() => Ok(()),
            Self::Object(_, rule) | Self::Listed(_, rule) => rule(read),
            _ => Ok(()),
        }
    }
}

/// How lists of routes show it.
impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let right = |right: &Right| match right {
            Right::Read => "read",
            Right::Write => "write",
        };
        match self {
            Self::Public => f.write_str("public"),
            Self::Anyone => f.write_str("anyone; rows by their own right"),
            Self::Absent => f.write_str("anyone; refused: not in this version"),
            Self::Namespace(any_of) => {
                let names: Vec<&str> = any_of.iter().map(|one| one.as_str()).collect();
                f.write_str(&names.join(" or "))
            }
            Self::Agent(level) => write!(f, "agent:{}", right(level)),
            Self::Node(level) => write!(f, "node:{}", right(level)),
            Self::Operator(level) => write!(f, "operator:{}", right(level)),
            Self::Operation(one) => write!(f, "operator {}", one.as_str()),
            Self::Plugins => f.write_str("plugin:read"),
            Self::Management => f.write_str("management"),
            Self::Metrics => f.write_str("public, or agent:read where telemetry asks for it"),
            Self::Object(what, _) | Self::Listed(what, _) | Self::Late(what, _) => {
                f.write_str(what)
            }
        }
    }
}

impl Read<'_> {
    /// Whether a row of this namespace may be seen, by one of these rights.
    pub(super) fn sees(&self, namespace: &str, any_of: &[Ns]) -> bool {
        self.view.sees(namespace, any_of)
    }

    /// The proof that every row that is requested may be seen, by one of these rights; none where
    /// it may not.
    pub(super) fn proof_of_all(&self, any_of: &[Ns]) -> Option<SeesAll> {
        self.view.all_in(&self.options.namespace, any_of)
    }
}

/// A request that changes something or calls a client, before it is known whether its caller may
/// do that: its handler checks late, once it knows what the request is about.
pub(super) struct Late(FrontCall);

impl Deref for Late {
    type Target = FrontCall;

    fn deref(&self) -> &FrontCall {
        &self.0
    }
}

impl Late {
    /// A call that is not checked yet.
    pub(super) const fn new(call: FrontCall) -> Self {
        Self(call)
    }

    /// Lets in what the route's access has let in already.
    pub(super) fn admitted(self) -> Write {
        Write(self.0)
    }

    /// What the caller may do.
    pub(super) fn acl(&self) -> &Acl {
        &self.request.identity.acl
    }

    /// Lets it in if the caller may do what it is about, as the handler found out.
    ///
    /// # Errors
    /// 403.
    pub(super) fn authorize(self, allowed: bool) -> Result<Write, Refusal> {
        demand(allowed)?;
        Ok(Write(self.0))
    }

    /// Lets in a caller that has one of these rights in a namespace.
    ///
    /// # Errors
    /// 403.
    pub(super) fn in_namespace(self, namespace: &str, any_of: &[Ns]) -> Result<Write, Refusal> {
        let allowed = in_namespace(self.acl(), namespace, any_of);
        self.authorize(allowed)
    }

    /// Lets in a caller that has one of these rights in the namespace of an object. A caller that
    /// has them nowhere is denied before it is looked for, and learns nothing of it. Where it is
    /// not there at all only a manager goes on to the code that says so.
    ///
    /// # Errors
    /// 403; `missing` for what is not there; that of the tables.
    pub(super) fn in_namespace_of(
        self,
        any_of: &[Ns],
        find: impl FnOnce(&FrontCall) -> Result<Option<String>, Refusal>,
        missing: impl FnOnce() -> Refusal,
    ) -> Result<Write, Refusal> {
        demand(in_namespace(self.acl(), "*", any_of))?;
        if self.acl().is_management() {
            return Ok(Write(self.0));
        }
        match find(&self)? {
            Some(namespace) => self.in_namespace(&namespace, any_of),
            None => Err(missing()),
        }
    }
}

/// A request that may do what it requests: the gate alone makes one. Its handler may submit
/// commands and call clients; every request has one that is no plain read of the tables, a `GET`
/// that a client answers too. The right to change something is [`Right::Write`].
#[derive(Clone)]
pub(super) struct Write(FrontCall);

impl Deref for Write {
    type Target = FrontCall;

    fn deref(&self) -> &FrontCall {
        &self.0
    }
}

impl Write {
    /// The request, for what outlives it.
    pub(super) fn into_call(self) -> FrontCall {
        self.0
    }
}
