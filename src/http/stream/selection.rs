//! What a subscriber selected, and whether an event is part of it.

use drover_events::{Actor, ActorKind, EventKind, Topic};
use drover_projections::filter::{self, FILTER_VERSION, Fields, Filter, FilterError, ReadError};

use super::payload::Shown;
use super::sample::{self, Data};
use crate::error::Refusal;
use crate::http::query::Query;

/// What an event is known by before its payload is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headline<'a> {
    /// The kind of the log's event.
    pub(super) kind: EventKind,
    pub(super) topic: Topic,
    /// The namespace, or empty.
    pub(super) namespace: &'a str,
    /// The key, then the filter keys.
    pub(super) keys: &'a [String],
}

/// Some topics, and a key of them; none stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TopicSelector {
    topics: u64,
    key: Option<String>,
}

/// The topics that Nomad has, as a set: what `*` stands for.
const NOMADS: u64 = (Topic::Operator.bit() << 1) - 2;
/// Every topic: what `**` stands for.
const EVERY: u64 = (Topic::HostVolumeClaim.bit() << 1) - 2;

/// What of everything one subscriber wants.
#[derive(Debug)]
pub(super) struct Selection {
    wanted: Vec<TopicSelector>,
    /// The namespace; none means every one.
    namespace: Option<String>,
    /// The kinds; none named means every one.
    kinds: Vec<EventKind>,
    /// Who did it; none named means every actor.
    actors: Vec<String>,
    filter: Option<Filter>,
}

impl Selection {
    /// Reads `topic` (repeatable, `Topic` or `Topic:key`), `namespace`, `kind` and `actor`
    /// (repeatable), and `filter`, which tests the documents of CloudEvents where those are sent.
    ///
    /// # Errors
    /// 400 with Nomad's text, or one that names the parameter and what it may be.
    pub(super) fn read(query: &Query, cloud: bool) -> Result<Self, Refusal> {
        let mut wanted = Vec::new();
        let mut named = false;
        for text in query.all("topic") {
            named = true;
            wanted.push(parse_topic(text)?);
        }
        if !named {
            let (topics, key) = (NOMADS, None);
            wanted.push(TopicSelector { topics, key });
        }
        let namespace = match crate::http::query::namespace(query) {
            "*" => None,
            name => Some(name.to_owned()),
        };
        let given = |name| query.all(name).filter(|text: &&str| !text.is_empty());
        let kinds = given("kind").map(parse_kind).collect::<Result<_, _>>()?;
        let mut selection = Self {
            wanted,
            namespace,
            kinds,
            actors: given("actor").map(parse_actor).collect::<Result<_, _>>()?,
            filter: None,
        };
        // A kind that Nomad is silent about is sent under a topic of ours, whatever `*` means.
        if !named {
            let own = |kind: &EventKind| kind.own_topic().map_or(0, Topic::bit);
            let topics = selection
                .kinds
                .iter()
                .map(own)
                .fold(0, |all, one| all | one);
            selection.wanted.push(TopicSelector { topics, key: None });
        }
        let requested = (selection.topics(), selection.kinds.as_slice());
        selection.filter = parse_filter(query.text("filter"), requested, cloud)?;
        Ok(selection)
    }

    /// The namespace that is requested; none: every one.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Every topic of which something is wanted.
    pub(super) fn topics(&self) -> u64 {
        self.wanted.iter().fold(0, |all, one| all | one.topics)
    }

    /// Whether all that Nomad sends is wanted and nothing else, so that lines can be passed on.
    pub(super) fn takes_all(&self) -> bool {
        self.namespace.is_none()
            && self.kinds.is_empty()
            && self.actors.is_empty()
            && self.filter.is_none()
            && self.topics() == NOMADS
            && self
                .wanted
                .iter()
                .any(|one| one.key.is_none() && one.topics == NOMADS)
    }

    /// Whether anything of an event of this kind and these topics may be wanted.
    pub(super) fn may_take(&self, kind: EventKind, topics: u64) -> bool {
        topics & self.topics() != 0 && (self.kinds.is_empty() || self.kinds.contains(&kind))
    }

    /// Whether the event is wanted, as far as can be decided without its payload; events without a
    /// namespace pass any.
    pub(super) fn takes(&self, event: &Headline<'_>) -> bool {
        let namespace = event.namespace.is_empty()
            || self
                .namespace
                .as_ref()
                .is_none_or(|name| *name == event.namespace);
        namespace
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.wanted.iter().any(|one| {
                one.topics & event.topic.bit() != 0
                    && one.key.as_ref().is_none_or(|key| event.keys.contains(key))
            })
    }

    /// Whether who did it matters.
    pub(super) fn asks_who(&self) -> bool {
        !self.actors.is_empty()
    }

    /// Whether it was done by an actor whose events are wanted.
    pub(super) fn is_by(&self, actor: Option<&Actor>) -> bool {
        let by = |actor: &Actor| self.actors.iter().any(|text| actor.is_called(text));
        self.actors.is_empty() || actor.is_some_and(by)
    }

    /// Whether the payload matters.
    pub(super) fn asks_what(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the payload passes the filter; one that lacks what the filter names does not.
    ///
    /// # Errors
    /// 400 when the filter cannot be decided within its limits.
    pub(super) fn passes(&self, payload: &dyn Shown) -> Result<bool, Refusal> {
        self.decides(payload)
    }

    fn decides(&self, payload: &(impl Fields + ?Sized)) -> Result<bool, Refusal> {
        let Some(filter) = &self.filter else {
            return Ok(true);
        };
        match filter.matches(payload) {
            Ok(passes) => Ok(passes),
            Err(
                FilterError::Selector { .. }
                | FilterError::Operand { .. }
                | FilterError::Literal { .. }
                | FilterError::Placeholder(_),
            ) => Ok(false),
            Err(error) => Err(bad_filter(&error)),
        }
    }

    /// Whether a CloudEvent passes the filter, by its document as the reader gets it; that is taken
    /// out of the text where it is not there.
    ///
    /// # Errors
    /// 400 when the filter cannot be decided within its limits; JSON that is none.
    pub(super) fn passes_cloud(
        &self,
        cloud: &[u8],
        document: Option<&Data>,
    ) -> Result<bool, Refusal> {
        match document {
            _ if self.filter.is_none() => Ok(true),
            Some(document) => self.decides(document),
            None => self.decides(&Data::of(cloud)?),
        }
    }

    /// The keys this is about, if it is about some keys only and all of them are posted.
    pub(super) fn keys(&self) -> Option<Vec<(Topic, &str, &str)>> {
        let mut keys = Vec::new();
        for one in self.wanted.iter().filter(|one| one.topics != 0) {
            let key = one.key.as_deref()?;
            for topic in Topic::ALL.iter().filter(|t| t.bit() & one.topics != 0) {
                match (&self.namespace, is_global(*topic)) {
                    _ if topic.is_own() => return None,
                    (_, true) => keys.push((*topic, "", key)),
                    (Some(namespace), false) => keys.push((*topic, namespace.as_str(), key)),
                    (None, false) => return None,
                }
            }
        }
        Some(keys)
    }
}

/// Whether the objects of a topic belong to no namespace.
fn is_global(topic: Topic) -> bool {
    matches!(
        topic,
        Topic::Node
            | Topic::NodePool
            | Topic::AclToken
            | Topic::AclPolicy
            | Topic::AclRole
            | Topic::AclAuthMethod
            | Topic::AclBindingRule
            | Topic::CsiPlugin
            | Topic::Operator
    )
}

/// Some topics and a key.
fn parse_topic(text: &str) -> Result<TopicSelector, Refusal> {
    let (name, key) = text.split_once(':').unwrap_or((text, "*"));
    if name.is_empty() || key.is_empty() {
        return Err(Refusal::bad_request(format!(
            "Invalid topic query: error parsing topics: \
             Invalid key value pair for topic, topic: {text}; it is Topic, Topic:key or Topic:*"
        )));
    }
    let topics = match name {
        "*" => NOMADS,
        "**" => EVERY,
        name => match Topic::from_name(name) {
            Some(topic) => topic.bit(),
            None => {
                let all: Vec<&str> = Topic::ALL.iter().map(|topic| topic.name()).collect();
                return Err(Refusal::bad_request(format!(
                    "Invalid topic query: there is no topic {name:?}; there are {}, * for all of \
                     Nomad's and ** for all",
                    all.join(", ")
                )));
            }
        },
    };
    let key = Some(key).filter(|k| *k != "*").map(str::to_owned);
    Ok(TopicSelector { topics, key })
}

fn parse_kind(text: &str) -> Result<EventKind, Refusal> {
    EventKind::from_name(text).ok_or_else(|| {
        let all: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
        let all = all.join(", ");
        Refusal::bad_request(format!(
            "kind: {text:?} is no kind of event; there are {all}"
        ))
    })
}

/// A kind of actor, a name, an address, an id, or a kind and one of these behind a colon. An
/// address may have colons itself.
fn parse_actor(text: &str) -> Result<String, Refusal> {
    let of_kind = text.split_once(':').map(|(kind, _)| kind);
    let known = of_kind.is_none_or(|kind| ActorKind::from_name(kind).is_some());
    if known || text.parse::<std::net::IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    let kinds = ActorKind::ALL.map(ActorKind::name).join(", ");
    Err(Refusal::bad_request(format!(
        "actor: {:?} is no kind of actor; there are {kinds}, each alone or as kind:name, and names \
         and ids without a kind",
        of_kind.unwrap_or_default()
    )))
}

fn bad_filter(error: &FilterError) -> Refusal {
    Refusal::bad_request(format!("filter: {error}"))
}

/// Compiles the filter, and tries it: one that makes sense for no payload of the topics is refused.
fn parse_filter(
    text: &str,
    requested: (u64, &[EventKind]),
    cloud: bool,
) -> Result<Option<Filter>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let filter = filter::compile(text, FILTER_VERSION).map_err(|e| bad_filter(&e))?;
    let mut refusal = None;
    for sample in sample::all(requested, cloud) {
        match filter.matches(&*sample) {
            Err(error) if !is_for_lack_of_content(&error) => refusal = refusal.or(Some(error)),
            _ => return Ok(Some(filter)),
        }
    }
    refusal.map_or(Ok(Some(filter)), |error| Err(bad_filter(&error)))
}

/// Whether a filter has no answer only because a sample holds nothing.
fn is_for_lack_of_content(error: &FilterError) -> bool {
    let FilterError::Selector { source, .. } = error else {
        return false;
    };
    matches!(
        source,
        ReadError::NoParts("nil") | ReadError::OutOfRange { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(raw: &str) -> Result<Selection, Refusal> {
        Selection::read(&Query::parse(Some(raw)).unwrap(), false)
    }

    fn keys(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn event<'a>(topic: Topic, namespace: &'a str, keys: &'a [String]) -> Headline<'a> {
        Headline {
            kind: EventKind::JobRegistered,
            topic,
            namespace,
            keys,
        }
    }

    #[test]
    fn an_event_matches_by_topic_key_and_namespace() {
        let (web, e1, n1) = (keys(&["web"]), keys(&["e1", "web", ""]), keys(&["n1"]));
        let job = event(Topic::Job, "default", &web);
        let eval = event(Topic::Evaluation, "other", &e1);
        let node = event(Topic::Node, "", &n1);
        let own = event(Topic::Namespace, "", &web);
        for (query, wanted) in [
            ("", [true, false, true, false]),
            ("namespace=*", [true, true, true, false]),
            ("topic=Job&namespace=*", [true, false, false, false]),
            ("topic=*:web&namespace=*", [true, true, false, false]),
            ("topic=**:web&namespace=*", [true, true, false, true]),
            ("topic=Namespace", [false, false, false, true]),
            ("kind=NodeRegistered&namespace=*", [false; 4]),
            ("kind=JobRegistered&namespace=*", [true, true, true, false]),
            (
                "topic=Evaluation:web&topic=Node:n2&namespace=other",
                [false, true, false, false],
            ),
        ] {
            let selection = selection(query).unwrap();
            let got = [&job, &eval, &node, &own].map(|e| selection.takes(e));
            assert_eq!(got, wanted, "{query}");
        }
        assert!(selection("namespace=*").unwrap().takes_all());
        for less in [
            "topic=Job:web&namespace=*",
            "",
            "namespace=*&kind=JobRegistered",
            "namespace=*&actor=node",
            "namespace=*&topic=**",
            "namespace=*&topic=*:x",
        ] {
            assert!(!selection(less).unwrap().takes_all(), "{less}");
        }
    }

    #[test]
    fn a_kind_that_nomad_is_silent_about_is_told_when_it_is_named() {
        let selection = selection("kind=NamespacesUpserted").unwrap();
        let names = keys(&["dev"]);
        let mut headline = event(Topic::Namespace, "", &names);
        assert!(!selection.takes(&headline));
        headline.kind = EventKind::NamespacesUpserted;
        assert!(selection.takes(&headline));
        assert!(selection.may_take(EventKind::NamespacesUpserted, Topic::Namespace.bit()));
        assert!(!selection.may_take(EventKind::DigestRecorded, Topic::Cluster.bit()));
    }

    #[test]
    fn bad_parameters_are_refused_by_name_with_what_there_is() {
        for (bad, name) in [
            ("topic=:x", "topic"),
            ("topic=Job:", "topic"),
            ("kind=JobStarted", "there are RaftBlank"),
            ("topic=Jobs", "there are Job, Evaluation"),
            ("topic=Jobs&topic=Job", "no topic \"Jobs\""),
            ("actor=robot:4711", "there are anonymous, token, workload"),
            ("topic=**&filter=Nothing.ID%20==%20x", "filter"),
            ("topic=**&filter=Colour%20==%20x", "filter"),
            ("topic=Cluster&filter=Colour%20==%20x", "filter"),
            ("filter=Job.ID%20==", "filter"),
            ("filter=Job.Colour%20==%20red", "filter"),
            ("topic=Node&filter=Job.ID%20==%20web", "filter"),
        ] {
            let error = selection(bad).unwrap_err();
            assert_eq!(crate::net::status(error.code), 400, "{bad}");
            assert!(error.message.contains(name), "{bad}: {error}");
        }
        for good in [
            "filter=Job.Status%20==%20running",
            "topic=**&filter=Job.Status%20==%20running",
            "topic=**&filter=ServerID%20==%20x",
            "topic=Namespace&filter=Namespaces.0.Name%20==%20x",
            "filter=Job.TaskGroups.0.Name%20==%20x",
            "filter=Job.Meta.owner%20==%20x",
            "actor=fe80::1",
            "actor=token:ci:deploy",
            "actor=ci",
        ] {
            assert!(
                selection(good).is_ok(),
                "{good}: {:?}",
                selection(good).err()
            );
        }
    }

    #[test]
    fn filters_of_cloud_events_are_tried_on_documents() {
        let read = |raw: &str| Selection::read(&Query::parse(Some(raw)).unwrap(), true);
        for good in [
            "filter=Kind%20==%20JobRegistered",
            "filter=Payload.Job.ID%20==%20web",
            "topic=**&filter=Actor.kind%20==%20node",
            "filter=Payload.Eval.JobID%20==%20web",
            "topic=Cluster&filter=Payload.ServerID%20==%20x",
        ] {
            assert!(read(good).is_ok(), "{good}: {:?}", read(good).err());
        }
        for bad in [
            "filter=Job.ID%20==%20web",
            "topic=**&filter=Payload.Colour%20==%20web",
            "topic=**&filter=Colour%20==%20web",
            "topic=Cluster&filter=Payload.Job.ID%20==%20web",
            "kind=NodeRegistered&filter=Payload.Job.ID%20==%20web",
        ] {
            assert!(
                read(bad).is_err_and(|e| e.message.contains("filter")),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_actor_is_named_by_kind_id_or_name() {
        let actor = Actor::node("4711", "127.0.0.1");
        for (query, wanted) in [
            ("", true),
            ("actor=node", true),
            ("actor=4711", true),
            ("actor=node:4711", true),
            ("actor=server:4711", false),
            ("actor=token&actor=4711", true),
            ("actor=token", false),
        ] {
            assert_eq!(
                selection(query).unwrap().is_by(Some(&actor)),
                wanted,
                "{query}"
            );
        }
        assert!(selection("").unwrap().is_by(None));
        assert!(!selection("actor=node").unwrap().is_by(None));
    }

    #[test]
    fn keys_are_looked_up_where_all_of_them_are_posted() {
        let keys = |query: &str| {
            let selection = selection(query).unwrap();
            selection.keys().map(|keys| keys.len())
        };
        assert_eq!(keys("topic=Job:web&topic=Node:n1"), Some(2));
        assert_eq!(keys("topic=Node:n1&namespace=*"), Some(1));
        assert_eq!(keys("topic=*:web"), Some(17));
        for none in [
            "",
            "topic=Job",
            "topic=Job:web&namespace=*",
            "topic=Namespace:x",
        ] {
            assert_eq!(keys(none), None, "{none}");
        }
    }
}
