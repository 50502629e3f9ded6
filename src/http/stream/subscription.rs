//! What a subscriber asked for, and whether an event is part of it.

use drover_events::Topic;

use super::batch::Event;
use crate::error::ApiError;
use crate::http::query::Query;

/// A topic and a key of it; none stands for all.
type Wanted = (Option<Topic>, Option<String>);

/// The topics, keys and namespace of one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    /// Pairs of topic (none: all of them) and key (none: all of them). A topic that nobody knows
    /// is not among them: nothing is ever published there.
    wanted: Vec<Wanted>,
    /// The namespace; none means every one.
    namespace: Option<String>,
}

impl Subscription {
    /// Reads `topic` (repeatable, `Topic` or `Topic:key`) and `namespace`.
    ///
    /// # Errors
    /// 400 with Nomad's text.
    pub(super) fn read(query: &Query) -> Result<Self, ApiError> {
        let mut wanted = Vec::new();
        let mut named = false;
        for text in query.all("topic") {
            named = true;
            wanted.extend(parse_topic(text)?);
        }
        if !named {
            wanted.push((None, None));
        }
        let namespace = match crate::http::query::namespace(query) {
            "*" => None,
            name => Some(name.to_owned()),
        };
        Ok(Self { wanted, namespace })
    }

    /// Whether nothing is left out, so that whole lines can be passed on.
    pub(super) fn takes_all(&self) -> bool {
        self.namespace.is_none() && self.wanted.contains(&(None, None))
    }

    /// Whether the event is wanted; events without a namespace pass any.
    pub(super) fn takes(&self, event: &Event) -> bool {
        let namespace = event.namespace.is_empty()
            || self
                .namespace
                .as_ref()
                .is_none_or(|name| *name == event.namespace);
        namespace
            && self.wanted.iter().any(|(topic, key)| {
                topic.is_none_or(|topic| topic == event.topic)
                    && key.as_ref().is_none_or(|key| event.has_key(key))
            })
    }
}

/// A topic and a key; none for a topic that nobody knows.
fn parse_topic(text: &str) -> Result<Option<Wanted>, ApiError> {
    let bad = || {
        ApiError::bad_request(format!(
            "Invalid topic query: error parsing topics: \
             Invalid key value pair for topic, topic: {text}"
        ))
    };
    let (name, key) = text.split_once(':').unwrap_or((text, "*"));
    if name.is_empty() || key.is_empty() {
        return Err(bad());
    }
    let topic = match name {
        "*" => None,
        name => match Topic::from_name(name) {
            None => return Ok(None),
            known => known,
        },
    };
    let key = Some(key).filter(|k| *k != "*").map(str::to_owned);
    Ok(Some((topic, key)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn subscription(raw: &str) -> Result<Subscription, ApiError> {
        Subscription::read(&Query::parse(Some(raw)).unwrap())
    }

    fn event(topic: Topic, namespace: &str, key: &str, filter_keys: &[&str]) -> Event {
        Event {
            topic,
            namespace: namespace.into(),
            key: key.into(),
            filter_keys: filter_keys.iter().map(|k| (*k).to_owned()).collect(),
            json: Bytes::new(),
        }
    }

    #[test]
    fn an_event_matches_by_topic_key_and_namespace() {
        let job = event(Topic::Job, "default", "web", &[]);
        let eval = event(Topic::Evaluation, "other", "e1", &["web", ""]);
        let node = event(Topic::Node, "", "n1", &[]);
        for (query, wanted) in [
            ("", [true, false, true]),
            ("namespace=*", [true, true, true]),
            ("topic=Job&namespace=*", [true, false, false]),
            ("topic=*:web&namespace=*", [true, true, false]),
            (
                "topic=Evaluation:web&topic=Node:n2&namespace=other",
                [false, true, false],
            ),
        ] {
            let subscription = subscription(query).unwrap();
            let got = [&job, &eval, &node].map(|e| subscription.takes(e));
            assert_eq!(got, wanted, "{query}");
        }
        assert!(subscription("namespace=*").unwrap().takes_all());
        assert!(!subscription("topic=Job:web").unwrap().takes_all());
    }

    #[test]
    fn a_topic_that_is_none_is_refused_and_an_unknown_one_matches_nothing() {
        for bad in ["topic=:x", "topic=Job:"] {
            assert_eq!(subscription(bad).unwrap_err().code.status(), 400, "{bad}");
        }
        let job = event(Topic::Job, "default", "web", &[]);
        assert!(!subscription("topic=Jobs").unwrap().takes(&job));
        assert!(subscription("topic=Jobs&topic=Job").unwrap().takes(&job));
    }
}
