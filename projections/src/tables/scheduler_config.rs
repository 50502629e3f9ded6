//! `scheduler_config`: the scheduler's configuration: one row.

use drover_events::model::SchedulerConfiguration;

use crate::engine::table::Table;

#[allow(missing_docs, reason = "the module says it")]
pub struct SchedulerConfigTable;

impl Table for SchedulerConfigTable {
    const ID: u16 = 33;
    const NAME: &'static str = "scheduler_config";
    type Key = ();
    type Row = SchedulerConfiguration;

    fn key(_row: &SchedulerConfiguration) {}
}
