//! Changes of node pools.

use drover_events::model::NodePool;

use crate::commands::node_pool::{DeleteNodePools, UpsertNodePools};
use crate::error::ApiError;
use crate::http::answer::Answer;
use crate::http::front::Write;

/// `PUT /v1/node/pools` and `PUT /v1/node/pool/:name`.
pub(in crate::http) async fn upsert(write: Write) -> Result<Answer, ApiError> {
    let mut pool: NodePool = write.json().await?;
    let named = write.request.segment(3)?;
    if pool.name.is_empty() {
        pool.name.clone_from(&named);
    }
    if !named.is_empty() && named != pool.name {
        return Err(ApiError::bad_request(
            "Node pool name does not match request path",
        ));
    }
    let done = write
        .submit(UpsertNodePools {
            node_pools: vec![pool],
        })
        .await?;
    Ok(Answer::nothing().written(done.index))
}

/// `DELETE /v1/node/pool/:name`.
pub(in crate::http) async fn delete(write: Write) -> Result<Answer, ApiError> {
    let names = vec![write.request.segment(3)?];
    let done = write.submit(DeleteNodePools { names }).await?;
    Ok(Answer::nothing().written(done.index))
}
