//! Which subscribers are admitted, and what of the stream each is sent.

use drover_events::Topic;

use super::selection::{Headline, Selection};
use crate::error::Refusal;
use crate::http::gate::demand;
use crate::http::permit::Permit;

impl Permit {
    /// Whether a caller may see something of every topic that is requested, in the requested
    /// namespace.
    ///
    /// # Errors
    /// 403.
    pub(super) fn admit(&self, wanted: &Selection) -> Result<(), Refusal> {
        let namespace = wanted.namespace().unwrap_or("*");
        let topics = Topic::ALL.iter().filter(|topic| {
            let bit = topic.bit();
            wanted.topics() & bit != 0
        });
        let mut topics = topics.map(|topic| self.may_see(*topic, namespace, None));
        demand(self.sees_all() || topics.all(|may| may))
    }

    /// Whether the caller may see this event.
    pub(super) fn sees(&self, event: &Headline<'_>) -> bool {
        self.sees_all() || self.may_see(event.topic, event.namespace, Some(event.keys))
    }
}
