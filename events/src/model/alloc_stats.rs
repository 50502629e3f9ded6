//! Figures and files of an allocation.

use crate::gojson::{List, Map, Time};
use crate::model::DeviceGroupStats;

crate::wire! {
    /// What an allocation uses now.
    pub struct AllocResourceUsage {
        resource_usage: Option<ResourceUsage> = "ResourceUsage",
        tasks: Map<TaskResourceUsage> = "Tasks",
        timestamp: i64 = "Timestamp",
    }
}

crate::wire! {
    /// What a task uses now.
    pub struct TaskResourceUsage {
        resource_usage: Option<ResourceUsage> = "ResourceUsage",
        timestamp: i64 = "Timestamp",
        pids: Map<ResourceUsage> = "Pids",
    }
}

crate::wire! {
    /// Memory and processor in use.
    pub struct ResourceUsage {
        memory_stats: Option<MemoryStats> = "MemoryStats",
        cpu_stats: Option<CpuStats> = "CpuStats",
        device_stats: List<DeviceGroupStats> = "DeviceStats",
    }
}

crate::wire! {
    /// Memory in use in bytes.
    pub struct MemoryStats {
        rss: u64 = "RSS",
        cache: u64 = "Cache",
        swap: u64 = "Swap",
        mapped_file: u64 = "MappedFile",
        usage: u64 = "Usage",
        max_usage: u64 = "MaxUsage",
        kernel_usage: u64 = "KernelUsage",
        kernel_max_usage: u64 = "KernelMaxUsage",
        measured: List<String> = "Measured",
    }
}

crate::wire! {
    /// Processor time in use.
    pub struct CpuStats {
        system_mode: f64 = "SystemMode",
        user_mode: f64 = "UserMode",
        total_ticks: f64 = "TotalTicks",
        throttled_periods: u64 = "ThrottledPeriods",
        throttled_time: u64 = "ThrottledTime",
        percent: f64 = "Percent",
        measured: List<String> = "Measured",
    }
}

crate::wire! {
    /// A file of an allocation.
    pub struct AllocFileInfo {
        name: String = "Name",
        is_dir: bool = "IsDir",
        size: i64 = "Size",
        file_mode: String = "FileMode",
        mod_time: Time = "ModTime",
        content_type: String = "ContentType",
    }
}
