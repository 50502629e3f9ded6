//! Changes of namespaces and node pools.

use drover_events::model::{Namespace, NodePool};

use super::answer::Answer;
use super::front::Write;
use crate::commands::namespace::{DeleteNamespaces, UpsertNamespaces};
use crate::commands::node_pool::{DeleteNodePools, UpsertNodePools};
use crate::error::ApiError;

/// `PUT /v1/namespace` and `PUT /v1/namespace/:name`.
pub(super) async fn upsert(write: Write) -> Result<Answer, ApiError> {
    let mut namespace: Namespace = write.json().await?;
    let named = write.request.segment(2)?;
    if namespace.name.is_empty() {
        namespace.name.clone_from(&named);
    }
    if !named.is_empty() && named != namespace.name {
        return Err(ApiError::bad_request(
            "Namespace name does not match request path",
        ));
    }
    let done = write
        .submit(UpsertNamespaces {
            namespaces: vec![namespace],
        })
        .await?;
    Ok(Answer::nothing().written(done.index))
}

/// `DELETE /v1/namespace/:name`.
pub(super) async fn delete(write: Write) -> Result<Answer, ApiError> {
    let names = vec![write.request.segment(2)?];
    let done = write.submit(DeleteNamespaces { names }).await?;
    Ok(Answer::nothing().written(done.index))
}

/// `PUT /v1/node/pools` and `PUT /v1/node/pool/:name`.
pub(super) async fn upsert_pool(write: Write) -> Result<Answer, ApiError> {
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
pub(super) async fn delete_pool(write: Write) -> Result<Answer, ApiError> {
    let names = vec![write.request.segment(3)?];
    let done = write.submit(DeleteNodePools { names }).await?;
    Ok(Answer::nothing().written(done.index))
}
