//! A stream as the bytes of a connection.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

use super::{Broken, Duplex, Inflow, LONGEST, Outflow};

/// The bytes that come over a stream, and those that go. When either way breaks off, nothing is
/// left of the connection: what serves it is notified, reading or not.
#[must_use]
pub fn bytes_of(stream: Duplex) -> DuplexStream {
    let (near, far) = duplex(LONGEST);
    tokio::spawn(async move {
        let (from, to) = split(far);
        let Duplex { inflow, outflow } = stream;
        let gone = outflow.gone();
        let both = async { tokio::try_join!(incoming(inflow, to), outgoing(from, outflow)) };
        tokio::select! {
            _ = both => {}
            () = gone => {}
        }
    });
    near
}

async fn incoming(mut inflow: Inflow, mut to: impl AsyncWriteExt + Unpin) -> Result<(), Broken> {
    while let Some(piece) = inflow.data().await? {
        to.write_all(&piece).await.map_err(|_| Broken::off())?;
    }
    let _ = to.shutdown().await;
    Ok(())
}

async fn outgoing(mut from: impl AsyncReadExt + Unpin, mut outflow: Outflow) -> Result<(), Broken> {
    let mut piece = BytesMut::with_capacity(LONGEST);
    loop {
        match from.read_buf(&mut piece).await {
            Ok(0) => {
                outflow.end();
                return Ok(());
            }
            Ok(_) => outflow.send(piece.split().freeze()).await?,
            Err(_) => return Err(Broken::off()),
        }
        piece.reserve(LONGEST);
    }
}
