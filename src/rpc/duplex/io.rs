//! A stream as the bytes of a connection.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

use super::{Duplex, Inflow, LONGEST, Outflow};

/// The bytes that come over a stream, and those that go; they end and break with it.
#[must_use]
pub fn bytes_of(stream: Duplex) -> DuplexStream {
    let (near, far) = duplex(LONGEST);
    let (from, to) = split(far);
    let Duplex { inflow, outflow } = stream;
    tokio::spawn(incoming(inflow, to));
    tokio::spawn(outgoing(from, outflow));
    near
}

async fn incoming(mut inflow: Inflow, mut to: impl AsyncWriteExt + Unpin) {
    while let Ok(Some(piece)) = inflow.data().await {
        if to.write_all(&piece).await.is_err() {
            return;
        }
    }
    // Whoever reads sees whether what he reads is whole: what broke off ends too.
    let _ = to.shutdown().await;
}

async fn outgoing(mut from: impl AsyncReadExt + Unpin, mut outflow: Outflow) {
    let mut piece = BytesMut::with_capacity(LONGEST);
    loop {
        let read = tokio::select! {
            read = from.read_buf(&mut piece) => read,
            () = outflow.closed() => return,
        };
        match read {
            Ok(0) => return outflow.end(),
            Ok(_) if outflow.send(piece.split().freeze()).await.is_ok() => {
                piece.reserve(LONGEST);
            }
            Ok(_) | Err(_) => return,
        }
    }
}
