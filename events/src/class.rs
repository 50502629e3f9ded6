//! How confidential a field is: the one table that exports, audit and debug output go by.
//!
//! A field is known by its struct's name and its own name on the wire, as a serialiser meets them.
//! Fields that are not listed are public. A class holds for everything below its field. What is
//! listed as public only looks like a secret; the line says that somebody thought about it.

use Class::{Configured, Public, Secret, Sensitive};

/// How confidential a field is; the greater, the more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Shown as it is.
    #[default]
    Public,
    /// What a task is to do: shown to those who may read the object, in the audit trail and in
    /// differences as well; exports show a keyed hash of it.
    Configured,
    /// Shown to those who may read the object; exports and audit show a keyed hash of it.
    Sensitive,
    /// Never shown, not even as a hash; in the log it is ciphertext or a hash already.
    Secret,
}

/// A field's name on the wire, and its class.
type Field = (&'static str, &'static str, Class);

/// Struct, field, class; in the order of their names.
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
    ("ChangeScript", "Args", Sensitive),
    ("CheckQueryResult", "Output", Sensitive),
    ("CniConfig", "Args", Sensitive),
    ("ConsulGatewayProxy", "Config", Sensitive),
    ("ConsulHttpHeaderModifiers", "Add", Sensitive),
    ("ConsulHttpHeaderModifiers", "Set", Sensitive),
    ("ConsulIngressService", "RequestHeaders", Public),
    ("ConsulIngressService", "ResponseHeaders", Public),
    ("ConsulProxy", "Config", Sensitive),
    ("ConsulSidecarService", "Meta", Sensitive),
    ("ConsulUpstream", "Config", Sensitive),
    ("CsiMountOptions", "MountFlags", Sensitive),
    ("CsiSnapshot", "Parameters", Sensitive),
    ("CsiSnapshot", "Secrets", Secret),
    ("CsiVolume", "Context", Sensitive),
    ("CsiVolume", "Parameters", Sensitive),
    ("CsiVolume", "Secrets", Secret),
    ("CsiVolumeClaimed", "PublishContext", Sensitive),
    ("CsiVolumeExternalStub", "VolumeContext", Sensitive),
    ("DrainMetadata", "Meta", Sensitive),
    ("EvalsDeleted", "PageToken", Public),
    ("Evaluation", "LeaderACL", Secret),
    ("FieldDiff", "New", Sensitive),
    ("FieldDiff", "Old", Sensitive),
    ("HostVolume", "Parameters", Sensitive),
    ("Job", "DispatchIdempotencyToken", Public),
    ("Job", "Meta", Sensitive),
    ("Job", "NomadTokenID", Public),
    ("Job", "Payload", Configured),
    ("JobSubmission", "Source", Sensitive),
    ("JobSubmission", "VariableFlags", Sensitive),
    ("JobSubmission", "Variables", Sensitive),
    ("JobSummariesReconciled", "PageToken", Public),
    ("MultiregionRegion", "Meta", Sensitive),
    ("Namespace", "Meta", Sensitive),
    ("Node", "Meta", Sensitive),
    ("Node", "SecretID", Secret),
    ("NodeDrainUpdated", "Meta", Sensitive),
    ("NodePool", "Meta", Sensitive),
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
    ("ScalingEvent", "Meta", Sensitive),
    ("SealedSecret", "Ciphertext", Secret),
    ("SealedSecret", "Hash", Secret),
    ("SealedToken", "Secret", Secret),
    ("SealedToken", "Token", Public),
    ("Secret", "Config", Sensitive),
    ("Secret", "Env", Sensitive),
    ("Service", "CanaryMeta", Sensitive),
    ("Service", "Meta", Sensitive),
    ("ServiceCheck", "Args", Sensitive),
    ("ServiceCheck", "Body", Sensitive),
    ("ServiceCheck", "Header", Sensitive),
    ("SidecarTask", "Config", Configured),
    ("SidecarTask", "Env", Sensitive),
    ("SidecarTask", "Meta", Sensitive),
    ("Task", "Config", Configured),
    ("Task", "DispatchPayload", Public),
    ("Task", "Env", Sensitive),
    ("Task", "Meta", Sensitive),
    ("Task", "Secrets", Public),
    ("TaskArtifact", "GetterHeaders", Sensitive),
    ("TaskArtifact", "GetterOptions", Sensitive),
    ("TaskArtifact", "GetterSource", Sensitive),
    ("TaskGroup", "Meta", Sensitive),
    ("Template", "EmbeddedTmpl", Sensitive),
    ("VariableDecrypted", "Items", Secret),
    ("VariableEncrypted", "Data", Secret),
    ("VariableLock", "ID", Sensitive),
    ("Vault", "AllowTokenExpiration", Public),
    ("Vault", "Env", Public),
    ("WorkloadIdentity", "Env", Public),
];

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
