//! Node pools: reads, and their changes in `write.rs`.

pub(in crate::http) mod write;

use drover_events::model::NodePool;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::node_pools::NodePools;
use drover_projections::watch::Interest;
use smallvec::SmallVec;

use crate::acl::NodePoolCapability as Cap;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::{LIST_JOBS, demand, in_namespace};
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::rows;

/// `GET /v1/node/pools`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let rows = read.view.rows::<NodePools>(rows::named(read.options));
    let rows = rows.seen_by(|acl, pool| acl.node_pool_allows(&pool.name, Cap::Read));
    let token = |row: &NodePool| PageToken::Id(row.name.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<NodePools>()))
}

/// The row of the node pool in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let name = request.segment(3)?;
    Ok([Interest::row::<NodePools>(name.as_str())]
        .into_iter()
        .collect())
}

/// Whether the pool in the path may be seen.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let name = read.request.segment(3)?;
    demand(read.identity.acl.node_pool_allows(&name, Cap::Read))
}

/// Whether its nodes may be.
pub(in crate::http) fn nodes_readable(read: &Read<'_>) -> Result<(), Refusal> {
    readable(read)?;
    demand(read.identity.acl.node_read())
}

/// Whether its jobs may be.
pub(in crate::http) fn jobs_readable(read: &Read<'_>) -> Result<(), Refusal> {
    readable(read)?;
    let namespace = &read.options.namespace;
    demand(in_namespace(&read.identity.acl, namespace, LIST_JOBS))
}

/// `GET /v1/node/pool/:name`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let name = read.request.segment(3)?;
    let pool = read.view.get::<NodePools>(name.as_str()).map_err(storage)?;
    let pool = pool.ok_or_else(|| Refusal::not_found("node pool not found"))?;
    Ok(Answer::json(&pool)?.at(pool.modify_index))
}

/// The pool a list under it is about; lists there take no prefix.
fn listed_pool(read: &Read<'_>) -> Result<String, Refusal> {
    if !read.options.prefix().is_empty() {
        return Err(Refusal::bad_request("prefix argument not allowed"));
    }
    read.request.segment(3)
}

/// `GET /v1/node/pool/:name/nodes`.
pub(in crate::http) fn nodes(read: &Read<'_>) -> Result<Answer, Refusal> {
    let pool = listed_pool(read)?;
    crate::http::nodes::list_of(read, |node| node.in_pool(&pool))
}

/// `GET /v1/node/pool/:name/jobs`.
pub(in crate::http) fn jobs(read: &Read<'_>) -> Result<Answer, Refusal> {
    let pool = listed_pool(read)?;
    crate::http::jobs::list_of(read, |job| job.node_pool == pool)
}
