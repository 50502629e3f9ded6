//! What a node and its allocations use now, as the client on it measures.

use crate::cli::client::Client;
use crate::cli::columns::{Table, pairs};
use crate::cli::out::Out;
use crate::cli::show::{list, number, size, text};
use anyhow::Result;
use drover_events::model::status::client as status;
use serde_json::Value as Json;

/// The figures of a node's machine.
pub(in crate::cli) async fn of_node(client: &Client, id: &str) -> Result<Json> {
    client
        .get_json("/v1/client/stats", &[("node_id", id)])
        .await
}

/// The figures of an allocation's tasks.
pub(in crate::cli) async fn of_alloc(client: &Client, alloc: &Json) -> Result<Json> {
    let path = format!("/v1/client/allocation/{}/stats", text(alloc, "ID"));
    let scope = [("namespace", text(alloc, "Namespace"))];
    let scope = scope.each_ref().map(|(key, value)| (*key, value.as_str()));
    client.get_json(&path, &scope).await
}

/// What is used of a node: by its running allocations, and by all that runs on the machine.
pub(in crate::cli) async fn used(
    client: &Client,
    node: &Json,
    (host, allocs): (&Json, &Json),
    out: &Out,
) -> Result<()> {
    let (mut ticks, mut memory) = (0.0, 0);
    let running = allocs.as_array().into_iter().flatten();
    for alloc in running.filter(|alloc| text(alloc, "ClientStatus") == status::RUNNING) {
        // One that ends meanwhile uses nothing.
        let Ok(stats) = of_alloc(client, alloc).await else {
            continue;
        };
        let usage = &stats["ResourceUsage"];
        ticks += usage["CpuStats"]["TotalTicks"].as_f64().unwrap_or(0.0);
        memory += bytes(&usage["MemoryStats"], "RSS");
    }
    let mhz = number(&node["NodeResources"]["Cpu"], "CpuShares");
    let total = bytes(&host["Memory"], "Total");
    let of = |used: u64, all: u64| format!("{}/{}", size(used), size(all));
    let mut table = Table::new(["CPU", "Memory"]);
    table.row([format!("{ticks:.0}/{mhz} MHz"), of(memory, total)]);
    out.head("Allocation Resource Utilization");
    out.line(&table.to_string());

    let ticks = host["CPUTicksConsumed"].as_f64().unwrap_or(0.0);
    let disk = &host["AllocDirStats"];
    let mut table = Table::new(["CPU", "Memory", "Disk"]);
    table.row([
        format!("{ticks:.0}/{mhz} MHz"),
        of(bytes(&host["Memory"], "Used"), total),
        of(bytes(disk, "Used"), bytes(disk, "Size")),
    ]);
    out.head("Host Resource Utilization");
    out.line(&table.to_string());
    Ok(())
}

/// Every figure of a machine.
pub(in crate::cli) fn detailed(host: &Json, out: &Out) {
    let mut table = Table::new(["CPU", "User", "System", "Idle"]);
    for cpu in list(host, "CPU") {
        let shares = ["User", "System", "Idle"].map(|key| percent(cpu, key));
        table.row(std::iter::once(text(cpu, "CPU")).chain(shares));
    }
    out.head("CPU Stats");
    out.line(&table.to_string());

    let memory = ["Total", "Available", "Used", "Free"];
    let memory = memory.map(|key| (key, size(bytes(&host["Memory"], key))));
    out.head("Memory Stats");
    out.line(&pairs(&memory));

    let mut table = Table::new([
        "Device",
        "MountPoint",
        "Size",
        "Used",
        "Available",
        "Used Percent",
        "Inodes Percent",
    ]);
    for disk in list(host, "DiskStats") {
        let sizes = ["Size", "Used", "Available"].map(|key| size(bytes(disk, key)));
        let named = [text(disk, "Device"), text(disk, "Mountpoint")];
        let shares = ["UsedPercent", "InodesUsedPercent"].map(|key| percent(disk, key));
        table.row(named.into_iter().chain(sizes).chain(shares));
    }
    out.head("Disk Stats");
    out.line(&table.to_string());
}

/// What a task uses, by the names of what was measured.
pub(in crate::cli) fn of_task(usage: &Json, out: &Out) {
    let memory = measured(&usage["MemoryStats"], |stats, key| size(bytes(stats, key)));
    let cpu = measured(&usage["CpuStats"], |stats, key| match key {
        "ThrottledPeriods" | "ThrottledTime" => number(stats, key).to_string(),
        _ => percent(stats, key),
    });
    for (title, table) in [("Memory Stats", memory), ("CPU Stats", cpu)] {
        if let Some(table) = table {
            out.line(&format!("\n{title}\n{table}"));
        }
    }
}

/// The figures that were measured, in one row; none where nothing was.
fn measured(stats: &Json, shown: impl Fn(&Json, &str) -> String) -> Option<Table> {
    let names = list(stats, "Measured").iter().filter_map(Json::as_str);
    let names: Vec<&str> = names.collect();
    let cells = names
        .iter()
        .map(|name| shown(stats, &name.replace(' ', "")));
    let cells: Vec<String> = cells.collect();
    let mut table = (!names.is_empty()).then(|| Table::with_head(names))?;
    table.row(cells);
    Some(table)
}

fn bytes(value: &Json, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn percent(value: &Json, key: &str) -> String {
    format!("{:.2}%", value[key].as_f64().unwrap_or(0.0))
}
