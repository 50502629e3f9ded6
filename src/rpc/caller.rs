//! How a client reaches its servers: over connections, or within the process.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::{Carrier, Pool};
use super::duplex::Duplex;
use super::service::{Call, Dispatch};
use super::{Rpc, RpcError, Streaming, wire};

/// The wait before another attempt; grows to the second.
pub(super) const RETRY: Duration = Duration::from_millis(50);
pub(super) const RETRY_MAX: Duration = Duration::from_secs(1);

/// The servers that are known, in the order they are tried (MOD-14).
#[derive(Clone, Debug, Default)]
pub struct Servers {
    list: Arc<Mutex<Vec<String>>>,
}

impl Servers {
    /// These servers; the order they are tried in is random, so that many clients spread.
    pub fn new(mut addrs: Vec<String>) -> Self {
        use rand::seq::SliceRandom;
        addrs.shuffle(&mut rand::rng());
        Self {
            list: Arc::new(Mutex::new(addrs)),
        }
    }

    /// The one to try next.
    pub fn first(&self) -> Option<String> {
        self.list.lock().first().cloned()
    }

    /// A server did not answer: it goes to the end.
    pub fn failed(&self, addr: &str) {
        let mut list = self.list.lock();
        if list.first().is_some_and(|a| a == addr) {
            list.rotate_left(1);
        }
    }

    /// What servers say of themselves; known ones keep their place, those not named go.
    pub fn refresh(&self, addrs: &[String]) {
        if addrs.is_empty() {
            return;
        }
        let mut list = self.list.lock();
        list.retain(|a| addrs.contains(a));
        for addr in addrs {
            if !list.contains(addr) {
                list.push(addr.clone());
            }
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.list.lock().clone()
    }
}

/// Connections for calls, and others for what much comes over.
#[derive(Clone)]
struct Ways {
    calls: Pool,
    streams: Pool,
}

#[derive(Clone)]
enum CallRoute {
    Network(Ways, Servers),
    Process(Arc<dyn Dispatch>),
}

/// Calls methods of the servers.
#[derive(Clone)]
pub struct Caller {
    way: CallRoute,
    token: Arc<str>,
    node: Arc<str>,
}

impl Caller {
    /// Over connections of `pool`; `token` says who calls.
    pub fn network(pool: Pool, servers: Servers, token: &str) -> Self {
        Self {
            way: CallRoute::Network(
                Ways {
                    streams: pool.for_streams(),
                    calls: pool,
                },
                servers,
            ),
            token: token.into(),
            node: "".into(),
        }
    }

    /// Within the process: the server of a development agent.
    pub fn process(service: Arc<dyn Dispatch>, token: &str) -> Self {
        Self {
            way: CallRoute::Process(service),
            token: token.into(),
            node: "".into(),
        }
    }

    /// The same in the name of a node, whose secret the token is.
    #[must_use]
    pub fn of_node(mut self, id: &str) -> Self {
        self.node = id.into();
        self
    }

    /// The same at one server, whatever the others are tried in; within the process, there.
    #[must_use]
    pub fn at(&self, addr: &str) -> Self {
        let mut here = self.clone();
        if let CallRoute::Network(_, servers) = &mut here.way {
            *servers = Servers::new(vec![addr.to_owned()]);
        }
        here
    }

    /// The same over the connections of streams, where sessions go.
    #[must_use]
    pub fn beside_streams(mut self) -> Self {
        if let CallRoute::Network(ways, _) = &mut self.way {
            ways.calls = ways.streams.clone();
        }
        self
    }

    fn as_call(&self) -> Call {
        Call {
            token: self.token.to_string(),
            node: self.node.to_string(),
            ..Call::default()
        }
    }

    /// The servers, where there are connections to them.
    pub fn servers(&self) -> Option<&Servers> {
        match &self.way {
            CallRoute::Network(_, servers) => Some(servers),
            CallRoute::Process(_) => None,
        }
    }

    /// One attempt at one server.
    ///
    /// # Errors
    /// The refusal, or why there was no answer.
    pub async fn once<R: Rpc>(
        &self,
        request: &R::Req,
        timeout: Duration,
    ) -> Result<R::Res, RpcError> {
        let body = wire::encode(request)?;
        let answer = match &self.way {
            CallRoute::Network(ways, servers) => {
                let addr = servers
                    .first()
                    .ok_or_else(|| RpcError::Unreachable("no servers are known".into()))?;
                let result = ways
                    .calls
                    .call(&addr, R::NAME, self.as_call(), body, timeout)
                    .await;
                if result.as_ref().is_err_and(RpcError::is_transient) {
                    servers.failed(&addr);
                }
                result?
            }
            CallRoute::Process(service) => {
                tokio::time::timeout(timeout, service.dispatch(R::NAME, self.as_call(), body))
                    .await
                    .map_err(|_| RpcError::TimedOut(R::NAME))??
            }
        };
        wire::decode(&answer)
    }

    /// Opens a stream at one server, which takes it within `timeout`.
    ///
    /// # Errors
    /// The refusal, or why there was no answer.
    pub async fn open<R: Streaming>(
        &self,
        request: &R::Req,
        timeout: Duration,
    ) -> Result<Duplex, RpcError> {
        self.carried::<R>(request, timeout)
            .await
            .map(|(stream, _)| stream)
    }

    /// The same, with the connection that it goes over; none within the process.
    ///
    /// # Errors
    /// The refusal, or why there was no answer.
    pub async fn carried<R: Streaming>(
        &self,
        request: &R::Req,
        timeout: Duration,
    ) -> Result<(Duplex, Option<Carrier>), RpcError> {
        match &self.way {
            CallRoute::Network(ways, servers) => {
                let pool = if R::SEPARATE_CONNECTIONS {
                    &ways.streams
                } else {
                    &ways.calls
                };
                let first = wire::encode(request)?;
                let addr = servers
                    .first()
                    .ok_or_else(|| RpcError::Unreachable("no servers are known".into()))?;
                let kind = (R::NAME, R::KEEPALIVE);
                let opened = pool.open(&addr, kind, self.as_call(), first, timeout).await;
                if opened.as_ref().is_err_and(RpcError::is_transient) {
                    servers.failed(&addr);
                }
                opened.map(|(stream, carrier)| (stream, Some(carrier)))
            }
            CallRoute::Process(service) => {
                let (mut near, far) = Duplex::pair(R::KEEPALIVE);
                let sent = near.outflow.message(request);
                sent.map_err(|broken| RpcError::Malformed(broken.0))?;
                tokio::time::timeout(timeout, service.open(R::NAME, self.as_call(), far))
                    .await
                    .map_err(|_| RpcError::TimedOut(R::NAME))??;
                Ok((near, None))
            }
        }
    }

    /// The same, and tries again, at the servers in turn, while that may help and until `deadline`
    /// is over.
    ///
    /// # Errors
    /// The refusal, or the last reason why there was no answer.
    pub async fn reach<R: Streaming>(
        &self,
        request: &R::Req,
        deadline: Duration,
    ) -> Result<Duplex, RpcError> {
        let attempt = |left| self.open::<R>(request, left);
        persist(deadline, attempt).await
    }

    /// Tries again, at the servers in turn, while that may help and until `deadline` is over: also
    /// while no server is known (HB-13).
    ///
    /// # Errors
    /// The refusal, or the last reason why there was no answer.
    pub async fn call<R: Rpc>(
        &self,
        request: &R::Req,
        deadline: Duration,
    ) -> Result<R::Res, RpcError> {
        let attempt = |left| self.once::<R>(request, left);
        persist(deadline, attempt).await
    }
}

/// Tries again while that may help and there is time: after the time that the answer named, where
/// it named one.
async fn persist<T, Fut>(
    deadline: Duration,
    attempt: impl Fn(Duration) -> Fut,
) -> Result<T, RpcError>
where
    Fut: Future<Output = Result<T, RpcError>>,
{
    let end = Instant::now() + deadline;
    let mut wait = RETRY;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match attempt(left.max(RETRY)).await {
            Err(e) if e.is_transient() => {
                let pause = e.retry_after_or(wait);
                if Instant::now() + pause >= end {
                    return Err(e);
                }
                tokio::time::sleep(pause).await;
                wait = (wait * 2).min(RETRY_MAX);
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
#[path = "caller_test.rs"]
mod tests;
