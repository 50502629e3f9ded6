//! What can be allowed, by name, and sets of it.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A family of things that can be allowed in a rule of one kind.
pub trait Capability: Copy + Eq + fmt::Debug + FromStr<Err = Unknown> + 'static {
    /// All of them, `deny` too.
    const ALL: &'static [Self];
    /// What takes everything else away.
    const DENY: Self;

    /// Its place in a set.
    fn bit(self) -> u64;

    /// Its name in policies.
    fn as_str(self) -> &'static str;

    /// What else comes with it.
    fn implied(self) -> &'static [Self] {
        &[]
    }

    /// What a rule's `policy = "…"` stands for; nothing when it is no word of this kind.
    fn of_policy(word: &str) -> Option<&'static [Self]>;
}

/// A name that no capability of a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such capability")]
pub struct Unknown;

/// Capabilities; empty, or some, or `deny` alone.
pub struct Set<C>(u64, PhantomData<C>);

impl<C> Clone for Set<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Set<C> {}

impl<C> PartialEq for Set<C> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<C> Eq for Set<C> {}

impl<C> Default for Set<C> {
    fn default() -> Self {
        Set(0, PhantomData)
    }
}

impl<C: Capability> fmt::Debug for Set<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = C::ALL.iter().filter(|c| self.0 & c.bit() != 0);
        f.debug_set().entries(names.map(|c| c.as_str())).finish()
    }
}

impl<C: Capability> FromIterator<C> for Set<C> {
    fn from_iter<I: IntoIterator<Item = C>>(all: I) -> Self {
        let mut set = Set::default();
        for capability in all {
            set.insert(capability);
        }
        set
    }
}

impl<C: Capability> Set<C> {
    /// Adds one and what comes with it; `deny` stays alone.
    pub fn insert(&mut self, capability: C) {
        if capability == C::DENY {
            self.0 = C::DENY.bit();
        } else if !self.denies() {
            self.0 |= capability.bit();
            for implied in capability.implied() {
                self.0 |= implied.bit();
            }
        }
    }

    /// Adds all of another; `deny` on either side stays alone.
    pub fn merge(&mut self, other: Set<C>) {
        self.0 |= other.0;
        if self.denies() {
            self.0 = C::DENY.bit();
        }
    }

    /// Whether this takes everything away.
    pub fn denies(self) -> bool {
        self.0 & C::DENY.bit() != 0
    }

    /// Whether it is in here; `deny` is never something that is allowed.
    pub fn allows(self, capability: C) -> bool {
        !self.denies() && self.0 & capability.bit() != 0
    }

    /// Whether anything is allowed.
    pub fn allows_something(self) -> bool {
        self.0 != 0 && !self.denies()
    }
}

/// One kind of capability: its names in policies, what comes with some, and the words of `policy`.
macro_rules! capabilities {
    ($(#[$doc:meta])* $kind:ident {
        $($name:ident = $text:literal $(=> [$($implied:ident),*])?,)*
    } policy { $($word:literal => $set:expr,)* }) => {
        $(#[$doc])*
        #[allow(missing_docs)] // each is called as in policies, and policies are documented
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind { $($name,)* }

        impl Capability for $kind {
            const ALL: &'static [Self] = &[$($kind::$name,)*];
            const DENY: Self = $kind::Deny;

            fn bit(self) -> u64 {
                1 << self as u64
            }

            fn as_str(self) -> &'static str {
                match self { $($kind::$name => $text,)* }
            }

            fn implied(self) -> &'static [Self] {
                match self {
                    $($($kind::$name => &[$($kind::$implied),*],)?)*
                    #[allow(unreachable_patterns)] // where each has something
                    _ => &[],
                }
            }

            fn of_policy(word: &str) -> Option<&'static [Self]> {
                match word {
                    $($word => Some($set),)*
                    _ => None,
                }
            }
        }

        impl FromStr for $kind {
            type Err = Unknown;

            fn from_str(text: &str) -> Result<Self, Unknown> {
                match text {
                    $($text => Ok($kind::$name),)*
                    _ => Err(Unknown),
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

capabilities! {
    /// What may be done with what a namespace holds.
    NamespaceCapability {
        Deny = "deny",
        ListJobs = "list-jobs",
        ParseJob = "parse-job",
        ReadJob = "read-job",
        SubmitJob = "submit-job",
        DispatchJob = "dispatch-job",
        ReadLogs = "read-logs",
        ReadFs = "read-fs",
        AllocExec = "alloc-exec",
        AllocNodeExec = "alloc-node-exec",
        AllocLifecycle = "alloc-lifecycle",
        SentinelOverride = "sentinel-override",
        CsiRegisterPlugin = "csi-register-plugin",
        CsiWriteVolume = "csi-write-volume",
        CsiReadVolume = "csi-read-volume",
        CsiListVolume = "csi-list-volume",
        CsiMountVolume = "csi-mount-volume",
        ListScalingPolicies = "list-scaling-policies",
        ReadScalingPolicy = "read-scaling-policy",
        ReadJobScaling = "read-job-scaling",
        ScaleJob = "scale-job",
        SubmitRecommendation = "submit-recommendation",
        HostVolumeCreate = "host-volume-create" => [HostVolumeRead],
        HostVolumeRegister = "host-volume-register" => [HostVolumeCreate, HostVolumeRead],
        HostVolumeRead = "host-volume-read",
        HostVolumeWrite = "host-volume-write"
            => [HostVolumeRegister, HostVolumeCreate, HostVolumeDelete, HostVolumeRead],
        HostVolumeDelete = "host-volume-delete",
        RegisterJob = "register-job",
        RevertJob = "revert-job",
        DeregisterJob = "deregister-job",
        PurgeJob = "purge-job",
        EvaluateJob = "evaluate-job",
        PlanJob = "plan-job",
        TagJobVersion = "tag-job-version",
        StableJob = "stable-job",
        FailDeployment = "fail-deployment",
        PauseDeployment = "pause-deployment",
        PromoteDeployment = "promote-deployment",
        UnblockDeployment = "unblock-deployment",
        CancelDeployment = "cancel-deployment",
        SetAllocHealthDeployment = "set-alloc-health-deployment",
        GcAllocation = "gc-allocation",
        PauseAllocation = "pause-allocation",
        ForcePeriodicJob = "force-periodic-job",
        DeleteServiceRegistration = "delete-service-registration",
    } policy {
        "deny" => &[NamespaceCapability::Deny],
        "read" => NAMESPACE_READ,
        "write" => NAMESPACE_WRITE,
        "scale" => NAMESPACE_SCALE,
    }
}

const NAMESPACE_READ: &[NamespaceCapability] = {
    use NamespaceCapability::*;
    &[
        ListJobs,
        ParseJob,
        ReadJob,
        CsiListVolume,
        CsiReadVolume,
        ReadJobScaling,
        ListScalingPolicies,
        ReadScalingPolicy,
        HostVolumeRead,
    ]
};

const NAMESPACE_WRITE: &[NamespaceCapability] = {
    use NamespaceCapability::*;
    &[
        ListJobs,
        ParseJob,
        ReadJob,
        CsiListVolume,
        CsiReadVolume,
        ReadJobScaling,
        ListScalingPolicies,
        ReadScalingPolicy,
        HostVolumeRead,
        ScaleJob,
        SubmitJob,
        DispatchJob,
        ReadLogs,
        ReadFs,
        AllocExec,
        AllocLifecycle,
        CsiMountVolume,
        CsiWriteVolume,
        SubmitRecommendation,
        HostVolumeCreate,
    ]
};

const NAMESPACE_SCALE: &[NamespaceCapability] = {
    use NamespaceCapability::*;
    &[
        ListScalingPolicies,
        ReadScalingPolicy,
        ReadJobScaling,
        ScaleJob,
        ReadJob,
        SubmitRecommendation,
    ]
};

capabilities! {
    /// What may be done with a node pool.
    NodePoolCapability {
        Deny = "deny",
        Delete = "delete",
        Read = "read",
        Write = "write",
    } policy {
        "deny" => &[NodePoolCapability::Deny],
        "read" => &[NodePoolCapability::Read],
        "write" => &[
            NodePoolCapability::Delete,
            NodePoolCapability::Read,
            NodePoolCapability::Write,
        ],
    }
}

capabilities! {
    /// How a client's host volume may be mounted.
    HostVolumeCapability {
        Deny = "deny",
        MountReadonly = "mount-readonly",
        MountReadwrite = "mount-readwrite",
    } policy {
        "deny" => &[HostVolumeCapability::Deny],
        "read" => &[HostVolumeCapability::MountReadonly],
        "write" => &[
            HostVolumeCapability::MountReadonly,
            HostVolumeCapability::MountReadwrite,
        ],
    }
}

capabilities! {
    /// What may be done with variables.
    VariableCapability {
        Deny = "deny",
        List = "list",
        Read = "read" => [List],
        Write = "write",
        Destroy = "destroy",
    } policy {}
}

capabilities! {
    /// Parts of what operators do that can be allowed apart.
    OperatorCapability {
        Deny = "deny",
        LicenseRead = "license-read",
        SnapshotSave = "snapshot-save",
        KeyringRead = "keyring-read",
        KeyringRotate = "keyring-rotate",
        KeyringDelete = "keyring-delete",
    } policy {
        "deny" => &[OperatorCapability::Deny],
        "read" => &[OperatorCapability::LicenseRead, OperatorCapability::KeyringRead],
        "write" => &[
            OperatorCapability::LicenseRead,
            OperatorCapability::KeyringRead,
            OperatorCapability::SnapshotSave,
            OperatorCapability::KeyringRotate,
            OperatorCapability::KeyringDelete,
        ],
    }
}
