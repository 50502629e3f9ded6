//! How confidential a field is, which exports, audit and debug output go by.
//!
//! It stands where the field is declared ([`wire!`](crate::wire)): `"Env" (Sensitive)`. A field is
//! known by its struct's name and its own name on the wire, as a serialiser meets them. Fields
//! without a class are public. A class holds for everything below its field. A field that is
//! declared public only looks like a secret: that was considered.

/// How confidential a field is; the greater, the more. What the API shows to those who may read
/// an object the audit trail and differences show as well, for readers of one may read the others;
/// fields that people put passwords into are the exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Shown as it is.
    #[default]
    Public,
    /// What an object is to be and to do: shown to those who may read it, in the audit trail and
    /// in differences as well; exports show a keyed hash of it.
    Configured,
    /// Where something is to be had: as what is configured, but for the credentials in it, which
    /// are as what is sensitive.
    Address,
    /// Environments, templates and what else holds credentials: shown to those who may read the
    /// object; exports and audit show a keyed hash of it.
    Sensitive,
    /// Never shown, not even as a hash; in the log it is ciphertext or a hash already.
    Secret,
}

impl Class {
    /// Whether exports show a keyed hash of it.
    pub const fn is_hashed(self) -> bool {
        matches!(self, Self::Configured | Self::Address | Self::Sensitive)
    }
}

/// The classified fields of a struct, by their names on the wire, each with its class.
pub type FieldClasses = &'static [(&'static str, Class)];

macro_rules! named {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$( (stringify!($name), crate::$module::$name::CLASSES) ),*]
    };
}

/// Structs with a field whose declaration states a class; in the order of their names. A serialiser
/// gives no more of a struct than its name, so they are found here by their names.
///
/// Headers and the options of getters are where credentials are put. What plugins of volumes are
/// given, and the flags of mounts, may hold some, says their standard. The source of a job holds
/// its environments and templates, and a difference between two jobs may be one of those.
const LISTED: &[(&str, FieldClasses)] = named![
    model::AclAuthMethod,
    model::AclAuthMethodConfig,
    acl::AclBootstrapped,
    model::AclToken,
    acl::AclTokensUpserted,
    model::Action,
    model::ChangeScript,
    model::CheckQueryResult,
    model::CniConfig,
    model::ConsulGatewayProxy,
    model::ConsulHttpHeaderModifiers,
    model::ConsulIngressService,
    model::ConsulProxy,
    model::ConsulSidecarService,
    model::ConsulUpstream,
    model::CsiMountOptions,
    model::CsiSnapshot,
    model::CsiVolume,
    csi::CsiVolumeClaimed,
    model::CsiVolumeExternalStub,
    model::DrainMetadata,
    eval::EvalsDeleted,
    model::Evaluation,
    model::FieldDiff,
    model::HostVolume,
    model::Job,
    model::JobSubmission,
    job::JobSummariesReconciled,
    model::MultiregionRegion,
    model::Namespace,
    model::Node,
    node::NodeDrainUpdated,
    model::NodePool,
    model::OidcClientAssertion,
    model::OidcClientAssertionKey,
    model::OneTimeToken,
    acl::OneTimeTokensUpserted,
    model::ParameterizedJobConfig,
    model::Resources,
    model::ScalingEvent,
    acl::SealedSecret,
    acl::SealedToken,
    model::Secret,
    model::Service,
    model::ServiceCheck,
    model::SidecarTask,
    model::Task,
    model::TaskArtifact,
    model::TaskGroup,
    model::Template,
    model::VariableDecrypted,
    model::VariableEncrypted,
    model::VariableLock,
    model::Vault,
    model::WorkloadIdentity,
];

/// Whether a struct with these classified fields is listed by its name, as it must be. For
/// [`wire!`](crate::wire), which checks it at compile time.
pub const fn is_listed(name: &str, fields: FieldClasses) -> bool {
    if fields.is_empty() {
        return true;
    }
    let mut at = 0;
    while at < LISTED.len() {
        if is_same(LISTED[at].0, name) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Every field for which a class is given, as struct, field, class.
pub fn listed() -> impl Iterator<Item = (&'static str, &'static str, Class)> {
    let all = LISTED.iter();
    all.flat_map(|(name, fields)| {
        let each = fields.iter();
        each.map(move |(field, class)| (*name, *field, *class))
    })
}

/// The listed fields of a struct; empty for most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classes {
    owner: &'static str,
    fields: FieldClasses,
}

impl Classes {
    /// Those of the struct with this name.
    pub fn of(name: &str) -> Self {
        match LISTED.binary_search_by(|(listed, _)| (*listed).cmp(name)) {
            Ok(at) => {
                let (owner, fields) = LISTED[at];
                Self { owner, fields }
            }
            Err(_) => Self::default(),
        }
    }

    /// The class of a field.
    pub fn field(self, name: &str) -> Class {
        self.place(name).1
    }

    /// The names under which a field is listed, if it is, and its class.
    pub fn place(self, name: &str) -> (Option<(&'static str, &'static str)>, Class) {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        match found {
            Some((field, class)) => (Some((self.owner, *field)), *class),
            None => (None, Class::Public),
        }
    }
}

#[cfg(test)]
#[path = "class_test.rs"]
mod tests;
