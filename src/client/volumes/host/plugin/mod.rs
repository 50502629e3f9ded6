//! Plugins: the one that is built in, and executables in `host_volume_plugin_dir`.
//!
//! An executable is run directly, never by a shell, with the operation as its argument and in its
//! environment. What it says is bounded, and so is its time: one that is late is killed with all
//! that it started. Whatever it says goes into errors and no further.

mod run;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;

use super::{AT_ONCE, mkdir};
use drover_error::{Code, Refusal};
use drover_rpc::host_volume::{ClientHostVolumeCreateRequest, ClientHostVolumeDeleteRequest};

/// How long a plugin may take to report its identity.
const FINGERPRINT: Duration = Duration::from_secs(5);
/// How long it may take to make a volume, or to delete one.
const WORK: Duration = Duration::from_mins(1);
/// Plugins that are looked at.
const MOST: usize = 256;

/// Why a plugin did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct PluginError(String);

impl PluginError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<PluginError> for Refusal {
    fn from(error: PluginError) -> Self {
        Self::new(Code::Refused, error.0)
    }
}

/// A volume that a plugin made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Made {
    /// Where it lies.
    pub(super) path: String,
    /// Its size, bytes; 0 where the plugin does not say.
    #[serde(default)]
    pub(super) bytes: i64,
}

#[derive(Deserialize)]
struct Fingerprint {
    version: String,
}

/// A plugin that can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPlugin {
    /// The one that is built in.
    Mkdir,
    /// An executable.
    File(PathBuf),
}

/// The plugins of a node.
#[derive(Clone, Debug)]
pub(super) struct Plugins {
    /// Where they make volumes.
    pub(super) volumes: PathBuf,
    /// Where executables are.
    pub(super) folder: PathBuf,
    /// The node's id and pool.
    pub(super) node: (String, String),
}

/// Versions of what is always there, by name.
pub(super) fn built_in() -> BTreeMap<String, String> {
    [(mkdir::NAME.to_owned(), mkdir::VERSION.to_owned())].into()
}

/// Whether a file's name can be a plugin's: it stands in attributes, and in a path.
fn is_name(name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=128).contains(&name.len()) && !name.starts_with('.') && name.chars().all(part)
}

impl Plugins {
    /// The plugin of a name.
    ///
    /// # Errors
    /// There is no plugin of this name.
    pub(super) fn named(&self, name: &str) -> Result<HostPlugin, PluginError> {
        if name == mkdir::NAME {
            return Ok(HostPlugin::Mkdir);
        }
        let file = self.folder.join(name);
        match is_name(name) && is_executable(&file) {
            true => Ok(HostPlugin::File(file)),
            false => Err(PluginError::new(format!("no such plugin: {name:?}"))),
        }
    }

    /// The plugins that report their identity, and their versions.
    pub(super) async fn scan(&self) -> BTreeMap<String, String> {
        let folder = self.folder.clone();
        let files = tokio::task::spawn_blocking(move || executables(&folder)).await;
        let files = files.unwrap_or_default().into_iter();
        let files = files.filter(|(name, _)| name != mkdir::NAME);
        let requested = files.map(|(name, file)| {
            let plugins = self.clone();
            async move {
                match plugins.fingerprint(&file).await {
                    Ok(version) => Some((name, version)),
                    Err(error) => {
                        let file = file.display();
                        tracing::warn!("{file} is no plugin of host volumes: {error}");
                        None
                    }
                }
            }
        });
        let found = futures_util::stream::iter(requested).buffer_unordered(AT_ONCE);
        let mut found: BTreeMap<_, _> = found.filter_map(std::future::ready).collect().await;
        found.extend(built_in());
        found
    }

    async fn fingerprint(&self, file: &Path) -> Result<String, PluginError> {
        let answer = self.run(file, "fingerprint", &[], FINGERPRINT).await?;
        let answer: Fingerprint = decode(file, &answer)?;
        let version = answer.version;
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
        match (1..=64).contains(&version.len()) && version.chars().all(part) {
            true => Ok(version),
            false => Err(failed(file, format!("its version is no {version:?}"))),
        }
    }

    /// Makes a volume; one that is there is as good.
    pub(super) async fn create(
        &self,
        plugin: &HostPlugin,
        requested: &ClientHostVolumeCreateRequest,
    ) -> Result<Made, PluginError> {
        let file = match plugin {
            HostPlugin::Mkdir => {
                let (volumes, requested) = (self.volumes.clone(), requested.clone());
                let work = move || mkdir::create(&volumes, &requested.id, &requested.parameters);
                return waited(work).await;
            }
            HostPlugin::File(file) => file,
        };
        let (least, most) = (
            requested.requested_capacity_min_bytes.to_string(),
            requested.requested_capacity_max_bytes.to_string(),
        );
        let parameters = parameters(&requested.parameters);
        let variables = [
            ("DHV_VOLUME_ID", requested.id.as_str()),
            ("DHV_VOLUME_NAME", &requested.name),
            ("DHV_NAMESPACE", &requested.namespace),
            ("DHV_CAPACITY_MIN_BYTES", &least),
            ("DHV_CAPACITY_MAX_BYTES", &most),
            ("DHV_PARAMETERS", &parameters),
        ];
        let answer = self.run(file, "create", &variables, WORK).await?;
        let made: Made = decode(file, &answer)?;
        let wrong = match made.path.as_str() {
            path if !path.starts_with('/') => Some("no absolute path"),
            path if path.len() > 4096 || path.contains('\0') => Some("no path"),
            _ if made.bytes < 0 => Some("a negative size"),
            _ => None,
        };
        match wrong {
            None => Ok(made),
            Some(what) => Err(failed(file, format!("it answered with {what}"))),
        }
    }

    /// Deletes a volume; one that is gone is as good.
    pub(super) async fn delete(
        &self,
        plugin: &HostPlugin,
        requested: &ClientHostVolumeDeleteRequest,
    ) -> Result<(), PluginError> {
        let file = match plugin {
            HostPlugin::Mkdir => {
                let (volumes, id) = (self.volumes.clone(), requested.id.clone());
                return waited(move || mkdir::delete(&volumes, &id)).await;
            }
            HostPlugin::File(file) => file,
        };
        let parameters = parameters(&requested.parameters);
        let variables = [
            ("DHV_VOLUME_ID", requested.id.as_str()),
            ("DHV_VOLUME_NAME", &requested.name),
            ("DHV_NAMESPACE", &requested.namespace),
            ("DHV_CREATED_PATH", &requested.host_path),
            ("DHV_PARAMETERS", &parameters),
        ];
        self.run(file, "delete", &variables, WORK).await?;
        Ok(())
    }
}

fn failed(file: &Path, what: impl std::fmt::Display) -> PluginError {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    PluginError::new(format!("plugin {name:?}: {what}"))
}

fn decode<T: serde::de::DeserializeOwned>(file: &Path, answer: &[u8]) -> Result<T, PluginError> {
    serde_json::from_slice(answer)
        .map_err(|error| failed(file, format!("its answer is not as it should be: {error}")))
}

fn parameters(parameters: &drover_events::gojson::Map<String>) -> String {
    let all: serde_json::Map<_, _> = parameters
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    serde_json::Value::Object(all).to_string()
}

/// Does what waits for file systems where that holds up no other work.
async fn waited<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PluginError> + Send + 'static,
) -> Result<T, PluginError> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(PluginError::new(format!("mkdir: {error}"))))
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The executables of a folder that can be plugins, by name.
pub(crate) fn executables(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let file = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if !is_executable(&file) || found.len() == MOST {
            continue;
        }
        match is_name(&name) {
            true => found.push((name, file)),
            false => tracing::warn!("{name:?} cannot be the name of a plugin"),
        }
    }
    found
}
