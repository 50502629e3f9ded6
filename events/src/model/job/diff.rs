//! The difference between two versions of a job.

use crate::gojson::{List, Map};

crate::wire! {
    /// The difference between two jobs.
    pub struct JobDiff {
        r#type: String = "Type",
        id: String = "ID",
        fields: List<FieldDiff> = "Fields",
        objects: List<ObjectDiff> = "Objects",
        task_groups: List<TaskGroupDiff> = "TaskGroups",
    }
}

crate::wire! {
    /// The difference of a group.
    pub struct TaskGroupDiff {
        r#type: String = "Type",
        name: String = "Name",
        fields: List<FieldDiff> = "Fields",
        objects: List<ObjectDiff> = "Objects",
        tasks: List<TaskDiff> = "Tasks",
        updates: Map<u64> = "Updates",
    }
}

crate::wire! {
    /// The difference of a task.
    pub struct TaskDiff {
        r#type: String = "Type",
        name: String = "Name",
        fields: List<FieldDiff> = "Fields",
        objects: List<ObjectDiff> = "Objects",
        annotations: List<String> = "Annotations",
    }
}

crate::wire! {
    /// The difference of a nested object.
    pub struct ObjectDiff {
        r#type: String = "Type",
        name: String = "Name",
        fields: List<FieldDiff> = "Fields",
        objects: List<ObjectDiff> = "Objects",
    }
}

crate::wire! {
    /// The difference of a field.
    pub struct FieldDiff {
        r#type: String = "Type",
        name: String = "Name",
        old: String = "Old" (Sensitive),
        new: String = "New" (Sensitive),
        annotations: List<String> = "Annotations",
    }
}
