//! Namespaces and node pools.

use drover_events::model::Namespace;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::watch::Interest;
use drover_projections::{Prefix, Scan};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use super::answer::Answer;
use super::front::Read;
use super::jobs;
use super::list::{self, storage};
use super::nodes;
use super::query::Options;
use super::request::Request;
use crate::error::ApiError;

/// The names that begin with the prefix, from the page's start on.
fn scan(options: &Options) -> Scan {
    let scan = Scan::prefix(Prefix::new().open(options.prefix()));
    let scan = match options.next_token() {
        "" => scan,
        token => scan.from(Prefix::new().str(token).as_bytes()),
    };
    if options.reverse() {
        scan.reverse()
    } else {
        scan
    }
}

/// A namespace with the hash that clients compare: of what it says, not of when.
fn hashed(mut namespace: Namespace) -> Namespace {
    let (created, modified) = (namespace.create_index, namespace.modify_index);
    namespace.hash = Vec::new().into();
    (namespace.create_index, namespace.modify_index) = (0, 0);
    let said = serde_json::to_vec(&namespace).unwrap_or_default();
    namespace.hash = Sha256::digest(said).to_vec().into();
    (namespace.create_index, namespace.modify_index) = (created, modified);
    namespace
}

/// `GET /v1/namespaces`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, ApiError> {
    let rows = read.view.scan::<Namespaces>(scan(read.options));
    let token = |row: &Namespace| PageToken::Id(row.name.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, |row| {
        Ok(hashed(row))
    })?;
    Ok(answer.at(read.view.table_index::<Namespaces>()))
}

/// The row of the namespace in the path.
pub(super) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, ApiError> {
    let name = request.segment(2)?;
    Ok([Interest::row::<Namespaces>(name.as_str())]
        .into_iter()
        .collect())
}

/// `GET /v1/namespace/:name`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let name = read.request.segment(2)?;
    if name.is_empty() {
        return Err(ApiError::bad_request("Missing Namespace Name"));
    }
    let namespace = read
        .view
        .get::<Namespaces>(name.as_str())
        .map_err(storage)?;
    let namespace = namespace.ok_or_else(|| ApiError::not_found("Namespace not found"))?;
    let index = namespace.modify_index;
    Ok(Answer::json(&hashed(namespace))?.at(index))
}

/// `GET /v1/node/pools`.
pub(super) fn pools(read: &Read<'_>) -> Result<Answer, ApiError> {
    let rows = read.view.scan::<NodePools>(scan(read.options));
    let token = |row: &drover_events::model::NodePool| PageToken::Id(row.name.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<NodePools>()))
}

/// The row of the node pool in the path.
pub(super) fn watched_pool(request: &Request) -> Result<SmallVec<[Interest; 2]>, ApiError> {
    let name = request.segment(3)?;
    Ok([Interest::row::<NodePools>(name.as_str())]
        .into_iter()
        .collect())
}

/// `GET /v1/node/pool/:name`.
pub(super) fn pool(read: &Read<'_>) -> Result<Answer, ApiError> {
    let name = read.request.segment(3)?;
    let pool = read.view.get::<NodePools>(name.as_str()).map_err(storage)?;
    let pool = pool.ok_or_else(|| ApiError::not_found("node pool not found"))?;
    Ok(Answer::json(&pool)?.at(pool.modify_index))
}

/// The pool a list under it is about; lists there take no prefix.
fn listed_pool(read: &Read<'_>) -> Result<String, ApiError> {
    if !read.options.prefix().is_empty() {
        return Err(ApiError::bad_request("prefix argument not allowed"));
    }
    read.request.segment(3)
}

/// `GET /v1/node/pool/:name/nodes`.
pub(super) fn pool_nodes(read: &Read<'_>) -> Result<Answer, ApiError> {
    let pool = listed_pool(read)?;
    nodes::list_of(read, |node| node.in_pool(&pool))
}

/// `GET /v1/node/pool/:name/jobs`.
pub(super) fn pool_jobs(read: &Read<'_>) -> Result<Answer, ApiError> {
    let pool = listed_pool(read)?;
    jobs::list_of(read, |job| job.node_pool == pool)
}
