//! What the parts of a job are called in a difference, and how they are compared.

/// One kind of object.
#[derive(Debug)]
pub(super) struct DiffShape {
    /// Fields that are never compared: the server's own, or what is compared elsewhere.
    pub left_out: &'static [&'static str],
    /// Fields that are maps of texts, listed as `Name[key]`.
    pub maps: &'static [&'static str],
    /// Fields that the JSON form leaves out when they are empty, and what they are then.
    pub absent: &'static [(&'static str, &'static str)],
    /// The objects in it, in the order in which they are listed.
    pub objects: &'static [DiffPart],
}

/// An object, or several, inside another one.
#[derive(Debug)]
pub(super) struct DiffPart {
    /// The field it is in.
    pub key: &'static str,
    /// What it is called.
    pub name: &'static str,
    /// What it looks like.
    pub shape: &'static DiffShape,
    /// How many there are, and how they are matched.
    pub holds: Holds,
    /// Whether fields that did not change are always listed beside those that did.
    pub lists_unchanged: bool,
}

/// How the objects of a field are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// One object.
    One,
    /// A set of words.
    Strings,
    /// Objects without a name.
    Set,
    /// Objects with a name.
    Named,
    /// Anything: flattened.
    Free,
}

const fn part(
    key: &'static str,
    name: &'static str,
    shape: &'static DiffShape,
    holds: Holds,
) -> DiffPart {
    DiffPart {
        key,
        name,
        shape,
        holds,
        lists_unchanged: false,
    }
}

const fn part_with_context(
    key: &'static str,
    name: &'static str,
    shape: &'static DiffShape,
    holds: Holds,
) -> DiffPart {
    DiffPart {
        key,
        name,
        shape,
        holds,
        lists_unchanged: true,
    }
}

const fn shape(objects: &'static [DiffPart]) -> DiffShape {
    DiffShape {
        left_out: &[],
        maps: &["Meta", "Env"],
        absent: &[],
        objects,
    }
}

use Holds::{Free, Named, One, Set, Strings};

static PLAIN: DiffShape = shape(&[]);

pub(super) static JOB: DiffShape = DiffShape {
    left_out: &[
        "ID",
        "Status",
        "StatusDescription",
        "Version",
        "Stable",
        "CreateIndex",
        "ModifyIndex",
        "JobModifyIndex",
        "SubmitTime",
        "NomadTokenID",
        "DispatchIdempotencyToken",
        "Payload",
    ],
    maps: &["Meta"],
    absent: &[],
    objects: &[
        part("Datacenters", "Datacenters", &PLAIN, Strings),
        part("Constraints", "Constraint", &PLAIN, Set),
        part("Affinities", "Affinity", &PLAIN, Set),
        part("Spreads", "Spread", &SPREAD, Set),
        part("Periodic", "Periodic", &PERIODIC, One),
        part("ParameterizedJob", "ParameterizedJob", &PARAMETERIZED, One),
        part("Multiregion", "Multiregion", &MULTIREGION, One),
        part("UI", "UI", &UI, One),
    ],
};

static SPREAD: DiffShape = shape(&[part("SpreadTarget", "SpreadTarget", &PLAIN, Set)]);
static PERIODIC: DiffShape = shape(&[part("Specs", "Specs", &PLAIN, Strings)]);
static PARAMETERIZED: DiffShape = shape(&[
    part("MetaOptional", "MetaOptional", &PLAIN, Strings),
    part("MetaRequired", "MetaRequired", &PLAIN, Strings),
]);
static MULTIREGION: DiffShape = shape(&[
    part("Strategy", "Strategy", &PLAIN, One),
    part("Regions", "Region", &REGION, Named),
]);
static REGION: DiffShape = shape(&[part("Datacenters", "Datacenters", &PLAIN, Strings)]);
static UI: DiffShape = shape(&[part("Links", "Link", &PLAIN, Set)]);

pub(super) static GROUP: DiffShape = DiffShape {
    left_out: &["Name"],
    maps: &["Meta"],
    absent: &[],
    objects: &[
        part("Constraints", "Constraint", &PLAIN, Set),
        part("Affinities", "Affinity", &PLAIN, Set),
        part("Spreads", "Spread", &SPREAD, Set),
        part("RestartPolicy", "RestartPolicy", &PLAIN, One),
        part("Migrate", "Migrate", &PLAIN, One),
        part("ReschedulePolicy", "ReschedulePolicy", &PLAIN, One),
        part("EphemeralDisk", "EphemeralDisk", &PLAIN, One),
        part("Update", "Update", &UPDATE, One),
        part("Disconnect", "Disconnect", &PLAIN, One),
        part_with_context("Networks", "Network", &NETWORK, Set),
        part_with_context("Services", "Service", &SERVICE, Named),
        part("Volumes", "Volume", &VOLUME, Named),
        part("Scaling", "Scaling", &SCALING, One),
        part("Consul", "Consul", &PLAIN, One),
    ],
};

static UPDATE: DiffShape = DiffShape {
    left_out: &["Stagger"],
    maps: &[],
    absent: &[],
    objects: &[],
};
static VOLUME: DiffShape = shape(&[part("MountOptions", "MountOptions", &MOUNT, One)]);
static MOUNT: DiffShape = shape(&[part("MountFlags", "MountFlags", &PLAIN, Strings)]);
static SCALING: DiffShape = DiffShape {
    left_out: &["ID", "CreateIndex", "ModifyIndex"],
    maps: &["Target"],
    absent: &[],
    objects: &[part("Policy", "Policy", &PLAIN, Free)],
};

static NETWORK: DiffShape = DiffShape {
    left_out: &["Device", "CIDR", "IP", "MBits"],
    maps: &[],
    absent: &[("Hostname", ""), ("Mode", "")],
    objects: &[
        part("ReservedPorts", "Static Port", &STATIC_PORT, Set),
        part("DynamicPorts", "Dynamic Port", &DYNAMIC_PORT, Set),
        part("DNS", "DNS", &DNS, One),
        part("CNI", "CNIConfig", &CNI, One),
    ],
};
static STATIC_PORT: DiffShape = DiffShape {
    left_out: &[],
    maps: &[],
    absent: &[
        ("HostNetwork", ""),
        ("IgnoreCollision", "false"),
        ("To", "0"),
        ("Value", "0"),
    ],
    objects: &[],
};
static DYNAMIC_PORT: DiffShape = DiffShape {
    left_out: &["Value", "IgnoreCollision"],
    maps: &[],
    absent: &[("HostNetwork", ""), ("To", "0")],
    objects: &[],
};
static DNS: DiffShape = shape(&[
    part("Servers", "Servers", &PLAIN, Strings),
    part("Searches", "Searches", &PLAIN, Strings),
    part("Options", "Options", &PLAIN, Strings),
]);
static CNI: DiffShape = DiffShape {
    left_out: &[],
    maps: &["Args"],
    absent: &[],
    objects: &[],
};

static SERVICE: DiffShape = DiffShape {
    left_out: &[],
    maps: &["Meta", "CanaryMeta", "TaggedAddresses"],
    absent: &[],
    objects: &[
        part("Tags", "Tags", &PLAIN, Strings),
        part("CanaryTags", "CanaryTags", &PLAIN, Strings),
        part_with_context("Checks", "Check", &CHECK, Named),
        part("Connect", "ConsulConnect", &PLAIN, Free),
        part("Weights", "Weights", &PLAIN, One),
        part_with_context("Identity", "Identity", &IDENTITY, One),
    ],
};
static CHECK: DiffShape = shape(&[
    part("Args", "Args", &PLAIN, Strings),
    part("Header", "Header", &PLAIN, Free),
    part("CheckRestart", "CheckRestart", &PLAIN, One),
]);
static IDENTITY: DiffShape = shape(&[
    part("Audience", "Audience", &PLAIN, Strings),
    part("ExtraClaims", "ExtraClaims", &PLAIN, Strings),
]);

pub(super) static TASK: DiffShape = DiffShape {
    left_out: &["Name"],
    maps: &["Meta", "Env"],
    absent: &[],
    objects: &[
        part("Constraints", "Constraint", &PLAIN, Set),
        part("Affinities", "Affinity", &PLAIN, Set),
        part("Config", "Config", &PLAIN, Free),
        part("Resources", "Resources", &RESOURCES, One),
        part("Lifecycle", "Lifecycle", &PLAIN, One),
        part("LogConfig", "LogConfig", &PLAIN, One),
        part("Artifacts", "Artifact", &ARTIFACT, Set),
        part_with_context("Services", "Service", &SERVICE, Named),
        part("Vault", "Vault", &PLAIN, One),
        part("Consul", "Consul", &PLAIN, One),
        part("Secrets", "Secret", &SECRET, Named),
        part("Templates", "Template", &TEMPLATE, Set),
        part("DispatchPayload", "DispatchPayload", &PLAIN, One),
        part("VolumeMounts", "VolumeMount", &PLAIN, Set),
        part("CSIPluginConfig", "CSIPluginConfig", &PLAIN, One),
        part_with_context("Identity", "Identity", &IDENTITY, One),
        part_with_context("Identities", "Identity", &IDENTITY, Named),
        part("Actions", "Action", &ACTION, Named),
        part("Schedule", "Schedule", &PLAIN, Free),
    ],
};
static RESOURCES: DiffShape = shape(&[
    part_with_context("Networks", "Network", &NETWORK, Set),
    part("Devices", "Device", &DEVICE, Set),
    part("NUMA", "NUMA", &NUMA, One),
]);
static DEVICE: DiffShape = shape(&[
    part("Constraints", "Constraint", &PLAIN, Set),
    part("Affinities", "Affinity", &PLAIN, Set),
]);
static NUMA: DiffShape = shape(&[part("Devices", "Devices", &PLAIN, Strings)]);
static ARTIFACT: DiffShape = DiffShape {
    left_out: &[],
    maps: &["GetterOptions", "GetterHeaders"],
    absent: &[],
    objects: &[],
};
static SECRET: DiffShape = shape(&[part("Config", "Config", &PLAIN, Free)]);
static TEMPLATE: DiffShape = shape(&[
    part("ChangeScript", "ChangeScript", &SCRIPT, One),
    part("Wait", "Wait", &PLAIN, One),
]);
static SCRIPT: DiffShape = shape(&[part("Args", "Args", &PLAIN, Strings)]);
static ACTION: DiffShape = shape(&[part("Args", "Args", &PLAIN, Strings)]);
