//! Events about the cluster itself: who leads, what every server reads, its identity and its
//! configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{AutopilotConfiguration, SchedulerConfiguration};
use crate::{impl_json_schema, wire};

/// A server became leader. The first event each leader proposes; a lone server's too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct LeaderElected {
    /// Its id in the membership of Raft.
    #[serde(rename = "ServerID")]
    pub server_id: String,
    /// The server's name.
    pub name: String,
    /// Where the other servers and the clients reach it.
    pub addr: String,
    /// The newest feature level this server reads and writes.
    pub level: u32,
    /// The server's version, for people.
    pub version: String,
}

/// Every server reads this feature level; from here on it may be written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct VersionBarrierRaised {
    /// The feature level: a line of the change log.
    pub level: u32,
    /// What each server reported: its id and the newest level it reads.
    pub servers: BTreeMap<String, u32>,
}

/// The cluster got its identity, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ClusterIdSet {
    /// A UUID.
    #[serde(rename = "ClusterID")]
    pub cluster_id: String,
    /// Unix nanoseconds.
    pub create_time: i64,
}

/// A verified backup became the base of a new epoch. The first event of that epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ClusterRestored {
    /// The epoch the backup was taken from.
    pub former_epoch: String,
    /// How many leaves that epoch's tree had.
    pub former_size: u64,
    /// The root of that tree.
    #[serde(with = "serde_bytes")]
    pub former_root: Vec<u8>,
    /// The index the backup holds the state of.
    pub base_index: u64,
    /// The new epoch.
    pub epoch: String,
}

/// The digests of the state tables that a majority of the servers agrees on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct DigestRecorded {
    /// The index whose state was digested.
    pub at: u64,
    /// The digest of each table, by the table's number.
    pub digests: BTreeMap<u16, serde_bytes::ByteBuf>,
    /// The servers that reported these very digests.
    pub servers: Vec<String>,
}

impl_json_schema! {
    LeaderElected: "A server became leader." {
        "ServerID": String = "The server's id.",
        "Name": String = "The server's name.",
        "Addr": String = "Where the other servers and the clients reach it.",
        "Level": u32 = "The newest feature level this server reads and writes.",
        "Version": String = "The server's version, for people.",
    }
    VersionBarrierRaised: "Every server reads this feature level; it may be written from here on." {
        "Level": u32 = "The feature level: a line of the change log.",
        "Servers": BTreeMap<String, u32> = "What each server reported: the newest level it reads.",
    }
    ClusterIdSet: "The cluster got its identity, once." {
        "ClusterID": String = "A UUID.",
        "CreateTime": i64 = "Unix nanoseconds.",
    }
    ClusterRestored: "A verified backup became the base of a new epoch." {
        "FormerEpoch": String = "The epoch the backup was taken from.",
        "FormerSize": u64 = "How many leaves that epoch's tree had.",
        "FormerRoot": Vec<u8> = "The root of that tree.",
        "BaseIndex": u64 = "The index the backup holds the state of.",
        "Epoch": String = "The new epoch.",
    }
    DigestRecorded: "The digests of the tables that a majority of the servers agrees on." {
        "At": u64 = "The index whose state was digested.",
        "Digests": BTreeMap<String, Vec<u8>> = "The digest of each table, by the table's number.",
        "Servers": Vec<String> = "The servers that reported these very digests.",
    }
}

wire! {
    /// The scheduler configuration was set.
    pub struct SchedulerConfigured {
        /// The configuration; with `cas`, its modify index is the one the caller knows.
        config: SchedulerConfiguration = "Config",
        /// Whether it is set only if it is unchanged since that index.
        cas: bool = "CAS",
    }

    /// The autopilot configuration was set.
    pub struct AutopilotConfigured {
        /// The configuration; with `cas`, its modify index is the one the caller knows.
        config: AutopilotConfiguration = "Config",
        /// Whether it is set only if it is unchanged since that index.
        cas: bool = "CAS",
    }

    /// A publisher of events fell behind the log: written once, when it begins.
    pub struct PublisherLagged {
        /// Which publisher: `kafka`.
        publisher: String = "Publisher",
        /// The last index that it had published; 0 where that is not known.
        published: u64 = "Published",
        /// How many events it was behind.
        behind: u64 = "Behind",
        /// The age of the oldest of them, in nanoseconds.
        age: i64 = "Age",
        /// Why, in words.
        reason: String = "Reason",
    }

    /// A publisher of events that had fallen behind has caught up: written once, at the end.
    pub struct PublisherCaughtUp {
        /// Which publisher: `kafka`.
        publisher: String = "Publisher",
        /// The last index that it had published.
        published: u64 = "Published",
        /// The index of the event that reported that it fell behind.
        since: u64 = "Since",
    }
}
