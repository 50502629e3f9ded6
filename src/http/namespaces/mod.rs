//! Namespaces: reads, and their changes in `write.rs`.

pub(in crate::http) mod write;

use drover_events::model::Namespace;
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::watch::Interest;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::demand;
use crate::http::list::{self, storage};
use crate::http::request::Request;
use crate::http::rows;

/// A namespace with the hash that clients compare: of what it says, not of when.
fn hashed(mut namespace: Namespace) -> Namespace {
    let (created, modified) = (namespace.create_index, namespace.modify_index);
    namespace.hash = Vec::new().into();
    (namespace.create_index, namespace.modify_index) = (0, 0);
    let json = serde_json::to_vec(&namespace).unwrap_or_default();
    namespace.hash = Sha256::digest(json).to_vec().into();
    (namespace.create_index, namespace.modify_index) = (created, modified);
    namespace
}

/// `GET /v1/namespaces`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let rows = read.view.rows::<Namespaces>(rows::named(read.options));
    let rows = rows.seen_by(|acl, namespace| acl.namespace_visible(&namespace.name));
    let token = |row: &Namespace| PageToken::Id(row.name.clone());
    let answer = list::render(read.options, TokenKind::Id, rows, token, |row| {
        Ok(hashed(row))
    })?;
    Ok(answer.at(read.view.table_index::<Namespaces>()))
}

/// The row of the namespace in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let name = request.segment(2)?;
    Ok([Interest::row::<Namespaces>(name.as_str())]
        .into_iter()
        .collect())
}

/// Whether the namespace in the path may be seen.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let name = read.request.segment(2)?;
    demand(name.is_empty() || read.identity.acl.namespace_visible(&name))
}

/// `GET /v1/namespace/:name`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let name = read.request.segment(2)?;
    if name.is_empty() {
        return Err(Refusal::bad_request("Missing Namespace Name"));
    }
    let namespace = read
        .view
        .get::<Namespaces>(name.as_str())
        .map_err(storage)?;
    let namespace = namespace.ok_or_else(|| Refusal::not_found("Namespace not found"))?;
    let index = namespace.modify_index;
    Ok(Answer::json(&hashed(namespace))?.at(index))
}
