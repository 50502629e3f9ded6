//! Scaling policies and events.

use crate::gojson::{Any, Map};

crate::wire! {
    /// How a group may be scaled.
    pub struct ScalingPolicy = "scaling" {
        id: String = "ID",
        r#type: String = "Type" [hcl()],
        target: Map<String> = "Target",
        policy: Map<Any> = "Policy" [hcl()],
        min: i64 = "Min" [hcl().optional()],
        max: i64 = "Max" [hcl().optional().required()],
        enabled: bool = "Enabled" [hcl().optional().default_bool(true)],
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    } + {
        namespace: String = "Namespace",
    }
}

crate::wire! {
    /// What lists of scaling policies show.
    pub struct ScalingPolicyListStub {
        id: String = "ID",
        enabled: bool = "Enabled",
        r#type: String = "Type",
        target: Map<String> = "Target",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// Something that scaled a group, or failed to.
    pub struct ScalingEvent {
        time: i64 = "Time",
        count: Option<i64> = "Count",
        previous_count: i64 = "PreviousCount",
        message: String = "Message",
        error: bool = "Error",
        meta: Map<Any> = "Meta" (Configured),
        eval_id: Option<String> = "EvalID",
        create_index: u64 = "CreateIndex",
    }
}
