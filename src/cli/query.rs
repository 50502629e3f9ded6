//! Finds the one object a prefix names.

use super::client::{Client, encode};
use super::columns::ColumnTable;
use super::show::short;
use crate::http::answers::{JobListStub, NodeListStub};
use anyhow::{Result, anyhow, bail};
use drover_events::model::{
    AllocListStub, Deployment, Evaluation, NodePool, ScalingPolicyListStub,
};
use serde::de::DeserializeOwned;

/// Things of one sort.
pub(super) struct Sort {
    /// Where they are listed.
    path: &'static str,
    /// Their name in texts, and the word that follows "prefix or".
    words: (&'static str, &'static str),
    /// Whether their ids are UUIDs rather than names.
    is_uuid: bool,
}

/// What lists show of a thing that can be looked up by prefix.
pub(super) trait Listed: DeserializeOwned {
    /// What sort of thing it is.
    const SORT: Sort;

    /// What prefixes are of.
    fn id(&self) -> &str;

    /// Its name where several are listed; empty where its id says enough.
    fn name(&self) -> &str {
        ""
    }

    /// Its status; empty where it has none.
    fn status(&self) -> &str {
        ""
    }
}

/// Things of a sort with an id, and what else is shown of each: fields of list entries.
macro_rules! listed {
    ($(
        $stub:ident: $path:literal, $words:expr, $is_uuid:literal,
        $id:ident, [$($name:ident)?], [$($status:ident)?];
    )*) => {$(
        impl Listed for $stub {
            const SORT: Sort = Sort {
                path: $path,
                words: $words,
                is_uuid: $is_uuid,
            };

            fn id(&self) -> &str {
                &self.$id
            }

            $(fn name(&self) -> &str {
                &self.$name
            })?

            $(fn status(&self) -> &str {
                &self.$status
            })?
        }
    )*};
}

listed! {
    AllocListStub: "/v1/allocations", ("allocation", "id"), true, id, [name], [client_status];
    Deployment: "/v1/deployments", ("deployment", "id"), true, id, [job_id], [status];
    Evaluation: "/v1/evaluations", ("evaluation", "id"), true, id, [job_id], [status];
    JobListStub: "/v1/jobs", ("job", "ID"), false, id, [name], [status];
    NodeListStub: "/v1/nodes", ("node", "id"), true, id, [name], [status];
    NodePool: "/v1/node/pools", ("node pool", "name"), false, name, [name], [];
    ScalingPolicyListStub: "/v1/scaling/policies", ("scaling policy", "ID"), true, id, [], [];
}

/// The stub of the only object whose id begins with `prefix`, an exact match before others.
///
/// # Errors
/// None, or several; the texts are Nomad's.
pub(super) async fn find<T: Listed>(client: &Client, prefix: &str) -> Result<T> {
    let Sort {
        path,
        words: (word, id),
        is_uuid,
    } = T::SORT;
    if is_uuid && prefix.chars().count() < 2 {
        bail!("Identifier must contain at least two characters.");
    }
    let none = || anyhow!("No {word}(s) with prefix or {id} {prefix:?} found");
    if is_uuid && !prefix.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(none());
    }
    // UUIDs are looked up by even numbers of digits.
    let trimmed: String = if is_uuid && prefix.len() < 36 {
        let digits = prefix.replace('-', "").len();
        prefix.chars().take(prefix.len() - digits % 2).collect()
    } else {
        prefix.to_owned()
    };
    let query = [("prefix", trimmed.as_str())];
    let found = client.fetch(path, &query).await;
    let mut found: Vec<T> = found.map_err(|err| err.context(format!("Error querying {word}")))?;
    found.retain(|one| one.id().starts_with(prefix));
    if let Some(exact) = found.iter().position(|one| one.id() == prefix) {
        return Ok(found.swap_remove(exact));
    }
    match found.len() {
        0 => Err(none()),
        1 => Ok(found.remove(0)),
        _ => {
            let mut table = ColumnTable::new(["ID", "Name", "Status"]);
            for one in found.iter().take(20) {
                table.row([
                    short(one.id(), !is_uuid),
                    one.name().to_owned(),
                    one.status().to_owned(),
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
