//! Services registered with the cluster.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::model::{
    ServiceRegistration, ServiceRegistrationListStub, ServiceRegistrationStub,
};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::services::{Services, ServicesByJob, ServicesByName};
use drover_projections::{Prefix, Scan};

use super::answer::Answer;
use super::front::{Read, Write};
use super::jobs;
use super::list::{self, storage};
use crate::commands::service::DeleteService;
use crate::error::{ApiError, Code};

/// `GET /v1/services`.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, ApiError> {
    let scan = match read.options.namespace.as_str() {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name)),
    };
    let filter = list::filter(read.options)?;
    let mut found: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for row in read.view.scan::<Services>(scan) {
        let row = row.map_err(storage)?;
        let matches = filter.as_ref().map_or(Ok(true), |f| f.matches(&row));
        if matches.map_err(|e| ApiError::bad_request(format!("failed to read result page: {e}")))? {
            let tags = found
                .entry(row.namespace)
                .or_default()
                .entry(row.service_name);
            tags.or_default().extend(row.tags);
        }
    }
    let stubs: Vec<ServiceRegistrationListStub> = found
        .into_iter()
        .map(|(namespace, services)| ServiceRegistrationListStub {
            namespace,
            services: services
                .into_iter()
                .map(|(service_name, tags)| ServiceRegistrationStub {
                    service_name,
                    tags: tags.into_iter().collect(),
                })
                .collect(),
        })
        .collect();
    Ok(Answer::json(&stubs)?.at(read.view.table_index::<Services>()))
}

/// `GET /v1/service/:name`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, ApiError> {
    let name = read.request.behind("/v1/service/")?;
    if name.is_empty() {
        return Err(ApiError::bad_request("missing service name"));
    }
    let index = read.view.table_index::<Services>();
    let choose = read.request.query.text("choose");
    let key = (read.options.namespace.as_str(), name.as_str());
    let rows = read.view.by_index::<ServicesByName>(key);
    if !choose.is_empty() {
        let rows = rows.collect::<Result<Vec<_>, _>>().map_err(storage)?;
        return Ok(Answer::json(&chosen(rows, choose)?)?.at(index));
    }
    let token =
        |row: &ServiceRegistration| PageToken::NamespaceId(row.namespace.clone(), row.id.clone());
    Ok(list::render(read.options, TokenKind::NamespaceId, rows, token, Ok)?.at(index))
}

/// The first of the services by rendezvous hashing over a caller's key.
fn chosen(
    rows: Vec<ServiceRegistration>,
    choose: &str,
) -> Result<Vec<ServiceRegistration>, ApiError> {
    let parsed = choose
        .split_once('|')
        .and_then(|(n, key)| Some((n.parse::<usize>().ok()?, key)));
    let (count, key) = parsed.ok_or_else(|| {
        ApiError::bad_request(
            "failed to choose services: Parameter for choose must be in form '<number>|<key>'",
        )
    })?;
    let weight = |row: &ServiceRegistration| {
        use sha2::{Digest as _, Sha256};
        let hash: [u8; 32] = Sha256::new()
            .chain_update(key)
            .chain_update(&row.id)
            .finalize()
            .into();
        std::cmp::Reverse(hash)
    };
    let mut rows = rows;
    rows.sort_by_cached_key(weight);
    rows.truncate(count);
    Ok(rows)
}

/// `DELETE /v1/service/:name/:id`.
pub(super) async fn delete(write: Write) -> Result<Answer, ApiError> {
    let path = write.request.behind("/v1/service/")?;
    let (_, id) = path.split_once('/').unwrap_or_default();
    if id.is_empty() {
        return Err(ApiError::bad_request("missing service id"));
    }
    let command = DeleteService {
        namespace: write.request.namespace().to_owned(),
        id: id.to_owned(),
    };
    let done = write
        .submit(command)
        .await
        .map_err(|error| match error.code {
            Code::NotFound => ApiError::refused(error.message),
            _ => error,
        })?;
    Ok(Answer::nothing().written(done.index))
}

/// `GET /v1/job/:id/services`.
pub(super) fn of_job(read: &Read<'_>) -> Result<Answer, ApiError> {
    let id = jobs::job_id(read.request)?;
    let key = (read.options.namespace.as_str(), id.as_str());
    let known = read
        .view
        .get::<drover_projections::tables::jobs::Jobs>(key)
        .map_err(storage)?;
    if known.is_none() {
        return Err(ApiError::not_found("job not found"));
    }
    let rows = read
        .view
        .by_index::<ServicesByJob>(key)
        .collect::<Result<Vec<_>, _>>();
    let index = read.view.table_index::<Services>();
    Ok(Answer::json(&rows.map_err(storage)?)?.at(index))
}
