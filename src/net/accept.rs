//! The one accept loop: connections in, counted, their handshakes done, and handed on.
//!
//! Each connection is a task of its own from the first byte on: one that is slow, fails or panics
//! changes nothing for the others, and when the system has no descriptors left the loop waits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::tls::{Loader, PeerCertificate, Port, PortTls, explain};
use super::{Peer, Refusals, Seldom, Stream, Visit, Visitors};

/// Pause after the system refused a connection (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a caller that is turned away has to take its answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// The most that is read of such a caller meanwhile, and thrown away.
const LAST_WORDS: u64 = 64 << 10;
/// As good as no limit.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// What TLS begins with: a record of a handshake.
const HANDSHAKE: u8 = 0x16;

/// Where connections come in.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A socket in the file system; the file goes with it.
    Unix(UnixListener, PathBuf),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // The next process finds nothing there, or removes it itself.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection before anything was read from it.
enum Caller {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Listens on a socket in the file system, in place of one that no process listens on any more.
    ///
    /// # Errors
    /// A process listens there, or the system refuses it.
    pub fn unix(path: PathBuf) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(&path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        match std::fs::symlink_metadata(&path) {
            Ok(meta) if std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()) => {
                std::fs::remove_file(&path)?;
            }
            _ => {}
        }
        Ok(Self::Unix(UnixListener::bind(&path)?, path))
    }

    async fn accept(&self) -> io::Result<(Caller, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                let peer = Peer {
                    address: Some(address),
                    ..Peer::default()
                };
                Ok((Caller::Tcp(stream), peer))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Caller::Unix(stream), Peer::default()))
            }
        }
    }
}

/// Which connections are let in, and how long each may take to send its request.
#[derive(Clone, Debug)]
pub struct Door {
    /// The connections there are.
    pub visitors: Arc<Visitors>,
    /// The time from connecting to the first request.
    pub patience: Patience,
    /// The certificates.
    pub tls: Arc<Loader>,
    /// What is behind it.
    pub port: Port,
}

/// A time that may be changed while it is used.
#[derive(Clone, Debug)]
pub struct Patience(Arc<AtomicU64>);

impl Patience {
    /// This long.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        let patience = Self(Arc::default());
        patience.set(time);
        patience
    }

    /// This long for connections from now on; nothing: as long as they take.
    pub fn set(&self, time: Duration) {
        let time = match time.is_zero() {
            true => FOREVER,
            false => time,
        };
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    /// How long.
    #[must_use]
    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A connection that was let in.
#[derive(Debug)]
pub struct Arrival {
    /// Its bytes, both ways.
    pub stream: Stream,
    /// Who is at its other end.
    pub peer: Peer,
    /// Until when its first request must be there.
    pub due: Instant,
    /// Cancelled when the port is closed.
    pub stop: CancellationToken,
    /// Changes when certificates were loaded anew since the connection came in: what its caller has
    /// shown may not count any more.
    pub reloads: watch::Receiver<()>,
}

/// Waits until certificates were loaded anew, and then some part of the time that all have to go.
pub async fn reloaded(mut reloads: watch::Receiver<()>, parting: Duration) {
    match reloads.changed().await {
        Ok(()) => sleep(parting.mul_f64(rand::random::<f64>())).await,
        Err(_) => std::future::pending().await,
    }
}

/// Waits until a moment, if there is one.
pub async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// What answers behind a door.
pub trait Host: Send + Sync + 'static {
    /// What it is called in the log.
    const NAME: &'static str;
    /// What one of too many is answered.
    const TOO_MANY: &'static [u8];
    /// What Nomad calls the count of those, where it has one.
    const EXCEEDED: Option<&'static str> = None;
    /// The answer to a caller that speaks clear text where TLS is spoken.
    const TLS_ONLY: &'static [u8];

    /// Serves one connection to its end.
    fn receive(&self, arrival: Arrival) -> impl Future<Output = ()> + Send;
}

/// Lets connections in until it is to stop; answers with those that are still served then.
pub async fn accept<H: Host>(
    listener: Listener,
    host: Arc<H>,
    door: Door,
    stop: CancellationToken,
) -> TaskTracker {
    let open = TaskTracker::new();
    let door = Arc::new((door, RecentWarnings::default()));
    let mut refusals = Refusals::default();
    let mut fault = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        // Before anything is shown on it: a caller whose certificate counts no more a moment later
        // is notified.
        let reloads = door.0.tls.reloads();
        match accepted {
            Ok((caller, peer)) => match door.0.visitors.enter(&peer) {
                Some(visit) => {
                    let (host, door, stop) = (Arc::clone(&host), Arc::clone(&door), stop.clone());
                    let reported = (stop, reloads);
                    open.spawn(visited(caller, peer, visit, host, door, reported));
                }
                None => turn_away::<H>(caller, &peer, &door, &mut refusals),
            },
            Err(error) => {
                if fault.is_due() {
                    tracing::warn!(%error, "{}: cannot accept connections", H::NAME);
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    open.close();
    open
}

/// What was logged not long ago.
#[derive(Debug, Default)]
struct RecentWarnings {
    mixed: Mutex<Seldom>,
    failed: Mutex<Seldom>,
    full: Mutex<Seldom>,
}

/// Answers one of too many with the reason; where there are far too many, the connection just ends.
fn turn_away<H: Host>(
    caller: Caller,
    peer: &Peer,
    (door, reported): &(Door, RecentWarnings),
    refusals: &mut Refusals,
) {
    metrics::counter!("drover.connections.refused_total", "port" => H::NAME).increment(1);
    if let Some(name) = H::EXCEEDED {
        metrics::counter!(name).increment(1);
    }
    if reported.full.lock().is_due() {
        tracing::warn!(
            %peer,
            "{0}: too many connections of one address, or of all: see limits {{ \
             {0}_max_conns_per_client }}",
            H::NAME
        );
    }
    // Within TLS nothing can be sent without a handshake.
    let clear = door.tls.wanted(door.port).tls.is_none();
    if !H::TOO_MANY.is_empty() && clear && refusals.word() {
        tokio::spawn(async move {
            match caller {
                Caller::Tcp(stream) => farewell(stream, H::TOO_MANY).await,
                Caller::Unix(stream) => farewell(stream, H::TOO_MANY).await,
            }
        });
    }
}

/// Sends one last text, so that it arrives: what still comes meanwhile is taken in, or the system
/// would throw away what it has not delivered.
async fn farewell(mut stream: impl AsyncRead + AsyncWrite + Unpin, text: &'static [u8]) {
    let reported = tokio::time::timeout(FAREWELL, async {
        stream.write_all(text).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LAST_WORDS), &mut tokio::io::sink()).await
    });
    if let Ok(Err(error)) = reported.await {
        tracing::trace!(%error, "the last answer was not taken");
    }
}

async fn visited<H: Host>(
    caller: Caller,
    mut peer: Peer,
    visit: Visit,
    host: Arc<H>,
    door: Arc<(Door, RecentWarnings)>,
    (stop, reloads): (CancellationToken, watch::Receiver<()>),
) {
    let _visit = visit;
    let due = Instant::now() + door.0.patience.get();
    let stream = match caller {
        Caller::Unix(stream) => Stream::Unix(stream),
        Caller::Tcp(stream) => {
            let shaken = shake::<H>(stream, &mut peer, due, &door);
            let shaken = tokio::select! {
                shaken = shaken => shaken,
                () = stop.cancelled() => return,
            };
            let Some(stream) = shaken else { return };
            stream
        }
    };
    let arrival = Arrival {
        stream,
        peer,
        due,
        stop,
        reloads,
    };
    host.receive(arrival).await;
}

/// Finds out whether TLS is spoken, and shakes hands if so; none where the connection is over.
async fn shake<H: Host>(
    stream: TcpStream,
    peer: &mut Peer,
    due: Instant,
    door: &(Door, RecentWarnings),
) -> Option<Stream> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot switch off delays");
    }
    let (door, reported) = door;
    let mut first = [0; 1];
    match timeout_at(due, stream.peek(&mut first)).await {
        Ok(Ok(1)) => {}
        _ => {
            tracing::trace!(%peer, "{}: sent nothing in time", H::NAME);
            return None;
        }
    }
    let encrypted = first == [HANDSHAKE];
    match door.tls.wanted(door.port) {
        PortTls {
            tls: Some(config), ..
        } if encrypted => {
            let accept = TlsAcceptor::from(config).accept(stream).into_fallible();
            match timeout_at(due, accept).await {
                Ok(Ok(stream)) => encrypted_by(stream, peer),
                Ok(Err((error, stream))) => {
                    let (_, why) = explain(&error);
                    if reported.failed.lock().is_due() {
                        tracing::warn!(%peer, "{}: TLS handshake failed: {why}", H::NAME);
                    }
                    // The alert is on its way; a caller that goes on sending must be able to read
                    // it.
                    farewell(stream, b"").await;
                    None
                }
                Err(_) => {
                    tracing::debug!(%peer, "{}: TLS handshake took too long", H::NAME);
                    None
                }
            }
        }
        PortTls {
            tls: Some(_),
            clear_too: false,
        } => {
            if reported.mixed.lock().is_due() {
                let advice = clear_on_tls(door.port);
                tracing::warn!(%peer, "{}: clear text where TLS is spoken: {advice}", H::NAME);
            }
            farewell(stream, H::TLS_ONLY).await;
            None
        }
        PortTls { tls: None, .. } if encrypted => {
            if reported.mixed.lock().is_due() {
                let advice = tls_on_clear(door.port);
                tracing::warn!(%peer, "{}: TLS where clear text is spoken: {advice}", H::NAME);
            }
            // What is left unread would turn the end into a fault.
            farewell(stream, b"").await;
            None
        }
        _ => Some(Stream::Tcp(stream)),
    }
}

fn clear_on_tls(port: Port) -> &'static str {
    match port {
        Port::Http => "callers use https://",
        Port::Rpc => {
            "set tls { rpc = true } on that agent too, or rpc_upgrade_mode = true here meanwhile"
        }
    }
}

fn tls_on_clear(port: Port) -> &'static str {
    match port {
        Port::Http => "set tls { http = true } here, or callers use http://",
        Port::Rpc => "set tls { rpc = true } here too, or leave it out on that agent",
    }
}

/// An encrypted connection, with the certificate that was shown on it.
fn encrypted_by(
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    peer: &mut Peer,
) -> Option<Stream> {
    let shown = stream.get_ref().1.peer_certificates();
    peer.certificate = match shown.and_then(<[_]>::first) {
        None => None,
        Some(first) => {
            // A session that goes on is not verified anew: what has expired since is refused here.
            let read = PeerCertificate::of(first)?;
            if read.until < jiff::Timestamp::now().as_second() {
                tracing::debug!(%peer, "the certificate of a resumed session has expired");
                return None;
            }
            Some(Arc::new(read))
        }
    };
    Some(Stream::Tls(Box::new(stream.into())))
}

#[cfg(test)]
#[path = "accept_test.rs"]
mod tests;
