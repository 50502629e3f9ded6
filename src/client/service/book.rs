//! What this machine offers, and which part of that was reported to the servers.

use std::collections::BTreeMap;

use drover_events::model::ServiceRegistration;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Which registration of a service: its namespace and its id.
pub(crate) type RegistrationKey = (String, String);

/// What should be registered, and what was reported.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<Pages>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Pages {
    wanted: BTreeMap<String, Vec<ServiceRegistration>>,
    reported: BTreeMap<RegistrationKey, ServiceRegistration>,
    /// Allocations that reported what they offer; true where the servers know that it is all.
    whole: BTreeMap<String, bool>,
}

/// What has to be reported next.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Difference {
    pub(crate) new: Vec<ServiceRegistration>,
    pub(crate) gone: Vec<RegistrationKey>,
    /// Allocations all of whose services are among the new ones: whatever else the servers show of
    /// them goes.
    pub(crate) whole: Vec<String>,
}

impl Book {
    /// What an allocation offers from now on; nothing for one that ends.
    pub fn set(&self, alloc: &str, services: Vec<ServiceRegistration>) {
        let mut pages = self.pages.lock();
        pages.whole.entry(alloc.to_owned()).or_insert(false);
        if services.is_empty() {
            pages.wanted.remove(alloc);
        } else {
            pages.wanted.insert(alloc.to_owned(), services);
        }
        self.some.notify_one();
    }

    /// An allocation offers nothing from now on.
    pub fn withdraw(&self, alloc: &str) {
        if self.pages.lock().wanted.remove(alloc).is_some() {
            self.some.notify_one();
        }
    }

    /// What an allocation offers is reported once more, whatever was reported before.
    pub fn report_again(&self, alloc: &str) {
        if let Some(reported) = self.pages.lock().whole.get_mut(alloc) {
            *reported = false;
            self.some.notify_one();
        }
    }

    /// What an allocation offers.
    #[cfg(test)]
    pub(crate) fn offers(&self, alloc: &str) -> usize {
        let pages = self.pages.lock();
        pages.wanted.get(alloc).map_or(0, Vec::len)
    }

    /// Whether an allocation reported what it offers, be it nothing.
    #[cfg(test)]
    pub(crate) fn has_reported(&self, alloc: &str) -> bool {
        self.pages.lock().whole.contains_key(alloc)
    }

    /// An allocation is gone; it offers nothing any more.
    pub fn forget(&self, alloc: &str) {
        let mut pages = self.pages.lock();
        pages.wanted.remove(alloc);
        pages.whole.remove(alloc);
        self.some.notify_one();
    }

    /// The servers may have dropped what was reported, or taken up what was gone: all is reported
    /// again.
    pub fn report_all(&self) {
        let mut pages = self.pages.lock();
        pages.reported.clear();
        pages
            .whole
            .values_mut()
            .for_each(|reported| *reported = false);
        self.some.notify_one();
    }

    /// Waits until there may be something to report.
    pub(crate) async fn changed(&self) {
        self.some.notified().await;
    }

    /// What is to be reported.
    pub(crate) fn difference(&self) -> Difference {
        let pages = self.pages.lock();
        let wanted = || pages.wanted.values().flatten();
        let is_due = |alloc: &String| pages.whole.get(alloc) == Some(&false);
        let new =
            wanted().filter(|s| pages.reported.get(&key(s)) != Some(s) || is_due(&s.alloc_id));
        let gone = pages
            .reported
            .keys()
            .filter(|k| !wanted().any(|s| key(s) == **k));
        Difference {
            new: new.cloned().collect(),
            gone: gone.cloned().collect(),
            whole: pages.whole.keys().filter(|a| is_due(a)).cloned().collect(),
        }
    }

    /// The servers know these, and that it is all of these allocations.
    pub(crate) fn was_reported(&self, services: Vec<ServiceRegistration>, whole: &[String]) {
        let mut pages = self.pages.lock();
        for alloc in whole {
            if let Some(reported) = pages.whole.get_mut(alloc) {
                *reported = true;
            }
        }
        pages
            .reported
            .extend(services.into_iter().map(|s| (key(&s), s)));
    }

    /// The servers know that it is gone.
    pub(crate) fn was_removed(&self, key: &RegistrationKey) {
        self.pages.lock().reported.remove(key);
    }
}

fn key(service: &ServiceRegistration) -> RegistrationKey {
    (service.namespace.clone(), service.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(id: &str, port: i64) -> ServiceRegistration {
        ServiceRegistration {
            id: id.into(),
            namespace: "default".into(),
            port,
            ..ServiceRegistration::default()
        }
    }

    #[test]
    fn only_differences_are_told_and_all_again_when_it_was_lost() {
        let book = Book::default();
        book.set("a", vec![service("x", 1), service("y", 2)]);
        book.set("b", vec![service("z", 3)]);
        assert_eq!(book.difference().new.len(), 3);
        assert_eq!(book.difference().whole, ["a", "b"]);
        let reported = book.difference();
        book.was_reported(reported.new, &reported.whole);
        assert_eq!(book.difference(), Difference::default());

        book.set("a", vec![service("x", 9)]);
        let next = book.difference();
        assert_eq!(next.new, [service("x", 9)]);
        assert_eq!(next.gone, [("default".to_owned(), "y".to_owned())]);
        book.was_removed(&next.gone[0]);
        assert!(next.whole.is_empty(), "what is gone is sent by its name");
        book.was_reported(next.new, &next.whole);
        assert_eq!(book.difference(), Difference::default());

        book.report_all();
        assert_eq!(book.difference().new.len(), 2);
        book.set("a", Vec::new());
        let next = book.difference();
        assert_eq!(next.new, [service("z", 3)]);
        assert_eq!(next.whole, ["a", "b"], "also of what offers nothing");
        book.forget("a");
        assert_eq!(book.difference().whole, ["b"]);
    }

    #[test]
    fn cl_21_what_an_allocation_offers_is_registered_again_when_a_task_runs_again() {
        let book = Book::default();
        book.report_again("a");
        assert_eq!(
            book.difference(),
            Difference::default(),
            "it offers nothing"
        );
        let of_a = ServiceRegistration {
            alloc_id: "a".into(),
            ..service("x", 1)
        };
        book.set("a", vec![of_a.clone()]);
        book.set("b", vec![service("z", 3)]);
        let all = book.difference();
        book.was_reported(all.new, &all.whole);
        assert_eq!(book.difference(), Difference::default());
        book.report_again("a");
        let again = book.difference();
        assert_eq!((again.new, again.whole), (vec![of_a], vec!["a".into()]));
        book.withdraw("a");
        let gone = [("default".to_owned(), "x".to_owned())];
        assert_eq!(book.difference().gone, gone);
    }
}
