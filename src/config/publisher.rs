//! The `event_publisher` block: what is published to Kafka, and what CloudEvents show there and on
//! the API's stream.
//!
//! How a field is read (`=> set`, `block`, `maybe`) is in `kinds.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_events::public::PublicFields;
use drover_events::{EventKind, Topic};

use super::hcl1::HclNode;
use super::kinds::{MILLISECOND, SECOND, block, maybe, set};
use super::read::FromNode;
use super::settings::settings;

settings! {
/// The settings of the publisher of events.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPublisherConfig {
    /// The agent that serves the schemas to which CloudEvents refer (`dataschema`), as
    /// `https://host`; empty means this agent.
    pub schemas: String => set,
    /// What CloudEvents of the HTTP API's stream show.
    pub http: HttpEventsConfig => block,
    /// Publish to Kafka; absent means no.
    pub kafka: Option<KafkaConfig> => maybe,
}
}

settings! {
/// The `event_publisher.http` block.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpEventsConfig {
    /// Fields of the classes that are otherwise hashed (and hidden from callers that may not see
    /// all events), to be shown in clear to every reader of the event: `Job.Meta` or
    /// `Task.Config.image` for example.
    pub public_fields: Vec<String> => set,
}
}

settings! {
/// The `event_publisher.kafka` block.
#[derive(Clone, Debug, PartialEq)]
pub struct KafkaConfig {
    /// `host:port` of some of the brokers.
    pub brokers: Vec<String> => set,
    /// The topic; with `topic_per_stream` what the names of the topics begin with.
    pub topic: String = "drover.events".into() => set,
    /// A topic for every topic of the event stream (`<topic>.Job`, …); an event that changes
    /// objects of several topics is a message in each of those, one that changes none in that of
    /// what it is about. `<topic>.Other` has events about nothing, and the marker `EventsMissed`.
    pub topic_per_stream: bool => set,
    /// Whether an event that holds many objects is a message for each of them.
    pub split: bool = true => set,
    /// What a message holds: `json` (the document), `cloudevents` (a CloudEvent with it), or
    /// `cloudevents-binary` (the document, and the CloudEvent's attributes as headers).
    pub format: String = "json".into() => set,
    /// How integers beyond 2^53 are written: `plain`, or `strings`.
    pub numbers: String = "plain".into() => set,
    /// Fields that are otherwise shown as a keyed hash, to be shown in clear: `Job.Meta` or
    /// `Task.Config.image` for example.
    pub public_fields: Vec<String> => set,
    /// Create topics that are missing.
    pub create_topics: bool = true => set,
    /// How long topics that are created keep messages, by the time of their events; 0: for ever.
    pub retention: Duration = Duration::ZERO => set,
    /// Partitions of topics that are created; with one the whole topic is in the log's order.
    pub partitions: u32 = 1 => set,
    /// The topic that keeps how far the log is published; empty means `<topic>.cursor`. It must be
    /// compacted.
    pub cursor_topic: String => set,
    /// What fences a former leader; empty means `drover-<id of the cluster>`.
    pub transactional_id: String => set,
    /// Events and position in one transaction; otherwise at least once.
    pub exactly_once: bool = true => set,
    /// Where to begin without a position: `beginning` of the log, or `now`.
    pub start: String = "beginning".into() => set,
    /// Only events of these kinds; empty means all.
    pub kinds: Vec<String> => set,
    /// Only events that change something in these namespaces, or, where they change nothing that
    /// is published, that are about one of them; empty means all.
    pub namespaces: Vec<String> => set,
    /// Only events of these topics of the event stream; empty means all.
    pub topics: Vec<String> => set,
    /// What becomes of events that were refused when they were applied, and so changed nothing.
    /// `omit`: they are not published; `mark`: published with `Outcome` "refused".
    pub rejected: String = "omit".into() => set,
    /// What becomes of events beyond `max_message_bytes`. `mark`: a marker (the same document with
    /// its size in place of its payload) takes their place; `stop`: nothing more is published until
    /// this or the limit is changed.
    pub oversized: String = "mark".into() => set,
    /// What becomes of events that the log dropped (`server.retention`) before they were published,
    /// because brokers were away for longer than `server.retention.publisher_wait`: with `stop`
    /// nothing more is published, and the status names the horizon, what is missing and what to
    /// do; with `mark` a marker (kind `EventsMissed`, with the first and last index) takes their
    /// place, and publishing continues at the horizon.
    pub missed: String = "stop".into() => set,
    /// The largest message that brokers and topics take.
    pub max_message_bytes: usize = 1_000_000 => set,
    /// The most events of one transaction.
    pub batch_events: usize = 10_000 => set,
    /// How long events are gathered for one transaction.
    pub linger: Duration = 100 * MILLISECOND => set,
    /// How long any answer of the brokers is waited for.
    pub timeout: Duration = 30 * SECOND => set,
    /// How old the oldest unpublished event may be before an event says that the publisher lags;
    /// another one says that it has caught up, when less than half of that (and of
    /// `lag_warning_events`) is left.
    pub lag_warning: Duration = 10 * SECOND => set,
    /// How many events may be unpublished before the same is reported; 0: any number.
    pub lag_warning_events: u64 => set,
    /// How brokers are spoken to: `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`; empty means
    /// `security.protocol` of `properties`, or `plaintext`.
    pub security_protocol: String => set,
    /// The certificates (PEM) that may sign the brokers'; none means the system's.
    pub ca_file: Option<PathBuf> => set,
    /// This server's certificate and those it is signed with (PEM), where brokers require one.
    pub cert_file: Option<PathBuf> => set,
    /// The certificate's key (PEM); its password is the property `ssl.key.password`.
    pub key_file: Option<PathBuf> => set,
    /// Whether a broker's certificate must be for the host that was called.
    pub verify_hostname: bool = true => set,
    /// Any other property of librdkafka.
    pub properties: Properties => set,
}
}

/// Properties of librdkafka. Values may be secrets: only names are shown.
#[derive(Clone, Default, PartialEq)]
pub struct Properties(pub BTreeMap<String, String>);

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromNode for Properties {
    fn read(&mut self, node: &HclNode) -> Result<(), String> {
        self.0.read(node)
    }
}

/// What [`KafkaConfig::format`] may be.
const FORMATS: [&str; 3] = ["json", "cloudevents", "cloudevents-binary"];
/// What [`KafkaConfig::numbers`] may be.
pub const NUMBERS: [&str; 2] = ["plain", "strings"];
/// A hundred years.
const LONGEST_RETENTION: Duration = Duration::from_secs(36_525 * 86_400);

/// librdkafka's property for how brokers are spoken to.
pub const SECURITY_PROTOCOL: &str = "security.protocol";
/// Its property for how the name of a broker is checked.
pub const VERIFY_HOSTNAME: &str = "ssl.endpoint.identification.algorithm";

/// Properties that drover sets itself: each with the setting it follows from, or with none where
/// the publisher's guarantees need the value it has.
const OWN: [(&str, &str); 12] = [
    ("bootstrap.servers", "brokers"),
    ("metadata.broker.list", "brokers"),
    ("transactional.id", "transactional_id"),
    ("message.max.bytes", "max_message_bytes"),
    ("message.timeout.ms", "timeout"),
    ("enable.idempotence", ""),
    ("acks", ""),
    ("request.required.acks", ""),
    ("isolation.level", ""),
    ("group.id", ""),
    ("enable.auto.commit", ""),
    ("enable.partition.eof", ""),
];

impl EventPublisherConfig {
    /// What is wrong with it, each with the name of the setting.
    pub(super) fn check(&self, wrong: &mut Vec<String>) {
        let is_http = ["http://", "https://"]
            .iter()
            .any(|it| self.schemas.starts_with(it));
        if !self.schemas.is_empty() && !is_http {
            let schemas = &self.schemas;
            wrong.push(format!(
                "event_publisher.schemas: {schemas:?} is neither http://host:port nor https://host"
            ));
        }
        if let Err(error) = PublicFields::read(&self.http.public_fields) {
            wrong.push(format!("event_publisher.http.public_fields: {error}"));
        }
        if let Some(kafka) = &self.kafka {
            let found = kafka.problems();
            wrong.extend(
                found
                    .into_iter()
                    .map(|text| format!("event_publisher.kafka.{text}")),
            );
        }
    }
}

impl KafkaConfig {
    fn problems(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.brokers.is_empty() {
            wrong.push("brokers is empty: name at least one, as \"host:9092\"".to_owned());
        }
        for broker in self
            .brokers
            .iter()
            .filter(|one| one.contains([',', ' ', '/']))
        {
            wrong.push(format!("brokers: {broker:?} is not \"host:port\""));
        }
        for (name, topic) in [("topic", &self.topic), ("cursor_topic", &self.cursor_topic)] {
            let default = name == "cursor_topic" && topic.is_empty();
            if !default && !is_topic(topic) {
                wrong.push(format!(
                    "{name}: {topic:?} is not a topic (letters, digits, '.', '_', '-', at most 200)"
                ));
            }
        }
        if self.topic == self.cursor_topic {
            wrong.push("cursor_topic must not be the topic of the events".to_owned());
        }
        self.check_filters(&mut wrong);
        self.check_words(&mut wrong);
        self.check_numbers(&mut wrong);
        for (name, instead) in OWN {
            if self.properties.0.contains_key(name) {
                let instead = match instead {
                    "" => "drover sets it itself".to_owned(),
                    setting => format!("use {setting}"),
                };
                wrong.push(format!("properties: {name} cannot be set here: {instead}"));
            }
        }
        self.check_security(&mut wrong);
        wrong
    }

    /// The protocol that is spoken.
    pub fn protocol(&self) -> &str {
        match self.security_protocol.as_str() {
            "" => {
                let property = self.properties.0.get(SECURITY_PROTOCOL);
                property.map_or("plaintext", String::as_str)
            }
            named => named,
        }
    }

    /// The files of TLS that are set: the setting, librdkafka's property, the file.
    pub fn tls_files(&self) -> impl Iterator<Item = (&'static str, &'static str, &Path)> {
        let files = [
            ("ca_file", "ssl.ca.location", &self.ca_file),
            ("cert_file", "ssl.certificate.location", &self.cert_file),
            ("key_file", "ssl.key.location", &self.key_file),
        ];
        let set = files.into_iter();
        set.filter_map(|(name, property, file)| Some((name, property, file.as_deref()?)))
    }

    /// The settings that are librdkafka's properties under another name, where they are set.
    fn security_properties(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let files = self.tls_files().map(|(name, property, _)| (name, property));
        let others = [
            (
                !self.security_protocol.is_empty(),
                ("security_protocol", SECURITY_PROTOCOL),
            ),
            (!self.verify_hostname, ("verify_hostname", VERIFY_HOSTNAME)),
        ];
        let others = others.into_iter().filter(|(is_set, _)| *is_set);
        others.map(|(_, names)| names).chain(files)
    }

    fn check_security(&self, wrong: &mut Vec<String>) {
        let known = ["", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];
        let requested = &self.security_protocol;
        if !known.contains(&requested.as_str()) {
            let known = known[1..].join(", ");
            wrong.push(format!(
                "security_protocol: {requested:?} is not one of {known}"
            ));
        }
        let secure = self.protocol().to_ascii_lowercase().ends_with("ssl");
        if secure && !cfg!(feature = "kafka-tls") {
            wrong.push(
                "security_protocol: this drover was built without TLS for Kafka; build it with the \
                 feature kafka-tls, or use plaintext or sasl_plaintext"
                    .to_owned(),
            );
        }
        for (name, ..) in self.tls_files().filter(|_| !secure) {
            wrong.push(format!(
                "{name} is of no use without TLS: set security_protocol = \"ssl\" or \"sasl_ssl\""
            ));
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => wrong.push("cert_file needs key_file".to_owned()),
            (None, Some(_)) => wrong.push("key_file needs cert_file".to_owned()),
            _ => {}
        }
        for (setting, property) in self.security_properties() {
            if self.properties.0.contains_key(property) {
                wrong.push(format!(
                    "properties: {property} is set by {setting} already"
                ));
            }
        }
    }

    fn check_filters(&self, wrong: &mut Vec<String>) {
        for kind in &self.kinds {
            if EventKind::from_name(kind).is_none() {
                let all: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
                let all = all.join(", ");
                wrong.push(format!(
                    "kinds: there is no event kind {kind:?}; there are {all}"
                ));
            }
        }
        if let Err(error) = PublicFields::read(&self.public_fields) {
            wrong.push(format!("public_fields: {error}"));
        }
        for topic in &self.topics {
            if Topic::from_name(topic).is_none() {
                let all: Vec<&str> = Topic::ALL.iter().map(|topic| topic.name()).collect();
                wrong.push(format!(
                    "topics: {topic:?} is not one of {}",
                    all.join(", ")
                ));
            }
        }
    }

    fn check_words(&self, wrong: &mut Vec<String>) {
        let words: [(&str, &str, &[&str]); 6] = [
            ("start", &self.start, &["beginning", "now"]),
            ("rejected", &self.rejected, &["omit", "mark"]),
            ("oversized", &self.oversized, &["mark", "stop"]),
            ("missed", &self.missed, &["stop", "mark"]),
            ("format", &self.format, &FORMATS),
            ("numbers", &self.numbers, &NUMBERS),
        ];
        for (name, value, allowed) in words {
            if !allowed.contains(&value) {
                let allowed = allowed.join(", ");
                wrong.push(format!("{name}: {value:?} is not one of {allowed}"));
            }
        }
    }

    /// [`Self::retention`] as Kafka has it: milliseconds, or -1.
    pub fn retention_ms(&self) -> i64 {
        match self.retention.is_zero() {
            true => -1,
            false => i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX),
        }
    }

    fn check_numbers(&self, wrong: &mut Vec<String>) {
        let bytes = self.max_message_bytes;
        if !(10_000..=100_000_000).contains(&bytes) {
            wrong.push(format!(
                "max_message_bytes: {bytes} is not from 10000 to 100000000"
            ));
        }
        let events = self.batch_events;
        if !(1..=100_000).contains(&events) {
            wrong.push(format!("batch_events: {events} is not from 1 to 100000"));
        }
        let partitions = self.partitions;
        if !(1..=10_000).contains(&partitions) {
            wrong.push(format!("partitions: {partitions} is not from 1 to 10000"));
        }
        for (name, value, (least, most)) in [
            ("linger", self.linger, (Duration::ZERO, 10 * SECOND)),
            ("timeout", self.timeout, (SECOND, 300 * SECOND)),
            ("lag_warning", self.lag_warning, (SECOND, 86_400 * SECOND)),
            (
                "retention",
                self.retention,
                (Duration::ZERO, LONGEST_RETENTION),
            ),
        ] {
            if !(least..=most).contains(&value) {
                wrong.push(format!(
                    "{name}: {value:?} is not from {least:?} to {most:?}"
                ));
            }
        }
    }

    /// Where the position is kept.
    pub fn cursor_topic(&self) -> String {
        match self.cursor_topic.as_str() {
            "" => format!("{}.cursor", self.topic),
            named => named.to_owned(),
        }
    }
}

fn is_topic(name: &str) -> bool {
    let fits = (1..=200).contains(&name.len()) && name != "." && name != "..";
    fits && name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, check, load};

    fn read(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hcl");
        std::fs::write(&path, text).unwrap();
        let mut config = Config::dev();
        load(&mut config, &[path]).unwrap();
        config
    }

    #[test]
    fn a_block_is_read_and_its_secrets_are_not_shown() {
        let config = read(
            "event_publisher {\n  kafka {\n    brokers = [\"k1:9092\", \"k2:9092\"]\n    \
             exactly_once = false\n    linger = \"1s\"\n    kinds = [\"JobRegistered\"]\n    \
             properties {\n      \"sasl.password\" = \"canary-51fe\"\n    }\n  }\n}\n",
        );
        check(&config).unwrap();
        let kafka = config.event_publisher.kafka.as_ref().unwrap();
        assert_eq!(kafka.brokers, ["k1:9092", "k2:9092"]);
        assert!(!kafka.exactly_once);
        assert_eq!(kafka.linger, Duration::from_secs(1));
        assert_eq!(kafka.cursor_topic(), "drover.events.cursor");
        assert_eq!(kafka.properties.0["sasl.password"], "canary-51fe");
        let shown = format!("{config:?} {}", config.describe());
        assert!(shown.contains("sasl.password") && !shown.contains("canary-51fe"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let config = read(
            "event_publisher { kafka {\n topic = \"a b\"\n kinds = [\"Jobs\"]\n \
             topics = [\"job\"]\n start = \"yesterday\"\n batch_events = 0\n timeout = \"1ms\"\n \
             format = \"avro\"\n numbers = \"text\"\n public_fields = [\"Node.SecretID\"]\n \
             properties { acks = 1, \"bootstrap.servers\" = \"x\" }\n} }\n",
        );
        let text = check(&config).unwrap_err().to_string();
        for name in [
            "brokers is empty",
            "topic: \"a b\"",
            "kinds: there is no event kind \"Jobs\"",
            "topics: \"job\"",
            "start: \"yesterday\"",
            "format: \"avro\" is not one of json, cloudevents, cloudevents-binary",
            "numbers: \"text\" is not one of plain, strings",
            "public_fields: \"Node.SecretID\" is not shown as a keyed hash",
            "batch_events: 0",
            "timeout: 1ms",
            "properties: acks",
            "properties: bootstrap.servers cannot be set here: use brokers",
        ] {
            let wanted = format!("event_publisher.kafka.{name}");
            assert!(text.contains(&wanted), "{wanted}\n{text}");
        }
        assert_eq!(text.lines().count(), 12, "{text}");
        assert!(
            text.contains("there are RaftBlank, "),
            "the kinds are listed: {text}"
        );
    }

    #[test]
    fn what_is_said_of_tls_must_fit_together() {
        let config = read(
            "event_publisher { kafka {\n brokers = [\"k:1\"]\n security_protocol = \"tls\"\n \
             ca_file = \"/ca.pem\"\n cert_file = \"/c.pem\"\n properties {\n \
             \"ssl.ca.location\" = \"/other\"\n}\n} }\n",
        );
        let text = check(&config).unwrap_err().to_string();
        for name in [
            "security_protocol: \"tls\" is not one of plaintext, ssl,",
            "ca_file is of no use without TLS",
            "cert_file is of no use without TLS",
            "cert_file needs key_file",
            "properties: ssl.ca.location is set by ca_file already",
        ] {
            let wanted = format!("event_publisher.kafka.{name}");
            assert!(text.contains(&wanted), "{wanted}\n{text}");
        }
        let config = read(
            "event_publisher { kafka {\n brokers = [\"k:1\"]\n security_protocol = \"ssl\"\n \
             ca_file = \"/ca.pem\"\n verify_hostname = false\n} }\n",
        );
        if cfg!(feature = "kafka-tls") {
            check(&config).unwrap();
        } else {
            let text = check(&config).unwrap_err().to_string();
            assert!(text.contains("built without TLS for Kafka"), "{text}");
        }
    }
}
