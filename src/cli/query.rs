//! Finds the one object a prefix names.

use super::client::{Client, encode};
use super::columns::Table;
use super::show::{short, text};
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;

/// What can be looked up by prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing {
    Alloc,
    Deployment,
    Eval,
    Job,
    Node,
    NodePool,
    ScalingPolicy,
}

impl Thing {
    fn path(self) -> &'static str {
        match self {
            Thing::Alloc => "/v1/allocations",
            Thing::Deployment => "/v1/deployments",
            Thing::Eval => "/v1/evaluations",
            Thing::Job => "/v1/jobs",
            Thing::Node => "/v1/nodes",
            Thing::NodePool => "/v1/node/pools",
            Thing::ScalingPolicy => "/v1/scaling/policies",
        }
    }

    /// Its name in texts, and the word that follows "prefix or".
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Thing::Alloc => ("allocation", "id"),
            Thing::Deployment => ("deployment", "id"),
            Thing::Eval => ("evaluation", "id"),
            Thing::Job => ("job", "ID"),
            Thing::Node => ("node", "id"),
            Thing::NodePool => ("node pool", "name"),
            Thing::ScalingPolicy => ("scaling policy", "ID"),
        }
    }

    /// Whether its ids are UUIDs rather than names.
    fn is_uuid(self) -> bool {
        !matches!(self, Thing::Job | Thing::NodePool)
    }

    /// The field that holds its id.
    fn key(self) -> &'static str {
        match self {
            Thing::NodePool => "Name",
            _ => "ID",
        }
    }
}

/// The stub of the only object whose id begins with `prefix`, an exact match before others.
///
/// # Errors
/// None, or several; the texts are Nomad's.
pub(super) async fn find(client: &Client, thing: Thing, prefix: &str) -> Result<Json> {
    let (word, id) = thing.words();
    let (uuid, key) = (thing.is_uuid(), thing.key());
    if uuid && prefix.chars().count() < 2 {
        bail!("Identifier must contain at least two characters.");
    }
    let none = || anyhow!("No {word}(s) with prefix or {id} {prefix:?} found");
    if uuid && !prefix.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(none());
    }
    // UUIDs are looked up by even numbers of digits.
    let trimmed: String = if uuid && prefix.len() < 36 {
        let digits = prefix.replace('-', "").len();
        prefix.chars().take(prefix.len() - digits % 2).collect()
    } else {
        prefix.to_owned()
    };
    let query = [("prefix", trimmed.as_str())];
    let found = client.get_json(thing.path(), &query).await;
    let found = found.map_err(|err| err.context(format!("Error querying {word}")))?;
    let mut found: Vec<Json> = found.as_array().cloned().unwrap_or_default();
    found.retain(|o| text(o, key).starts_with(prefix));
    if let Some(exact) = found.iter().position(|o| text(o, key) == prefix) {
        return Ok(found.swap_remove(exact));
    }
    match found.len() {
        0 => Err(none()),
        1 => Ok(found.remove(0)),
        _ => {
            let mut table = Table::new(["ID", "Name", "Status"]);
            for o in found.iter().take(20) {
                let status = [text(o, "ClientStatus"), text(o, "Status")].concat();
                let name = [text(o, "Name"), text(o, "JobID")]
                    .into_iter()
                    .find(|n| !n.is_empty());
                table.row([
                    short(&text(o, key), !uuid),
                    name.unwrap_or_default(),
                    status,
                ]);
            }
            bail!("Prefix matched multiple {word}s\n\n{table}")
        }
    }
}

/// The path of a job, its id escaped.
pub(super) fn job_path(id: &str, suffix: &str) -> String {
    format!("/v1/job/{}{suffix}", encode(id))
}
