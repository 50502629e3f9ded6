//! A command beside a task of another machine, over a session.
//!
//! The client says whether it could run; the server says that it is to; the client says whether it
//! does. From then on frames go both ways, one on each line, and either end of the session ends the
//! command with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use drover_events::gojson;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::exec::command;
use super::far::{Near, READING, RequestHead, first_word, lost};
use crate::client::endpoints::exec::{self, ExecIn, ExecOut, ExecRequest};
use crate::error::{Code, Refusal};
use crate::http::request::Request;
use crate::rpc::duplex::{Broken, Duplex, Inflow, Outflow};
use crate::rpc::sessions::Sessions;

/// Frames that may wait for a slow reader.
const WINDOW: usize = 8;
/// How long a server may take to hear that a command has ended.
const FAREWELL: Duration = Duration::from_secs(10);
/// The longest line, bytes: more than any frame.
const LONGEST: usize = 1 << 20;

drover_events::wire! {
    /// Whether it runs, or could.
    struct Word {
        status: u32 = "Status",
        text: String = "Text",
    }

    /// It is to run.
    struct Go {}
}

impl Word {
    fn of<T>(outcome: &Result<T, Refusal>) -> Self {
        match outcome {
            Ok(_) => Self {
                status: 200,
                ..Self::default()
            },
            Err(error) => Self {
                status: u32::from(crate::net::status(error.code)),
                text: error.message.clone(),
            },
        }
    }

    fn outcome(self) -> Result<(), Refusal> {
        if self.status == 200 {
            return Ok(());
        }
        let code = u16::try_from(self.status).ok().and_then(crate::net::code);
        let code = code.unwrap_or(Code::Internal);
        Err(Refusal::new(code, self.text))
    }
}

/// A command that could run, and does not yet.
pub(in crate::http) struct Ready {
    node: String,
    stream: Duplex,
}

/// Queries the client of a node: whether it could run what a request names.
///
/// # Errors
/// The client's, or that there is no way to it.
pub(in crate::http) async fn ready(
    sessions: &Arc<Sessions>,
    node: &str,
    request: &Request,
) -> Result<Ready, Refusal> {
    let mut stream = sessions.dial(node).await?;
    let lost = |broken: Broken| lost(node, &broken);
    stream
        .outflow
        .message(&RequestHead::of(request))
        .map_err(lost)?;
    let word: Word = first_word(node, &mut stream.inflow, READING).await?;
    word.outcome()?;
    let node = node.to_owned();
    Ok(Ready { node, stream })
}

impl Ready {
    /// Runs it: what comes from it. It ends when that is dropped.
    ///
    /// # Errors
    /// The client's, or that it was lost.
    pub(in crate::http) async fn run(
        self,
        input: mpsc::Receiver<ExecIn>,
    ) -> Result<mpsc::Receiver<ExecOut>, Refusal> {
        let Self { node, mut stream } = self;
        let lost = |broken: Broken| lost(&node, &broken);
        stream.outflow.message(&Go::default()).map_err(lost)?;
        let word: Word = first_word(&node, &mut stream.inflow, READING).await?;
        word.outcome()?;
        let (to, output) = mpsc::channel(WINDOW);
        let Duplex { inflow, outflow } = stream;
        let sends = tokio::spawn(written(input, outflow));
        tokio::spawn(async move {
            tokio::select! {
                came = read(inflow, to.clone()) => if let Err(broken) = came {
                    tracing::debug!("a command of another machine was lost: {broken}");
                },
                () = to.closed() => {}
            }
            sends.abort();
        });
        Ok(output)
    }
}

/// Runs what a server requests in a session.
///
/// # Errors
/// The session broke.
pub(super) async fn run(near: &Near, head: &RequestHead, stream: Duplex) -> Result<(), Broken> {
    let Duplex {
        mut inflow,
        mut outflow,
    } = stream;
    let requested = exec_request(near, head);
    outflow.message(&Word::of(&requested))?;
    let Ok((id, request)) = requested else {
        outflow.end();
        return Ok(());
    };
    let Go {} = inflow.message().await?;
    let (to, input) = mpsc::channel(WINDOW);
    let started = async {
        let here = near.here()?;
        let client = here.client.as_ref();
        let client = client.ok_or_else(|| Refusal::internal("no client"))?;
        exec::exec(client, &id, &request, input).await
    };
    let started = started.await;
    outflow.message(&Word::of(&started))?;
    let Ok(output) = started else {
        outflow.end();
        return Ok(());
    };
    let mut writes = std::pin::pin!(written(output, outflow));
    let mut reads = std::pin::pin!(read(inflow, to));
    tokio::select! {
        () = &mut writes => {
            // What was sent last arrives only while the stream is not let go of.
            let _ = timeout(FAREWELL, reads).await;
            return Ok(());
        }
        came = &mut reads => came?,
    }
    // No more input comes; the output does until the command has ended.
    writes.await;
    Ok(())
}

fn exec_request(near: &Near, head: &RequestHead) -> Result<(String, ExecRequest), Refusal> {
    let request = head.request(Bytes::new())?;
    let (id, requested) = (request.segment(3)?, command(&request)?);
    let here = near.here()?;
    let client = here.client.as_ref();
    let client = client.ok_or_else(|| Refusal::internal("no client"))?;
    exec::check(client, &id, &requested)?;
    Ok((id, requested))
}

/// Sends frames, one on each line, until there are no more.
async fn written<T: Serialize>(mut frames: mpsc::Receiver<T>, mut outflow: Outflow) {
    loop {
        let frame = tokio::select! {
            frame = frames.recv() => frame,
            () = outflow.closed() => return,
        };
        let Some(frame) = frame else {
            return outflow.end();
        };
        let Ok(mut line) = gojson::to_vec(&frame) else {
            return outflow.fail("a frame cannot be written");
        };
        line.push(b'\n');
        if outflow.send(line.into()).await.is_err() {
            return;
        }
    }
}

/// Takes frames, one of each line, to the end.
async fn read<T: DeserializeOwned>(mut inflow: Inflow, to: mpsc::Sender<T>) -> Result<(), Broken> {
    let mut came = BytesMut::new();
    // How much of it is known to have no end of a line.
    let mut looked = 0;
    while let Some(piece) = inflow.data().await? {
        came.extend_from_slice(&piece);
        while let Some(end) = came[looked..].iter().position(|byte| *byte == b'\n') {
            let line = came.split_to(looked + end + 1);
            looked = 0;
            let frame = gojson::from_slice(&line).map_err(|error| Broken(error.to_string()))?;
            // A command that takes no more has ended, which the other side says.
            let _ = to.send(frame).await;
        }
        looked = came.len();
        if came.len() > LONGEST {
            return Err(Broken("a frame is too long".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_refusal_is_the_same_at_its_server() {
        for code in [
            Code::BadRequest,
            Code::PermissionDenied,
            Code::NotFound,
            Code::NotImplemented,
            Code::Unavailable,
        ] {
            let refused = Err::<(), _>(Refusal::new(code, "no"));
            let reported = Word::of(&refused).outcome().expect_err("a refusal");
            assert_eq!((reported.code, &*reported.message), (code, "no"));
        }
    }

    /// Servers and clients of two releases speak with each other: these bytes stay as they are.
    #[test]
    fn mod_30_what_is_said_before_a_command_runs_are_the_bytes_they_always_were() {
        let word = Word {
            status: 404,
            text: "no".to_owned(),
        };
        let hex = |bytes: &[u8]| hex::encode(bytes);
        assert_eq!(
            hex(&crate::endpoints::testing::encoded(&word)),
            "82a6537461747573cd0194a454657874a26e6f"
        );
        assert_eq!(hex(&crate::endpoints::testing::encoded(&Go {})), "80");
    }
}
