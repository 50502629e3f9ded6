//! In the place of the publisher, in a program that is built without Kafka: such a program does not
//! start where it is to publish.

mod held;
mod report;
mod source;

use drover_projections::Interest;
use futures_util::future::BoxFuture;

use super::runner::{Activation, Context, Failure, Reactor, Scope};
use crate::config::KafkaConfig;

pub use held::{Hold, PublisherPosition};
pub use report::PublisherReport;
pub use source::KafkaSource;

const ABSENT: &str = "event_publisher.kafka: this drover is built without Kafka (feature kafka)";

/// Says that nothing can be published.
///
/// # Errors
/// Always.
pub fn validate(_: &KafkaConfig) -> Result<(), String> {
    Err(ABSENT.to_owned())
}

/// The reactor that never comes to anything.
pub struct KafkaPublisher {
    _source: KafkaSource,
}

impl KafkaPublisher {
    /// A publisher that publishes nothing.
    pub fn new(source: KafkaSource) -> Self {
        Self { _source: source }
    }
}

impl Reactor for KafkaPublisher {
    fn name(&self) -> &'static str {
        "event_publisher"
    }

    fn scope(&self) -> Scope {
        Scope::Leader
    }

    fn interests(&self) -> &'static [Interest] {
        &[]
    }

    fn activate<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, Result<Activation, Failure>> {
        Box::pin(async { Err(ABSENT.into()) })
    }
}
