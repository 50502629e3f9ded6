//! The methods of volumes and plugins for callers with a token, with Nomad's names and fields. A
//! request without a namespace is about `default`; a list has the parameters that lists of the HTTP
//! API have.

use drover_events::gojson::List;
use drover_events::model::{
    AllocListStub, CsiPlugin, CsiPluginListStub, CsiSnapshot, CsiVolListStub, CsiVolume,
    CsiVolumeExternalStub,
};
use serde::{Deserialize, Serialize};

use super::Rpc;
use super::csi::{Done, Secrets};
use super::methods::{WriteResponse, messages, methods};

methods! {
    /// Volumes, as lists show them.
    VolumeList = "CSIVolume.List": VolumeListRequest -> VolumeListResponse;
    /// A volume, and who holds it.
    VolumeGet = "CSIVolume.Get": NamedRequest -> VolumeGetResponse;
    /// Volumes that are there already become known.
    VolumeRegister = "CSIVolume.Register": VolumesRequest -> VolumesResponse;
    /// Volumes are forgotten; nothing is done at their plugins.
    VolumeDeregister = "CSIVolume.Deregister": VolumeIdsRequest -> WriteResponse;
    /// Volumes are made, and become known.
    VolumeCreate = "CSIVolume.Create": VolumesRequest -> VolumesResponse;
    /// Volumes are deleted at their plugins, and forgotten.
    VolumeDelete = "CSIVolume.Delete": VolumeIdsRequest -> WriteResponse;
    /// Volumes, as a plugin's provider has them.
    VolumeListExternal = "CSIVolume.ListExternal": ExternalRequest -> ExternalResponse;
    /// Snapshots are made.
    SnapshotCreate = "CSIVolume.CreateSnapshot": SnapshotsRequest -> SnapshotsResponse;
    /// Snapshots are deleted.
    SnapshotDelete = "CSIVolume.DeleteSnapshot": SnapshotsRequest -> Done;
    /// Snapshots, as a plugin's provider has them.
    SnapshotList = "CSIVolume.ListSnapshots": ExternalRequest -> SnapshotsResponse;
    /// Plugins, as lists show them.
    PluginList = "CSIPlugin.List": PluginListRequest -> PluginListResponse;
    /// A plugin, and its allocations that the caller may see.
    PluginGet = "CSIPlugin.Get": NamedRequest -> PluginGetResponse;
    /// A plugin that nothing uses any more is forgotten.
    PluginDelete = "CSIPlugin.Delete": NamedRequest -> WriteResponse;
}

messages! {
    /// `CSIVolume.List`.
    VolumeListRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        /// The namespace, `*` for all.
        namespace: String = "Namespace",
        /// Ids begin so.
        prefix: String = "Prefix",
        /// An expression over what is shown.
        filter: String = "Filter",
        /// The longest page; 0 for all.
        per_page: u64 = "PerPage",
        /// Where the page begins.
        next_token: String = "NextToken",
        /// Last ones first.
        reverse: bool = "Reverse",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
        /// Only this plugin's.
        plugin_id: String = "PluginID",
        /// Only those that this node's allocations request.
        node_id: String = "NodeID",
    }
    /// A page of volumes.
    VolumeListResponse {
        /// In the order of namespaces and ids.
        volumes: List<CsiVolListStub> = "Volumes",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
        /// The index of the tables.
        index: u64 = "Index",
    }
    /// `CSIVolume.Get`, `CSIPlugin.Get`, `CSIPlugin.Delete`.
    NamedRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        namespace: String = "Namespace",
        /// Which.
        id: String = "ID",
        /// Wait until it changed after this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    VolumeGetResponse {
        /// Without its secrets; none where there is none.
        volume: Option<CsiVolume> = "Volume",
        /// The allocations that hold it.
        allocations: List<AllocListStub> = "Allocations",
        /// The index of its last change; of the table where there is none.
        index: u64 = "Index",
    }
    /// `CSIVolume.Register`, `CSIVolume.Create`.
    VolumesRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        /// The namespace of those that name none.
        namespace: String = "Namespace",
        /// The volumes, their secrets in clear.
        volumes: List<CsiVolume> = "Volumes",
    }
    /// The volumes as they are now.
    VolumesResponse {
        /// Without their secrets.
        volumes: List<CsiVolume> = "Volumes",
        /// What may not be meant so.
        warnings: String = "Warnings",
        /// The index of the change.
        index: u64 = "Index",
    }
    /// `CSIVolume.Deregister`, `CSIVolume.Delete`: one after the other, until one is refused.
    VolumeIdsRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        namespace: String = "Namespace",
        /// Which.
        volume_ids: Vec<String> = "VolumeIDs",
        /// Also those that a claim holds; not of those that are deleted.
        force: bool = "Force",
        /// For the plugin that deletes.
        secrets: Secrets = "Secrets",
    }
    /// `CSIVolume.ListExternal`, `CSIVolume.ListSnapshots`.
    ExternalRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        /// The namespace that the caller has rights in.
        namespace: String = "Namespace",
        /// Whose.
        plugin_id: String = "PluginID",
        /// The longest page; 0 for as many as the plugin likes.
        per_page: u64 = "PerPage",
        /// Where the page begins.
        next_token: String = "NextToken",
        /// For the plugin that lists snapshots.
        secrets: Secrets = "Secrets",
    }
    /// A page of volumes.
    ExternalResponse {
        /// As the provider shows them.
        volumes: List<CsiVolumeExternalStub> = "Volumes",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
    }
    /// `CSIVolume.CreateSnapshot`, `CSIVolume.DeleteSnapshot`.
    SnapshotsRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        namespace: String = "Namespace",
        /// The snapshots, their secrets in clear.
        snapshots: List<CsiSnapshot> = "Snapshots",
    }
    /// A page of snapshots, or those that were made.
    SnapshotsResponse {
        /// Without their secrets.
        snapshots: List<CsiSnapshot> = "Snapshots",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
    }
    /// `CSIPlugin.List`.
    PluginListRequest {
        /// The region; that of the server where it is empty.
        region: String = "Region",
        /// Ids begin so.
        prefix: String = "Prefix",
        /// An expression over what is shown.
        filter: String = "Filter",
        /// The longest page; 0 for all.
        per_page: u64 = "PerPage",
        /// Where the page begins.
        next_token: String = "NextToken",
        /// Last ones first.
        reverse: bool = "Reverse",
        /// Wait until there is something above this index; 0 does not wait.
        min_query_index: u64 = "MinQueryIndex",
        /// For so many nanoseconds at most.
        max_query_time: i64 = "MaxQueryTime",
    }
    /// A page of plugins.
    PluginListResponse {
        /// In the order of ids.
        plugins: List<CsiPluginListStub> = "Plugins",
        /// Where the next page begins; empty at the end.
        next_token: String = "NextToken",
        /// The index of the table.
        index: u64 = "Index",
    }
    PluginGetResponse {
        /// None where there is none.
        plugin: Option<CsiPlugin> = "Plugin",
        /// The index of its last change; of the table where there is none.
        index: u64 = "Index",
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{decode, encode};
    use super::*;

    /// These bytes stay as they are, and each is read where something else stands beside it.
    fn golden<T>(message: &T, bytes: &str)
    where
        T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        let encoded = encode(message).unwrap();
        let bytes = bytes.replace(char::is_whitespace, "");
        assert_eq!(hex::encode(&encoded), bytes);
        // One field more, `X: 1`, as a later release may send it.
        let more = format!("{:02x}{}a15801", encoded[0] + 1, &bytes[2..]);
        for bytes in [&bytes, &more] {
            let read: T = decode(&hex::decode(bytes).unwrap()).unwrap();
            assert_eq!(read, *message);
        }
    }

    #[test]
    fn mod_30_requests_about_volumes_are_the_bytes_they_always_were() {
        let message = VolumeListRequest {
            region: "r".into(),
            namespace: "n".into(),
            prefix: "p".into(),
            filter: "f".into(),
            per_page: 3,
            next_token: "t".into(),
            reverse: true,
            min_query_index: 7,
            max_query_time: 9,
            plugin_id: "i".into(),
            node_id: "o".into(),
        };
        golden(
            &message,
            "8ba6526567696f6ea172a94e616d657370616365a16ea6507265666978a170a646696c746572 \
             a166a75065725061676503a94e657874546f6b656ea174a752657665727365c3ad4d696e5175 \
             657279496e64657807ac4d6178517565727954696d6509a8506c7567696e4944a169a64e6f64 \
             654944a16f",
        );
        let message = NamedRequest {
            region: "r".into(),
            namespace: "n".into(),
            id: "i".into(),
            min_query_index: 7,
            max_query_time: 9,
        };
        golden(
            &message,
            "85a6526567696f6ea172a94e616d657370616365a16ea24944a169ad4d696e5175657279496e \
             64657807ac4d6178517565727954696d6509",
        );
        let message = VolumeIdsRequest {
            region: "r".into(),
            namespace: "n".into(),
            volume_ids: vec!["a".into()],
            force: true,
            secrets: Secrets([("k".into(), "v".into())].into()),
        };
        golden(
            &message,
            "85a6526567696f6ea172a94e616d657370616365a16ea9566f6c756d6549447391a161a5466f \
             726365c3a75365637265747381a16ba176",
        );
        let message = ExternalRequest {
            region: "r".into(),
            namespace: "n".into(),
            plugin_id: "i".into(),
            per_page: 3,
            next_token: "t".into(),
            secrets: Secrets([("k".into(), "v".into())].into()),
        };
        golden(
            &message,
            "86a6526567696f6ea172a94e616d657370616365a16ea8506c7567696e4944a169a750657250 \
             61676503a94e657874546f6b656ea174a75365637265747381a16ba176",
        );
    }

    #[test]
    fn mod_30_requests_about_plugins_and_many_volumes_are_the_bytes_they_always_were() {
        let message = PluginListRequest {
            region: "r".into(),
            prefix: "p".into(),
            filter: "f".into(),
            per_page: 3,
            next_token: "t".into(),
            reverse: true,
            min_query_index: 7,
            max_query_time: 9,
        };
        golden(
            &message,
            "88a6526567696f6ea172a6507265666978a170a646696c746572a166a75065725061676503a9 \
             4e657874546f6b656ea174a752657665727365c3ad4d696e5175657279496e64657807ac4d61 \
             78517565727954696d6509",
        );
        let message = VolumesRequest {
            region: "r".into(),
            namespace: "n".into(),
            volumes: List::from(vec![]),
        };
        golden(
            &message,
            "83a6526567696f6ea172a94e616d657370616365a16ea7566f6c756d657390",
        );
        let message = SnapshotsRequest {
            region: "r".into(),
            namespace: "n".into(),
            snapshots: List::from(vec![]),
        };
        golden(
            &message,
            "83a6526567696f6ea172a94e616d657370616365a16ea9536e617073686f747390",
        );
    }

    #[test]
    fn mod_30_answers_about_volumes_are_the_bytes_they_always_were() {
        let message = VolumeListResponse {
            volumes: List::from(vec![]),
            next_token: "t".into(),
            index: 7,
        };
        golden(
            &message,
            "83a7566f6c756d657390a94e657874546f6b656ea174a5496e64657807",
        );
        let message = VolumeGetResponse {
            volume: None,
            allocations: List::from(vec![]),
            index: 7,
        };
        golden(
            &message,
            "83a6566f6c756d65c0ab416c6c6f636174696f6e7390a5496e64657807",
        );
        let message = VolumesResponse {
            volumes: List::from(vec![]),
            warnings: "w".into(),
            index: 7,
        };
        golden(
            &message,
            "83a7566f6c756d657390a85761726e696e6773a177a5496e64657807",
        );
        let message = ExternalResponse {
            volumes: List::from(vec![]),
            next_token: "t".into(),
        };
        golden(&message, "82a7566f6c756d657390a94e657874546f6b656ea174");
        let message = SnapshotsResponse {
            snapshots: List::from(vec![]),
            next_token: "t".into(),
        };
        golden(&message, "82a9536e617073686f747390a94e657874546f6b656ea174");
        let message = PluginListResponse {
            plugins: List::from(vec![]),
            next_token: "t".into(),
            index: 7,
        };
        golden(
            &message,
            "83a7506c7567696e7390a94e657874546f6b656ea174a5496e64657807",
        );
        let message = PluginGetResponse {
            plugin: None,
            index: 7,
        };
        golden(&message, "82a6506c7567696ec0a5496e64657807");
    }
}
