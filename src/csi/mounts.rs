//! The volumes that are staged and published on a node.
//!
//! Below the folder of a plugin lie, in the layout of Nomad,
//! `staging/<namespace>/<volume>/<usage>`, to which a volume is brought once for all who use it in
//! one way, and `per-alloc/<allocation>/<volume>/<usage>`, where each of them sees it. In a folder
//! that no plugin sees, `<namespace>/<volume>/<usage>/<allocation>` is a file for each user: it is
//! made before the first call for him and removed after the last one. So what was counted is true
//! whatever dies, and nothing is remembered anywhere else.
//!
//! Every call may be repeated: the plugin's are, and what is gone is gone. A plugin is trusted with
//! its volumes and with nothing else of the node: what it says it published has to be mounted at
//! the place, and no link that it leaves there is followed.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FileType;
use tokio::fs;
use tonic::Code;

use crate::capability::{Attachment, access, capability};
use crate::disk::{Place, is_mount, marked, names, others, unmarked};
use crate::error::{CallError, Cause, Standing};
pub use crate::mark::{Mark, part};
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
        let may = if self.read_only { "ro" } else { "rw" };
        let base = format!("{may}-{}-{}", self.attachment, self.access);
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

/// Where a plugin's folders lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// On the host.
    pub host: PathBuf,
    /// As the plugin sees the same folder.
    pub seen: PathBuf,
    /// Where the users of its volumes are counted, which it does not see.
    pub users: PathBuf,
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
pub struct Mounts {
    /// Those of a volume come one after the other.
    turns: Mutex<HashMap<(PathBuf, String), Turn>>,
    /// What is published has to be mounted.
    mounts: bool,
}

impl Default for Mounts {
    fn default() -> Self {
        Self {
            turns: Mutex::default(),
            mounts: rustix::process::geteuid().is_root(),
        }
    }
}

/// What is kept although it is empty: the folder of a namespace, which others may be about to use.
const NAMESPACE: usize = 2;
/// The folder of all allocations.
const ALLOCATIONS: usize = 1;
/// The file of a user lies below namespace, volume and usage.
const USER_DEPTH: usize = 4;
/// The folders in a plugin's: to which volumes are brought, and where allocations see them.
pub const FOLDERS: [&str; 2] = ["staging", "per-alloc"];
/// The word of a job for a volume that is a device.
const BLOCK_DEVICE: &str = "block-device";

/// The places of one use.
struct Places {
    staging: Place,
    target: Place,
    users: PathBuf,
    user: PathBuf,
}

impl Places {
    fn of(root: &Root, namespace: &str, volume: &str, (usage, alloc): (&str, &str)) -> Places {
        let (namespace, volume) = (part(namespace), part(volume));
        let (usage, alloc) = (part(usage), part(alloc));
        let users = root.users.join(&namespace).join(&volume).join(&usage);
        let place = |first: &str, parts: [&String; 3]| {
            let mut path = PathBuf::from(first);
            path.extend(parts);
            let root = root.host.clone();
            Place { root, path }
        };
        Places {
            staging: place(FOLDERS[0], [&namespace, &volume, &usage]),
            target: place(FOLDERS[1], [&alloc, &volume, &usage]),
            user: users.join(&alloc),
            users,
        }
    }
}

impl Mounts {
    /// For plugins that cannot mount: what they show in another way counts as published. Where the
    /// agent is not root there are no others; where it is, a folder would be written to in place
    /// of the volume, and a link followed to wherever it leads.
    pub fn without_mounts() -> Self {
        Self {
            turns: Mutex::default(),
            mounts: false,
        }
    }

    /// Brings a volume to an allocation. What is begun goes on until the plugin has answered, also
    /// where nobody waits for it any more: what follows for the same volume waits for that.
    ///
    /// # Errors
    /// The step that failed; what was done before stays, and is found when it is tried again or
    /// taken back.
    pub async fn mount(
        self: &Arc<Self>,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        wanted: &Wanted,
    ) -> Result<Mounted, MountError> {
        let (this, plugin) = (Arc::clone(self), plugin.clone());
        let (root, wanted) = (root.clone(), wanted.clone());
        let begun = async move { this.bring(&plugin, stages, &root, &wanted).await };
        through(begun).await
    }

    async fn bring(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        wanted: &Wanted,
    ) -> Result<Mounted, MountError> {
        let capability = wanted.usage.capability()?;
        let name = wanted.usage.name();
        let places = Places::of(
            root,
            &wanted.namespace,
            &wanted.volume,
            (&name, &wanted.alloc),
        );
        let _turn = self.turn(root, &wanted.namespace, &wanted.volume).await;
        let mark = Mark {
            namespace: wanted.namespace.clone(),
            volume: wanted.volume.clone(),
            remote: wanted.remote.clone(),
            alloc: wanted.alloc.clone(),
        };
        marked(&places.user, mark.text().as_bytes()).await?;
        let mut staging = String::new();
        if stages {
            places.staging.folder().await?;
            staging = text(&root.seen.join(&places.staging.path));
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
        // The place itself is the plugin's to make.
        places.target.above().await?;
        let asked = proto::NodePublishVolumeRequest {
            volume_id: wanted.remote.clone(),
            publish_context: wanted.publish_context.clone(),
            staging_target_path: staging,
            target_path: text(&root.seen.join(&places.target.path)),
            volume_capability: Some(capability),
            readonly: wanted.usage.read_only,
            secrets: wanted.secrets.0.clone(),
            volume_context: wanted.context.clone(),
        };
        plugin.node_publish_volume(asked).await?;
        self.published(&places.target, wanted).await
    }

    /// What a plugin says it published; it is looked at, not believed.
    async fn published(&self, target: &Place, wanted: &Wanted) -> Result<Mounted, MountError> {
        let lie = |what: &str| {
            let text = format!(
                "the plugin says that volume {} is published, and {what} at {}",
                wanted.volume,
                target.host().display()
            );
            Err(MountError::Lie(text))
        };
        let (path, is_mount) = target.mounted().await?;
        let kind = target.kind().await?;
        let is_device = wanted.usage.attachment == BLOCK_DEVICE;
        match kind {
            None => return lie("nothing is"),
            Some(_) if self.mounts && !is_mount => return lie("nothing is mounted"),
            Some(kind) if is_mount && is_device != (kind == FileType::BlockDevice) => {
                return lie(if is_device {
                    "no device is"
                } else {
                    "a device is"
                });
            }
            Some(_) => {}
        }
        Ok(Mounted { path, is_mount })
    }

    /// Takes a volume back from an allocation, in whatever ways it was mounted for it (CSI-16), and
    /// from the node with its last user. What is gone is taken back. As with [`Mounts::mount`],
    /// what is begun goes on.
    ///
    /// # Errors
    /// The step that failed; it is the same again that goes on from there.
    pub async fn unmount(
        self: &Arc<Self>,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        given: &Returned,
    ) -> Result<(), MountError> {
        let (this, plugin) = (Arc::clone(self), plugin.clone());
        let (root, given) = (root.clone(), given.clone());
        let begun = async move {
            let _turn = this.turn(&root, &given.namespace, &given.volume).await;
            let key = (&*given.namespace, &*given.volume);
            for usage in usages(&root.users, key, &given.alloc).await? {
                end(&plugin, stages, &root, (&given, &usage)).await?;
            }
            Ok(())
        };
        through(begun).await
    }

    /// Whether an allocation is counted among the users of a volume, in any way.
    ///
    /// # Errors
    /// The folders cannot be read.
    pub async fn is_used_by(
        &self,
        users: &Path,
        (namespace, volume): (&str, &str),
        alloc: &str,
    ) -> Result<bool, MountError> {
        Ok(!usages(users, (namespace, volume), alloc).await?.is_empty())
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

/// Does what must come to its end, whoever waits for it.
async fn through<T: Send + 'static>(
    work: impl Future<Output = Result<T, MountError>> + Send + 'static,
) -> Result<T, MountError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| {
        let error = io::Error::other(error);
        Err(MountError::Io("work at", PathBuf::new(), error))
    })
}

async fn end(
    plugin: &Plugin,
    stages: bool,
    root: &Root,
    (given, usage): (&Returned, &str),
) -> Result<(), MountError> {
    let places = Places::of(root, &given.namespace, &given.volume, (usage, &given.alloc));
    let asked = proto::NodeUnpublishVolumeRequest {
        volume_id: given.remote.clone(),
        target_path: text(&root.seen.join(&places.target.path)),
    };
    let mut unpublished = plugin.node_unpublish_volume(asked.clone()).await;
    // A task that shares its mounts with the host may have left some, on which the volume is busy.
    if unpublished.is_err() && places.target.freed().await.unwrap_or(false) {
        unpublished = plugin.node_unpublish_volume(asked).await;
    }
    undone(unpublished)?;
    places.target.gone().await?;
    // What an older version of the plugin staged is to go too.
    let is_staged = places.staging.kind().await?.is_some();
    if (stages || is_staged) && others(&places.users, &places.user).await? == 0 {
        let asked = proto::NodeUnstageVolumeRequest {
            volume_id: given.remote.clone(),
            staging_target_path: text(&root.seen.join(&places.staging.path)),
        };
        let mut unstaged = plugin.node_unstage_volume(asked.clone()).await;
        if unstaged.is_err() && places.staging.freed().await.unwrap_or(false) {
            unstaged = plugin.node_unstage_volume(asked).await;
        }
        match unstaged {
            Err(error) if !stages && error.cause() == Cause::Answered(Code::Unimplemented) => {}
            answer => undone(answer)?,
        }
        places.staging.gone().await?;
        places.staging.emptied(NAMESPACE).await;
    }
    unmarked(&root.users, &places.user).await?;
    places.target.emptied(ALLOCATIONS).await;
    Ok(())
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

/// Where an allocation has a volume, as the plugin sees it: staged, and published. What the plugin
/// never came to publish is not there.
///
/// # Errors
/// The folders cannot be read.
pub async fn places(
    root: &Root,
    (namespace, volume): (&str, &str),
    alloc: &str,
) -> Result<Vec<(String, String)>, MountError> {
    let mut found = Vec::new();
    for usage in usages(&root.users, (namespace, volume), alloc).await? {
        let places = Places::of(root, namespace, volume, (&usage, alloc));
        if places.target.kind().await?.is_some() {
            let seen = |place: &Place| text(&root.seen.join(&place.path));
            found.push((seen(&places.staging), seen(&places.target)));
        }
    }
    Ok(found)
}

/// Who has volumes of a plugin on this node, whatever became of him: one entry for each volume. A
/// mark that says nothing is one whose volume was never asked for; it is removed.
///
/// # Errors
/// The folders cannot be read.
pub async fn marks(root: &Root) -> Result<Vec<Mark>, MountError> {
    let mut folders = vec![root.users.clone()];
    for _ in 0..USER_DEPTH {
        let mut below = Vec::new();
        for folder in folders {
            let all = names(&folder).await?;
            below.extend(all.into_iter().map(|name| folder.join(name)));
        }
        folders = below;
    }
    let mut found = Vec::new();
    for user in folders {
        let said = fs::read_to_string(&user).await.unwrap_or_default();
        match Mark::parse(&said) {
            Some(mark) if !found.contains(&mark) => found.push(mark),
            Some(_) => {}
            None => unmarked(&root.users, &user).await?,
        }
    }
    Ok(found)
}

/// The ways in which an allocation has a volume.
async fn usages(
    users: &Path,
    (namespace, volume): (&str, &str),
    alloc: &str,
) -> Result<Vec<String>, MountError> {
    let users = users.join(part(namespace)).join(part(volume));
    let mut found = Vec::new();
    for usage in names(&users).await? {
        let user = users.join(&usage).join(part(alloc));
        if fs::symlink_metadata(user).await.is_ok() {
            found.push(usage);
        }
    }
    Ok(found)
}

/// What is undone already is undone.
fn undone<T>(answer: Result<T, CallError>) -> Result<(), MountError> {
    match answer {
        Err(error) if error.standing() != Standing::Done => Err(error.into()),
        _ => Ok(()),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
