//! Keeps the servers' registry like what this machine offers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::ServiceRegistration;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::agent::Core;
use crate::client::clock::{Jitter, SECOND, nanos};
use crate::error::Code;
use crate::rpc::RpcError;
use crate::rpc::methods::{
    ServiceDelete, ServiceDeleteRequest, ServiceUpsert, ServiceUpsertRequest,
};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed call, nanoseconds, and its random part.
const RETRY: i64 = SECOND;

/// (namespace, id)
type Key = (String, String);

/// What should be registered, and what was told.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<Pages>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Pages {
    wanted: BTreeMap<String, Vec<ServiceRegistration>>,
    told: BTreeMap<Key, ServiceRegistration>,
}

/// What has to be told next.
#[derive(Debug, Default, PartialEq)]
struct Difference {
    new: Vec<ServiceRegistration>,
    gone: Vec<Key>,
}

impl Book {
    /// What an allocation offers from now on; nothing for one that ends.
    pub fn set(&self, alloc: &str, services: Vec<ServiceRegistration>) {
        let mut pages = self.pages.lock();
        if services.is_empty() {
            pages.wanted.remove(alloc);
        } else {
            pages.wanted.insert(alloc.to_owned(), services);
        }
        self.some.notify_one();
    }

    /// The servers may have dropped what was told: all of it is told again.
    pub fn tell_all(&self) {
        self.pages.lock().told.clear();
        self.some.notify_one();
    }

    fn difference(&self) -> Difference {
        let pages = self.pages.lock();
        let wanted = || pages.wanted.values().flatten();
        let new = wanted().filter(|s| pages.told.get(&key(s)) != Some(s));
        let gone = pages
            .told
            .keys()
            .filter(|k| !wanted().any(|s| key(s) == **k));
        Difference {
            new: new.cloned().collect(),
            gone: gone.cloned().collect(),
        }
    }

    fn was_told(&self, services: Vec<ServiceRegistration>) {
        let mut pages = self.pages.lock();
        pages
            .told
            .extend(services.into_iter().map(|s| (key(&s), s)));
    }

    fn was_removed(&self, key: &Key) {
        self.pages.lock().told.remove(key);
    }
}

fn key(service: &ServiceRegistration) -> Key {
    (service.namespace.clone(), service.id.clone())
}

/// Tells the servers, until the task is aborted; begins when they were heard of.
pub(in crate::client) async fn keep(core: Arc<Core>) {
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(|c| c.registered).await;
    let mut chance = Jitter::random();
    loop {
        core.services.some.notified().await;
        while let Err(e) = tell(&core).await {
            tracing::warn!("services: {e}");
            tokio::time::sleep(nanos(RETRY + chance.below(RETRY))).await;
        }
    }
}

async fn tell(core: &Core) -> Result<(), RpcError> {
    let Difference { new, gone } = core.services.difference();
    if !new.is_empty() {
        let request = ServiceUpsertRequest { services: new };
        core.caller
            .once::<ServiceUpsert>(&request, CALL_TIMEOUT)
            .await?;
        core.services.was_told(request.services);
    }
    for key in gone {
        let request = ServiceDeleteRequest {
            namespace: key.0.clone(),
            id: key.1.clone(),
        };
        match core
            .caller
            .once::<ServiceDelete>(&request, CALL_TIMEOUT)
            .await
        {
            Ok(_) => {}
            // It went with its allocation.
            Err(RpcError::Api(e)) if e.code == Code::NotFound => {}
            Err(e) => return Err(e),
        }
        core.services.was_removed(&key);
    }
    Ok(())
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
        book.was_told(book.difference().new);
        assert_eq!(book.difference(), Difference::default());

        book.set("a", vec![service("x", 9)]);
        let next = book.difference();
        assert_eq!(next.new, [service("x", 9)]);
        assert_eq!(next.gone, [("default".to_owned(), "y".to_owned())]);
        book.was_removed(&next.gone[0]);
        book.was_told(next.new);
        assert_eq!(book.difference(), Difference::default());

        book.tell_all();
        assert_eq!(book.difference().new.len(), 2);
        book.set("a", Vec::new());
        assert_eq!(book.difference().new, [service("z", 3)]);
    }
}
