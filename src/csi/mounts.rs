//! The volumes that are staged and published on a node.
//!
//! Below the folder of a plugin lie, in the layout of Nomad,
//! `staging/<namespace>/<volume>/<usage>`, to which a volume is brought once for all who use it in
//! one way, and `per-alloc/<allocation>/<volume>/<usage>`, where each of them sees it. Beside them,
//! `users/<namespace>/<volume>/<usage>/<allocation>` is an empty file for each user: it is made
//! before the first call for him and removed after the last one. So what was counted is true
//! whatever dies, and nothing is remembered anywhere else.
//!
//! Every call may be repeated: the plugin's are, and what is gone is gone.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::fs;

use crate::capability::{Attachment, access, capability};
use crate::disk::{
    ALLOCATIONS, NAMESPACE, emptied, folder, gone, is_mount, marked, names, others, removed,
};
use crate::error::{CallError, Standing};
use crate::plugin::Plugin;
use crate::proto;

/// How a volume is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Nobody may write.
    pub read_only: bool,
    /// As a folder or as a device: the word of a job.
    pub attachment: String,
    /// Who may use it at a time: the word of a job.
    pub access: String,
    /// The file system that is wanted; empty for the plugin's own choice.
    pub fs_type: String,
    /// Flags of the mount.
    pub flags: Vec<String>,
    /// The options are the job's own (CSI-16): who asks for the same volume with others has a place
    /// of his own.
    pub own_options: bool,
}

impl Usage {
    /// The name of its folders.
    pub fn name(&self) -> String {
        let base = base_name(self.read_only, &self.attachment, &self.access);
        match self.own_options {
            true => format!("{base}-{:08x}", self.fingerprint()),
            false => base,
        }
    }

    /// A number for the options: the same for the same ones, by FNV-1a.
    fn fingerprint(&self) -> u32 {
        let words = std::iter::once(&self.fs_type).chain(&self.flags);
        let bytes = words.flat_map(|word| word.bytes().chain([0]));
        bytes.fold(0x811c_9dc5, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }

    /// The message for it.
    ///
    /// # Errors
    /// A word that no job may have.
    pub fn capability(&self) -> Result<proto::VolumeCapability, MountError> {
        let unknown = |word: &str| MountError::Refused(format!("unknown mode {word:?}"));
        let mode = access(&self.access).ok_or_else(|| unknown(&self.access))?;
        let kind = Attachment::parse(&self.attachment).ok_or_else(|| unknown(&self.attachment))?;
        Ok(capability(mode, kind, &self.fs_type, &self.flags))
    }
}

/// The name of the folders of volumes that are used without options of the job's.
fn base_name(read_only: bool, attachment: &str, access: &str) -> String {
    let may = if read_only { "ro" } else { "rw" };
    format!("{may}-{attachment}-{access}")
}

/// Where a plugin's folders lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// On the host.
    pub host: PathBuf,
    /// As the plugin sees the same folder.
    pub seen: PathBuf,
}

/// A volume that is wanted by an allocation.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The allocation.
    pub alloc: String,
    /// The volume's namespace.
    pub namespace: String,
    /// The volume.
    pub volume: String,
    /// The plugin's own name for it.
    pub remote: String,
    /// How it is used.
    pub usage: Usage,
    /// What the controller said when it attached it.
    pub publish_context: std::collections::BTreeMap<String, String>,
    /// What the plugin said when it made it.
    pub context: std::collections::BTreeMap<String, String>,
    /// What the plugin wants to be shown.
    pub secrets: Secrets,
}

/// Secrets, which nobody prints.
#[derive(Clone, Default)]
pub struct Secrets(pub std::collections::BTreeMap<String, String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[REDACTED]")
    }
}

/// A volume that an allocation gives back.
#[derive(Debug, Clone)]
pub struct Returned {
    /// The allocation.
    pub alloc: String,
    /// The volume's namespace.
    pub namespace: String,
    /// The volume.
    pub volume: String,
    /// The plugin's own name for it.
    pub remote: String,
    /// Nobody could write.
    pub read_only: bool,
    /// As a folder or as a device.
    pub attachment: String,
    /// Who could use it at a time.
    pub access: String,
}

/// A volume that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Where, on the host.
    pub path: PathBuf,
    /// Something is mounted there; otherwise the plugin shows it in another way.
    pub is_mount: bool,
}

/// Why a volume is not there, or does not go.
#[derive(Debug)]
pub enum MountError {
    /// What a plugin said, or that it said nothing.
    Call(CallError),
    /// A file or folder of this node.
    Io(&'static str, PathBuf, io::Error),
    /// Never.
    Refused(String),
    /// The plugin says it did something and did not.
    Lie(String),
}

impl MountError {
    /// Whether the same may work later.
    pub fn is_recoverable(&self) -> bool {
        match self {
            MountError::Call(error) => error.standing() != Standing::Refused,
            MountError::Io(..) | MountError::Lie(_) => true,
            MountError::Refused(_) => false,
        }
    }
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::Call(error) => error.fmt(f),
            MountError::Io(what, path, error) => {
                write!(f, "cannot {what} {}: {error}", path.display())
            }
            MountError::Refused(text) | MountError::Lie(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for MountError {}

impl From<CallError> for MountError {
    fn from(error: CallError) -> MountError {
        MountError::Call(error)
    }
}

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Brings volumes and takes them back; one for all plugins of a node.
#[derive(Default)]
pub struct Mounts {
    /// Those of a volume come one after the other.
    turns: Mutex<HashMap<(PathBuf, String), Turn>>,
}

/// The paths of one use.
struct Places {
    staging: PathBuf,
    target: PathBuf,
    users: PathBuf,
    user: PathBuf,
}

impl Places {
    fn of(namespace: &str, volume: &str, usage: &str, alloc: &str) -> Places {
        let (namespace, volume) = (part(namespace), part(volume));
        let (usage, alloc) = (part(usage), part(alloc));
        let users = Path::new("users")
            .join(&namespace)
            .join(&volume)
            .join(&usage);
        Places {
            staging: Path::new("staging")
                .join(&namespace)
                .join(&volume)
                .join(&usage),
            target: Path::new("per-alloc")
                .join(&alloc)
                .join(&volume)
                .join(&usage),
            user: users.join(&alloc),
            users,
        }
    }
}

/// A name as one part of a path: what would lead elsewhere is written as numbers.
fn part(name: &str) -> String {
    if name.is_empty() || name == "." || name == ".." {
        return format!("%{}", name.len());
    }
    let plain = |c: &char| !matches!(c, '/' | '\0' | '%');
    let mut text = String::new();
    for c in name.chars() {
        match plain(&c) {
            true => text.push(c),
            false => text.push_str(&format!("%{:02x}", u32::from(c))),
        }
    }
    text
}

impl Mounts {
    /// Brings a volume to an allocation.
    ///
    /// # Errors
    /// The step that failed; what was done before stays, and is found when it is tried again or
    /// taken back.
    pub async fn mount(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        wanted: &Wanted,
    ) -> Result<Mounted, MountError> {
        let capability = wanted.usage.capability()?;
        let name = wanted.usage.name();
        let places = Places::of(&wanted.namespace, &wanted.volume, &name, &wanted.alloc);
        let _turn = self.turn(root, &wanted.namespace, &wanted.volume).await;
        marked(&root.host.join(&places.user)).await?;
        let mut staging = String::new();
        if stages {
            folder(&root.host.join(&places.staging)).await?;
            staging = text(&root.seen.join(&places.staging));
            let asked = proto::NodeStageVolumeRequest {
                volume_id: wanted.remote.clone(),
                publish_context: wanted.publish_context.clone(),
                staging_target_path: staging.clone(),
                volume_capability: Some(capability.clone()),
                secrets: wanted.secrets.0.clone(),
                volume_context: wanted.context.clone(),
            };
            plugin.node_stage_volume(asked).await?;
        }
        let target = root.host.join(&places.target);
        // The place itself is the plugin's to make.
        folder(target.parent().unwrap_or(&target)).await?;
        let asked = proto::NodePublishVolumeRequest {
            volume_id: wanted.remote.clone(),
            publish_context: wanted.publish_context.clone(),
            staging_target_path: staging,
            target_path: text(&root.seen.join(&places.target)),
            volume_capability: Some(capability),
            readonly: wanted.usage.read_only,
            secrets: wanted.secrets.0.clone(),
            volume_context: wanted.context.clone(),
        };
        plugin.node_publish_volume(asked).await?;
        let is_mount = is_mount(&target).await?;
        if !is_mount && fs::symlink_metadata(&target).await.is_err() {
            let text = format!(
                "the plugin says that volume {} is published, and nothing is at {}",
                wanted.volume,
                target.display()
            );
            return Err(MountError::Lie(text));
        }
        Ok(Mounted {
            path: target,
            is_mount,
        })
    }

    /// Takes a volume back from an allocation, with whatever options it was mounted, and from the
    /// node with its last user. What is gone is taken back.
    ///
    /// # Errors
    /// The step that failed; it is the same again that goes on from there.
    pub async fn unmount(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        given: &Returned,
    ) -> Result<(), MountError> {
        let _turn = self.turn(root, &given.namespace, &given.volume).await;
        let base = base_name(given.read_only, &given.attachment, &given.access);
        for usage in usages(root, given, &base).await? {
            self.end(plugin, stages, root, (given, &usage)).await?;
        }
        Ok(())
    }

    async fn end(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        (given, usage): (&Returned, &str),
    ) -> Result<(), MountError> {
        let places = Places::of(&given.namespace, &given.volume, usage, &given.alloc);
        let target = root.host.join(&places.target);
        let asked = proto::NodeUnpublishVolumeRequest {
            volume_id: given.remote.clone(),
            target_path: text(&root.seen.join(&places.target)),
        };
        undone(plugin.node_unpublish_volume(asked).await.map(drop))?;
        gone(&target).await?;
        let user = root.host.join(&places.user);
        if stages && others(&root.host.join(&places.users), &user).await? == 0 {
            let staging = root.host.join(&places.staging);
            let asked = proto::NodeUnstageVolumeRequest {
                volume_id: given.remote.clone(),
                staging_target_path: text(&root.seen.join(&places.staging)),
            };
            undone(plugin.node_unstage_volume(asked).await.map(drop))?;
            gone(&staging).await?;
            emptied(root, &places.staging, NAMESPACE).await;
        }
        removed(&user).await?;
        emptied(root, &places.user, NAMESPACE).await;
        emptied(root, &places.target, ALLOCATIONS).await;
        Ok(())
    }

    /// Whether an allocation is counted among the users of a volume, in any way.
    ///
    /// # Errors
    /// The folders cannot be read.
    pub async fn is_used_by(
        &self,
        root: &Root,
        (namespace, volume): (&str, &str),
        alloc: &str,
    ) -> Result<bool, MountError> {
        let all = root
            .host
            .join("users")
            .join(part(namespace))
            .join(part(volume));
        for usage in names(&all).await? {
            if fs::symlink_metadata(all.join(usage).join(part(alloc)))
                .await
                .is_ok()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn turn(
        &self,
        root: &Root,
        namespace: &str,
        volume: &str,
    ) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody holds or waits for one that only this map knows.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let key = (
                root.host.clone(),
                format!("{}/{}", part(namespace), part(volume)),
            );
            Arc::clone(turns.entry(key).or_default())
        };
        turn.lock_owned().await
    }
}

/// Whether what was published is still to be seen.
///
/// # Errors
/// The list of mounts cannot be read.
pub async fn is_there(mounted: &Mounted) -> Result<bool, MountError> {
    match mounted.is_mount {
        true => is_mount(&mounted.path).await,
        false => Ok(fs::symlink_metadata(&mounted.path).await.is_ok()),
    }
}

/// Where an allocation has a volume, as the plugin sees it: staged, and published.
///
/// # Errors
/// The folders cannot be read.
pub async fn places(
    root: &Root,
    (namespace, volume): (&str, &str),
    alloc: &str,
) -> Result<Vec<(String, String)>, MountError> {
    let users = root
        .host
        .join("users")
        .join(part(namespace))
        .join(part(volume));
    let mut found = Vec::new();
    for usage in names(&users).await? {
        if fs::symlink_metadata(users.join(&usage).join(part(alloc)))
            .await
            .is_ok()
        {
            let places = Places::of(namespace, volume, &usage, alloc);
            let seen = |path: &Path| text(&root.seen.join(path));
            found.push((seen(&places.staging), seen(&places.target)));
        }
    }
    Ok(found)
}

/// The usages of a volume by an allocation that have a mode: without options, and with any.
async fn usages(root: &Root, given: &Returned, base: &str) -> Result<Vec<String>, MountError> {
    let of_base = |name: &String| {
        let rest = name.strip_prefix(base);
        rest.is_some_and(|rest| rest.is_empty() || is_options(rest))
    };
    let (volume, alloc) = (part(&given.volume), part(&given.alloc));
    let users = root
        .host
        .join("users")
        .join(part(&given.namespace))
        .join(&volume);
    let mut found = Vec::new();
    for usage in names(&users).await?.into_iter().filter(of_base) {
        if fs::symlink_metadata(users.join(&usage).join(&alloc))
            .await
            .is_ok()
        {
            found.push(usage);
        }
    }
    Ok(found)
}

/// What follows the base of a name where the job has options of its own.
fn is_options(rest: &str) -> bool {
    let digits = rest.strip_prefix('-').unwrap_or_default();
    digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What is undone already is undone.
fn undone(answer: Result<(), CallError>) -> Result<(), MountError> {
    match answer {
        Err(error) if error.standing() == Standing::Done => Ok(()),
        answer => Ok(answer?),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
