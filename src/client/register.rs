//! Keeps the servers' registry of services like what this machine offers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::ServiceRegistration;

use super::agent::Core;
use super::clock::{Jitter, SECOND, nanos};
use super::service::book::Difference;
use drover_error::Code;
use drover_rpc::RpcError;
use drover_rpc::methods::{
    ServiceDelete, ServiceDeleteRequest, ServiceUpsert, ServiceUpsertRequest,
};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed call, nanoseconds, and its random part.
const RETRY: i64 = SECOND;

/// Reports services to the servers, until the task is aborted; begins at the first contact.
pub(super) async fn keep(core: Arc<Core>) {
    let mut contact = core.contact.subscribe();
    // An error means that the client is gone, and this task with it.
    let _ = contact.wait_for(|c| c.registered).await;
    let mut chance = Jitter::random();
    loop {
        core.services.changed().await;
        while let Err(e) = report(&core).await {
            tracing::warn!("services: {e}");
            let wait = nanos(RETRY + chance.below(RETRY));
            tokio::time::sleep(e.retry_after_or(wait)).await;
        }
    }
}

async fn register(
    core: &Core,
    services: Vec<ServiceRegistration>,
    allocs: Vec<String>,
) -> Result<(), RpcError> {
    let request = ServiceUpsertRequest {
        services,
        node_id: core.node.lock().id.clone(),
        allocs,
    };
    core.caller
        .once::<ServiceUpsert>(&request, CALL_TIMEOUT)
        .await?;
    core.services
        .was_reported(request.services, &request.allocs);
    Ok(())
}

/// What is refused is not requested again before it changes.
async fn register_or_leave(
    core: &Core,
    services: Vec<ServiceRegistration>,
    allocs: Vec<String>,
) -> Result<(), RpcError> {
    match register(core, services.clone(), allocs.clone()).await {
        Err(RpcError::Api(e)) if e.code == Code::BadRequest => {
            tracing::warn!("services that the servers refuse are left out: {e}");
            core.services.was_reported(services, &allocs);
            Ok(())
        }
        done => done,
    }
}

/// The services of each allocation, and its id where they are reported whole.
fn by_allocation(
    services: Vec<ServiceRegistration>,
    whole: Vec<String>,
) -> BTreeMap<String, (Vec<ServiceRegistration>, Vec<String>)> {
    let mut all: BTreeMap<String, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for service in services {
        let alloc = service.alloc_id.clone();
        all.entry(alloc).or_default().0.push(service);
    }
    for alloc in whole {
        all.entry(alloc.clone()).or_default().1.push(alloc);
    }
    all
}

async fn report(core: &Core) -> Result<(), RpcError> {
    let Difference { new, gone, whole } = core.services.difference();
    if !new.is_empty() || !whole.is_empty() {
        match register(core, new.clone(), whole.clone()).await {
            // One that is refused keeps no other back.
            Err(RpcError::Api(e)) if e.code == Code::BadRequest => {
                for (services, whole) in by_allocation(new, whole).into_values() {
                    register_or_leave(core, services, whole).await?;
                }
            }
            done => done?,
        }
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
    use crate::testing::Pretended;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_difference_is_told_whatever_it_is_made_of_and_told_once() {
        let (tmp, servers) = (tempfile::tempdir().unwrap(), Pretended::silent());
        let client = servers.client(tmp.path());
        let of_a = |port| {
            vec![ServiceRegistration {
                id: "x".into(),
                namespace: "default".into(),
                alloc_id: "a".into(),
                port,
                ..ServiceRegistration::default()
            }]
        };
        for (alloc, offers, wanted) in [
            ("a", of_a(1), "x:1, all of a"),
            ("a", of_a(2), "x:2"),
            ("b", Vec::new(), "all of b"),
            ("a", Vec::new(), "not x"),
            ("a", Vec::new(), ""),
        ] {
            client.core.services.set(alloc, offers);
            report(&client.core).await.expect("the servers answer");
            let reported = std::mem::take(&mut *servers.services.lock());
            assert_eq!(reported.join("; "), wanted);
        }
    }
}
