//! Figures of the machine (MOD-17).

use std::fs;
use std::path::Path;

use drover_events::model::{HostCpuStats, HostDiskStats, HostMemoryStats, HostStats};
use parking_lot::Mutex;

use crate::agent::Client;
use crate::cpu;
use crate::fingerprint::{meminfo, storage};
use drover_base::clock::unix_nanos;

/// Clock ticks of one processor since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ticks {
    name: String,
    user: u64,
    system: u64,
    idle: u64,
    total: u64,
}

/// The last look at the machine, and what came of it: the next one is compared with it.
#[derive(Debug, Default)]
pub struct Meter {
    ticks: Mutex<Vec<Ticks>>,
    latest: Mutex<HostStats>,
}

impl Meter {
    /// Looks at the machine; processor figures are since the last look, the first one's since the
    /// machine's start.
    pub fn measure(&self, alloc_dir: &Path) {
        let now = ticks(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let before = std::mem::replace(&mut *self.ticks.lock(), now.clone());
        let stats = figures(&before, &now, &storage::disk(alloc_dir));
        *self.latest.lock() = stats;
    }

    /// What was measured last.
    pub fn latest(&self) -> HostStats {
        self.latest.lock().clone()
    }
}

/// What the machine did in the last interval between two looks, whoever wants to know.
pub fn stats(client: &Client) -> HostStats {
    let mut stats = client.core.meter.latest();
    let devices = client.devices().map(|devices| devices.figures());
    if let Some(figures) = devices.filter(|figures| !figures.is_empty()) {
        stats.device_stats = figures.into();
    }
    stats
}

fn figures(before: &[Ticks], now: &[Ticks], alloc_dir: &storage::Disk) -> HostStats {
    let mhz = cpu::core_mhz() as f64;
    let cpu: Vec<HostCpuStats> = now
        .iter()
        .map(|t| {
            let old = before
                .iter()
                .find(|b| b.name == t.name)
                .cloned()
                .unwrap_or_default();
            usage(&old, t, mhz)
        })
        .collect();
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    HostStats {
        cpu_ticks_consumed: cpu.iter().map(|c| c.total_ticks).sum(),
        cpu: cpu.into(),
        memory: Some(memory(&text)),
        disk_stats: vec![disk(alloc_dir, true)].into(),
        alloc_dir_stats: Some(disk(alloc_dir, false)),
        timestamp: unix_nanos(),
        uptime: uptime
            .split('.')
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(0),
        ..HostStats::default()
    }
}

fn memory(text: &str) -> HostMemoryStats {
    let of = |key| meminfo(text, key).unwrap_or(0);
    let (total, free) = (of("MemTotal"), of("MemFree"));
    HostMemoryStats {
        total,
        available: of("MemAvailable"),
        free,
        used: total.saturating_sub(free + of("Buffers") + of("Cached")),
    }
}

fn disk(disk: &storage::Disk, named: bool) -> HostDiskStats {
    let reachable = disk.used + disk.available;
    let name = |text: &str| {
        if named {
            text.to_owned()
        } else {
            String::new()
        }
    };
    HostDiskStats {
        device: name(&disk.device),
        mountpoint: name(&disk.mountpoint),
        size: disk.size,
        used: disk.used,
        available: disk.available,
        used_percent: percent(disk.used as f64, reachable as f64),
        inodes_used_percent: disk.inodes_used_percent,
    }
}

fn ticks(stat: &str) -> Vec<Ticks> {
    stat.lines()
        .filter(|l| l.starts_with("cpu") && l.as_bytes().get(3).is_some_and(u8::is_ascii_digit))
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let name = fields.next()?.to_owned();
            let values: Vec<u64> = fields.filter_map(|f| f.parse().ok()).collect();
            let at = |i: usize| values.get(i).copied().unwrap_or(0);
            Some(Ticks {
                name,
                user: at(0) + at(1),
                system: at(2),
                idle: at(3) + at(4),
                total: values.iter().take(8).sum(),
            })
        })
        .collect()
}

fn usage(old: &Ticks, new: &Ticks, mhz: f64) -> HostCpuStats {
    let all = new.total.saturating_sub(old.total) as f64;
    let part = |a: u64, b: u64| percent(b.saturating_sub(a) as f64, all);
    let idle = part(old.idle, new.idle);
    let busy = if all > 0.0 { 100.0 - idle } else { 0.0 };
    HostCpuStats {
        cpu: new.name.clone(),
        user: part(old.user, new.user),
        system: part(old.system, new.system),
        idle,
        total_percent: busy,
        total_ticks: busy / 100.0 * mhz,
    }
}

fn percent(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_17_processor_time_is_told_in_percent() {
        let before = ticks("cpu  9 9 9 9\ncpu0 6 4 10 80 0 0 0 0 0 0\n");
        let now = ticks("cpu  9 9 9 9\ncpu0 21 9 20 150 0 0 0 0 0 0\nintr 5\n");
        assert_eq!(now.len(), 1);
        let reported = usage(&before[0], &now[0], 1000.0);
        assert_eq!(
            (reported.user, reported.system, reported.idle),
            (20.0, 10.0, 70.0)
        );
        assert_eq!(
            (reported.total_percent, reported.total_ticks),
            (30.0, 300.0)
        );
        let none = usage(&now[0], &now[0], 1000.0);
        assert_eq!(
            (none.idle, none.total_percent),
            (0.0, 0.0),
            "no time passed"
        );
    }

    #[test]
    fn mod_17_memory_that_could_be_had_back_at_once_is_not_used() {
        let text = "MemTotal: 100 kB\nMemFree: 20 kB\nMemAvailable: 70 kB\n\
                    Buffers: 5 kB\nCached: 40 kB\n";
        let reported = memory(text);
        let kb = |kb: u64| kb * 1024;
        assert_eq!(
            (reported.total, reported.free, reported.available),
            (kb(100), kb(20), kb(70))
        );
        assert_eq!(reported.used, kb(35));
    }

    #[test]
    fn mod_17_whoever_asks_is_told_of_the_same_interval() {
        let tmp = tempfile::tempdir().unwrap();
        let meter = Meter::default();
        meter.measure(tmp.path());
        let first = meter.latest();
        assert!(first.timestamp > 0 && !first.cpu.is_empty());
        // A request measures nothing: an interval of no length would show nothing but zeros.
        for _ in 0..3 {
            assert_eq!(meter.latest(), first);
        }
        meter.measure(tmp.path());
        assert!(meter.latest().timestamp > first.timestamp);
    }
}
