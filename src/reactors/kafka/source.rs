//! What a publisher of events is made of.

use std::sync::Arc;

use super::PublisherPosition;
use crate::config::KafkaConfig;
use crate::keyring::Keyring;
use crate::log::LogEngine;

/// What the publisher is made of.
#[derive(Clone)]
pub struct KafkaSource {
    /// Its settings.
    pub config: Arc<KafkaConfig>,
    /// The log it reads.
    pub log: Arc<LogEngine>,
    /// The keys under which sensitive values are hashed.
    pub keyring: Arc<Keyring>,
    /// What retention reads before it drops anything.
    pub held: Arc<PublisherPosition>,
    /// The address of an agent, where CloudEvents say that schemas are.
    pub agent: String,
}
