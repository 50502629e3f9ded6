//! `autopilot_config`: autopilot's configuration: one row.

use drover_events::model::AutopilotConfiguration;

use crate::engine::table::Table;

#[allow(missing_docs, reason = "the module says it")]
pub struct AutopilotConfigTable;

impl Table for AutopilotConfigTable {
    const ID: u16 = 34;
    const NAME: &'static str = "autopilot_config";
    type Key = ();
    type Row = AutopilotConfiguration;

    fn key(_row: &AutopilotConfiguration) {}
}
