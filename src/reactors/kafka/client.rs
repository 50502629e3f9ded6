//! librdkafka's clients: how they are configured, what they report, and which of their errors an
//! operator is shown.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::ProducerContext;

use super::status::PublisherStatus;
use crate::config::{KafkaConfig, SECURITY_PROTOCOL, VERIFY_HOSTNAME};

/// librdkafka's queue of messages that no broker has acknowledged, in KiB.
const QUEUE_KIB: u32 = 64 << 10;
/// The least time a transaction is given by the brokers.
const TRANSACTION_MS: u128 = 60_000;

/// Properties of connections; the others say how to produce and are nothing to a consumer.
const CONNECTION: [&str; 10] = [
    "security.",
    "sasl.",
    "ssl.",
    "client.",
    "socket.",
    "broker.",
    "metadata.",
    "api.",
    "reconnect.",
    "retry.",
];

/// Checks the names and values of all properties without any connection.
///
/// # Errors
/// What librdkafka does not take, by the property's name.
pub fn validate(config: &KafkaConfig) -> Result<(), String> {
    check_files(config)?;
    let native = producer(config, "drover", config.max_message_bytes).create_native_config();
    native
        .map(|_| ())
        .map_err(|error| format!("event_publisher.kafka.properties: {}", plain(&error)))
}

/// Says which of the files of TLS cannot be read.
fn check_files(config: &KafkaConfig) -> Result<(), String> {
    for (name, _, file) in config.tls_files() {
        std::fs::read(file).map_err(|error| {
            let file = file.display();
            format!("event_publisher.kafka.{name}: {file} cannot be read: {error}")
        })?;
    }
    Ok(())
}

/// How brokers are spoken to.
fn secure(config: &KafkaConfig, client: &mut ClientConfig) {
    if !config.security_protocol.is_empty() {
        client.set(SECURITY_PROTOCOL, &config.security_protocol);
    }
    for (_, property, file) in config.tls_files() {
        client.set(property, file.to_string_lossy());
    }
    if !config.verify_hostname {
        client.set(VERIFY_HOSTNAME, "none");
    }
}

/// What all clients have in common.
fn common(config: &KafkaConfig) -> ClientConfig {
    let mut common = ClientConfig::new();
    secure(config, &mut common);
    common
        .set("bootstrap.servers", config.brokers.join(","))
        .set("client.id", "drover")
        .set("reconnect.backoff.max.ms", "2000")
        .set_log_level(RDKafkaLogLevel::Info);
    common
}

/// The producer's configuration; none of its messages or batches is larger than `limit` bytes.
pub(super) fn producer(config: &KafkaConfig, id: &str, limit: usize) -> ClientConfig {
    let timeout = config.timeout.as_millis();
    let mut producer = common(config);
    producer
        .set("compression.type", "lz4")
        .set("linger.ms", "5")
        .set("queue.buffering.max.kbytes", QUEUE_KIB.to_string());
    for (name, value) in &config.properties.0 {
        producer.set(name, value);
    }
    producer
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.max.bytes", limit.to_string())
        .set("message.timeout.ms", timeout.to_string());
    if config.exactly_once {
        let transaction = (timeout + 5_000).max(TRANSACTION_MS).to_string();
        producer.set("transactional.id", id);
        if !config.properties.0.contains_key("transaction.timeout.ms") {
            producer.set("transaction.timeout.ms", transaction);
        }
    }
    producer
}

/// The configuration of a consumer, or of what creates topics.
pub(super) fn consumer(config: &KafkaConfig, id: &str, committed: bool) -> ClientConfig {
    let mut consumer = connection(config);
    let isolation = match committed {
        true => "read_committed",
        false => "read_uncommitted",
    };
    consumer
        .set("group.id", id)
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", isolation);
    consumer
}

/// The configuration of what creates topics.
pub(super) fn connection(config: &KafkaConfig) -> ClientConfig {
    let mut connection = common(config);
    for (name, value) in &config.properties.0 {
        if CONNECTION.iter().any(|prefix| name.starts_with(prefix)) {
            connection.set(name, value);
        }
    }
    connection
}

/// How many messages of a batch came to an end, and the first that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub delivered: usize,
    pub failed: Option<KafkaError>,
}

/// Receives a producer's delivery reports and errors.
pub(super) struct PublisherContext {
    shared: Arc<PublisherStatus>,
    tally: Mutex<Tally>,
}

impl PublisherContext {
    pub(super) fn new(shared: &Arc<PublisherStatus>) -> Self {
        Self {
            shared: Arc::clone(shared),
            tally: Mutex::default(),
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Begins to count anew.
    pub(super) fn reset(&self) {
        *self.tally.lock() = Tally::default();
    }
}

impl ClientContext for PublisherContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka reports an error");
        let code = error.rdkafka_error_code();
        // That all brokers are down says less than why the last one was not reached.
        if code == Some(Code::AllBrokersDown) {
            self.shared.with(|state| {
                state.connected = false;
                if state.error.is_empty() {
                    let why = state.hint.trim_end_matches([' ', ';']);
                    state.error = format!("no broker can be reached: {why}");
                }
            });
            return;
        }
        let hint = format!("{reason}; {}", code.map_or("", advice));
        self.shared.with(|state| state.hint = hint);
    }
}

impl ProducerContext for PublisherContext {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut tally = self.tally.lock();
        match result {
            Ok(_) => tally.delivered += 1,
            Err((error, _)) => {
                tally.failed.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// For a client whose calls return their errors: callbacks only log.
pub(super) struct SilentContext;

impl ClientContext for SilentContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka reports an error");
    }
}

impl ConsumerContext for SilentContext {}

/// An error without values of the configuration, which may be secrets.
pub(super) fn plain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, _, name, _) => {
            format!("{name}: librdkafka does not know it, or not this value")
        }
        other => other.to_string(),
    }
}

/// What went wrong while doing something, and what to check.
pub(super) fn explain(what: &str, error: &KafkaError, hint: &str) -> String {
    let error_text = plain(error);
    let text = match hint {
        "" => error.rdkafka_error_code().map_or("", advice),
        hint => hint,
    };
    let text = text.trim_end_matches([' ', ';']);
    match text {
        "" => format!("{what}: {error_text}"),
        text => format!("{what}: {error_text}; {text}"),
    }
}

/// What an operator should check.
fn advice(code: Code) -> &'static str {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed => {
            "check sasl.mechanism, sasl.username and sasl.password in \
             event_publisher.kafka.properties"
        }
        Code::SSL => {
            "check event_publisher.kafka.ca_file, which must hold the signers of the brokers' \
             certificates, that those are for the hosts in brokers, and cert_file and key_file \
             where the brokers require a certificate"
        }
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::OperationTimedOut
        | Code::MessageTimedOut => {
            "check that event_publisher.kafka.brokers are up and reachable, and its \
             security_protocol"
        }
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => {
            "grant the user Describe, Read and Write on the topics, Describe and Write on the \
             transactional id, and Read on the group of the same name"
        }
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            "create the topics, or set event_publisher.kafka.create_topics = true"
        }
        Code::ProducerFenced | Code::Fenced | Code::InvalidProducerEpoch => {
            "another producer has the same transactional id: a newer leader, or another cluster"
        }
        Code::MessageSizeTooLarge => {
            "the topic's max.message.bytes is below event_publisher.kafka.max_message_bytes"
        }
        Code::InvalidTransactionTimeout => {
            "lower transaction.timeout.ms in event_publisher.kafka.properties, or raise \
             transaction.max.timeout.ms of the brokers"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, value: &str) -> KafkaConfig {
        let mut config = KafkaConfig {
            brokers: vec!["127.0.0.1:9092".into()],
            ..KafkaConfig::default()
        };
        config.properties.0.insert(name.into(), value.into());
        config
    }

    #[test]
    fn properties_are_checked_by_name_and_their_values_not_shown() {
        validate(&config("sasl.username", "me")).unwrap();
        let unknown = validate(&config("sasl.pasword", "canary-77d0")).unwrap_err();
        assert!(unknown.contains("event_publisher.kafka.properties: sasl.pasword"));
        assert!(!unknown.contains("canary-77d0"), "{unknown}");
        let wrong = validate(&config("linger.ms", "soon")).unwrap_err();
        assert!(wrong.contains("properties: linger.ms"), "{wrong}");
    }

    #[test]
    fn a_consumer_is_given_what_concerns_the_connection() {
        let mut config = config("linger.ms", "7");
        config
            .properties
            .0
            .insert("sasl.username".into(), "me".into());
        let consumer = consumer(&config, "drover-x", true);
        assert_eq!(consumer.get("sasl.username"), Some("me"));
        assert_eq!(consumer.get("linger.ms"), None);
        let producer = producer(&config, "drover-x", 5_000);
        assert_eq!(producer.get("linger.ms"), Some("7"));
        assert_eq!(producer.get("transactional.id"), Some("drover-x"));
    }

    #[test]
    fn the_names_of_brokers_are_checked_unless_that_is_switched_off() {
        let mut config = config("linger.ms", "7");
        for (checked, property) in [(true, None), (false, Some("none"))] {
            config.verify_hostname = checked;
            for client in [
                producer(&config, "drover-x", 5_000),
                consumer(&config, "drover-x", true),
                connection(&config),
            ] {
                assert_eq!(client.get(VERIFY_HOSTNAME), property, "{checked}");
            }
        }
    }

    #[test]
    fn files_of_tls_are_looked_at_when_the_server_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let mut config = config("sasl.username", "me");
        config.security_protocol = "sasl_ssl".into();
        config.ca_file = Some(path.clone());
        let missing = validate(&config).unwrap_err();
        assert!(
            missing.contains("event_publisher.kafka.ca_file: "),
            "{missing}"
        );
        std::fs::write(&path, "").unwrap();
        validate(&config).unwrap();
        let client = connection(&config);
        assert_eq!(client.get("security.protocol"), Some("sasl_ssl"));
        assert_eq!(client.get("ssl.ca.location"), path.to_str());
    }
}
