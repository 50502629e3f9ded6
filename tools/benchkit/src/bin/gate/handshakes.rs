//! TLS handshakes over HTTPS: those of callers who are new beside those who come again.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use drover_benchkit::Line;
use drover_testkit::{Agent, LONG};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

/// Handshakes of each kind.
const COUNT: usize = 200;
/// Those before that are not counted; the first one leaves what the next one resumes.
const WARM: usize = 20;

/// Handshakes of both kinds, in turns: what the machine does beside goes to both. The client's own
/// share is in the figures.
pub(crate) fn compared(agent: &Agent, tls: &ClientConfig) -> Result<()> {
    let (mut forgets, mut keeps) = (tls.clone(), tls.clone());
    forgets.resumption = Resumption::disabled();
    keeps.resumption = Resumption::in_memory_sessions(16);
    let (forgets, keeps) = (Arc::new(forgets), Arc::new(keeps));
    let (mut full, mut again) = (Vec::with_capacity(COUNT), Vec::with_capacity(COUNT));
    let mut resumed = 0;
    for number in 0..WARM + COUNT {
        let (new, kind) = shake(agent, &forgets)?;
        ensure!(
            kind != HandshakeKind::Resumed,
            "there was nothing to resume"
        );
        let (known, kind) = shake(agent, &keeps)?;
        if number >= WARM {
            full.push(new);
            again.push(known);
            resumed += usize::from(kind == HandshakeKind::Resumed);
        }
    }
    Line::new("TLS handshake").latencies(&mut full).print();
    Line::new("TLS handshake, resumed")
        .latencies(&mut again)
        .number("resumed_share", resumed as f64 / COUNT as f64)
        .number("of_full", median(&again) / median(&full))
        .print();
    Ok(())
}

/// The median of sorted values.
fn median(latencies: &[Duration]) -> f64 {
    latencies[(latencies.len() - 1) / 2].as_secs_f64()
}

/// How long one took and what it was. A request follows: tickets come with the answer.
fn shake(agent: &Agent, tls: &Arc<ClientConfig>) -> Result<(Duration, HandshakeKind)> {
    let mut stream = TcpStream::connect(agent.addr())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONG))?;
    let name = ServerName::from(agent.addr().ip());
    let start = Instant::now();
    let mut tls = ClientConnection::new(Arc::clone(tls), name)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    let took = start.elapsed();
    let kind = tls.handshake_kind().context("a handshake")?;
    let mut stream = StreamOwned::new(tls, stream);
    let request = "GET /v1/status/leader HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
    Ok((took, kind))
}
