//! The page for readers of events says what there is.

use drover_events::{ActorKind, EventKind, Topic};

use super::numbers::NAMES;

const PAGE: &str = include_str!("../../docs/consuming-events.md");
const README: &str = include_str!("../../../README.md");
// As texts: a program may be built without Parquet or Kafka, and the page is the same.
const PARQUET: &str = include_str!("../export/parquet.rs");
const KAFKA: &str = include_str!("../../reactors/kafka/record.rs");
const CLOUDEVENTS: &str = include_str!("cloudevents.rs");

/// The page's words, with one space between two: sentences do not end with its lines.
fn page() -> String {
    PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The texts in a source's code that stand behind `before`, which opens their quotes.
fn quoted<'a>(source: &'a str, before: &str) -> Vec<&'a str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let behind = code.split(before).skip(1);
    behind.filter_map(|rest| rest.split('"').next()).collect()
}

/// A section of the page, by its heading.
fn section(heading: &str) -> &'static str {
    let (_, behind) = PAGE
        .split_once(&format!("\n## {heading}\n"))
        .expect("a heading");
    behind.split("\n## ").next().unwrap_or_default()
}

fn assert_named(heading: &str, words: &[&str]) {
    let section = section(heading);
    let missing = words
        .iter()
        .filter(|word| !section.contains(&format!("`{word}`")));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "not under {heading}: {missing:?}");
}

#[test]
fn the_page_names_every_column_of_parquet() {
    let (_, schema) = PARQUET.split_once("const SCHEMA: &str").expect("a schema");
    let (schema, _) = schema.split_once(";\n\n").expect("its end");
    // Those of the list within are not columns.
    let columns = schema.lines().filter_map(|line| {
        let field = line.strip_prefix("    ")?;
        let mut words = field.split([' ', ';']);
        let kept = matches!(words.next()?, "REQUIRED" | "OPTIONAL");
        words.nth(1).filter(|_| kept)
    });
    let columns: Vec<&str> = columns.collect();
    for known in ["index", "node_id", "objects", "payload"] {
        assert!(columns.contains(&known), "no {known} in {columns:?}");
    }
    assert_named("Parquet", &columns);
}

#[test]
fn the_page_names_every_header_of_kafka() {
    let headers = quoted(KAFKA, "self.header(\"");
    for known in ["index", "part_key", "content-type", "ce_specversion"] {
        assert!(headers.contains(&known), "no {known} in {headers:?}");
    }
    assert_named("Kafka", &headers);
    let attributes = quoted(CLOUDEVENTS, "(\"ce_").into_iter();
    let attributes: Vec<String> = attributes.map(|name| format!("ce_{name}")).collect();
    let attributes: Vec<&str> = attributes.iter().map(String::as_str).collect();
    for known in ["ce_id", "ce_traceparent"] {
        assert!(attributes.contains(&known), "no {known} in {attributes:?}");
    }
    assert_named("Kafka", &attributes);
    for mark in ["refused", "oversized", "missed"] {
        assert!(KAFKA.contains(&format!("=> \"{mark}\"")), "{mark}");
        assert_named("Kafka", &[mark]);
    }
}

/// What is promised of each way, in the first table.
const PROMISED: [(&str, &str); 7] = [
    (
        "`GET /v1/event/stream`",
        "in order, no gap, no repeat; you keep the position",
    ),
    (
        "`drover event stream -resume POSITION -out FILE`",
        "each event exactly once in the file",
    ),
    (
        "`drover event stream -resume POSITION`",
        "at least once: up to 200 ms are told again after a kill",
    ),
    (
        "`event_publisher { kafka { … } }`",
        "exactly once with `read_committed`; else at least once",
    ),
    (
        "`drover log export -data-dir DIR`",
        "each event once; `-resume` goes on behind the last whole line",
    ),
    (
        "`drover log export -format parquet -out DIR`",
        "each event once; `-resume` goes on behind the last whole day",
    ),
    (
        "`drover audit`, `/v1/audit`",
        "reads the tables; not a stream",
    ),
];

/// What is promised in words, and what a reader has to mind.
const SENTENCES: [&str; 12] = [
    "Promised: order, no gap and no repeat, however slow you are, until retention drops what you \
     have not read (410).",
    "Order is the order of this number",
    "**a refused event changed nothing**",
    "A restore begins a new epoch above every index there ever was, so an index never means two \
     things",
    "or below the horizon of retention, is answered 410 with the first index there is.",
    "What happened to an object is in order, however many partitions there are; with one \
     partition all is in the log's order.",
    "A batch and the position behind it are one transaction; the position lies in \
     `<topic>.cursor`. Read with `isolation.level=read_committed`.",
    "All pieces of an event are in one transaction.",
    "With `exactly_once = false` after a failure a batch, or a part of it, may come twice: go by \
     (`epoch`, `index`, `part`).",
    "a gap is never silent.",
    "`export.json` is there when all of it is.",
    "Times in nanoseconds and some counters are beyond 2^53 and lose digits in readers with \
     doubles",
];

#[test]
fn the_page_says_what_is_promised_on_each_way() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    for (way, promise) in PROMISED {
        let row = rows.iter().find(|cells| cells[2] == way);
        let row = row.unwrap_or_else(|| panic!("{way} has no row"));
        assert_eq!(row[3], promise, "{way}");
    }
    let first = rows.iter().take_while(|cells| cells[1] != "field");
    // The head of the table is one.
    assert_eq!(first.count(), PROMISED.len() + 1, "a way without a promise");
    let page = page();
    for sentence in SENTENCES {
        assert!(page.contains(sentence), "not on the page: {sentence}");
    }
}

#[test]
fn readers_are_sent_to_the_page() {
    let row = README
        .lines()
        .find(|line| line.contains("`src/docs/consuming-events.md`"));
    let row = row.expect("the README names the page");
    assert!(row.starts_with("| to read events from outside"), "{row}");
    assert!(row.contains("guarantees"), "{row}");
}

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
