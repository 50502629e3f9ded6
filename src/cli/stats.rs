//! What a node and its allocations use now, as the client on it measures.

use super::client::Client;
use super::columns::{ColumnTable, pairs};
use super::out::Out;
use super::show::size;
use anyhow::Result;
use drover_events::model::status as words;
use drover_events::model::{
    AllocResourceUsage, Allocation, CpuStats, HostStats, MemoryStats, Node, ResourceUsage,
};

/// The figures of a node's machine.
pub(super) async fn of_node(client: &Client, id: &str) -> Result<HostStats> {
    client.fetch("/v1/client/stats", &[("node_id", id)]).await
}

/// The figures of an allocation's tasks.
pub(super) async fn of_alloc(
    client: &Client,
    id: &str,
    namespace: &str,
) -> Result<AllocResourceUsage> {
    let path = format!("/v1/client/allocation/{id}/stats");
    client.fetch(&path, &[("namespace", namespace)]).await
}

/// What is used of a node: by its running allocations, and by all that runs on the machine.
pub(super) async fn used(
    client: &Client,
    node: &Node,
    (host, allocs): (&HostStats, &[Allocation]),
    out: &Out,
) -> Result<()> {
    let (mut ticks, mut memory) = (0.0, 0);
    let running = allocs.iter();
    for alloc in running.filter(|alloc| alloc.client_status == words::client::RUNNING) {
        // One that ends meanwhile uses nothing.
        let Ok(stats) = of_alloc(client, &alloc.id, &alloc.namespace).await else {
            continue;
        };
        let Some(usage) = stats.resource_usage else {
            continue;
        };
        ticks += usage.cpu_stats.map_or(0.0, |cpu| cpu.total_ticks);
        memory += usage.memory_stats.map_or(0, |memory| memory.rss);
    }
    let mhz = node.node_resources.as_ref();
    let mhz = mhz.map_or(0, |has| has.cpu.cpu_shares);
    let (total, in_use) = host
        .memory
        .as_ref()
        .map_or((0, 0), |memory| (memory.total, memory.used));
    let of = |used: u64, all: u64| format!("{}/{}", size(used), size(all));
    let mut table = ColumnTable::new(["CPU", "Memory"]);
    table.row([format!("{ticks:.0}/{mhz} MHz"), of(memory, total)]);
    out.head("Allocation Resource Utilization");
    out.line(&table.to_string());

    let ticks = host.cpu_ticks_consumed;
    let (disk, filled) = host
        .alloc_dir_stats
        .as_ref()
        .map_or((0, 0), |disk| (disk.size, disk.used));
    let mut table = ColumnTable::new(["CPU", "Memory", "Disk"]);
    table.row([
        format!("{ticks:.0}/{mhz} MHz"),
        of(in_use, total),
        of(filled, disk),
    ]);
    out.head("Host Resource Utilization");
    out.line(&table.to_string());
    Ok(())
}

/// Every figure of a machine.
pub(super) fn detailed(host: &HostStats, out: &Out) {
    let mut table = ColumnTable::new(["CPU", "User", "System", "Idle"]);
    for cpu in &host.cpu {
        let shares = [cpu.user, cpu.system, cpu.idle].map(percent);
        table.row(std::iter::once(cpu.cpu.clone()).chain(shares));
    }
    out.head("CPU Stats");
    out.line(&table.to_string());

    let memory = host.memory.clone().unwrap_or_default();
    out.head("Memory Stats");
    out.line(&pairs(&[
        ("Total", size(memory.total)),
        ("Available", size(memory.available)),
        ("Used", size(memory.used)),
        ("Free", size(memory.free)),
    ]));

    let mut table = ColumnTable::new([
        "Device",
        "MountPoint",
        "Size",
        "Used",
        "Available",
        "Used Percent",
        "Inodes Percent",
    ]);
    for disk in &host.disk_stats {
        table.row([
            disk.device.clone(),
            disk.mountpoint.clone(),
            size(disk.size),
            size(disk.used),
            size(disk.available),
            percent(disk.used_percent),
            percent(disk.inodes_used_percent),
        ]);
    }
    out.head("Disk Stats");
    out.line(&table.to_string());
}

/// What a task uses, by the names of what was measured.
pub(super) fn of_task(usage: Option<&ResourceUsage>, out: &Out) {
    let memory = usage.and_then(|usage| usage.memory_stats.as_ref());
    let memory = memory.and_then(|stats| measured(&stats.measured, |name| of_memory(stats, name)));
    let cpu = usage.and_then(|usage| usage.cpu_stats.as_ref());
    let cpu = cpu.and_then(|stats| measured(&stats.measured, |name| of_cpu(stats, name)));
    for (title, table) in [("Memory Stats", memory), ("CPU Stats", cpu)] {
        if let Some(table) = table {
            out.line(&format!("\n{title}\n{table}"));
        }
    }
}

/// The figures that were measured, in one row; none where nothing was.
fn measured(names: &[String], shown: impl Fn(&str) -> String) -> Option<ColumnTable> {
    // People read words that are one where they name a figure.
    let cells = names.iter().map(|name| shown(&name.replace(' ', "")));
    let cells: Vec<String> = cells.collect();
    let head = names.iter().map(String::as_str).collect();
    let mut table = (!names.is_empty()).then(|| ColumnTable::with_head(head))?;
    table.row(cells);
    Some(table)
}

/// Memory by the name of what was measured of it.
fn of_memory(stats: &MemoryStats, name: &str) -> String {
    size(match name {
        "RSS" => stats.rss,
        "Cache" => stats.cache,
        "Swap" => stats.swap,
        "MappedFile" => stats.mapped_file,
        "Usage" => stats.usage,
        "MaxUsage" => stats.max_usage,
        "KernelUsage" => stats.kernel_usage,
        "KernelMaxUsage" => stats.kernel_max_usage,
        _ => 0,
    })
}

/// Processor time by the name of what was measured of it.
fn of_cpu(stats: &CpuStats, name: &str) -> String {
    match name {
        "SystemMode" => percent(stats.system_mode),
        "UserMode" => percent(stats.user_mode),
        "TotalTicks" => percent(stats.total_ticks),
        "ThrottledPeriods" => stats.throttled_periods.to_string(),
        "ThrottledTime" => stats.throttled_time.to_string(),
        "Percent" => percent(stats.percent),
        _ => percent(0.0),
    }
}

fn percent(share: f64) -> String {
    format!("{share:.2}%")
}
