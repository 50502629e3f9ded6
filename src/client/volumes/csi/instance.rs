//! A task that is a plugin, and what it says of itself.

use std::fmt;
use std::path::PathBuf;

use drover_csi::features::Features;
use drover_csi::{Identity, NodeInfo};
use serde::{Deserialize, Serialize};

/// What a plugin's task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PluginKind {
    /// It attaches volumes to nodes.
    Controller,
    /// It brings them to allocations of this node.
    Node,
    /// Both.
    Monolith,
}

impl PluginKind {
    /// The word of a job.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "controller" => Some(Self::Controller),
            "node" => Some(Self::Node),
            "monolith" => Some(Self::Monolith),
            _ => None,
        }
    }

    /// The word of a job.
    pub fn word(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Node => "node",
            Self::Monolith => "monolith",
        }
    }

    /// Whether it has a part.
    pub fn has(self, part: CsiPart) -> bool {
        match part {
            CsiPart::Controller => self != Self::Node,
            CsiPart::Node => self != Self::Controller,
        }
    }
}

/// A part of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiPart {
    Controller,
    /// The node part.
    Node,
}

impl fmt::Display for CsiPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Node => "node",
        })
    }
}

/// A task that is a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub plugin: String,
    /// What it is.
    pub kind: PluginKind,
    pub alloc: String,
    pub task: String,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where its volumes are on this node.
    pub host: PathBuf,
    /// The same folder as the plugin sees it.
    pub seen: PathBuf,
}

impl Instance {
    pub(super) fn is_of(&self, alloc: &str, task: &str) -> bool {
        self.alloc == alloc && self.task == task
    }
}

/// What a plugin reported of itself, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginProbe {
    /// Its identity; none before it answered.
    pub identity: Option<Identity>,
    /// What it can.
    pub features: Features,
    /// Where its node part runs.
    pub node: Option<NodeInfo>,
    /// It answers, and says that it is ready.
    pub healthy: bool,
    /// Why it is not.
    pub trouble: String,
    /// When that began, unix nanoseconds.
    pub since: i64,
}
