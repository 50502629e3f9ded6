//! The volumes that are staged and published on a node.
//!
//! Below the folder of a plugin lie, in the layout of Nomad,
//! `staging/<namespace>/<volume>/<usage>`, to which a volume is brought once for all that use it in
//! one way, and `per-alloc/<allocation>/<volume>/<usage>`, where each of them sees it. In a folder
//! that no plugin sees, `<namespace>/<volume>/<usage>/<allocation>` is a file for each user: it is
//! made before the first call for that user and removed after the last one. So what was counted is
//! true whatever dies, and nothing is remembered anywhere else.
//!
//! Every call may be repeated: the plugin's are, and what is gone is gone. A plugin is trusted with
//! its volumes and with nothing else of the node: what it says it published has to be mounted at
//! the place, and no link that it leaves there is followed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_events::model::status::attachment_mode;
use rustix::fs::FileType;
use tokio::fs;
use tokio::time::timeout;
use tonic::Code;

use crate::disk::{MountUser, PluginPath, UNFINISHED, marked, names, others, read_user, unmarked};
use crate::error::{CallError, Cause, RetryDecision};
use crate::lines::{InLine, Lines};
use crate::mark::whole;
pub use crate::mark::{Mark, part};
pub use crate::mounted::{Mounted, is_there};
use crate::plugin::Plugin;
use crate::proto;
pub use crate::usage::Usage;

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
pub struct MountSpec {
    pub alloc: String,
    /// The volume's namespace.
    pub namespace: String,
    pub volume: String,
    /// The plugin's own name for it.
    pub remote: String,
    /// How it is used.
    pub usage: Usage,
    /// What the controller answered when it attached it.
    pub publish_context: std::collections::BTreeMap<String, String>,
    /// What the plugin answered when it made it.
    pub context: std::collections::BTreeMap<String, String>,
    /// What the plugin wants to be shown.
    pub secrets: Secrets,
    /// The requested size, least and most, where the node has to make it so: the volume grew
    /// while no node had it.
    pub size: Option<proto::CapacityRange>,
}

impl MountSpec {
    fn mark(&self) -> Mark {
        Mark {
            namespace: self.namespace.clone(),
            volume: self.volume.clone(),
            remote: self.remote.clone(),
            alloc: self.alloc.clone(),
        }
    }
}

/// Secrets, which are never printed.
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
    pub alloc: String,
    /// The volume's namespace.
    pub namespace: String,
    pub volume: String,
    /// The plugin's own name for it.
    pub remote: String,
}

/// Why a volume is not there, or does not go.
#[derive(Debug)]
pub enum MountError {
    /// The plugin's error, or that it did not answer.
    Call(CallError),
    /// The same, as it was to make the volume larger: it may be done yet.
    Grows(CallError),
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
            MountError::Call(error) | MountError::Grows(error) => {
                error.retry_decision() != RetryDecision::Permanent
            }
            MountError::Io(..) | MountError::Lie(_) => true,
            MountError::Refused(_) => false,
        }
    }
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::Call(error) | MountError::Grows(error) => error.fmt(f),
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

/// Brings volumes and takes them back; one for all plugins of a node.
pub struct Mounts {
    lines: Arc<Lines>,
    /// What is published has to be mounted.
    can_mount: bool,
}

/// The users that have volumes of a plugin.
#[derive(Debug, Default)]
pub struct Marks {
    /// One entry for each volume of each allocation.
    pub all: Vec<Mark>,
    /// There may be more: why they are not known.
    pub failed: Option<MountError>,
}

/// What is kept although it is empty: the folder of a namespace, which others may be about to use.
const NAMESPACE: usize = 2;
/// The folder of all allocations.
const ALLOCATIONS: usize = 1;
/// The file of a user lies below namespace, volume and usage.
const USER_DEPTH: usize = 4;
/// The folders in a plugin's: to which volumes are brought, and where allocations see them.
pub const FOLDERS: [&str; 2] = ["staging", "per-alloc"];

/// The places of one use.
struct Places {
    staging: PluginPath,
    target: PluginPath,
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
            PluginPath { root, path }
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
    /// Whether plugins can mount is known to who runs them. Where they cannot, what they show in
    /// another way counts as published; where they can, a folder would be written to in place of
    /// the volume, and a link followed to wherever it leads.
    pub fn new(can_mount: bool) -> Self {
        Self {
            lines: Arc::default(),
            can_mount,
        }
    }

    /// Brings a volume to an allocation. What is begun continues until the plugin has answered,
    /// also where no caller waits for it any more: what follows for the same volume waits for that,
    /// and the allocation counts among its users from now on.
    ///
    /// # Errors
    /// The step that failed; what was done before stays, and is found when it is tried again or
    /// taken back.
    pub async fn mount(
        self: &Arc<Self>,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        wanted: &MountSpec,
    ) -> Result<Mounted, MountError> {
        let (this, plugin) = (Arc::clone(self), plugin.clone());
        let (root, wanted) = (root.clone(), wanted.clone());
        let coming = self.lines.comes(&root.users, wanted.mark());
        let line = (&*wanted.namespace, &*wanted.volume);
        let line = self.lines.stand(&root.users, line).await;
        let begun = async move {
            let (_coming, _turn) = (coming, line.turn().await);
            this.bring(&plugin, stages, &root, &wanted).await
        };
        through(begun).await
    }

    async fn bring(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        wanted: &MountSpec,
    ) -> Result<Mounted, MountError> {
        let capability = wanted.usage.capability()?;
        let name = wanted.usage.name();
        let places = Places::of(
            root,
            &wanted.namespace,
            &wanted.volume,
            (&name, &wanted.alloc),
        );
        marked(&root.users, &places.user, wanted.mark().text().as_bytes()).await?;
        let mut staging = String::new();
        if stages {
            places.staging.folder().await?;
            staging = text(&root.seen.join(&places.staging.path));
            let request = proto::NodeStageVolumeRequest {
                volume_id: wanted.remote.clone(),
                publish_context: wanted.publish_context.clone(),
                staging_target_path: staging.clone(),
                volume_capability: Some(capability.clone()),
                secrets: wanted.secrets.0.clone(),
                volume_context: wanted.context.clone(),
            };
            plugin.node_stage_volume(request).await?;
        }
        // The place itself is the plugin's to make.
        places.target.above().await?;
        let request = proto::NodePublishVolumeRequest {
            volume_id: wanted.remote.clone(),
            publish_context: wanted.publish_context.clone(),
            staging_target_path: staging.clone(),
            target_path: text(&root.seen.join(&places.target.path)),
            volume_capability: Some(capability.clone()),
            readonly: wanted.usage.read_only,
            secrets: wanted.secrets.0.clone(),
            volume_context: wanted.context.clone(),
        };
        let volume_path = request.target_path.clone();
        plugin.node_publish_volume(request).await?;
        let mut mounted = self.published(&places.target, wanted).await?;
        if wanted.size.is_some() {
            let request = proto::NodeExpandVolumeRequest {
                volume_id: wanted.remote.clone(),
                volume_path,
                capacity_range: wanted.size,
                staging_target_path: staging,
                volume_capability: Some(capability),
                secrets: wanted.secrets.0.clone(),
            };
            mounted.too_small = match plugin.node_expand_volume(request).await {
                Ok(_) => None,
                // It may be done yet: a task that is given the volume now would not know.
                Err(error) if !error.has_ended() => return Err(MountError::Grows(error)),
                // It can be used as large as it is: no task has to go without.
                Err(error) => Some(error.to_string()),
            };
        }
        Ok(mounted)
    }

    /// What a plugin says it published; it is looked at, not believed.
    pub(crate) async fn published(
        &self,
        target: &PluginPath,
        wanted: &MountSpec,
    ) -> Result<Mounted, MountError> {
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
        let is_device = wanted.usage.attachment == attachment_mode::BLOCK_DEVICE;
        match kind {
            None => return lie("nothing is"),
            Some(_) if self.can_mount && !is_mount => return lie("nothing is mounted"),
            Some(kind) if is_mount && is_device != (kind == FileType::BlockDevice) => {
                return lie(if is_device {
                    "no device is"
                } else {
                    "a device is"
                });
            }
            Some(_) => {}
        }
        Ok(Mounted {
            path,
            is_mount,
            too_small: None,
        })
    }

    /// Takes a volume back from an allocation, in whatever ways it was mounted for it (CSI-16), and
    /// from the node with its last user. What is gone is taken back. As with [`Mounts::mount`],
    /// what is begun continues.
    ///
    /// # Errors
    /// The step that failed; the same call again continues from there.
    pub async fn unmount(
        &self,
        plugin: &Plugin,
        stages: bool,
        root: &Root,
        given: &Returned,
    ) -> Result<(), MountError> {
        let line = (&*given.namespace, &*given.volume);
        let line = self.lines.stand(&root.users, line).await;
        taken(plugin, stages, root, given, line).await
    }

    /// The same, unless others work at the volume for longer than this; whether it was done. A call
    /// that gives up has left the line: when it is repeated it does not stand there twice.
    ///
    /// # Errors
    /// As with [`Mounts::unmount`].
    pub async fn unmount_within(
        &self,
        limit: Duration,
        (plugin, stages): (&Plugin, bool),
        root: &Root,
        given: &Returned,
    ) -> Result<bool, MountError> {
        let line = (&*given.namespace, &*given.volume);
        let line = self.lines.stand(&root.users, line).await;
        let Ok(turn) = timeout(limit, line.turn()).await else {
            return Ok(false);
        };
        let taken = taken(plugin, stages, root, given, InLine::First(turn));
        taken.await.map(|()| true)
    }

    /// Whether an allocation is counted among the users of a volume, in any way: also where the
    /// volume is only to come to it.
    ///
    /// # Errors
    /// The folders cannot be read.
    pub async fn is_used_by(
        &self,
        users: &Path,
        (namespace, volume): (&str, &str),
        alloc: &str,
    ) -> Result<bool, MountError> {
        // Looked at before the disk: a new user has its mark there before it leaves this list.
        let mut coming = self.lines.coming(users).into_iter();
        let is_his = |one: Mark| (&*one.namespace, &*one.volume) == (namespace, volume);
        if coming.any(|one| one.alloc == alloc && is_his(one)) {
            return Ok(true);
        }
        Ok(!usages(users, (namespace, volume), alloc).await?.is_empty())
    }

    /// The users that have volumes of a plugin on this node or are to get them, whether they live
    /// or not. A mark that says nothing is removed: the plugin was never called for its volume.
    pub async fn marks(&self, root: &Root) -> Marks {
        let mut found = Marks {
            all: self.lines.coming(&root.users),
            failed: None,
        };
        let users = match users(&root.users).await {
            Ok(users) => users,
            Err(error) => {
                found.failed = Some(error);
                return found;
            }
        };
        for user in users {
            let looked = match read_user(&user).await {
                Ok(MountUser::Nothing) => self.forgotten(root, &user).await,
                Ok(MountUser::Mark(mark)) if !found.all.contains(&mark) => {
                    found.all.push(mark);
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            // What one of them hides is no matter for the others.
            found.failed = looked.err().or(found.failed);
        }
        found
    }

    /// Removes a mark that says nothing, unless another call works at its volume: it may be writing
    /// it.
    async fn forgotten(&self, root: &Root, user: &Path) -> Result<(), MountError> {
        let of = user.strip_prefix(&root.users).unwrap_or(user).iter();
        let mut of = of.map(|part| whole(&part.to_string_lossy()));
        let (Some(Some(namespace)), Some(Some(volume))) = (of.next(), of.next()) else {
            // No user has a volume of such a name.
            return unmarked(&root.users, user).await;
        };
        let Some(_turn) = self.lines.now(&root.users, (&namespace, &volume)) else {
            return Ok(());
        };
        match read_user(user).await? {
            MountUser::Nothing => unmarked(&root.users, user).await,
            MountUser::Mark(_) | MountUser::Gone => Ok(()),
        }
    }
}

/// Does what must come to its end, whether or not its caller waits for it.
async fn through<T: Send + 'static>(
    work: impl Future<Output = Result<T, MountError>> + Send + 'static,
) -> Result<T, MountError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|error| {
        let error = io::Error::other(error);
        Err(MountError::Io("work at", PathBuf::new(), error))
    })
}

/// Takes a volume back from an allocation, when its turn comes.
async fn taken(
    plugin: &Plugin,
    stages: bool,
    root: &Root,
    given: &Returned,
    line: InLine,
) -> Result<(), MountError> {
    let (plugin, root, given) = (plugin.clone(), root.clone(), given.clone());
    let begun = async move {
        let _turn = line.turn().await;
        let key = (&*given.namespace, &*given.volume);
        for usage in usages(&root.users, key, &given.alloc).await? {
            end(&plugin, stages, &root, (&given, &usage)).await?;
        }
        Ok(())
    };
    through(begun).await
}

async fn end(
    plugin: &Plugin,
    stages: bool,
    root: &Root,
    (given, usage): (&Returned, &str),
) -> Result<(), MountError> {
    let places = Places::of(root, &given.namespace, &given.volume, (usage, &given.alloc));
    let request = proto::NodeUnpublishVolumeRequest {
        volume_id: given.remote.clone(),
        target_path: text(&root.seen.join(&places.target.path)),
    };
    let mut unpublished = plugin.node_unpublish_volume(request.clone()).await;
    // A task that shares its mounts with the host may have left some, on which the volume is busy.
    if unpublished.is_err() && places.target.freed().await.unwrap_or(false) {
        unpublished = plugin.node_unpublish_volume(request).await;
    }
    undone(unpublished)?;
    places.target.gone().await?;
    // What an older version of the plugin staged is to go too.
    let is_staged = places.staging.kind().await?.is_some();
    if (stages || is_staged) && others(&places.users, &places.user).await? == 0 {
        let request = proto::NodeUnstageVolumeRequest {
            volume_id: given.remote.clone(),
            staging_target_path: text(&root.seen.join(&places.staging.path)),
        };
        let mut unstaged = plugin.node_unstage_volume(request.clone()).await;
        if unstaged.is_err() && places.staging.freed().await.unwrap_or(false) {
            unstaged = plugin.node_unstage_volume(request).await;
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
            let seen = |place: &PluginPath| text(&root.seen.join(&place.path));
            found.push((seen(&places.staging), seen(&places.target)));
        }
    }
    Ok(found)
}

/// The files of all users.
async fn users(root: &Path) -> Result<Vec<PathBuf>, MountError> {
    let mut folders = vec![root.to_owned()];
    for depth in 0..USER_DEPTH {
        let mut below = Vec::new();
        for folder in folders {
            let all = names(&folder).await?.into_iter();
            let all = all.filter(|name| depth > 0 || name != UNFINISHED);
            below.extend(all.map(|name| folder.join(name)));
        }
        folders = below;
    }
    Ok(folders)
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
        match fs::symlink_metadata(&user).await {
            Ok(_) => found.push(usage),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // What cannot be seen is not gone.
            Err(error) => return Err(MountError::Io("look at", user, error)),
        }
    }
    Ok(found)
}

/// What is undone already is undone.
fn undone<T>(answer: Result<T, CallError>) -> Result<(), MountError> {
    match answer {
        Err(error) if error.retry_decision() != RetryDecision::AlreadyDone => Err(error.into()),
        _ => Ok(()),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
