//! Which topics and keys an event's messages have, and which events are wanted at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use drover_events::{EventKind, Recorded, Topic};
use drover_projections::Change;
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use crate::config::KafkaConfig;
use crate::history::record::About;
use crate::history::record::split::Piece;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Which of the layout's topics.
    pub place: u8,
    pub key: String,
    pub namespace: String,
}

/// A piece of an event and where it goes.
#[derive(Debug)]
pub(super) struct Routed<'e> {
    pub route: Route,
    /// The object it is about.
    pub object: (Topic, &'e str),
    /// None: the event changed the object, and says nothing of it.
    pub piece: Option<&'e Piece>,
}

/// Which topics there are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// By the number of the stream's topic; the first is for events without one. A single topic
    /// is the first.
    names: Vec<String>,
    /// Topics of the stream that are wanted; empty means all.
    wanted: Vec<Topic>,
    /// Namespaces that are wanted; empty means all.
    namespaces: Vec<String>,
}

/// The name's end of the topic for events that the stream has none for.
const OTHER: &str = "Other";

impl Layout {
    pub(super) fn of(config: &KafkaConfig) -> Self {
        let mut names = vec![config.topic.clone()];
        if config.topic_per_stream {
            names[0] = format!("{}.{OTHER}", config.topic);
            let streams = Topic::ALL.iter();
            names.extend(streams.map(|topic| format!("{}.{topic}", config.topic)));
        }
        Self {
            names,
            wanted: wanted_topics(config),
            namespaces: config.namespaces.clone(),
        }
    }

    fn takes(&self, topic: Topic) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&topic)
    }

    fn takes_namespace(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    fn place(&self, topic: Topic) -> u8 {
        match self.names.len() {
            1 => 0,
            _ => topic.number(),
        }
    }

    fn route(&self, change: &Change, topic: Topic) -> Route {
        Route {
            place: self.place(topic),
            key: key(change, topic),
            namespace: change.namespace.clone(),
        }
    }

    /// Topic and key of every message of an event that is published whole.
    pub(super) fn routes(&self, event: &Recorded, changes: &[Change]) -> SmallVec<[Route; 1]> {
        let mut routes: SmallVec<[Route; 1]> = SmallVec::new();
        for change in changes {
            let Some(topic) = change.topic.filter(|topic| self.takes(*topic)) else {
                continue;
            };
            let place = self.place(topic);
            let wanted = self.takes_namespace(&change.namespace);
            if wanted && !routes.iter().any(|other| other.place == place) {
                routes.push(self.route(change, topic));
            }
        }
        if routes.is_empty() {
            routes.push(self.own(event));
        }
        routes
    }

    /// Where an event goes that has no published row: by what it says it is about.
    fn own(&self, event: &Recorded) -> Route {
        let about = event
            .envelope
            .as_ref()
            .map(|envelope| About::of(&envelope.event));
        let about = about.unwrap_or_default();
        let first = about.objects.first();
        let topic = event.kind.own_topic().or(first.map(|object| object.topic));
        let namespace = about.namespace().unwrap_or_default();
        let name = match (first, about.job_id()) {
            (Some(object), Some(job)) if is_of_a_job(object.topic) => Some(job),
            (object, _) => object.map(|object| object.id),
        };
        Route {
            place: topic.map_or(0, |topic| self.place(topic)),
            // Namespaces are objects without a namespace, and name themselves.
            key: match (name, topic) {
                (None, _) => event.kind.name().to_owned(),
                (Some(name), Some(Topic::Namespace)) => cut(name, LONGEST_KEY).into_owned(),
                (Some(name), _) => joined(namespace, name),
            },
            namespace: namespace.to_owned(),
        }
    }

    /// Where the pieces of an event go, and which objects beside them it changed.
    pub(super) fn pieces<'e>(&self, pieces: &'e [Piece], changes: &'e [Change]) -> Vec<Routed<'e>> {
        let mut changed: BTreeMap<(Topic, &str), &Change> = BTreeMap::new();
        for change in changes {
            if let (Some(topic), Some(id)) = (change.topic, change.stream_keys.first()) {
                changed.entry((topic, id)).or_insert(change);
            }
        }
        let mut routed = Vec::with_capacity(pieces.len());
        let mut seen: BTreeSet<(u8, String)> = BTreeSet::new();
        let mut named: BTreeSet<(Topic, &str)> = BTreeSet::new();
        for piece in pieces.iter().filter(|piece| self.takes(piece.topic)) {
            let object = (piece.topic, piece.id.as_str());
            named.insert(object);
            // An object may stand in an event more than once.
            let route = match changed.get(&object) {
                Some(change) => self.route(change, piece.topic),
                None => Route {
                    place: self.place(piece.topic),
                    key: cut(&piece.id, LONGEST_KEY).into_owned(),
                    namespace: String::new(),
                },
            };
            if self.takes_namespace(&route.namespace) {
                seen.insert((route.place, route.key.clone()));
                routed.push(Routed {
                    route,
                    object,
                    piece: Some(piece),
                });
            }
        }
        changed.retain(|object, _| !named.contains(object));
        for (object, change) in changed {
            let route = self.route(change, object.0);
            let wanted = self.takes(object.0) && self.takes_namespace(&route.namespace);
            if wanted && seen.insert((route.place, route.key.clone())) {
                routed.push(Routed {
                    route,
                    object,
                    piece: None,
                });
            }
        }
        routed
    }
}

/// Unknown names were refused with the configuration.
fn wanted_topics(config: &KafkaConfig) -> Vec<Topic> {
    let names = config.topics.iter();
    names.filter_map(|name| Topic::from_name(name)).collect()
}

/// Whether what happens to such objects is in the order of their job.
fn is_of_a_job(topic: Topic) -> bool {
    matches!(
        topic,
        Topic::Allocation | Topic::Evaluation | Topic::Deployment
    )
}

/// What keeps a changed object's events in order.
fn key(change: &Change, topic: Topic) -> String {
    // The stream's key is the object's own; the first filter key of these is the job.
    let place = usize::from(is_of_a_job(topic));
    let keys = &change.stream_keys;
    let name = keys.get(place).or(keys.first());
    joined(&change.namespace, name.map_or("", String::as_str))
}

fn joined(namespace: &str, name: &str) -> String {
    let whole = match namespace {
        "" => Cow::Borrowed(name),
        namespace => Cow::Owned(format!("{namespace}/{name}")),
    };
    cut(&whole, LONGEST_KEY).into_owned()
}

/// The longest key, in bytes. No name that is accepted makes a longer one; logs may hold some.
const LONGEST_KEY: usize = 2_048;

/// The text, or its beginning and the hash of the whole where it is longer than `most` bytes: the
/// same for the same text.
pub(super) fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let hash = hex::encode(Sha256::digest(text));
    let end = text.floor_char_boundary(most.saturating_sub(hash.len() + 1));
    Cow::Owned(format!("{}#{hash}", &text[..end]))
}

/// Which events are wanted.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    kinds: Vec<EventKind>,
    namespaces: Vec<String>,
    topics: Vec<Topic>,
    rejected: bool,
}

impl Filter {
    /// Unknown names were refused with the configuration.
    pub(super) fn of(config: &KafkaConfig) -> Self {
        let kinds = config.kinds.iter();
        Self {
            kinds: kinds
                .filter_map(|name| EventKind::from_name(name))
                .collect(),
            namespaces: config.namespaces.clone(),
            topics: wanted_topics(config),
            rejected: config.rejected == "mark",
        }
    }

    /// Whether events of this registered number are wanted at all.
    pub(super) fn takes_kind(&self, number: u16) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.number() == number)
    }

    /// Whether rejected events are.
    pub(super) fn takes_rejected(&self) -> bool {
        self.rejected
    }

    /// Whether an event is wanted that has no published row, or was rejected, by what it says.
    pub(super) fn takes_unpublished(&self, event: &Recorded) -> bool {
        if self.namespaces.is_empty() && self.topics.is_empty() {
            return true;
        }
        let about = event
            .envelope
            .as_ref()
            .map(|envelope| About::of(&envelope.event));
        let about = about.unwrap_or_default();
        let namespace = about.namespace().unwrap_or_default();
        let own = event.kind.own_topic();
        let topic = own.or(about.objects.first().map(|object| object.topic));
        (self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace))
            && (self.topics.is_empty() || topic.is_some_and(|topic| self.topics.contains(&topic)))
    }

    /// Whether an event is wanted for what it changed, where at least one change is published.
    pub(super) fn takes_changes(&self, changes: &[Change]) -> bool {
        let wanted = |change: &Change| {
            (self.namespaces.is_empty() || self.namespaces.contains(&change.namespace))
                && (self.topics.is_empty()
                    || change
                        .topic
                        .is_some_and(|topic| self.topics.contains(&topic)))
        };
        (self.namespaces.is_empty() && self.topics.is_empty()) || changes.iter().any(wanted)
    }
}
