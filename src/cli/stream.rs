//! An answer that does not end, read piece by piece or line by line.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value as Json;

/// An answer that is read as it comes.
#[derive(Debug)]
pub(super) struct Stream {
    /// The epoch of the log that positions in it belong to; empty of what has none.
    pub(super) epoch: String,
    body: Incoming,
    buffer: BytesMut,
}

impl Stream {
    /// The answer with this body, and the epoch that its head names.
    pub(super) fn new(body: Incoming, epoch: String) -> Stream {
        Stream {
            epoch,
            body,
            buffer: BytesMut::new(),
        }
    }

    /// The next bytes; none at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if !self.buffer.is_empty() {
            return Ok(Some(self.buffer.split().freeze()));
        }
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.context("reading the stream")?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next line of JSON; none at the end.
    pub(super) async fn json_line(&mut self) -> Result<Option<Json>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end + 1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return serde_json::from_slice(&line)
                    .map(Some)
                    .context("reading the stream");
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.context("reading the stream")?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
