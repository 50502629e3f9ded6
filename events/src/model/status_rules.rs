//! The words in rows, as words of their sets, and what follows from a word by itself.

use crate::model::status::{
    ClientStatus, DeploymentStatus, DesiredStatus, DiffType, EvalStatus, Hook, JobType, NodeStatus,
    Trigger, VolumeType,
};
use crate::model::{
    Allocation, Deployment, Evaluation, Job, Node, TaskDiff, TaskGroupDiff, TaskLifecycleConfig,
    VolumeRequest,
};

/// `row { name: set = field }`: the word in a field of a row.
macro_rules! typed {
    ($($row:ident { $($name:ident: $set:ident = $field:ident),* $(,)? })*) => {$(
        impl $row {$(
            #[doc = concat!("The word in `", stringify!($field), "`; none for a later release's.")]
            #[must_use]
            pub fn $name(&self) -> Option<$set> {
                $set::of(&self.$field)
            }
        )*}
    )*};
}

typed! {
    Allocation { client: ClientStatus = client_status, desired: DesiredStatus = desired_status }
    Deployment { status: DeploymentStatus = status }
    Evaluation {
        kind: JobType = r#type, status: EvalStatus = status, trigger: Trigger = triggered_by,
    }
    Job { kind: JobType = r#type }
    Node { status: NodeStatus = status }
    TaskDiff { kind: DiffType = r#type }
    TaskGroupDiff { kind: DiffType = r#type }
    TaskLifecycleConfig { hook: Hook = hook }
    VolumeRequest { kind: VolumeType = r#type }
}

impl JobType {
    /// Runs until it is stopped.
    #[must_use]
    pub const fn is_long_running(self) -> bool {
        match self {
            Self::Service | Self::System => true,
            Self::Batch | Self::Sysbatch | Self::Core => false,
        }
    }

    /// Placed on every node that fits.
    #[must_use]
    pub const fn is_system(self) -> bool {
        match self {
            Self::System | Self::Sysbatch => true,
            Self::Service | Self::Batch | Self::Core => false,
        }
    }

    /// Runs to its end.
    #[must_use]
    pub const fn is_batch(self) -> bool {
        match self {
            Self::Batch | Self::Sysbatch => true,
            Self::Service | Self::System | Self::Core => false,
        }
    }
}

impl DesiredStatus {
    /// The servers want it gone.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Stop | Self::Evict => true,
            Self::Run => false,
        }
    }
}

impl ClientStatus {
    /// It ended, or was lost.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Failed | Self::Lost => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}

impl EvalStatus {
    /// Nothing more becomes of it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Complete | Self::Failed | Self::Canceled => true,
            Self::Blocked | Self::Pending => false,
        }
    }
}

impl DeploymentStatus {
    /// Still going on.
    #[must_use]
    pub const fn is_active(self) -> bool {
        match self {
            Self::Running
            | Self::Paused
            | Self::Blocked
            | Self::Unblocking
            | Self::Initializing
            | Self::Pending => true,
            Self::Failed | Self::Successful | Self::Cancelled => false,
        }
    }
}
