//! Changes of node pools.

use drover_events::model::NodePool;

use crate::acl::NodePoolCapability as Cap;
use crate::commands::node_pool::{DeleteNodePools, UpsertNodePools};
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::gate::Late;

/// `PUT /v1/node/pools` and `PUT /v1/node/pool/:name`.
pub(in crate::http) async fn upsert(late: Late) -> Result<Answer, Refusal> {
    let mut pool: NodePool = late.json().await?;
    let named = late.request.segment(3)?;
    if pool.name.is_empty() {
        pool.name.clone_from(&named);
    }
    if !named.is_empty() && named != pool.name {
        return Err(Refusal::bad_request(
            "Node pool name does not match request path",
        ));
    }
    let allowed = late.acl().node_pool_allows(&pool.name, Cap::Write);
    let write = late.authorize(allowed)?;
    let done = write
        .submit(UpsertNodePools {
            node_pools: vec![pool],
        })
        .await?;
    Ok(Answer::nothing().written(done.index))
}

/// `DELETE /v1/node/pool/:name`.
pub(in crate::http) async fn delete(late: Late) -> Result<Answer, Refusal> {
    let names = vec![late.request.segment(3)?];
    let may = |name: &String| late.acl().node_pool_allows(name, Cap::Delete);
    let allowed = names.iter().all(may);
    let write = late.authorize(allowed)?;
    let done = write.submit(DeleteNodePools { names }).await?;
    Ok(Answer::nothing().written(done.index))
}
