//! Metrics that are sent away as they are recorded: to statsd over UDP, to statsite over TCP.
//!
//! Recording never waits: what the sender cannot take in time is dropped, as statsd's own clients
//! do.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{TcpStream, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn};
use metrics::{Key, KeyName, Metadata, SharedString, Unit};
use parking_lot::Mutex;

/// Lines that may wait for the sender.
const QUEUE: usize = 8_192;
/// What goes into one datagram: less than a frame of Ethernet holds.
const DATAGRAM: usize = 1_400;
/// How long lines wait for others.
const LINGER: Duration = Duration::from_millis(100);
/// How long a connection may take, and how long after a failed one the next is tried.
const CONNECT: Duration = Duration::from_secs(5);

/// Where metrics are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// `host:port` of statsd, over UDP.
    Statsd(String),
    /// `host:port` of statsite, over TCP.
    Statsite(String),
}

/// Gets every metric, and sends it.
pub(super) struct Recorder {
    tx: SyncSender<String>,
    host: Option<String>,
    totals: Totals,
}

/// The last values of counters that are set as totals: the handle of such a counter is made anew
/// for each report.
type Totals = Arc<Mutex<BTreeMap<String, u64>>>;

impl Recorder {
    /// Starts the thread that sends.
    pub(super) fn start(sink: Sink, host: Option<String>) -> std::io::Result<Self> {
        let (tx, rx) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        thread.spawn(move || send(&sink, &rx))?;
        Ok(Self {
            tx,
            host,
            totals: Totals::default(),
        })
    }

    fn metric(&self, key: &Key, host: Option<&str>) -> Arc<Metric> {
        Arc::new(Metric {
            name: name(key, host),
            totals: Arc::clone(&self.totals),
            tx: self.tx.clone(),
        })
    }
}

/// A name as these protocols have it: without labels, whose values are parts of it. A level has the
/// name of its host behind the first part.
fn name(key: &Key, host: Option<&str>) -> String {
    let mut name = match (host, key.name().split_once('.')) {
        (Some(host), Some((first, rest))) => format!("{first}.{host}.{rest}"),
        _ => key.name().to_owned(),
    };
    for label in key.labels() {
        name.push('.');
        name.push_str(label.value());
    }
    let clean = |c: char| match c {
        ':' | '|' | '@' | '#' => '_',
        c if c.is_whitespace() => '_',
        c => c,
    };
    name.chars().map(clean).collect()
}

struct Metric {
    name: String,
    totals: Totals,
    tx: SyncSender<String>,
}

impl Metric {
    fn report(&self, value: impl std::fmt::Display, kind: &str) {
        let _ = self.tx.try_send(format!("{}:{value}|{kind}\n", self.name));
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.report(value, "c");
    }

    fn absolute(&self, value: u64) {
        let mut totals = self.totals.lock();
        let last = totals.entry(self.name.clone()).or_default();
        if value > *last {
            self.report(value - *last, "c");
            *last = value;
        }
    }
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.report(format_args!("+{value}"), "g");
    }

    fn decrement(&self, value: f64) {
        self.report(format_args!("-{value}"), "g");
    }

    fn set(&self, value: f64) {
        self.report(value, "g");
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.report(value, "ms");
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key, None))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key, self.host.as_deref()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key, None))
    }
}

/// Sends until the recorders are gone.
fn send(sink: &Sink, lines: &Receiver<String>) {
    let mut wire = Wire::default();
    let mut packet = String::with_capacity(DATAGRAM);
    let mut since = Instant::now();
    loop {
        let left = LINGER.saturating_sub(since.elapsed());
        let wait = if packet.is_empty() { LINGER } else { left };
        match lines.recv_timeout(wait) {
            Ok(line) => {
                if packet.len() + line.len() > DATAGRAM {
                    wire.send(sink, &packet);
                    packet.clear();
                }
                if packet.is_empty() {
                    since = Instant::now();
                }
                packet.push_str(&line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return wire.send(sink, &packet);
            }
        }
        if !packet.is_empty() && since.elapsed() >= LINGER {
            wire.send(sink, &packet);
            packet.clear();
        }
    }
}

/// The way to a sink.
#[derive(Default)]
struct Wire {
    udp: Option<UdpSocket>,
    tcp: Option<TcpStream>,
    failed: Option<Instant>,
}

impl Wire {
    /// Sends, or drops. What is wrong is logged once, until it is right again.
    fn send(&mut self, sink: &Sink, packet: &str) {
        if packet.is_empty() || self.failed.is_some_and(|at| at.elapsed() < CONNECT) {
            return;
        }
        let sent = match sink {
            Sink::Statsd(address) => self.datagram(address, packet),
            Sink::Statsite(address) => self.stream(address, packet),
        };
        match sent {
            Ok(()) => self.failed = None,
            Err(error) => {
                if self.failed.is_none() {
                    tracing::warn!(?sink, %error, "metrics cannot be sent");
                }
                (self.udp, self.tcp) = (None, None);
                self.failed = Some(Instant::now());
            }
        }
    }

    fn datagram(&mut self, address: &str, packet: &str) -> std::io::Result<()> {
        let socket = match &mut self.udp {
            Some(socket) => socket,
            none => {
                let to = resolve(address)?;
                let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(to)?;
                none.insert(socket)
            }
        };
        match socket.send(packet.as_bytes()) {
            // The address has no listener now: a datagram more or less.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
            sent => sent.map(|_| ()),
        }
    }

    fn stream(&mut self, address: &str, packet: &str) -> std::io::Result<()> {
        let stream = match &mut self.tcp {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&resolve(address)?, CONNECT)?;
                stream.set_write_timeout(Some(CONNECT))?;
                none.insert(stream)
            }
        };
        stream.write_all(packet.as_bytes())
    }
}

fn resolve(address: &str) -> std::io::Result<std::net::SocketAddr> {
    let mut found = address.to_socket_addrs()?;
    found
        .next()
        .ok_or_else(|| std::io::Error::other(format!("{address} has no address")))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::super::{TelemetryOptions, build};
    use super::*;

    fn record(sink: Sink) {
        let (_, recorder) = build(&TelemetryOptions {
            host: Some("box".into()),
            sinks: vec![sink],
            ..TelemetryOptions::default()
        });
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("nomad.nomad.rpc.request").increment(2);
            metrics::gauge!("nomad.raft.peers", "who" => "a b:c").set(3.0);
            metrics::histogram!("nomad.nomad.plan.submit").record(1.5);
            metrics::counter!("drover.log.events_total").absolute(7);
            metrics::counter!("drover.log.events_total").absolute(9);
        });
    }

    const LINES: [&str; 5] = [
        "nomad.nomad.rpc.request:2|c",
        "nomad.box.raft.peers.a_b_c:3|g",
        "nomad.nomad.plan.submit:1.5|ms",
        "drover.log.events_total:7|c",
        "drover.log.events_total:2|c",
    ];

    #[test]
    fn statsd_hears_of_every_metric_by_datagrams() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        record(Sink::Statsd(socket.local_addr().unwrap().to_string()));
        let mut heard = String::new();
        let mut buffer = [0; 2_000];
        while heard.lines().count() < LINES.len() {
            let length = socket.recv(&mut buffer).expect("a datagram");
            assert!(length <= DATAGRAM);
            heard.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        }
        assert_eq!(heard.lines().collect::<Vec<_>>(), LINES);
    }

    #[test]
    fn statsite_hears_of_every_metric_by_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        record(Sink::Statsite(listener.local_addr().unwrap().to_string()));
        let (stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let lines = BufReader::new(stream).lines().take(LINES.len());
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(lines, LINES);
    }
}
