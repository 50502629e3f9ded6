//! The methods between clients and servers, with Nomad's names and fields.

use std::collections::BTreeMap;

use drover_events::model::{
    AclPolicy, AclRole, AclToken, Allocation, DrainSpec, Evaluation, Node, NodeEvent,
    ServiceRegistration,
};
use serde::{Deserialize, Serialize};

use super::Rpc;
use drover_keyring::Claims;

macro_rules! methods {
    ($($(#[$doc:meta])* $method:ident = $name:literal: $req:ident -> $res:ident;)*) => {$(
        $(#[$doc])*
        pub struct $method;

        impl Rpc for $method {
            const NAME: &'static str = $name;
            type Req = $req;
            type Res = $res;
        }
    )*};
}

/// `ACL.ResolveToken`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolveAclTokenRequest {
    #[serde(rename = "SecretID")]
    pub secret_id: String,
}

impl std::fmt::Debug for ResolveAclTokenRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolveAclTokenRequest")
            .finish_non_exhaustive()
    }
}

/// `ACL.GetClaimPolicies`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AclClaimPoliciesRequest {
    /// What servers signed.
    #[serde(rename = "Signed")]
    pub signed: String,
}

impl std::fmt::Debug for AclClaimPoliciesRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AclClaimPoliciesRequest")
            .finish_non_exhaustive()
    }
}

macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty = $key:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$fdoc])* #[serde(rename = $key)] pub $field: $ty,)*
        }
    )*};
}

pub(super) use {messages, methods};

methods! {
    /// A node describes itself.
    NodeRegister = "Node.Register": NodeRegisterRequest -> NodeUpdateResponse;
    /// A node's heartbeat, and its word on its status.
    NodeUpdateStatus = "Node.UpdateStatus": NodeUpdateStatusRequest -> NodeUpdateResponse;
    /// A client reports what became of allocations.
    NodeUpdateAlloc = "Node.UpdateAlloc": AllocUpdateRequest -> WriteResponse;
    /// Which allocations a node has; waits for a change.
    NodeGetClientAllocs = "Node.GetClientAllocs": NodeSpecificRequest -> NodeClientAllocsResponse;
    /// A node reports what happened to it.
    NodeEmitEvents = "Node.EmitEvents": EmitNodeEventsRequest -> WriteResponse;
    /// A node that is about to leave requests its own drain.
    NodeUpdateDrain = "Node.UpdateDrain": NodeUpdateDrainRequest -> WriteResponse;
    /// A node as the servers know it.
    NodeGetNode = "Node.GetNode": NodeSpecificRequest -> SingleNodeResponse;
    /// Allocations by id, with their jobs.
    AllocGetAllocs = "Alloc.GetAllocs": AllocsGetRequest -> AllocsGetResponse;
    /// A client registers services of its allocations.
    ServiceUpsert = "ServiceRegistration.Upsert": ServiceUpsertRequest -> WriteResponse;
    /// A client removes one of them.
    ServiceDelete = "ServiceRegistration.DeleteByID": ServiceDeleteRequest -> WriteResponse;
    /// The token that has a secret.
    AclResolveToken = "ACL.ResolveToken": ResolveAclTokenRequest -> ResolveAclTokenResponse;
    /// Policies by name.
    AclGetPolicies = "ACL.GetPolicies": AclPolicySetRequest -> AclPolicySetResponse;
    /// Roles by id.
    AclGetRoles = "ACL.GetRolesByID": AclRolesByIdRequest -> AclRolesByIdResponse;
    /// The workload that something was signed of, and the policies of its job.
    AclGetClaimPolicies = "ACL.GetClaimPolicies":
        AclClaimPoliciesRequest -> AclClaimPoliciesResponse;
    /// The caller, as every method sees it.
    AclWhoAmI = "ACL.WhoAmI": Empty -> AclWhoAmIResponse;
    /// Whether the server is there.
    StatusPing = "Status.Ping": Empty -> Empty;
    /// The leader's RPC address.
    StatusLeader = "Status.Leader": Empty -> LeaderResponse;
}

messages! {
    /// Nothing.
    Empty {}
    /// `ACL.GetPolicies`.
    AclPolicySetRequest {
        /// Their names.
        names: Vec<String> = "Names",
    }
    /// The policies there are.
    AclPolicySetResponse {
        /// By name.
        policies: BTreeMap<String, AclPolicy> = "Policies",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// `ACL.GetRolesByID`.
    AclRolesByIdRequest {
        /// Their ids.
        role_ids: Vec<String> = "ACLRoleIDs",
    }
    /// The roles there are.
    AclRolesByIdResponse {
        /// By id.
        roles: BTreeMap<String, AclRole> = "ACLRoles",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// A workload that lives, if there is one.
    AclClaimPoliciesResponse {
        /// What was signed of it.
        claims: Option<Claims> = "Claims",
        /// Its allocation's group.
        task_group: String = "TaskGroup",
        /// The policies that are attached to its part of its job, by name.
        policies: BTreeMap<String, AclPolicy> = "Policies",
        /// The index of the state it was found in.
        index: u64 = "Index",
    }
    /// A token, if there is one.
    ResolveAclTokenResponse {
        /// Without its secret, its roles with the names they have now.
        token: Option<AclToken> = "Token",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// Who calls.
    AclWhoAmIResponse {
        /// What was proved of the caller.
        identity: AuthenticatedIdentity = "Identity",
        /// The index of the state it was found in.
        index: u64 = "Index",
    }
    /// What was proved of a caller, each by itself; empty where it was not.
    AuthenticatedIdentity {
        /// The token that the caller gave, without its secret.
        acl_token: Option<AclToken> = "ACLToken",
        /// The workload it is.
        claims: Option<WorkloadClaims> = "Claims",
        /// The node that the caller is.
        client_id: String = "ClientID",
        /// The name in the certificate of the caller's connection.
        tls_name: String = "TLSName",
        /// The caller's address.
        remote_ip: String = "RemoteIP",
    }
    /// A workload, as servers signed it.
    WorkloadClaims {
        /// Its job's namespace.
        namespace: String = "Namespace",
        /// Its job, or the one that made that.
        job_id: String = "JobID",
        allocation_id: String = "AllocationID",
        /// Its task, if it is one.
        task_name: String = "TaskName",
        /// Its service, if it is one.
        service_name: String = "ServiceName",
    }
    /// The leader's address; empty when there is none.
    LeaderResponse {
        /// `ip:port`.
        leader: String = "Leader",
    }
    /// `Node.Register`.
    NodeRegisterRequest {
        /// The whole description, with the secret.
        node: Node = "Node",
    }
    /// `Node.UpdateStatus`.
    NodeUpdateStatusRequest {
        /// Who.
        node_id: String = "NodeID",
        /// What it says it is.
        status: String = "Status",
        /// To be kept in the node's list.
        node_event: Option<NodeEvent> = "NodeEvent",
    }
    /// What a node learns from registering and from heartbeats.
    NodeUpdateResponse {
        /// The next heartbeat is due after so many nanoseconds.
        heartbeat_ttl: i64 = "HeartbeatTTL",
        /// Evaluations that this made.
        eval_ids: Vec<String> = "EvalIDs",
        /// Their index.
        eval_create_index: u64 = "EvalCreateIndex",
        /// The node's index.
        node_modify_index: u64 = "NodeModifyIndex",
        /// Where the leader is.
        leader_rpc_addr: String = "LeaderRPCAddr",
        /// How many nodes there are.
        num_nodes: i64 = "NumNodes",
        /// The servers there are.
        servers: Vec<NodeServerInfo> = "Servers",
        /// Whether new allocations may come.
        scheduling_eligibility: String = "SchedulingEligibility",
        /// The index of the change, or of the state that needed none.
        index: u64 = "Index",
        /// The epoch of the servers' log: another one after a restore.
        epoch: String = "Epoch",
    }
    /// A server as it is reported to nodes.
    NodeServerInfo {
        /// `ip:port`.
        rpc_advertise_addr: String = "RPCAdvertiseAddr",
        datacenter: String = "Datacenter",
    }
    /// `Node.UpdateAlloc`.
    AllocUpdateRequest {
        /// What a client may say of each, and nothing else.
        alloc: Vec<Allocation> = "Alloc",
        /// Refused: evaluations are made by servers (EV-14).
        evals: Vec<Evaluation> = "Evals",
    }
    /// A change was made.
    WriteResponse {
        index: u64 = "Index",
    }
    /// `Node.GetClientAllocs`.
    NodeSpecificRequest {
        node_id: String = "NodeID",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
        /// The epoch that the index is of; of another one nothing is waited for. Empty where the
        /// caller knows none.
        epoch: String = "Epoch",
    }
    /// The allocations of a node.
    NodeClientAllocsResponse {
        /// Id to the index of the last change that concerns the client.
        allocs: BTreeMap<String, u64> = "Allocs",
        /// For fetching data of predecessors on other nodes.
        migrate_tokens: BTreeMap<String, String> = "MigrateTokens",
        /// The index of this state.
        index: u64 = "Index",
        /// The epoch of the servers' log: what came of another one is to be compared anew.
        epoch: String = "Epoch",
    }
    /// `Node.UpdateDrain`.
    NodeUpdateDrainRequest {
        /// Which node: the one that calls.
        node_id: String = "NodeID",
        /// How it drains.
        drain_spec: Option<DrainSpec> = "DrainSpec",
        /// Kept with the drain.
        meta: BTreeMap<String, String> = "Meta",
    }
    /// `Node.GetNode`.
    SingleNodeResponse {
        /// The node, without its secret; none where it is not known.
        node: Option<Node> = "Node",
        /// The index of this state.
        index: u64 = "Index",
    }
    /// `Alloc.GetAllocs`.
    AllocsGetRequest {
        /// Which.
        alloc_ids: Vec<String> = "AllocIDs",
        /// Wait until this index is there.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    /// Allocations; missing ones are left out.
    AllocsGetResponse {
        /// Each with its job.
        allocs: Vec<Allocation> = "Allocs",
        /// The highest index among them.
        index: u64 = "Index",
    }
    /// `ServiceRegistration.Upsert`.
    ServiceUpsertRequest {
        /// All of the node that calls.
        services: Vec<ServiceRegistration> = "Services",
        /// That node; may be empty where there are services.
        node_id: String = "NodeID",
        /// Allocations of which these are all the services there are: others of theirs go.
        allocs: Vec<String> = "Allocs",
    }
    /// `ServiceRegistration.DeleteByID`.
    ServiceDeleteRequest {
        /// Where it is.
        namespace: String = "Namespace",
        /// Which.
        id: String = "ID",
    }
    /// `Node.EmitEvents`.
    EmitNodeEventsRequest {
        /// By node.
        node_events: BTreeMap<String, Vec<NodeEvent>> = "NodeEvents",
    }
}
