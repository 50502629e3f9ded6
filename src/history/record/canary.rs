//! Events of every kind whose confidential fields hold canaries, for tests of whatever shows them.

use std::cell::Cell;

use drover_events::class::Class;
use drover_events::mask::{Hidden, Redact};
use drover_events::model::{CsiVolume, Job, Node, Task, TaskGroup};
use drover_events::{Event, EventKind, Recorded};
use drover_golden::samples;

use super::redact::tests::redactor;
use super::{Payload, Redactor};

/// Stands in every secret field; valid as base64, too.
pub(crate) const SECRET: &str = "c2VjcmV0Y2FuYXJ5";
/// Stands in every sensitive field; valid as base64, too.
pub(crate) const SENSITIVE: &str = "c2Vuc2l0aXZlY2Fu";

/// Puts canaries where values are hidden.
#[derive(Default)]
struct Inject {
    secrets: Cell<usize>,
    sensitive: Cell<usize>,
}

impl Redact for Inject {
    fn text(&self, class: Class, value: &str) -> String {
        let (count, canary) = match class {
            Class::Secret => (&self.secrets, SECRET),
            Class::Configured | Class::Address | Class::Sensitive => (&self.sensitive, SENSITIVE),
            Class::Public => return value.to_owned(),
        };
        count.set(count.get() + 1);
        canary.to_owned()
    }
}

/// An event of every kind, with canaries in it.
pub(crate) fn events() -> Vec<Recorded> {
    let inject = Inject::default();
    let mut all = Vec::new();
    for kind in EventKind::ALL {
        let body = samples::body(*kind, kind.version()).expect("every kind has a sample");
        let mut recorded = drover_migrations::decode(&body).expect("it decodes");
        if let Some(envelope) = &mut recorded.envelope {
            fill(&mut envelope.event);
            let json = serde_json::to_value(Hidden::new(&Payload(&envelope.event), &inject));
            let event = Event::deserialize_payload(*kind, json.expect("JSON"));
            envelope.event = event.unwrap_or_else(|error| panic!("{kind}: {error}"));
        }
        all.push(recorded);
    }
    let (secrets, sensitive) = (inject.secrets.get(), inject.sensitive.get());
    assert!(secrets >= 10 && sensitive >= 10, "{secrets} {sensitive}");
    all
}

fn map<M: From<[(&'static str, String); 1]>>() -> M {
    [("k", "v".to_owned())].into()
}

/// Fills what the samples leave empty.
fn fill(event: &mut Event) {
    match event {
        Event::JobRegistered(event) => {
            let task = Task {
                name: "t".into(),
                env: map(),
                meta: map(),
                ..Task::default()
            };
            let group = TaskGroup {
                name: "g".into(),
                meta: map(),
                tasks: vec![task].into(),
                ..TaskGroup::default()
            };
            event.job = std::sync::Arc::new(Job {
                id: "j".into(),
                meta: map(),
                task_groups: vec![group].into(),
                ..Job::default()
            });
        }
        Event::NodeRegistered(event) => {
            *event.node = Node {
                id: "n".into(),
                secret_id: "s".into(),
                meta: map(),
                ..Node::default()
            };
        }
        Event::CsiVolumesRegistered(event) => {
            event.volumes = vec![CsiVolume {
                id: "v".into(),
                secrets: map(),
                parameters: map(),
                ..CsiVolume::default()
            }];
        }
        _ => {}
    }
}

/// Whether a text shows a canary, and which.
pub(crate) fn shown(text: &str) -> Option<&'static str> {
    let words = [(SECRET, "a secret"), (SENSITIVE, "a sensitive value")];
    let raw = words.map(|(word, name)| (base64_text(word), name));
    let plain = words.into_iter().find(|(word, _)| text.contains(word));
    let plain = plain.map(|(_, name)| name);
    let decoded = raw
        .into_iter()
        .find(|(word, _)| text.contains(word.as_str()));
    plain.or(decoded.map(|(_, name)| name))
}

/// What the bytes of a base64 text say.
fn base64_text(word: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(word);
    String::from_utf8(bytes.expect("base64")).expect("text")
}

/// What hides them.
pub(crate) fn hider() -> Redactor {
    redactor()
}

#[test]
fn no_export_shows_what_is_confidential() {
    use super::{CloudEvent, Document};
    let redactor = hider();
    let mut clear = 0;
    for event in events() {
        let document = Document::of(&event);
        let kind = event.kind;
        clear += usize::from(shown(&document.text(None).expect("JSON")).is_some());
        let text = document.text(Some(&redactor)).expect("JSON");
        assert_eq!(shown(&text), None, "{kind}: {text}");
        let cloud = redactor
            .redacted(&CloudEvent::of(document, [7; 16], "http://a"))
            .to_string();
        assert_eq!(shown(&cloud), None, "{kind}: {cloud}");
        let text = document.text(Some(&Redactor::default())).expect("JSON");
        assert_eq!(shown(&text), None, "{kind} without keys: {text}");
    }
    assert!(clear >= 6, "only {clear} kinds held a canary");
}

#[test]
fn no_debug_output_shows_what_is_confidential() {
    for event in events() {
        let text = format!("{event:?} {event:#?}");
        assert_eq!(shown(&text), None, "{}: {text}", event.kind);
    }
}
