//! What is to be in the log, handed to openraft in order, and the answers of apply.

use futures_util::{Stream, StreamExt};
use openraft::errors::Fatal;
use openraft::raft::WriteResult;

use super::node::Inner;
use super::read::no_leader;
use super::types::{Payload, Response, TypeConfig};
use crate::error::{Code, Refusal};

/// Takes what the leader wants in the log.
#[derive(Clone)]
pub struct LogWriter(pub(super) Inner);

impl LogWriter {
    /// Hands payloads over, which follow one another in the log. Each answer comes when its entry
    /// is applied here, or with the reason why its outcome is unknown.
    ///
    /// # Errors
    /// Raft has stopped.
    pub async fn write(
        &self,
        payloads: Vec<Payload>,
    ) -> Result<impl Stream<Item = Result<Response, Refusal>> + Send + Unpin + use<>, Refusal> {
        match self.0.client_write_many(payloads).await {
            Ok(results) => Ok(results.map(answer)),
            Err(error) => {
                tracing::warn!(%error, "raft has stopped");
                Err(no_leader())
            }
        }
    }
}

fn answer(result: Result<WriteResult<TypeConfig>, Fatal<TypeConfig>>) -> Result<Response, Refusal> {
    match result {
        Ok(Ok(written)) => Ok(written.response),
        Ok(Err(error)) => {
            tracing::debug!(%error, "not the leader");
            Err(no_leader())
        }
        Err(error) => Err(Refusal::new(
            Code::Internal,
            format!("raft has stopped: {error}"),
        )),
    }
}
