//! The event of scaling: something about a group's count was recorded.

use crate::model::ScalingEvent;
use crate::wire;

wire! {
    /// A scaling event without a change of the job: a message, or an error of an autoscaler.
    pub struct ScalingEventRecorded {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        task_group: String = "TaskGroup",
        event: ScalingEvent = "ScalingEvent",
    }
}
