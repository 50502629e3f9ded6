//! Finds the one object a prefix names.

use super::client::{Client, encode};
use super::columns::Table;
use super::show::{short, text};
use anyhow::{Result, bail};
use serde_json::Value as Json;

/// What can be looked up by prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing {
    Alloc,
    Eval,
    Job,
    Node,
}

impl Thing {
    fn path(self) -> &'static str {
        match self {
            Thing::Alloc => "/v1/allocations",
            Thing::Eval => "/v1/evaluations",
            Thing::Job => "/v1/jobs",
            Thing::Node => "/v1/nodes",
        }
    }

    /// Its name in texts, and the word that follows "prefix or".
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Thing::Alloc => ("allocation", "id"),
            Thing::Eval => ("evaluation", "id"),
            Thing::Job => ("job", "ID"),
            Thing::Node => ("node", "id"),
        }
    }
}

/// The stub of the only object whose id begins with `prefix`, an exact match before others.
///
/// # Errors
/// None, or several; the texts are Nomad's.
pub(super) async fn find(client: &Client, thing: Thing, prefix: &str) -> Result<Json> {
    let (word, id) = thing.words();
    let uuid = !matches!(thing, Thing::Job);
    if uuid && prefix.chars().count() < 2 {
        bail!("Identifier must contain at least two characters.");
    }
    // UUIDs are looked up by even numbers of digits.
    let trimmed: String = if uuid && prefix.len() < 36 {
        let digits = prefix.replace('-', "").len();
        prefix
            .chars()
            .take(prefix.chars().count() - digits % 2)
            .collect()
    } else {
        prefix.to_owned()
    };
    let query = [("prefix", trimmed.as_str())];
    let found = client.get_json(thing.path(), &query).await;
    let found = found.map_err(|err| err.context(format!("Error querying {word}")))?;
    let mut found: Vec<Json> = found.as_array().cloned().unwrap_or_default();
    found.retain(|o| text(o, "ID").starts_with(prefix));
    if let Some(exact) = found.iter().position(|o| text(o, "ID") == prefix) {
        return Ok(found.swap_remove(exact));
    }
    match found.len() {
        0 => bail!("No {word}(s) with prefix or {id} {prefix:?} found"),
        1 => Ok(found.remove(0)),
        _ => {
            let mut table = Table::new(["ID", "Name", "Status"]);
            for o in found.iter().take(20) {
                let status = [text(o, "ClientStatus"), text(o, "Status")].concat();
                let name = [text(o, "Name"), text(o, "JobID")]
                    .into_iter()
                    .find(|n| !n.is_empty());
                table.row([
                    short(&text(o, "ID"), !uuid),
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
