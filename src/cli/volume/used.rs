//! Volumes as nodes and allocations use them (JOB-12).

use super::super::client::{Client, encode};
use super::super::columns::Table;
use super::super::out::Out;
use super::super::show::{boolean, list, text};
use super::status::mount_options;
use anyhow::Result;
use drover_events::model::status::volume_type;
use serde_json::Value as Json;

/// The CSI volumes that a node's allocations ask for.
pub(in crate::cli) async fn of_node(client: &Client, node: &str) -> Result<Vec<Json>> {
    let query = [
        ("type", volume_type::CSI),
        ("node_id", node),
        ("namespace", "*"),
    ];
    let found = client.get_json("/v1/volumes", &query).await;
    let found = found.map_err(|err| err.context("Error querying volumes"))?;
    Ok(found.as_array().cloned().unwrap_or_default())
}

/// Shows the CSI volumes of a node, each with how it is mounted where the job says nothing else.
pub(in crate::cli) async fn show_of_node(client: &Client, volumes: &[Json], out: &Out) {
    if volumes.is_empty() {
        return;
    }
    out.head("CSI Volumes");
    let mut table = Table::new([
        "ID",
        "Name",
        "Namespace",
        "Plugin ID",
        "Provider",
        "Schedulable",
        "Access Mode",
        "Mount Options",
    ]);
    for stub in volumes {
        let whole = read(client, &text(stub, "Namespace"), &text(stub, "ID")).await;
        table.row([
            text(stub, "ID"),
            text(stub, "Name"),
            text(stub, "Namespace"),
            text(stub, "PluginID"),
            text(stub, "Provider"),
            boolean(stub, "Schedulable").to_string(),
            text(stub, "AccessMode"),
            mount_options(&whole["MountOptions"]),
        ]);
    }
    out.line(&table.to_string());
}

/// A volume; nothing where it cannot be read.
async fn read(client: &Client, namespace: &str, id: &str) -> Json {
    let path = format!("/v1/volume/csi/{}", encode(id));
    let asked = client.get_json(&path, &[("namespace", namespace)]).await;
    asked.unwrap_or(Json::Null)
}

/// Shows the volumes that an allocation asks for.
pub(in crate::cli) async fn show_of_alloc(client: &Client, alloc: &Json, out: &Out) {
    let groups = list(&alloc["Job"], "TaskGroups").iter();
    let mut groups = groups.filter(|group| text(group, "Name") == text(alloc, "TaskGroup"));
    let Some(group) = groups.next() else {
        return;
    };
    let mut host = Table::new(["Name", "ID", "Read Only"]);
    let head = [
        "Name",
        "ID",
        "Plugin",
        "Provider",
        "Schedulable",
        "Read Only",
        "Mount Options",
    ];
    let mut csi = Table::new(head);
    for (name, asked) in group["Volumes"].as_object().into_iter().flatten() {
        let id = source(asked, &text(alloc, "Name"));
        let read_only = boolean(asked, "ReadOnly").to_string();
        if text(asked, "Type") != volume_type::CSI {
            host.row([name.clone(), id, read_only]);
            continue;
        }
        let volume = read(client, &text(alloc, "Namespace"), &id).await;
        // Options of the job are instead of the volume's own (CSI-15).
        let own = mount_options(&asked["MountOptions"]);
        let options = match own.is_empty() {
            true => mount_options(&volume["MountOptions"]),
            false => own,
        };
        csi.row([
            name.clone(),
            id,
            text(&volume, "PluginID"),
            text(&volume, "Provider"),
            match volume.is_object() {
                true => boolean(&volume, "Schedulable").to_string(),
                false => String::new(),
            },
            read_only,
            options,
        ]);
    }
    for (title, table) in [("Host Volumes", host), ("CSI Volumes", csi)] {
        if !table.is_empty() {
            out.head(title);
            out.line(&table.to_string());
        }
    }
}

/// What a request is about, for the allocation with this name.
fn source(asked: &Json, alloc: &str) -> String {
    let source = text(asked, "Source");
    match (boolean(asked, "PerAlloc"), alloc.rsplit_once('[')) {
        (true, Some((_, index))) => format!("{source}[{index}"),
        _ => source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_allocation_has_its_own_source_where_the_job_says_so() {
        let asked = |per_alloc| json!({ "Source": "data", "PerAlloc": per_alloc });
        assert_eq!(source(&asked(false), "db.g[2]"), "data");
        assert_eq!(source(&asked(true), "db.g[2]"), "data[2]");
    }
}
