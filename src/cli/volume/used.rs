//! Volumes as nodes and allocations use them (JOB-12).

use super::super::client::{Client, encode};
use super::super::columns::ColumnTable;
use super::super::out::Out;
use super::status::mount_options;
use anyhow::Result;
use drover_events::model::status as words;
use drover_events::model::{Allocation, CsiVolListStub, CsiVolume, VolumeRequest};

/// The CSI volumes that a node's allocations request.
pub(in crate::cli) async fn of_node(client: &Client, node: &str) -> Result<Vec<CsiVolListStub>> {
    let query = [
        ("type", words::volume_type::CSI),
        ("node_id", node),
        ("namespace", "*"),
    ];
    let found = client.fetch("/v1/volumes", &query).await;
    found.map_err(|err| err.context("Error querying volumes"))
}

/// Shows the CSI volumes of a node, each with how it is mounted where the job says nothing else.
pub(in crate::cli) async fn show_of_node(client: &Client, volumes: &[CsiVolListStub], out: &Out) {
    if volumes.is_empty() {
        return;
    }
    out.head("CSI Volumes");
    let mut table = ColumnTable::new([
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
        let whole = read(client, &stub.namespace, &stub.id).await;
        table.row([
            stub.id.clone(),
            stub.name.clone(),
            stub.namespace.clone(),
            stub.plugin_id.clone(),
            stub.provider.clone(),
            stub.schedulable.to_string(),
            stub.access_mode.clone(),
            own_options(whole.as_ref()),
        ]);
    }
    out.line(&table.to_string());
}

/// A volume; nothing where it cannot be read.
async fn read(client: &Client, namespace: &str, id: &str) -> Option<CsiVolume> {
    let path = format!("/v1/volume/csi/{}", encode(id));
    let requested = client.fetch(&path, &[("namespace", namespace)]).await;
    requested.ok()
}

/// How a volume is mounted where the job says nothing else.
fn own_options(volume: Option<&CsiVolume>) -> String {
    mount_options(volume.and_then(|volume| volume.mount_options.as_ref()))
}

/// Shows the volumes that an allocation requests.
pub(in crate::cli) async fn show_of_alloc(client: &Client, alloc: &Allocation, out: &Out) {
    let job = alloc.job.as_ref();
    let Some(group) = job.and_then(|job| job.task_group(&alloc.task_group)) else {
        return;
    };
    let mut host = ColumnTable::new(["Name", "ID", "Read Only"]);
    let head = [
        "Name",
        "ID",
        "Plugin",
        "Provider",
        "Schedulable",
        "Read Only",
        "Mount Options",
    ];
    let mut csi = ColumnTable::new(head);
    for (name, requested) in &group.volumes {
        let id = source(requested, &alloc.name);
        let read_only = requested.read_only.to_string();
        if requested.r#type != words::volume_type::CSI {
            host.row([name.clone(), id, read_only]);
            continue;
        }
        let volume = read(client, &alloc.namespace, &id).await;
        // Options of the job are instead of the volume's own (CSI-15).
        let own = mount_options(requested.mount_options.as_ref());
        let options = match own.is_empty() {
            true => own_options(volume.as_ref()),
            false => own,
        };
        let [plugin, provider, schedulable] = match volume {
            Some(volume) => [
                volume.plugin_id,
                volume.provider,
                volume.schedulable.to_string(),
            ],
            None => Default::default(),
        };
        csi.row([
            name.clone(),
            id,
            plugin,
            provider,
            schedulable,
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
fn source(requested: &VolumeRequest, alloc: &str) -> String {
    let source = &requested.source;
    match (requested.per_alloc, alloc.rsplit_once('[')) {
        (true, Some((_, index))) => format!("{source}[{index}"),
        _ => source.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocation_has_its_own_source_where_the_job_says_so() {
        let request = |per_alloc| VolumeRequest {
            source: "data".to_owned(),
            per_alloc,
            ..VolumeRequest::default()
        };
        assert_eq!(source(&request(false), "db.g[2]"), "data");
        assert_eq!(source(&request(true), "db.g[2]"), "data[2]");
    }
}
