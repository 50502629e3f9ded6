//! The page for readers of events says what there is.

use drover_events::{ActorKind, EventKind, Topic};

use super::numbers::NAMES;

const PAGE: &str = include_str!("../../docs/consuming-events.md");

#[test]
fn the_page_names_every_kind_topic_field_and_format() {
    let mut missing: Vec<String> = Vec::new();
    let mut named = |word: &str| {
        if !PAGE.contains(&format!("`{word}`")) {
            missing.push(word.to_owned());
        }
    };
    EventKind::ALL.iter().for_each(|kind| named(kind.name()));
    Topic::ALL.iter().for_each(|topic| named(topic.name()));
    ActorKind::ALL.iter().for_each(|kind| named(kind.name()));
    NAMES.iter().for_each(|name| named(name));
    let schema = super::schema::document(EventKind::JobRegistered);
    let fields = schema["properties"].as_object().expect("an object");
    fields.keys().for_each(|field| named(field));
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

#[test]
fn each_kind_has_its_topics_and_its_type_on_the_page() {
    use drover_events::topic::Publication;
    for kind in EventKind::ALL {
        let begin = format!("| `{kind}` |");
        let row = PAGE.lines().find(|line| line.starts_with(&begin));
        let row = row.unwrap_or_else(|| panic!("{kind} has no row"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (topics, of) = match kind.publication() {
            Publication::Event { event_type, topics } => (topics.to_vec(), event_type),
            Publication::Nothing => (kind.own_topic().into_iter().collect(), "–"),
        };
        let topics: Vec<&str> = topics.iter().map(|topic| topic.name()).collect();
        assert_eq!(
            (cells[3], cells[4]),
            (topics.join(", ").as_str(), of),
            "{kind}"
        );
    }
}
