//! `periodic_launches`: when a periodic job was launched last.

use crate::engine::table::Table;

/// The table; its key is (namespace, job id).
pub struct PeriodicLaunches;

drover_events::wire! {
    /// The last launch of a periodic job, Unix nanoseconds.
    pub struct PeriodicLaunch {
        id: String = "ID",
        namespace: String = "Namespace",
        launch: i64 = "Launch",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

impl Table for PeriodicLaunches {
    const ID: u16 = 10;
    const NAME: &'static str = "periodic_launches";
    type Key = (String, String);
    type Row = PeriodicLaunch;

    fn key(row: &PeriodicLaunch) -> (String, String) {
        (row.namespace.clone(), row.id.clone())
    }
}
