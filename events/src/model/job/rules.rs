//! What follows from the fields of a job, a group, a task or a volume request by themselves,
//! without looking anything up.

use std::borrow::Cow;

use super::{Job, Task, TaskGroup, VolumeRequest};
use crate::model::status::{self, JobType, access_mode, attachment_mode};

impl Job {
    /// Has a `periodic` block: not placed itself, and launched by the clock while
    /// [`Self::is_periodic_active`].
    #[must_use]
    pub fn is_periodic(&self) -> bool {
        self.periodic.is_some()
    }

    /// Periodic, enabled, not stopped and not a template: the clock launches it.
    #[must_use]
    pub fn is_periodic_active(&self) -> bool {
        self.periodic.as_ref().is_some_and(|p| p.enabled)
            && !self.stopped()
            && !self.is_parameterized()
    }

    /// A template for dispatches, not placed itself; a dispatched job is an ordinary one.
    #[must_use]
    pub fn is_parameterized(&self) -> bool {
        self.parameterized_job.is_some() && !self.dispatched
    }

    /// Has children instead of allocations.
    #[must_use]
    pub fn has_children(&self) -> bool {
        self.is_periodic() || self.is_parameterized()
    }

    /// It is to stop.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop
    }

    /// Runs until it is stopped (service, system).
    #[must_use]
    pub fn is_long_running(&self) -> bool {
        self.kind().is_some_and(JobType::is_long_running)
    }

    /// Placed on every node that fits (system, sysbatch).
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.kind().is_some_and(JobType::is_system)
    }

    /// Runs to its end (batch, sysbatch).
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.kind().is_some_and(JobType::is_batch)
    }

    /// Nothing of it runs or is to run, as its status says; registering it again or a new
    /// evaluation revives it.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.status == status::job::DEAD
    }

    /// The group of a name.
    #[must_use]
    pub fn task_group(&self, name: &str) -> Option<&TaskGroup> {
        self.task_groups.iter().find(|group| group.name == name)
    }

    /// The job's metadata, the group's over it, the task's over that, as tasks see it.
    #[must_use]
    pub fn combined_meta(
        &self,
        group: &str,
        task: &str,
    ) -> std::collections::BTreeMap<String, String> {
        let mut out = (*self.meta).clone();
        let Some(group) = self.task_group(group) else {
            return out;
        };
        out.extend(group.meta.iter().map(|(k, v)| (k.clone(), v.clone())));
        if let Some(task) = group.task(task) {
            out.extend(task.meta.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        out
    }

    /// Same specification: everything but indexes, status, version bookkeeping, and when and with
    /// which token it was submitted.
    #[must_use]
    pub fn same_spec(&self, other: &Self) -> bool {
        self.spec() == other.spec()
    }

    fn spec(&self) -> Self {
        Self {
            status: String::new(),
            status_description: String::new(),
            stable: false,
            version: 0,
            create_index: 0,
            modify_index: 0,
            job_modify_index: 0,
            submit_time: 0,
            version_tag: None,
            nomad_token_id: String::new(),
            ..self.clone()
        }
    }
}

impl TaskGroup {
    /// The task that is called so.
    #[must_use]
    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// How long a disconnected client's allocations are left alone, nanoseconds.
    #[must_use]
    pub fn disconnect_lost_after(&self) -> Option<i64> {
        match &self.disconnect {
            Some(disconnect) if disconnect.lost_after > 0 => Some(disconnect.lost_after),
            _ => self.max_client_disconnect,
        }
    }

    /// When a client without servers stops the group by itself, nanoseconds.
    #[must_use]
    pub fn stop_on_client_after(&self) -> Option<i64> {
        self.disconnect
            .as_ref()
            .and_then(|d| d.stop_on_client_after)
            .or(self.stop_after_client_disconnect)
    }
}

impl Task {
    /// The lifecycle hook (prestart, poststart, poststop); none for a main task.
    #[must_use]
    pub fn hook(&self) -> Option<&str> {
        self.lifecycle
            .as_ref()
            .map(|l| l.hook.as_str())
            .filter(|hook| !hook.is_empty())
    }
}

impl VolumeRequest {
    /// The id or name of the volume that an allocation of the group gets: the source, with the
    /// index in the allocation's name where each has its own (HV-01).
    #[must_use]
    pub fn source_for(&self, alloc_name: &str) -> Cow<'_, str> {
        let index = alloc_name.rfind('[').filter(|_| alloc_name.ends_with(']'));
        match index {
            Some(at) if self.per_alloc => format!("{}{}", self.source, &alloc_name[at..]).into(),
            _ => self.source.as_str().into(),
        }
    }

    /// The access mode and the attachment mode of the claim on a CSI volume; defaults where the
    /// request gives none.
    #[must_use]
    pub fn csi_modes(&self) -> (&str, &str) {
        let access = match (self.access_mode.as_str(), self.read_only) {
            ("", true) => access_mode::MULTI_NODE_READER,
            ("", false) => access_mode::SINGLE_NODE_WRITER,
            (own, _) => own,
        };
        let attachment = match self.attachment_mode.as_str() {
            "" => attachment_mode::FILE_SYSTEM,
            own => own,
        };
        (access, attachment)
    }
}
