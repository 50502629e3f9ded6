use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use drover_csi::capability::{AttachmentMode, capability};
use drover_csi::proto::volume_capability::access_mode::Mode;
use drover_csi::proto::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, CreateVolumeRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
};
use drover_csi::{CallError, CallLimits, Plugin};
use drover_testkit::{LONG, wait_for};
use serde_json::Value;
use tempfile::TempDir;

/// A plugin that runs, in a folder of its own.
pub(crate) struct Running {
    pub(crate) folder: TempDir,
    words: Vec<String>,
    process: Child,
}

impl Running {
    pub(crate) fn start(words: &[&str]) -> Running {
        let folder = tempfile::tempdir().expect("as the test needs it");
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let process = spawned(folder.path(), &words);
        Running {
            folder,
            words,
            process,
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// What makes calls that may take a second.
    pub(crate) fn plugin(&self) -> Plugin {
        let limits = CallLimits {
            quick: LONG,
            work: Duration::from_secs(1),
        };
        Plugin::with_limits(&self.path("csi.sock"), limits)
    }

    /// What makes calls that take as long as they take.
    pub(crate) fn patient(&self) -> Plugin {
        let limits = CallLimits {
            quick: LONG,
            work: LONG,
        };
        Plugin::with_limits(&self.path("csi.sock"), limits)
    }

    /// Waits for its end, and starts it again.
    pub(crate) fn again(&mut self) {
        wait_for("the end of the plugin", LONG, || {
            let ended = self.process.try_wait().map_err(|error| error.to_string())?;
            ended.ok_or_else(|| "it runs".to_owned())
        })
        .expect("as the test needs it");
        self.process = spawned(self.folder.path(), &self.words);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("as the test needs it");
    }

    /// Says what to do wrong.
    pub(crate) fn faults(&self, rules: &Value) {
        let beside = self.path("faults.beside");
        fs::write(&beside, rules.to_string()).expect("as the test needs it");
        fs::rename(beside, self.path("faults")).expect("as the test needs it");
    }

    /// What was recorded.
    pub(crate) fn record(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("record")).expect("as the test needs it");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("as the test needs it"))
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // What a test that failed has left mounted.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = self.folder.path().to_string_lossy().into_owned();
        let left = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in left.filter(|path| path.starts_with(&below)) {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

fn spawned(folder: &Path, words: &[String]) -> Child {
    let socket = folder.join("csi.sock");
    let _ = fs::remove_file(&socket);
    let log = fs::File::create(folder.join("log")).expect("as the test needs it");
    let child = Command::new(env!("CARGO_BIN_EXE_drover-hostpath"))
        .env("CSI_ENDPOINT", format!("unix://{}", socket.display()))
        .env("DROVER_HOSTPATH_RECORD", folder.join("record"))
        .env("DROVER_HOSTPATH_FAULTS", folder.join("faults"))
        .arg("--state-dir")
        .arg(folder.join("state"))
        .args(words)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("as the test needs it");
    wait_for(
        "the socket",
        LONG,
        || match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
    )
    .expect("as the test needs it");
    child
}

/// Whether mounts can be made here.
pub(crate) fn can_mount() -> Result<(), &'static str> {
    let folder = tempfile::tempdir().expect("as the test needs it");
    let bound = Command::new("mount")
        .arg("--bind")
        .args([folder.path(), folder.path()])
        .stderr(Stdio::null())
        .status();
    if !bound.is_ok_and(|status| status.success()) {
        return Err("needs root that may mount");
    }
    let _ = Command::new("umount").arg(folder.path()).status();
    Ok(())
}

/// Whether loop devices can be made here.
pub(crate) fn can_loop() -> Result<(), &'static str> {
    can_mount()?;
    let found = Command::new("losetup").arg("--find").output();
    match found.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err("needs loop devices"),
    }
}

pub(crate) fn folder(mode: Mode) -> VolumeCapability {
    capability(mode, AttachmentMode::FileSystem, "", &[])
}

/// The usual calls, in the words of a test.
pub(crate) struct Caller {
    pub(crate) plugin: Plugin,
    pub(crate) mode: Mode,
    pub(crate) secrets: BTreeMap<String, String>,
}

impl Caller {
    pub(crate) fn new(plugin: Plugin) -> Caller {
        Caller {
            plugin,
            mode: Mode::SingleNodeWriter,
            secrets: BTreeMap::new(),
        }
    }

    pub(crate) async fn create(&self, name: &str) -> Result<String, CallError> {
        let requested = CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![folder(self.mode)],
            parameters: self.secrets.clone(),
            secrets: self.secrets.clone(),
            ..Default::default()
        };
        Ok(self.plugin.created(requested).await?.volume_id)
    }

    pub(crate) async fn attach(
        &self,
        id: &str,
        node: &str,
    ) -> Result<BTreeMap<String, String>, CallError> {
        let requested = ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(folder(self.mode)),
            secrets: self.secrets.clone(),
            ..Default::default()
        };
        let answer = self.plugin.controller_publish_volume(requested).await?;
        Ok(answer.publish_context)
    }

    pub(crate) async fn detach(&self, id: &str, node: &str) -> Result<(), CallError> {
        let requested = ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            secrets: self.secrets.clone(),
        };
        self.plugin.controller_unpublish_volume(requested).await?;
        Ok(())
    }

    pub(crate) async fn stage(
        &self,
        id: &str,
        at: &Path,
        shown: &BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        let requested = NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: at.to_string_lossy().into_owned(),
            volume_capability: Some(folder(self.mode)),
            publish_context: shown.clone(),
            secrets: self.secrets.clone(),
            ..Default::default()
        };
        self.plugin.node_stage_volume(requested).await?;
        Ok(())
    }

    pub(crate) async fn publish(
        &self,
        id: &str,
        from: &Path,
        to: &Path,
        shown: &BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        let requested = NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: from.to_string_lossy().into_owned(),
            target_path: to.to_string_lossy().into_owned(),
            volume_capability: Some(folder(self.mode)),
            publish_context: shown.clone(),
            secrets: self.secrets.clone(),
            ..Default::default()
        };
        self.plugin.node_publish_volume(requested).await?;
        Ok(())
    }

    pub(crate) async fn unpublish(&self, id: &str, at: &Path) -> Result<(), CallError> {
        let requested = NodeUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: at.to_string_lossy().into_owned(),
        };
        self.plugin.node_unpublish_volume(requested).await?;
        Ok(())
    }

    pub(crate) async fn unstage(&self, id: &str, at: &Path) -> Result<(), CallError> {
        let requested = NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: at.to_string_lossy().into_owned(),
        };
        self.plugin.node_unstage_volume(requested).await?;
        Ok(())
    }
}
