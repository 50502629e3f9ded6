//! Services registered with the cluster.

pub(super) mod write;

use std::collections::BTreeSet;

use drover_events::model::{ServiceRegistration, ServiceRegistrationStub};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::services::{Services, ServicesByName};
use drover_projections::{Key, Prefix, Scan};

use super::answer::Answer;
use super::front::Read;
use super::gate::READ_JOB;
use super::list::{self, storage};
use super::pieces::Pieces;
use super::sight::{Keyed, Unchecked};
use crate::error::Refusal;

/// `GET /v1/services`: of each namespace the names, with all tags that occur under them.
pub(super) fn list(read: &Read<'_>) -> Result<Answer, Refusal> {
    let scan = match read.options.namespace.as_str() {
        "*" => Scan::all(),
        name => Scan::prefix(Prefix::new().str(name)),
    };
    let filter = list::filter(read.options)?;
    let mut names = Names {
        pieces: list::begun(read.options),
        space: match read.options.later {
            true => Some(group(&list::place(read.options.place())?)?.0),
            false => None,
        },
    };
    let most = list::part(read.options);
    let mut open: Option<(Vec<u8>, Name, BTreeSet<String>)> = None;
    let rows = list::of_index::<ServicesByName>(read, scan)?;
    for row in rows.seen_by(|acl, (_, row)| acl.namespace_allows_any(&row.namespace, READ_JOB)) {
        let (key, row) = row.map_err(storage)?;
        if !list::matches(filter.as_ref(), &row)? {
            continue;
        }
        let name = (row.namespace, row.service_name);
        match &mut open {
            Some((at, same, tags)) if *same == name => {
                *at = key;
                tags.extend(row.tags);
            }
            _ => {
                let next = (key, name, row.tags.into_iter().collect());
                if let Some((at, name, tags)) = open.replace(next) {
                    names.add(name, tags)?;
                    if names.pieces.bytes() >= most {
                        return Ok(Answer::begun(names.pieces, hex::encode(&at)).at(index(read)));
                    }
                }
            }
        }
    }
    if let Some((_, name, tags)) = open {
        names.add(name, tags)?;
    }
    if names.space.is_some() {
        names.pieces.close(b"]}");
    }
    Ok(Answer::pieces(names.pieces.finish()).at(index(read)))
}

/// A namespace, and the name of a service in it.
type Name = (String, String);

/// Names of services in the making, by namespace.
struct Names {
    pieces: Pieces,
    /// The namespace whose names are being listed.
    space: Option<String>,
}

impl Names {
    fn add(
        &mut self,
        (namespace, service_name): (String, String),
        tags: BTreeSet<String>,
    ) -> Result<(), Refusal> {
        if self.space.as_ref() != Some(&namespace) {
            if self.space.is_some() {
                self.pieces.close(b"]}");
            }
            let name = serde_json::to_string(&namespace);
            let name = name.map_err(|error| Refusal::internal(error.to_string()))?;
            let head = format!("{{\"Namespace\":{name},\"Services\":[");
            self.pieces.open(head.as_bytes());
            self.space = Some(namespace);
        }
        self.pieces.push(&ServiceRegistrationStub {
            service_name,
            tags: tags.into_iter().collect(),
        })
    }
}

/// Namespace and name of an index's entry.
fn group(mut key: &[u8]) -> Result<(String, String), Refusal> {
    Key::decode(&mut key).map_err(|_| Refusal::internal("a list goes on where it never was"))
}

fn index(read: &Read<'_>) -> u64 {
    read.view.table_index::<Services>()
}

/// The registrations that belong to something.
///
/// # Errors
/// 400 for a filter that is none, 500 when the rows cannot be read.
pub(super) fn of(
    read: &Read<'_>,
    rows: Unchecked<'_, Keyed<ServiceRegistration>>,
) -> Result<Answer, Refusal> {
    let filter = list::filter(read.options)?;
    let answer = list::render_whole(read.options, rows.of_route(), |row| {
        Ok(list::matches(filter.as_ref(), &row)?.then_some(row))
    })?;
    Ok(answer.at(index(read)))
}

/// `GET /v1/service/:name`.
pub(super) fn get(read: &Read<'_>) -> Result<Answer, Refusal> {
    let name = read.request.behind("/v1/service/")?;
    if name.is_empty() {
        return Err(Refusal::bad_request("missing service name"));
    }
    let index = index(read);
    let choose = read.request.query.text("choose");
    let key = (read.options.namespace.as_str(), name.as_str());
    let rows = read
        .view
        .rows_by::<ServicesByName>(Scan::with_key_prefix::<(String, String)>(key));
    let rows = rows.of_route();
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
) -> Result<Vec<ServiceRegistration>, Refusal> {
    let parsed = choose
        .split_once('|')
        .and_then(|(n, key)| Some((n.parse::<usize>().ok()?, key)));
    let (count, key) = parsed.ok_or_else(|| {
        Refusal::bad_request(
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
