//! A lag as events: one when it begins, one when it ends.
//!
//! Whether a lag was reported stands in the state, so the next leader neither reports it again nor
//! forgets its end. The command is refused quietly where it has nothing to say.

use std::sync::Arc;

use drover_events::cluster::PublisherLagged;
use drover_projections::tables::cluster_meta::ClusterMetaTable;
use serde_json::Value;

use super::super::runner::{Context, Failure};
use super::status::{PublisherStatus, StatusSnapshot};
use crate::commands::Command;
use crate::commands::cluster::{SayPublisherCaughtUp, SayPublisherLags};
use crate::config::KafkaConfig;

/// The name of this publisher in events.
const KAFKA: &str = "kafka";

/// Says in the log of events that a lag began or ended, where it did; answers the status.
///
/// # Errors
/// The state cannot be read, or the event cannot be written.
pub(super) async fn report(
    config: &KafkaConfig,
    seen: &StatusSnapshot,
    context: &Context,
    name: &'static str,
) -> Result<Value, Failure> {
    let since = reported(context)?;
    let lags = seen.lags(config, since > 0);
    let command: Arc<dyn Command> = match (lags, since > 0) {
        (true, false) => Arc::new(SayPublisherLags {
            lagged: PublisherLagged {
                publisher: KAFKA.to_owned(),
                published: seen.state.published.unwrap_or(0),
                behind: seen.lag.events,
                age: i64::try_from(seen.lag.age.as_nanos()).unwrap_or(i64::MAX),
                reason: seen.reason().to_owned(),
            },
        }),
        (false, true) => Arc::new(SayPublisherCaughtUp {
            publisher: KAFKA.to_owned(),
            published: seen.state.published.unwrap_or(0),
        }),
        _ => return Ok(PublisherStatus::show(config, seen, lags, since)),
    };
    context.proposer.submit(command, name).await?;
    let now = reported(context)?;
    // Before every server reads the event, nothing is written and nothing changes.
    if now != since {
        announce(seen, lags);
    }
    Ok(PublisherStatus::show(config, seen, lags, now))
}

/// The index of the event that reported a lag; 0 while no lag is reported.
fn reported(context: &Context) -> Result<u64, Failure> {
    let meta = context.projections.view().get::<ClusterMetaTable>(())?;
    Ok(meta.map_or(0, |meta| meta.publisher_lagging_since))
}

fn announce(seen: &StatusSnapshot, lags: bool) {
    let published = seen.state.published;
    if lags {
        tracing::warn!(
            behind = seen.lag.events,
            oldest_seconds = seen.lag.age.as_secs(),
            published,
            why = seen.reason(),
            "the event publisher lags"
        );
    } else {
        tracing::info!(published, "the event publisher has caught up");
    }
}
