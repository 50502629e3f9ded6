//! Figures a client gives about its machine.

use crate::gojson::{List, Map, Time};

crate::wire! {
    /// Figures of a machine; keys in JSON are sorted.
    pub struct HostStats {
        alloc_dir_stats: Option<HostDiskStats> = "AllocDirStats",
        cpu: List<HostCpuStats> = "CPU",
        cpu_ticks_consumed: f64 = "CPUTicksConsumed",
        device_stats: List<DeviceGroupStats> = "DeviceStats",
        disk_stats: List<HostDiskStats> = "DiskStats",
        memory: Option<HostMemoryStats> = "Memory",
        timestamp: i64 = "Timestamp",
        uptime: u64 = "Uptime",
    }
}

crate::wire! {
    /// Memory of a machine in bytes.
    pub struct HostMemoryStats {
        available: u64 = "Available",
        free: u64 = "Free",
        total: u64 = "Total",
        used: u64 = "Used",
    }
}

crate::wire! {
    /// Use of one processor in percent.
    pub struct HostCpuStats {
        cpu: String = "CPU",
        idle: f64 = "Idle",
        system: f64 = "System",
        total_percent: f64 = "TotalPercent",
        total_ticks: f64 = "TotalTicks",
        user: f64 = "User",
    }
}

crate::wire! {
    /// Use of one disk in bytes and percent.
    pub struct HostDiskStats {
        available: u64 = "Available",
        device: String = "Device",
        inodes_used_percent: f64 = "InodesUsedPercent",
        mountpoint: String = "Mountpoint",
        size: u64 = "Size",
        used: u64 = "Used",
        used_percent: f64 = "UsedPercent",
    }
}

crate::wire! {
    /// Figures of devices of one kind.
    pub struct DeviceGroupStats {
        instance_stats: Map<DeviceStats> = "InstanceStats",
        name: String = "Name",
        r#type: String = "Type",
        vendor: String = "Vendor",
    }
}

crate::wire! {
    /// Figures of one device.
    pub struct DeviceStats {
        stats: Option<StatObject> = "Stats",
        summary: Option<StatValue> = "Summary",
        timestamp: Time = "Timestamp",
    }
}

crate::wire! {
    /// Nested figures.
    pub struct StatObject {
        attributes: Map<StatValue> = "Attributes",
        nested: Map<StatObject> = "Nested",
    }
}

crate::wire! {
    /// One figure.
    pub struct StatValue {
        bool_val: Option<bool> = "BoolVal" omit,
        desc: String = "Desc" omit,
        float_denominator_val: Option<f64> = "FloatDenominatorVal" omit,
        float_numerator_val: Option<f64> = "FloatNumeratorVal" omit,
        int_denominator_val: Option<i64> = "IntDenominatorVal" omit,
        int_numerator_val: Option<i64> = "IntNumeratorVal" omit,
        string_val: Option<String> = "StringVal" omit,
        unit: String = "Unit" omit,
    }
}
