//! What became of a task.

use crate::gojson::{List, Map, Time};

crate::wire! {
    /// The state of a task on its client.
    pub struct TaskState {
        state: String = "State",
        failed: bool = "Failed",
        restarts: u64 = "Restarts",
        last_restart: Time = "LastRestart",
        started_at: Time = "StartedAt",
        finished_at: Time = "FinishedAt",
        events: List<TaskEvent> = "Events",
        paused: String = "Paused",
    }
}

crate::wire! {
    /// Something that happened to a task; the time in Unix nanoseconds.
    pub struct TaskEvent {
        r#type: String = "Type",
        time: i64 = "Time",
        message: String = "Message",
        display_message: String = "DisplayMessage",
        details: Map<String> = "Details",
        fails_task: bool = "FailsTask",
        restart_reason: String = "RestartReason",
        setup_error: String = "SetupError",
        driver_error: String = "DriverError",
        exit_code: i64 = "ExitCode",
        signal: i64 = "Signal",
        kill_timeout: i64 = "KillTimeout",
        kill_error: String = "KillError",
        kill_reason: String = "KillReason",
        start_delay: i64 = "StartDelay",
        download_error: String = "DownloadError",
        validation_error: String = "ValidationError",
        disk_limit: i64 = "DiskLimit",
        failed_sibling: String = "FailedSibling",
        vault_error: String = "VaultError",
        task_signal_reason: String = "TaskSignalReason",
        task_signal: String = "TaskSignal",
        driver_message: String = "DriverMessage",
        generic_source: String = "GenericSource",
    }
}
