//! Lines of the stream, for tests of what reads them.

use drover_events::{EventKind, Topic};

use super::form::{self, Checkpoint, Form, IndexFrame};
use super::payload;
use super::selection::Headline;
use crate::error::Refusal;

/// The line of index 7, at which something of one of Nomad's topics happened to an empty row.
pub(crate) fn line(topic: Topic) -> Vec<u8> {
    let kind = EventKind::JobRegistered;
    let headline = Headline {
        kind,
        topic,
        namespace: "red",
        keys: &["web".to_owned()],
    };
    let payload = payload::sample(topic).expect("it is one of Nomad's");
    let (mut out, mut frame) = (Vec::new(), IndexFrame::default());
    frame.event(Form::default(), 7, &mut out);
    form::event(&mut out, (7, kind.name()), &headline, &*payload).expect("rows have a form");
    frame.end(Form::default(), &mut out);
    out
}

/// The line that says that everything up to index 7 was sent.
pub(crate) fn checkpoint() -> Vec<u8> {
    Form::default().checkpoint(&Checkpoint {
        index: 7,
        time: 5,
        lag: 3,
        epoch: [1; 16],
    })
}

/// The line that says why the stream ends.
pub(crate) fn error(why: &str) -> Vec<u8> {
    let form = Form {
        checkpoints: true,
        ..Form::default()
    };
    form.error(&Refusal::bad_request(why))
}
