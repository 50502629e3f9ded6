//! Variables.

pub(in crate::http) mod write;

use drover_events::model::{VariableEncrypted, VariableMetadata};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::variables::Variables;
use drover_projections::watch::Interest;
use drover_projections::{Prefix, Scan};
use smallvec::SmallVec;

use crate::acl::VariableCapability as Cap;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::gate::demand;
use crate::http::list::{self, storage};
use crate::http::query::ReadOptions;
use crate::http::request::Request;

/// `GET /v1/vars`.
pub(in crate::http) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let options = read.options;
    let rows = read.view.rows::<Variables>(scan(options));
    let rows = rows.seen_by(|acl, row| acl.variable_allows(&row.namespace, &row.path, Cap::List));
    let rows = rows.filter_map(|row| match row {
        Ok(row) if !row.path.starts_with(options.prefix()) => None,
        Ok(row) => Some(Ok(metadata(row))),
        Err(error) => Some(Err(error)),
    });
    let token =
        |row: &VariableMetadata| PageToken::NamespaceId(row.namespace.clone(), row.path.clone());
    let answer = list::render(options, TokenKind::NamespaceId, rows, token, Ok)?;
    Ok(answer.at(read.view.table_index::<Variables>()))
}

/// The keys of a namespace, or of all, that begin with a prefix; from where a page begins.
pub(in crate::http) fn scan(options: &ReadOptions) -> Scan {
    let scan = match options.namespace.as_str() {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name).str_prefix(options.prefix())),
    };
    let scan = match options.next_token().split_once('.') {
        Some((namespace, path)) => scan.from(Prefix::new().str(namespace).str(path).as_bytes()),
        None => scan,
    };
    if options.reverse() {
        scan.reverse()
    } else {
        scan
    }
}

pub(in crate::http) fn metadata(row: VariableEncrypted) -> VariableMetadata {
    VariableMetadata {
        namespace: row.namespace,
        path: row.path,
        lock: row.lock,
        create_index: row.create_index,
        create_time: row.create_time,
        modify_index: row.modify_index,
        modify_time: row.modify_time,
    }
}

/// The path of the variable in the URL; 400 when there is none.
pub(in crate::http) fn path(request: &Request) -> Result<String, Refusal> {
    let path = request.behind("/v1/var/")?;
    if path.is_empty() {
        Err(Refusal::bad_request("missing variable path"))
    } else {
        Ok(path)
    }
}

/// The row of the variable in the path.
pub(in crate::http) fn watched_row(request: &Request) -> Result<SmallVec<[Interest; 2]>, Refusal> {
    let path = path(request)?;
    let row = Interest::row::<Variables>((request.namespace(), path.as_str()));
    Ok([row].into_iter().collect())
}

/// Whether the variable in the path may be read.
pub(in crate::http) fn readable(read: &Read<'_>) -> Result<(), Refusal> {
    let (namespace, path) = (read.options.namespace.as_str(), path(read.request)?);
    let acl = &read.identity.acl;
    demand(acl.variable_allows(namespace, &path, Cap::Read))
}

/// `GET /v1/var/:path`.
pub(in crate::http) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let path = path(read.request)?;
    let key = (read.options.namespace.as_str(), path.as_str());
    let sealed = read.view.get::<Variables>(key).map_err(storage)?;
    let sealed = sealed.ok_or_else(|| Refusal::not_found("variable not found"))?;
    let clear = read
        .api
        .keyring
        .decrypt(&sealed)
        .map_err(|e| Refusal::internal(e.to_string()))?;
    Ok(Answer::secret(&*clear)?.at(clear.modify_index))
}
