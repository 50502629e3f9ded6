//! Which allocations a node has, and allocations with their jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_projections::tables::allocs::{self, Allocs, AllocsByNode};
use drover_projections::tables::node_use::NodeUses;
use drover_projections::{Id, Interest, Scan, View};

use super::ClientEndpoints;
use super::blocking::wait_time;
use crate::error::Refusal;
use crate::rpc::methods::{
    AllocsGetRequest, AllocsGetResponse, NodeClientAllocsResponse, NodeSpecificRequest,
};
use crate::rpc::service::Call;
use crate::table_reads::read_apart_from_api;

/// How many allocations one answer may hold.
const MAX_ALLOCS: usize = 1000;

/// `Node.GetClientAllocs`: waits until something concerns the client, or an allocation is gone.
///
/// The answer's index is the applied one: whatever comes later has a higher one.
pub(super) async fn client_allocs(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: NodeSpecificRequest,
) -> Result<NodeClientAllocsResponse, Refusal> {
    let node = request.node_id;
    endpoints.authorize_node(&call, &node).await?;
    let projections = &endpoints.server.projections;
    let end = tokio::time::Instant::now() + wait_time(request.max_query_time);
    let epoch = endpoints.epoch();
    let waits = request.min_query_index > 0 && (request.epoch.is_empty() || request.epoch == epoch);
    let (mut index, mut allocs) = read(projections.view(), &node).await?;
    let newer =
        |allocs: &BTreeMap<String, u64>| allocs.values().any(|i| *i > request.min_query_index);
    while waits && !newer(&allocs) {
        // New ones change what the node is used for; of those there are, the rows are watched.
        let mut interests = vec![Interest::row::<NodeUses>(node.as_str())];
        interests.extend(allocs.keys().map(|id| Interest::row::<Allocs>(id.as_str())));
        let waiter = projections.watch().register(&interests);
        // What came between the two looks woke no waiter.
        let view = projections.view();
        if view.index() != index {
            let before = allocs;
            (index, allocs) = read(view, &node).await?;
            if newer(&allocs) || gone(&before, &allocs) {
                break;
            }
        }
        let woken = tokio::time::timeout_at(end, waiter).await.is_ok();
        if !woken {
            break;
        }
        // Many nodes may be woken by one plan: they are answered a few at a time.
        let placing = || endpoints.server.is_placing();
        endpoints.pace.turn(placing).await;
        let before = allocs;
        (index, allocs) = read(projections.view(), &node).await?;
        if gone(&before, &allocs) {
            break;
        }
    }
    Ok(NodeClientAllocsResponse {
        allocs,
        index,
        epoch,
        ..NodeClientAllocsResponse::default()
    })
}

fn gone(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> bool {
    before.keys().any(|id| !now.contains_key(id))
}

/// What a node learns of an allocation before it is fetched.
#[derive(serde::Deserialize)]
struct AllocVersion {
    #[serde(rename = "Alloc", default)]
    alloc: SeenAlloc,
}

#[derive(Default, serde::Deserialize)]
struct SeenAlloc {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "AllocModifyIndex", default)]
    alloc_modify_index: u64,
}

async fn read(view: View, node: &str) -> Result<(u64, BTreeMap<String, u64>), Refusal> {
    let node = node.to_owned();
    let rows = move || {
        let mut out = BTreeMap::new();
        let mut cursor =
            view.index_cursor::<AllocsByNode>(&Scan::with_key_prefix::<Id>(node.as_str()));
        // Called by every node, often: only id and `AllocModifyIndex` are decoded of each row.
        while let Some(AllocVersion { alloc }) = cursor.next_part()? {
            out.insert(alloc.id, alloc.alloc_modify_index);
        }
        Ok((view.index(), out))
    };
    read_apart_from_api(rows).await?
}

/// `Alloc.GetAllocs`: waits until the index is applied here, and leaves out what does not exist. A
/// caller that has not proved that it is a node waits for nothing, and learns nothing: not even
/// whether there is such an allocation.
pub(super) async fn get_allocs(
    endpoints: Arc<ClientEndpoints>,
    call: Call,
    request: AllocsGetRequest,
) -> Result<AllocsGetResponse, Refusal> {
    if request.alloc_ids.len() > MAX_ALLOCS {
        let text = format!("at most {MAX_ALLOCS} allocations can be requested at once");
        return Err(Refusal::bad_request(text));
    }
    let projections = &endpoints.server.projections;
    if call.node.is_empty() {
        return Err(Refusal::permission_denied());
    }
    endpoints.authorize_node(&call, &call.node).await?;
    let wait = wait_time(request.max_query_time);
    let reached = projections.watch().reached(request.min_query_index);
    // After the time the answer is what there is. Its index is the greatest of the allocations in
    // it; the client fetches again if some are missing.
    let _ = tokio::time::timeout(wait, reached).await;
    let view = projections.view();
    let read = move || -> Result<AllocsGetResponse, Refusal> {
        let mut out = AllocsGetResponse::default();
        for id in &request.alloc_ids {
            if let Some(alloc) = allocs::get(&view, id)? {
                out.index = out.index.max(alloc.modify_index);
                out.allocs.push(alloc);
            }
        }
        Ok(out)
    };
    let out = read_apart_from_api(read).await??;
    let nodes: BTreeSet<&str> = out.allocs.iter().map(|a| a.node_id.as_str()).collect();
    for node in nodes {
        endpoints.authorize_node(&call, node).await?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_no_longer_there_is_gone() {
        let of = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), 1)).collect();
        for (before, now, wanted) in [
            (&[][..], &[][..], false),
            (&[], &["a"], false),
            (&["a"], &["a"], false),
            (&["a"], &["a", "b"], false),
            (&["a", "b"], &["b"], true),
            (&["a"], &[], true),
        ] {
            assert_eq!(gone(&of(before), &of(now)), wanted, "{before:?} {now:?}");
        }
    }
}
