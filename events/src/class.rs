//! How confidential a field is: the one table that exports, audit and debug output go by.
//!
//! A field is known by its struct's name and its own name on the wire, as a serialiser meets them.
//! Fields that are not listed are public. A class holds for everything below its field. What is
//! listed as public only looks like a secret; the line says that somebody thought about it.

use Class::{Address, Configured, Public, Secret, Sensitive};

/// How confidential a field is; the greater, the more. What the API shows to those who may read
/// an object the audit trail and differences show as well, for who may read one may read the
/// others: but for what people put passwords into.
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

/// A field's name on the wire, and its class.
type Field = (&'static str, &'static str, Class);

/// Struct, field, class; in the order of their names.
///
/// Headers and the options of getters are where credentials are put. What plugins of volumes are
/// given, and the flags of mounts, may hold some, says their standard. The source of a job holds
/// its environments and templates, and a difference between two jobs may be one of those.
#[rustfmt::skip]
pub const CLASSES: &[Field] = &[
    ("AclAuthMethod", "MaxTokenTTL", Public),
    ("AclAuthMethod", "TokenLocality", Public),
    ("AclAuthMethod", "TokenNameFormat", Public),
    ("AclAuthMethodConfig", "OIDCClientSecret", Secret),
    ("AclBootstrapped", "Token", Public),
    ("AclToken", "SecretID", Secret),
    ("AclTokensUpserted", "Tokens", Public),
    ("Action", "Args", Configured),
    ("ChangeScript", "Args", Configured),
    ("CheckQueryResult", "Output", Sensitive),
    ("CniConfig", "Args", Configured),
    ("ConsulGatewayProxy", "Config", Configured),
    ("ConsulHttpHeaderModifiers", "Add", Sensitive),
    ("ConsulHttpHeaderModifiers", "Set", Sensitive),
    ("ConsulIngressService", "RequestHeaders", Public),
    ("ConsulIngressService", "ResponseHeaders", Public),
    ("ConsulProxy", "Config", Configured),
    ("ConsulSidecarService", "Meta", Configured),
    ("ConsulUpstream", "Config", Configured),
    ("CsiMountOptions", "MountFlags", Sensitive),
    ("CsiSnapshot", "Parameters", Sensitive),
    ("CsiSnapshot", "Secrets", Secret),
    ("CsiVolume", "Context", Sensitive),
    ("CsiVolume", "Parameters", Sensitive),
    ("CsiVolume", "Secrets", Secret),
    ("CsiVolumeClaimed", "PublishContext", Sensitive),
    ("CsiVolumeExternalStub", "VolumeContext", Sensitive),
    ("DrainMetadata", "Meta", Configured),
    ("EvalsDeleted", "PageToken", Public),
    ("Evaluation", "LeaderACL", Secret),
    ("FieldDiff", "New", Sensitive),
    ("FieldDiff", "Old", Sensitive),
    ("HostVolume", "Parameters", Sensitive),
    ("Job", "DispatchIdempotencyToken", Public),
    ("Job", "Meta", Configured),
    ("Job", "NomadTokenID", Public),
    ("Job", "Payload", Configured),
    ("JobSubmission", "Source", Sensitive),
    ("JobSubmission", "VariableFlags", Sensitive),
    ("JobSubmission", "Variables", Sensitive),
    ("JobSummariesReconciled", "PageToken", Public),
    ("MultiregionRegion", "Meta", Configured),
    ("Namespace", "Meta", Configured),
    ("Node", "Meta", Configured),
    ("Node", "SecretID", Secret),
    ("NodeDrainUpdated", "Meta", Configured),
    ("NodePool", "Meta", Configured),
    ("OidcClientAssertion", "ExtraHeaders", Sensitive),
    ("OidcClientAssertion", "PrivateKey", Public),
    ("OidcClientAssertionKey", "PemKey", Secret),
    ("OneTimeToken", "OneTimeSecretID", Secret),
    ("OneTimeTokensUpserted", "Secret", Secret),
    ("OneTimeTokensUpserted", "Token", Public),
    ("ParameterizedJobConfig", "MetaOptional", Public),
    ("ParameterizedJobConfig", "MetaRequired", Public),
    ("ParameterizedJobConfig", "Payload", Public),
    ("Plan", "EvalToken", Secret),
    ("Resources", "SecretsMB", Public),
    ("ScalingEvent", "Meta", Configured),
    ("SealedSecret", "Ciphertext", Secret),
    ("SealedSecret", "Hash", Secret),
    ("SealedToken", "Secret", Secret),
    ("SealedToken", "Token", Public),
    ("Secret", "Config", Sensitive),
    ("Secret", "Env", Sensitive),
    ("Service", "CanaryMeta", Configured),
    ("Service", "Meta", Configured),
    ("ServiceCheck", "Args", Configured),
    ("ServiceCheck", "Body", Configured),
    ("ServiceCheck", "Header", Sensitive),
    ("SidecarTask", "Config", Configured),
    ("SidecarTask", "Env", Sensitive),
    ("SidecarTask", "Meta", Configured),
    ("Task", "Config", Configured),
    ("Task", "DispatchPayload", Public),
    ("Task", "Env", Sensitive),
    ("Task", "Meta", Configured),
    ("Task", "Secrets", Public),
    ("TaskArtifact", "GetterHeaders", Sensitive),
    ("TaskArtifact", "GetterOptions", Sensitive),
    ("TaskArtifact", "GetterSource", Address),
    ("TaskGroup", "Meta", Configured),
    ("Template", "EmbeddedTmpl", Sensitive),
    ("VariableDecrypted", "Items", Secret),
    ("VariableEncrypted", "Data", Secret),
    ("VariableLock", "ID", Sensitive),
    ("Vault", "AllowTokenExpiration", Public),
    ("Vault", "Env", Public),
    ("WorkloadIdentity", "Env", Public),
];

/// Fields of a struct by their names on the wire, each with its class.
pub type OfFields = &'static [(&'static str, Class)];

macro_rules! named {
    ($($module:ident::$name:ident),* $(,)?) => {
        &[$( (stringify!($name), crate::$module::$name::CLASSES) ),*]
    };
}

/// Structs with a field of which a class is said, where it is declared; in the order of their
/// names. A serialiser tells no more of a struct than its name, and by that they are found here.
///
/// Headers and the options of getters are where credentials are put. What plugins of volumes are
/// given, and the flags of mounts, may hold some, says their standard. The source of a job holds
/// its environments and templates, and a difference between two jobs may be one of those.
const LISTED: &[(&str, OfFields)] = named![
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
    model::Plan,
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

/// Whether a struct whose fields say these classes is found by its name. For
/// [`wire!`](crate::wire), which lets the compiler ask.
pub const fn is_found(name: &str, fields: OfFields) -> bool {
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

/// Every field of which a class is said, as struct, field, class.
pub fn listed() -> impl Iterator<Item = (&'static str, &'static str, Class)> {
    let all = LISTED.iter();
    all.flat_map(|(name, fields)| {
        let each = fields.iter();
        each.map(move |(field, class)| (*name, *field, *class))
    })
}

/// The listed fields of a struct; empty for most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classes(&'static [Field]);

impl Classes {
    /// Those of the struct with this name.
    pub fn of(name: &str) -> Self {
        let start = CLASSES.partition_point(|(listed, ..)| *listed < name);
        let rest = &CLASSES[start..];
        let count = rest
            .iter()
            .take_while(|(listed, ..)| *listed == name)
            .count();
        Self(&rest[..count])
    }

    /// The class of a field.
    pub fn field(self, name: &str) -> Class {
        self.place(name).1
    }

    /// The names under which a field is listed, if it is, and its class.
    pub fn place(self, name: &str) -> (Option<(&'static str, &'static str)>, Class) {
        let found = self.0.iter().find(|(_, field, _)| *field == name);
        match found {
            Some((owner, field, class)) => (Some((owner, field)), *class),
            None => (None, Public),
        }
    }
}

#[cfg(test)]
#[path = "class_test.rs"]
mod tests;
