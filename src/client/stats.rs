//! Resource figures in the form the API shows them.

use drover_events::gojson::{List, Map};
use drover_events::model::{
    AllocResourceUsage, CpuStats, MemoryStats, ResourceUsage, TaskResourceUsage,
};

use crate::clock::SECOND;
use crate::proc::{GroupUsage, PidUsage, TICKS_PER_SECOND, TreeUsage};

/// What is measured of every process.
const MEMORY_MEASURED: [&str; 1] = ["RSS"];
const CPU_MEASURED: [&str; 3] = ["System Mode", "User Mode", "Percent"];
/// What only control groups count.
pub(super) const CACHE: &str = "Cache";
pub(super) const SWAP: &str = "Swap";
const THROTTLED_PERIODS: &str = "Throttled Periods";
const THROTTLED_TIME: &str = "Throttled Time";

/// MHz of one core, for turning percents into ticks; read once.
fn core_mhz() -> f64 {
    static MHZ: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *MHZ.get_or_init(|| crate::cpu::core_mhz() as f64)
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
    add_group(&mut all, &usage.group);
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
        a.cache += b.cache;
        a.swap += b.swap;
        note(&mut a.measured, &b.measured);
    }
    if let (Some(a), Some(b)) = (&mut all.cpu_stats, &one.cpu_stats) {
        a.system_mode += b.system_mode;
        a.user_mode += b.user_mode;
        a.total_ticks += b.total_ticks;
        a.percent += b.percent;
        a.throttled_periods += b.throttled_periods;
        a.throttled_time += b.throttled_time;
        note(&mut a.measured, &b.measured);
    }
}

/// Notes what was measured of a part as measured of the whole.
fn note(all: &mut List<String>, more: &[String]) {
    for name in more {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
}

/// Adds what control groups count, and says so.
fn add_group(all: &mut ResourceUsage, group: &GroupUsage) {
    if let Some(memory) = &mut all.memory_stats {
        for (count, name, sum) in [
            (group.cache, CACHE, &mut memory.cache),
            (group.swap, SWAP, &mut memory.swap),
        ] {
            if let Some(count) = count {
                *sum += count;
                memory.measured.push(name.to_owned());
            }
        }
    }
    if let Some(cpu) = &mut all.cpu_stats {
        for (count, name, sum) in [
            (
                group.throttled_periods,
                THROTTLED_PERIODS,
                &mut cpu.throttled_periods,
            ),
            (
                group.throttled_time,
                THROTTLED_TIME,
                &mut cpu.throttled_time,
            ),
        ] {
            if let Some(count) = count {
                *sum += count;
                cpu.measured.push(name.to_owned());
            }
        }
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
        let usage = all.resource_usage.expect("it is reported");
        assert_eq!(usage.memory_stats.expect("measured").rss, 130);
        let cpu = usage.cpu_stats.expect("measured");
        let reported = (cpu.user_mode, cpu.system_mode, cpu.percent);
        assert_eq!(reported, (25.0, 11.0, 36.0));
        assert!((cpu.total_ticks - 0.36 * core_mhz()).abs() < 1e-6);
        assert!(!usage.device_stats.is_nil(), "an empty list and not null");
    }

    #[test]
    fn what_control_groups_count_is_told_as_measured_and_nothing_else() {
        let pids = [(
            7,
            PidUsage {
                rss: 100,
                ..PidUsage::default()
            },
        )];
        let of = |group| {
            let usage = TreeUsage {
                pids: pids.into(),
                group,
            };
            task_usage(&TreeUsage::default(), 0, &usage, SECOND)
        };
        let alone = GroupUsage::default();
        let memory = GroupUsage {
            cache: Some(20),
            swap: Some(3),
            ..alone
        };
        let all = GroupUsage {
            throttled_periods: Some(4),
            throttled_time: Some(5),
            ..memory
        };
        let reported = |usage: Option<ResourceUsage>| {
            let usage = usage.unwrap();
            let (memory, cpu) = (usage.memory_stats.unwrap(), usage.cpu_stats.unwrap());
            let figures = [
                memory.rss,
                memory.cache,
                memory.swap,
                cpu.throttled_periods,
                cpu.throttled_time,
            ];
            let measured = memory.measured.iter().chain(cpu.measured.iter());
            (figures, measured.cloned().collect::<Vec<_>>().join(","))
        };
        for (group, figures, of_memory, of_cpu) in [
            (alone, [100, 0, 0, 0, 0], "", ""),
            (memory, [100, 20, 3, 0, 0], ",Cache,Swap", ""),
            (
                all,
                [100, 20, 3, 4, 5],
                ",Cache,Swap",
                ",Throttled Periods,Throttled Time",
            ),
        ] {
            let cpu = "System Mode,User Mode,Percent";
            let measured = format!("RSS{of_memory},{cpu}{of_cpu}");
            assert_eq!(reported(of(group).resource_usage), (figures, measured));
            // Of one process nothing else is known.
            let process = of(group).pids["7"].clone();
            let measured = format!("RSS,{cpu}");
            assert_eq!(reported(Some(process)), ([100, 0, 0, 0, 0], measured));
        }
        let tasks = [("a".to_owned(), of(all)), ("b".to_owned(), of(memory))];
        let (figures, measured) = reported(alloc_usage(tasks.into_iter().collect()).resource_usage);
        assert_eq!(figures, [200, 40, 6, 4, 5]);
        assert_eq!(measured.matches("Swap").count(), 1, "{measured}");
        assert!(measured.ends_with("Throttled Time"), "{measured}");
    }
}
