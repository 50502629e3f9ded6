//! Handlers by name.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::duplex::{Duplex, Keepalive};
use super::measure::MethodMetrics;
use super::{Rpc, Streaming, wire};
use drover_error::{Code, Refusal};
use drover_identity::Identity;
use drover_keyring::Verified;
use drover_net::denies;
use drover_net::tls::PeerCertificate;

/// Who calls, and how.
#[derive(Clone, Default)]
pub struct Call {
    /// The address the call comes from; empty within the process.
    pub addr: String,
    /// The certificate that the caller showed; none in clear text and within the process.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The token given: a node's secret, an ACL token, or nothing.
    pub token: String,
    /// The node that the caller says it is; empty for all other callers.
    pub node: String,
    /// Cancelled once the connection is to go: what stands on it moves to another.
    pub parting: CancellationToken,
    /// Whether it was written down already that it was denied.
    pub noted: Noted,
    /// What was verified of the token.
    pub verified: Verified,
    /// Who calls, once that was found out.
    pub found: CallerInfo,
}

/// What all that hold a call know of it.
#[derive(Clone, Default)]
pub struct Noted(Arc<AtomicBool>);

impl Noted {
    /// It is written down.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What was found out of who calls; all that hold the call know it.
#[derive(Clone, Default)]
pub struct CallerInfo(Arc<OnceLock<Identity>>);

impl CallerInfo {
    /// It is this one. Authenticating again finds the same.
    pub fn keep(&self, who: &Identity) {
        let _ = self.0.set(who.clone());
    }

    /// Who it is, if that was found out.
    #[must_use]
    pub fn get(&self) -> Option<&Identity> {
        self.0.get()
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("addr", &self.addr)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Something that answers calls by name.
///
/// A trait, since who passes calls on must not know what the handlers work on: a server's
/// [`Service`] has another state than a client's, and a client answers by two of them.
pub trait Dispatch: Send + Sync {
    /// Answers one call.
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>>;

    /// How a stream of this name is kept alive; none: it is no stream.
    fn streams(&self, name: &str) -> Option<Keepalive>;

    /// Opens a stream that a known caller requests; once it is accepted, it goes on by itself.
    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), Refusal>>;

    /// Whether the caller has proved who it is. It is checked before anything of a call is waited
    /// for; a caller that has proved nothing gets little memory and little time.
    fn knows(&self, call: &Call) -> BoxFuture<'static, bool>;
}

type Doorman<S> = Box<dyn Fn(Arc<S>, Call) -> BoxFuture<'static, bool> + Send + Sync>;

/// Checks that a caller may use its method, as far as that can be decided before anything of
/// the request is looked at.
type Guard<S> =
    Box<dyn Fn(Arc<S>, Access, Call) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>;

type Handler<S> =
    Arc<dyn Fn(Arc<S>, Call, Bytes) -> BoxFuture<'static, Result<Bytes, Refusal>> + Send + Sync>;

type Opener<S> =
    Arc<dyn Fn(Arc<S>, Call, Duplex) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>;

/// Says who calls, for the metrics; none where callers are not distinguished.
type Labeller<S> = Arc<dyn Fn(&S, &Call) -> Option<String> + Send + Sync>;

/// Finds out who calls, before anything else of a call is done.
type Finder<S> = Box<dyn Fn(Arc<S>, Call) -> BoxFuture<'static, ()> + Send + Sync>;

/// Says whether the caller may make one more call, before anything of it runs.
type Limiter<S> = Box<
    dyn Fn(Arc<S>, &'static str, Call) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync,
>;

/// Writes down that a call was denied; the answer to it then.
type Clerk<S> =
    Arc<dyn Fn(Arc<S>, &'static str, Call, Refusal) -> BoxFuture<'static, Refusal> + Send + Sync>;

/// What a method requires of its caller; it stands where the method is registered. What names no
/// object of the request is checked before its handler runs; the rest the handler checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// The secret of a new node, which no server knows yet.
    NewNode,
    /// The secret of the node that it is about: who calls is one that proves itself before it is
    /// known what it is about.
    Node,
    /// The same, or of a node that is gone, which is answered that it is.
    NodeOrGone,
    /// The secret of a node, or a token that may do what the call does.
    NodeOrToken,
    /// The secret of the node that it is about, or a token that may do this.
    NodeOr(&'static str),
    /// A token that may do this.
    Token(&'static str),
    /// A token that may do everything.
    Management,
    /// The secret of a node, or a server's certificate.
    Agent,
    /// A server's certificate.
    Peer,
    /// A session that a server opened to this client.
    Server,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::NewNode => "a new node's own secret",
            Self::Node | Self::NodeOrGone => "the node's secret",
            Self::NodeOrToken => "a node's secret, or a token that holds it",
            Self::NodeOr(rights) => return write!(f, "the node's secret, or {rights}"),
            Self::Token(rights) => rights,
            Self::Management => "management",
            Self::Agent => "a node's secret, or a server's certificate",
            Self::Peer => "a server's certificate",
            Self::Server => "a session that a server opened",
        })
    }
}

/// Handlers over a state `S` that all of them get.
pub struct Service<S> {
    state: Arc<S>,
    handlers: HashMap<&'static str, (Arc<MethodMetrics>, Handler<S>)>,
    openers: HashMap<&'static str, (Arc<MethodMetrics>, Keepalive, Opener<S>)>,
    doorman: Option<Doorman<S>>,
    labeller: Option<Labeller<S>>,
    finder: Option<Finder<S>>,
    limiter: Option<Limiter<S>>,
    guard: Option<Guard<S>>,
    clerk: Option<Clerk<S>>,
    accesses: BTreeMap<&'static str, Access>,
}

impl<S: Send + Sync + 'static> Service<S> {
    /// A service without methods.
    pub fn new(state: Arc<S>) -> Self {
        Self {
            state,
            handlers: HashMap::new(),
            openers: HashMap::new(),
            doorman: None,
            labeller: None,
            finder: None,
            limiter: None,
            guard: None,
            clerk: None,
            accesses: BTreeMap::new(),
        }
    }

    /// Says which callers are known; without it all are.
    #[must_use]
    pub fn known_by<F, Fut>(mut self, doorman: F) -> Self
    where
        F: Fn(Arc<S>, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.doorman = Some(Box::new(move |state, call| doorman(state, call).boxed()));
        self
    }

    /// Says how callers are called where calls are counted; without it they are not distinguished.
    #[must_use]
    pub fn labelled_by(
        mut self,
        labeller: impl Fn(&S, &Call) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.labeller = Some(Arc::new(labeller));
        self
    }

    /// Finds out who calls, for every method before anything else of it; it refuses nothing
    /// (AUTH-01).
    #[must_use]
    pub fn found_by<F, Fut>(mut self, finder: F) -> Self
    where
        F: Fn(Arc<S>, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.finder = Some(Box::new(move |state, call| finder(state, call).boxed()));
        self
    }

    /// Says which callers may make one more call; without it there is no limit. What it refuses is
    /// counted all the same (AUTH-08, AUTH-09).
    #[must_use]
    pub fn limited_by<F, Fut>(mut self, limiter: F) -> Self
    where
        F: Fn(Arc<S>, &'static str, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        self.limiter = Some(Box::new(move |state, name, call| {
            limiter(state, name, call).boxed()
        }));
        self
    }

    /// Says whether a caller has what a method requires; without it handlers alone check.
    #[must_use]
    pub fn guarded_by<F, Fut>(mut self, guard: F) -> Self
    where
        F: Fn(Arc<S>, Access, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        self.guard = Some(Box::new(move |state, access, call| {
            guard(state, access, call).boxed()
        }));
        self
    }

    /// Writes down which calls were denied, before they are answered so; without it none are.
    #[must_use]
    pub fn denied_by<F, Fut>(mut self, clerk: F) -> Self
    where
        F: Fn(Arc<S>, &'static str, Call, Refusal) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Refusal> + Send + 'static,
    {
        self.clerk = Some(Arc::new(move |state, name, call, error| {
            clerk(state, name, call, error).boxed()
        }));
        self
    }

    /// What is answered, once it is known that the caller may call it; nothing of the answer runs
    /// before.
    fn admitted<T: Send + 'static, F>(
        &self,
        name: &'static str,
        call: Call,
        answer: F,
    ) -> BoxFuture<'static, Result<T, Refusal>>
    where
        F: FnOnce(Arc<S>, Call) -> BoxFuture<'static, Result<T, Refusal>> + Send + 'static,
    {
        let finder = self.finder.as_ref();
        let found = finder.map(|finder| finder(self.state.clone(), call.clone()));
        let limiter = self.limiter.as_ref();
        let within = limiter.map(|limiter| limiter(self.state.clone(), name, call.clone()));
        let guarded = self.guard.as_ref().zip(self.accesses.get(name));
        let allowed =
            guarded.map(|(guard, access)| guard(self.state.clone(), *access, call.clone()));
        let clerk = self.clerk.clone();
        let clerk = clerk.map(|clerk| (clerk, self.state.clone(), call.clone()));
        let state = self.state.clone();
        let admitted = async move {
            if let Some(found) = found {
                found.await;
            }
            if let Some(within) = within {
                within.await?;
            }
            if let Some(allowed) = allowed {
                allowed.await?;
            }
            answer(state, call).await
        };
        let recorded = async move {
            match (admitted.await, clerk) {
                (Err(error), Some((clerk, state, call)))
                    if denies(drover_net::status(error.code)) =>
                {
                    Err(clerk(state, name, call, error).await)
                }
                (answer, _) => answer,
            }
        };
        recorded.boxed()
    }

    /// The methods, and what each requires of its caller.
    pub fn methods(&self) -> impl Iterator<Item = (&'static str, Access)> + '_ {
        self.accesses.iter().map(|(name, access)| (*name, *access))
    }

    /// Adds a method, which requires this access of its caller.
    #[must_use]
    pub fn method<R: Rpc, F, Fut>(mut self, access: Access, handler: F) -> Self
    where
        F: Fn(Arc<S>, Call, R::Req) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R::Res, Refusal>> + Send + 'static,
    {
        let handler: Handler<S> =
            Arc::new(
                move |state, call, body| match wire::decode::<R::Req>(&body) {
                    Ok(req) => {
                        let answer = handler(state, call, req);
                        async move { Ok(wire::encode(&answer.await?)?) }.boxed()
                    }
                    Err(e) => std::future::ready(Err(e.into())).boxed(),
                },
            );
        self.accesses.insert(R::NAME, access);
        let metrics = Arc::new(MethodMetrics::new(R::NAME));
        let old = self.handlers.insert(R::NAME, (metrics, handler));
        debug_assert!(old.is_none(), "{} is there twice", R::NAME);
        self
    }

    /// Adds a stream, which requires this access of its caller. The handler says whether it takes
    /// it, and goes on with it elsewhere.
    #[must_use]
    pub fn stream<R: Streaming, F, Fut>(mut self, access: Access, handler: F) -> Self
    where
        F: Fn(Arc<S>, Call, R::Req, Duplex) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let opener: Opener<S> = Arc::new(move |state, call, mut stream| {
            let handler = handler.clone();
            let opened = async move {
                let request = stream.inflow.message().await;
                let request = request.map_err(|broken| Refusal::bad_request(broken.0))?;
                handler(state, call, request, stream).await
            };
            opened.boxed()
        });
        self.accesses.insert(R::NAME, access);
        let metrics = Arc::new(MethodMetrics::new(R::NAME));
        let opener = (metrics, R::KEEPALIVE, opener);
        let old = self.openers.insert(R::NAME, opener);
        debug_assert!(old.is_none(), "{} is there twice", R::NAME);
        self
    }

    fn labelled(&self, call: &Call) -> impl FnOnce() -> Option<String> + Send + use<S> {
        let (state, call) = (Arc::clone(&self.state), call.clone());
        let labeller = self.labeller.clone();
        move || labeller.as_ref().and_then(|label| label(&state, &call))
    }
}

impl<S: Send + Sync + 'static> Dispatch for Service<S> {
    fn dispatch(
        &self,
        name: &str,
        call: Call,
        body: Bytes,
    ) -> BoxFuture<'static, Result<Bytes, Refusal>> {
        match self.handlers.get_key_value(name) {
            Some((name, (metrics, handler))) => {
                let (label, handler) = (self.labelled(&call), Arc::clone(handler));
                let answer = move |state, call| handler(state, call, body);
                let answer = self.admitted(name, call, answer);
                Arc::clone(metrics).timed(answer, label).boxed()
            }
            None => std::future::ready(Err(unknown(name))).boxed(),
        }
    }

    fn streams(&self, name: &str) -> Option<Keepalive> {
        self.openers.get(name).map(|(_, keepalive, _)| *keepalive)
    }

    fn open(
        &self,
        name: &str,
        call: Call,
        stream: Duplex,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        match self.openers.get_key_value(name) {
            Some((name, (metrics, _, opener))) => {
                let (label, opener) = (self.labelled(&call), Arc::clone(opener));
                let opened = move |state, call| opener(state, call, stream);
                let opened = self.admitted(name, call, opened);
                Arc::clone(metrics).timed(opened, label).boxed()
            }
            None => std::future::ready(Err(unknown(name))).boxed(),
        }
    }

    fn knows(&self, call: &Call) -> BoxFuture<'static, bool> {
        match &self.doorman {
            Some(doorman) => doorman(self.state.clone(), call.clone()),
            None => std::future::ready(true).boxed(),
        }
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("Unknown rpc method: {name:?}"))
}
