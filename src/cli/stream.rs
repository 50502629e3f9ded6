//! An answer that does not end, read piece by piece or line by line, and what the event stream
//! sends in it.

use super::answer;
use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use drover_events::model::{Allocation, Deployment, Evaluation, Node};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value as Json;

/// What happened at one index, as the event stream sends it; empty while nothing happens.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct EventFrame {
    /// The index.
    pub(super) index: u64,
    /// What happened.
    pub(super) events: Vec<Happened>,
}

/// An event of the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Happened {
    /// The row that changed.
    pub(super) payload: Payload,
}

/// A row by the name of its topic; none of it where the row could not be read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Payload {
    pub(super) allocation: Option<Allocation>,
    pub(super) deployment: Option<Deployment>,
    pub(super) evaluation: Option<Evaluation>,
    pub(super) node: Option<Node>,
}

/// An answer that is read as it comes.
#[derive(Debug)]
pub(super) struct Stream {
    /// The epoch of the log that positions in it belong to; empty where the answer names none.
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

    /// The next line of JSON, to be passed on as it is; none at the end.
    pub(super) async fn json_line(&mut self) -> Result<Option<Json>> {
        let line = self.line().await?;
        let json = line.map(|line| serde_json::from_slice(&line));
        json.transpose().context("reading the stream")
    }

    /// What happened next; none at the end.
    pub(super) async fn frame(&mut self) -> Result<Option<EventFrame>> {
        let line = self.line().await?;
        let frame = line.map(|line| answer::read(&line));
        frame.transpose().context("reading the stream")
    }

    /// The next line that says something; none at the end.
    async fn line(&mut self) -> Result<Option<BytesMut>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end + 1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::answers::stream_lines;
    use drover_events::Topic;

    #[test]
    fn every_row_that_the_stream_sends_is_read() {
        for (topic, wanted) in [
            (Topic::Allocation, [true, false, false, false]),
            (Topic::Deployment, [false, true, false, false]),
            (Topic::Evaluation, [false, false, true, false]),
            (Topic::Node, [false, false, false, true]),
        ] {
            let EventFrame { index, mut events } =
                answer::read(&stream_lines::line(topic)).unwrap();
            let Happened { payload } = events.remove(0);
            let Payload {
                allocation,
                deployment,
                evaluation,
                node,
            } = payload;
            let found = [
                allocation.is_some(),
                deployment.is_some(),
                evaluation.is_some(),
                node.is_some(),
            ];
            assert_eq!((index, events.len(), found), (7, 0, wanted), "{topic}");
        }
    }
}
