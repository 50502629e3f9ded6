//! Resource figures in the form the API shows them.

use drover_events::gojson::Map;
use drover_events::model::{
    AllocResourceUsage, CpuStats, MemoryStats, ResourceUsage, TaskResourceUsage,
};

use crate::client::clock::SECOND;
use crate::client::proc::{PidUsage, TICKS_PER_SECOND, TreeUsage};

const MEMORY_MEASURED: [&str; 2] = ["RSS", "Swap"];
const CPU_MEASURED: [&str; 3] = ["System Mode", "User Mode", "Percent"];

/// MHz of one core, for turning percents into ticks; read once.
fn core_mhz() -> f64 {
    static MHZ: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *MHZ.get_or_init(|| crate::client::fingerprint::cpu::core_mhz() as f64)
}

/// The figures of a task from two looks at its processes.
pub fn task_usage(
    before: &TreeUsage,
    before_at: i64,
    usage: &TreeUsage,
    now: i64,
) -> TaskResourceUsage {
    let seconds = (now - before_at).max(1) as f64 / SECOND as f64;
    let pids: Map<ResourceUsage> = usage
        .pids
        .iter()
        .map(|(pid, u)| {
            let old = before.pids.get(pid).copied().unwrap_or_default();
            (pid.to_string(), process_usage(&old, u, seconds))
        })
        .collect();
    let mut all = usage_of(0, 0.0, 0.0);
    for one in pids.values() {
        add(&mut all, one);
    }
    TaskResourceUsage {
        resource_usage: Some(all),
        timestamp: now,
        pids,
    }
}

fn process_usage(old: &PidUsage, new: &PidUsage, seconds: f64) -> ResourceUsage {
    let percent =
        |a: u64, b: u64| b.saturating_sub(a) as f64 / TICKS_PER_SECOND as f64 / seconds * 100.0;
    usage_of(
        new.rss,
        percent(old.user, new.user),
        percent(old.system, new.system),
    )
}

fn usage_of(rss: u64, user: f64, system: f64) -> ResourceUsage {
    let percent = user + system;
    ResourceUsage {
        memory_stats: Some(MemoryStats {
            rss,
            measured: MEMORY_MEASURED.iter().map(|s| (*s).to_owned()).collect(),
            ..MemoryStats::default()
        }),
        cpu_stats: Some(CpuStats {
            system_mode: system,
            user_mode: user,
            total_ticks: percent / 100.0 * core_mhz(),
            percent,
            measured: CPU_MEASURED.iter().map(|s| (*s).to_owned()).collect(),
            ..CpuStats::default()
        }),
        ..ResourceUsage::default()
    }
}

fn add(all: &mut ResourceUsage, one: &ResourceUsage) {
    if let (Some(a), Some(b)) = (&mut all.memory_stats, &one.memory_stats) {
        a.rss += b.rss;
    }
    if let (Some(a), Some(b)) = (&mut all.cpu_stats, &one.cpu_stats) {
        a.system_mode += b.system_mode;
        a.user_mode += b.user_mode;
        a.total_ticks += b.total_ticks;
        a.percent += b.percent;
    }
}

/// The figures of a task that uses nothing.
pub fn no_usage(now: i64) -> TaskResourceUsage {
    TaskResourceUsage {
        resource_usage: Some(usage_of(0, 0.0, 0.0)),
        timestamp: now,
        pids: Map::empty(),
    }
}

/// The figures of an allocation from those of its tasks.
pub fn alloc_usage(tasks: Map<TaskResourceUsage>) -> AllocResourceUsage {
    let mut all = usage_of(0, 0.0, 0.0);
    all.device_stats = Vec::new().into();
    let mut timestamp = 0;
    for task in tasks.values() {
        timestamp = timestamp.max(task.timestamp);
        if let Some(usage) = &task.resource_usage {
            add(&mut all, usage);
        }
    }
    AllocResourceUsage {
        resource_usage: Some(all),
        tasks,
        timestamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_allocation_uses_is_the_sum_of_its_tasks() {
        let task = |rss, user, system, timestamp| TaskResourceUsage {
            resource_usage: Some(usage_of(rss, user, system)),
            timestamp,
            pids: Map::empty(),
        };
        let tasks = [
            ("a".to_owned(), task(100, 20.0, 10.0, 7)),
            ("b".to_owned(), task(30, 5.0, 1.0, 9)),
            ("c".to_owned(), no_usage(8)),
        ];
        let all = alloc_usage(tasks.into_iter().collect());
        assert_eq!((all.timestamp, all.tasks.len()), (9, 3));
        let usage = all.resource_usage.expect("it is told");
        assert_eq!(usage.memory_stats.expect("measured").rss, 130);
        let cpu = usage.cpu_stats.expect("measured");
        let told = (cpu.user_mode, cpu.system_mode, cpu.percent);
        assert_eq!(told, (25.0, 11.0, 36.0));
        assert!((cpu.total_ticks - 0.36 * core_mhz()).abs() < 1e-6);
        assert!(!usage.device_stats.is_nil(), "an empty list and not null");
    }
}
