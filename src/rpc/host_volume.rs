//! The methods of host volumes: the calls of users to servers (`HostVolume.…`,
//! `TaskGroupHostVolumeClaim.…`), and those of servers to the client on whose node one is
//! (`ClientHostVolume.…`, in sessions: [`super::client_calls`]).
//!
//! Every call to a client can be repeated: what is made already is made, what is gone is gone.

use drover_events::gojson::Map;
use drover_events::model::{HostVolume, HostVolumeStub, TaskGroupHostVolumeClaim};
use serde::{Deserialize, Serialize};

use super::Rpc;
use super::csi::Done;
use super::methods::{WriteResponse, messages, methods};

methods! {
    /// Has a volume made on a node that will do.
    HostVolumeCreate = "HostVolume.Create": HostVolumeCreateRequest -> HostVolumeCreateResponse;
    /// Registers a volume that is there.
    HostVolumeRegister = "HostVolume.Register":
        HostVolumeRegisterRequest -> HostVolumeRegisterResponse;
    /// Has a volume deleted on its node.
    HostVolumeDelete = "HostVolume.Delete": HostVolumeDeleteRequest -> WriteResponse;
    /// A volume.
    HostVolumeGet = "HostVolume.Get": HostVolumeGetRequest -> HostVolumeGetResponse;
    /// Volumes of a namespace, or of all.
    HostVolumeList = "HostVolume.List": HostVolumeListRequest -> HostVolumeListResponse;
    /// What groups hold of sticky volumes.
    TaskGroupVolumeClaimList = "TaskGroupHostVolumeClaim.List":
        TaskGroupVolumeClaimListRequest -> TaskGroupVolumeClaimListResponse;
    /// A group gives back what it holds.
    TaskGroupVolumeClaimDelete = "TaskGroupHostVolumeClaim.Delete":
        TaskGroupVolumeClaimDeleteRequest -> WriteResponse;

    /// Has a plugin make a volume, or make it as it is to be now.
    ClientHostVolumeCreate = "ClientHostVolume.Create":
        ClientHostVolumeCreateRequest -> ClientHostVolumeCreateResponse;
    /// Offers a directory that is there already as a volume.
    ClientHostVolumeRegister = "ClientHostVolume.Register":
        ClientHostVolumeRegisterRequest -> Done;
    /// Has a plugin delete what it made; one that no plugin made is offered no more.
    ClientHostVolumeDelete = "ClientHostVolume.Delete":
        ClientHostVolumeDeleteRequest -> ClientHostVolumeDeleteResponse;
}

messages! {
    /// `HostVolume.Create`.
    HostVolumeCreateRequest {
        /// The volume; with an id, one that is there already.
        volume: Option<HostVolume> = "Volume",
        /// It means nothing here, and the warnings say so.
        policy_override: bool = "PolicyOverride",
        /// Its namespace, where it names none.
        namespace: String = "Namespace",
    }
    /// The volume as it is then.
    HostVolumeCreateResponse {
        /// It.
        volume: Option<HostVolume> = "Volume",
        /// What is odd about it.
        warnings: String = "Warnings",
        /// The index of the change.
        index: u64 = "Index",
    }
    /// `HostVolume.Register`.
    HostVolumeRegisterRequest {
        /// The volume; with an id, one that is known already.
        volume: Option<HostVolume> = "Volume",
        /// It means nothing here, and the warnings say so.
        policy_override: bool = "PolicyOverride",
        /// Its namespace, where it names none.
        namespace: String = "Namespace",
    }
    /// The volume as it is then.
    HostVolumeRegisterResponse {
        /// It.
        volume: Option<HostVolume> = "Volume",
        /// What is odd about it.
        warnings: String = "Warnings",
        /// The index of the change.
        index: u64 = "Index",
    }
    /// `HostVolume.Delete`.
    HostVolumeDeleteRequest {
        volume_id: String = "VolumeID",
        /// Also when its node is gone.
        force: bool = "Force",
        namespace: String = "Namespace",
    }
    /// `HostVolume.Get`.
    HostVolumeGetRequest {
        /// The volume.
        id: String = "ID",
        namespace: String = "Namespace",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    /// A volume; none where it is not there.
    HostVolumeGetResponse {
        /// It.
        volume: Option<HostVolume> = "Volume",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// `HostVolume.List`.
    HostVolumeListRequest {
        /// Only those of this node.
        node_id: String = "NodeID",
        /// Only those of this pool.
        node_pool: String = "NodePool",
        /// Only those whose id begins so.
        prefix: String = "Prefix",
        /// Their namespace; `*` for all.
        namespace: String = "Namespace",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    /// Volumes, as lists show them.
    HostVolumeListResponse {
        /// In the order of namespace and id.
        volumes: Vec<HostVolumeStub> = "Volumes",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// `TaskGroupHostVolumeClaim.List`.
    TaskGroupVolumeClaimListRequest {
        /// Only those of this job.
        job_id: String = "JobID",
        /// Only those of groups of this name.
        task_group: String = "TaskGroup",
        /// Only those on volumes of this name.
        volume_name: String = "VolumeName",
        /// Only those whose id begins so.
        prefix: String = "Prefix",
        /// Their namespace; `*` for all.
        namespace: String = "Namespace",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    /// What groups hold.
    TaskGroupVolumeClaimListResponse {
        /// In the order of jobs and groups.
        claims: Vec<TaskGroupHostVolumeClaim> = "Claims",
        /// The index of the table.
        index: u64 = "Index",
    }
    /// `TaskGroupHostVolumeClaim.Delete`.
    TaskGroupVolumeClaimDeleteRequest {
        claim_id: String = "ClaimID",
    }
    /// `ClientHostVolume.Create`.
    ClientHostVolumeCreateRequest {
        /// The volume.
        id: String = "ID",
        /// Its name, which is its own on the node.
        name: String = "Name",
        /// The plugin that makes it.
        plugin_id: String = "PluginID",
        namespace: String = "Namespace",
        node_id: String = "NodeID",
        /// The least size, bytes; 0 for any.
        requested_capacity_min_bytes: i64 = "RequestedCapacityMinBytes",
        /// The greatest size, bytes; 0 for any.
        requested_capacity_max_bytes: i64 = "RequestedCapacityMaxBytes",
        /// For the plugin.
        parameters: Map<String> = "Parameters",
    }
    /// The volume that was made.
    ClientHostVolumeCreateResponse {
        volume_name: String = "VolumeName",
        volume_id: String = "VolumeID",
        /// Where it lies on the node.
        host_path: String = "HostPath",
        /// Its size, bytes; 0 where the plugin does not say.
        capacity_bytes: i64 = "CapacityBytes",
    }
    /// `ClientHostVolume.Register`.
    ClientHostVolumeRegisterRequest {
        /// The volume.
        id: String = "ID",
        /// Its name, which is its own on the node.
        name: String = "Name",
        namespace: String = "Namespace",
        node_id: String = "NodeID",
        /// Where it lies there.
        host_path: String = "HostPath",
        /// Its size, bytes.
        capacity_bytes: i64 = "CapacityBytes",
        /// Opaque.
        parameters: Map<String> = "Parameters",
    }
    /// `ClientHostVolume.Delete`.
    ClientHostVolumeDeleteRequest {
        /// The volume.
        id: String = "ID",
        name: String = "Name",
        /// The plugin that made it; empty where none did.
        plugin_id: String = "PluginID",
        namespace: String = "Namespace",
        node_id: String = "NodeID",
        /// Where it lies.
        host_path: String = "HostPath",
        /// For the plugin.
        parameters: Map<String> = "Parameters",
    }
    /// The volume that is gone.
    ClientHostVolumeDeleteResponse {
        volume_name: String = "VolumeName",
        volume_id: String = "VolumeID",
    }
}
