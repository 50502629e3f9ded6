//! Events about access control. Secrets are hashes and ciphertext before they are events.

use crate::model::{AclAuthMethod, AclBindingRule, AclPolicy, AclRole, AclToken, OneTimeToken};
use crate::wire;

/// The feature level from which on policies, tokens and roles are applied.
pub const ACL_LEVEL: u32 = 7;

wire! {
    /// Policies were created or changed.
    pub struct AclPoliciesUpserted {
        policies: Vec<AclPolicy> = "Policies",
    }

    /// Policies were removed.
    pub struct AclPoliciesDeleted {
        names: Vec<String> = "Names",
    }

    /// Tokens were created or changed.
    pub struct AclTokensUpserted {
        tokens: Vec<SealedToken> = "Tokens" (Public),
    }

    /// A token without its secret: `SecretID` is blank, only a hash and ciphertext are stored. The
    /// token is looked up by the hash; the ciphertext is decrypted where the secret is shown.
    pub struct SealedToken {
        /// The token; its secret is empty.
        token: AclToken = "Token" (Public),
        secret: SealedSecret = "Secret" (Secret),
    }

    /// A secret as it may lie in the log.
    pub struct SealedSecret {
        /// SHA-256 of the domain and the secret, in hexadecimal.
        hash: String = "Hash" (Secret),
        /// The secret, encrypted, in base64; empty when it is never shown again.
        ciphertext: String = "Ciphertext" (Secret),
        /// The root key it is encrypted with.
        key_id: String = "KeyID",
    }

    /// Tokens were removed.
    pub struct AclTokensDeleted {
        accessor_ids: Vec<String> = "AccessorIDs",
    }

    /// The first management token was made.
    pub struct AclBootstrapped {
        token: SealedToken = "Token" (Public),
        /// The index an operator allowed it again at; 0 the first time.
        reset_index: u64 = "ResetIndex",
    }

    /// Roles were created or changed.
    pub struct AclRolesUpserted {
        roles: Vec<AclRole> = "ACLRoles",
        /// Whether a role may name a policy that does not exist (ACL-09).
        allow_missing_policies: bool = "AllowMissingPolicies",
    }

    /// Roles were removed.
    pub struct AclRolesDeleted {
        ids: Vec<String> = "ACLRoleIDs",
    }

    /// Sign-in methods were created or changed; their secrets are ciphertext.
    pub struct AclAuthMethodsUpserted {
        auth_methods: Vec<AclAuthMethod> = "AuthMethods",
    }

    /// Sign-in methods were removed, and their binding rules with them.
    pub struct AclAuthMethodsDeleted {
        names: Vec<String> = "Names",
    }

    /// Binding rules were created or changed.
    pub struct AclBindingRulesUpserted {
        binding_rules: Vec<AclBindingRule> = "ACLBindingRules",
        /// Whether a rule may name a sign-in method that does not exist.
        allow_missing_auth_methods: bool = "AllowMissingAuthMethods",
    }

    /// Binding rules were removed.
    pub struct AclBindingRulesDeleted {
        ids: Vec<String> = "ACLBindingRuleIDs",
    }

    /// A one-time token was issued.
    pub struct OneTimeTokensUpserted {
        /// The token; its secret is empty.
        token: OneTimeToken = "Token" (Public),
        secret: SealedSecret = "Secret" (Secret),
    }

    /// One-time tokens were used up.
    pub struct OneTimeTokensDeleted {
        accessor_ids: Vec<String> = "AccessorIDs",
    }

    /// One-time tokens that had run out by a given time were removed.
    pub struct OneTimeTokensExpired {
        /// Unix nanoseconds.
        timestamp: i64 = "Timestamp",
    }
}
