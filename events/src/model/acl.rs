//! Policies, tokens and roles.

use crate::gojson::{Base64, DurationTextOrEmpty, GoTime, List, Time};

crate::wire! {
    /// A named set of rules.
    pub struct AclPolicy {
        name: String = "Name",
        description: String = "Description",
        rules: String = "Rules",
        job_acl: Option<JobAcl> = "JobACL",
        hash: Base64 = "Hash",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// What lists of policies show.
    pub struct AclPolicyListStub {
        name: String = "Name",
        description: String = "Description",
        job_acl: Option<JobAcl> = "JobACL",
        hash: Base64 = "Hash",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// The job a policy applies to.
    pub struct JobAcl {
        namespace: String = "Namespace",
        job_id: String = "JobID",
        group: String = "Group",
        task: String = "Task",
    }
}

crate::wire! {
    /// A token; its secret is shown to its maker only.
    pub struct AclToken {
        accessor_id: String = "AccessorID",
        secret_id: String = "SecretID" (Secret),
        name: String = "Name",
        r#type: String = "Type",
        policies: List<String> = "Policies",
        roles: List<AclTokenRoleLink> = "Roles",
        global: bool = "Global",
        hash: Base64 = "Hash",
        create_time: GoTime = "CreateTime",
        expiration_time: Option<GoTime> = "ExpirationTime",
        expiration_ttl: DurationTextOrEmpty = "ExpirationTTL",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// A role of a token.
    pub struct AclTokenRoleLink {
        id: String = "ID",
        name: String = "Name",
    }
}

crate::wire! {
    /// What lists of tokens show.
    pub struct AclTokenListStub {
        accessor_id: String = "AccessorID",
        name: String = "Name",
        r#type: String = "Type",
        policies: List<String> = "Policies",
        roles: List<AclTokenRoleLink> = "Roles",
        global: bool = "Global",
        create_time: Time = "CreateTime",
        expiration_time: Option<Time> = "ExpirationTime",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// A token that can be exchanged once.
    pub struct OneTimeToken {
        one_time_secret_id: String = "OneTimeSecretID" (Secret),
        accessor_id: String = "AccessorID",
        expires_at: Time = "ExpiresAt",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// A named set of policies.
    pub struct AclRole {
        id: String = "ID",
        name: String = "Name",
        description: String = "Description",
        policies: List<AclRolePolicyLink> = "Policies",
        hash: Base64 = "Hash",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// A policy of a role.
    pub struct AclRolePolicyLink {
        name: String = "Name",
    }
}

crate::wire! {
    /// What lists of roles show.
    pub struct AclRoleListStub {
        id: String = "ID",
        name: String = "Name",
        description: String = "Description",
        policies: List<AclRolePolicyLink> = "Policies",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}
