//! What a plan of the scheduler would do, as those who ask for a dry run see it.

use crate::gojson::{List, Map};
use crate::model::AllocListStub;

crate::wire! {
    /// What a plan would do, in counts.
    pub struct PlanAnnotations {
        desired_tg_updates: Map<DesiredUpdates> = "DesiredTGUpdates",
        preempted_allocs: List<AllocListStub> = "PreemptedAllocs",
    }
}

crate::wire! {
    /// Counts of what a plan does to one group.
    pub struct DesiredUpdates {
        ignore: u64 = "Ignore",
        place: u64 = "Place",
        migrate: u64 = "Migrate",
        stop: u64 = "Stop",
        in_place_update: u64 = "InPlaceUpdate",
        destructive_update: u64 = "DestructiveUpdate",
        canary: u64 = "Canary",
        preemptions: u64 = "Preemptions",
        disconnect: u64 = "Disconnect",
        reconnect: u64 = "Reconnect",
        reschedule_now: u64 = "RescheduleNow",
        reschedule_later: u64 = "RescheduleLater",
    }
}
