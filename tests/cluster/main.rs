//! Real processes, real kills, real full disks, real damage.

mod support;
mod t10_kill_and_restart;
mod t12_idle;
mod t20_no_acknowledged_write_is_lost;
mod t30_full_disk;
mod t32_interrupted;
mod t40_damage;
mod t50_deletion_by_filter;
mod t60_backup;
mod t62_restore_converges;
mod t70_rebuild;
mod t72_online_rebuild;
mod t74_verify_online;
mod t76_checkpoints;
mod t80_kafka;
mod t82_kafka_horizon;
#[cfg(feature = "kafka")]
mod t84_kafka_faults;
mod t90_retention;
mod t92_damaged_base;
mod t95_s3;
mod t97_volumes;
