//! The plugin's commands, and what it writes down.
//!
//! In its folder lie `commands`, which it reads again and again: `unhealthy ID TEXT`, `gone ID`,
//! `silent` (it reports no devices, but ends its streams) and `die` (it takes the file away and
//! ends), a line each; and `calls`, to which it adds a line for each call.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_plugins::proto::device::{
    Attribute, DetectedDevice, DeviceGroup, DeviceLocality, attribute::Value,
};
use tokio::sync::{Notify, watch};
use tonic::Status;

/// How often commands are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// The devices.
const IDS: [&str; 2] = ["a", "b"];

/// How its devices are now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeviceReport {
    /// The commands.
    lines: Vec<String>,
}

/// What it knows.
pub(crate) struct State {
    folder: Mutex<Option<PathBuf>>,
    /// The name of its devices.
    pub(crate) model: Mutex<String>,
    /// Held while it runs: no two do.
    lock: Mutex<Option<File>>,
    pub(crate) reported: watch::Sender<DeviceReport>,
    end: Notify,
}

/// What answers calls: all clones know the same.
#[derive(Clone)]
pub(crate) struct Served(pub(crate) Arc<State>);

impl std::ops::Deref for Served {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl State {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        let state = Self {
            folder: Mutex::default(),
            model: Mutex::new("widget".to_owned()),
            lock: Mutex::default(),
            reported: watch::Sender::default(),
            end: Notify::new(),
        };
        if let Some(folder) = folder {
            state.keep_in(&folder);
        }
        state
    }

    /// Takes a folder, and says so; where another holds it, that is noted too.
    pub(crate) fn keep_in(&self, folder: &Path) {
        let already = self
            .folder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(folder.to_owned());
        if already.as_deref() == Some(folder) {
            return;
        }
        let lock = File::create(folder.join("lock"));
        if let Ok(lock) = lock {
            if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
                self.note("two at once");
            }
            *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        }
        self.note(&format!("start {}", std::process::id()));
        self.look();
    }

    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.folder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Writes a line down.
    pub(crate) fn note(&self, line: &str) {
        let Some(folder) = self.folder() else { return };
        let file = File::options()
            .create(true)
            .append(true)
            .open(folder.join("calls"));
        // A test that reads the file sees that the line is missing.
        let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }

    /// It is to end.
    pub(crate) fn end(&self) {
        self.end.notify_one();
    }

    pub(crate) async fn ended(&self) {
        self.end.notified().await;
        // Other tasks that wait for the end are notified too.
        self.end.notify_one();
    }

    /// Follows its commands, until one is to die.
    pub(crate) async fn obey(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.look() {
                self.note("die");
                return;
            }
        }
    }

    /// Looks for commands; whether it is to die.
    fn look(&self) -> bool {
        let Some(folder) = self.folder() else {
            return false;
        };
        let file = folder.join("commands");
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let dies = lines.iter().any(|line| line == "die");
        if dies {
            let _ = fs::remove_file(&file);
        }
        self.reported.send_if_modified(|reported| {
            let changed = reported.lines != lines;
            reported.lines = lines;
            changed
        });
        dies
    }

    /// Its devices, as it reports them now.
    pub(crate) fn group(&self) -> DeviceGroup {
        let reported = self.reported.borrow().clone();
        let ids = IDS.iter().filter(|id| !reported.has("gone", id));
        let devices = ids.map(|id| DetectedDevice {
            id: (*id).to_owned(),
            healthy: reported.why("unhealthy", id).is_none(),
            health_description: reported.why("unhealthy", id).unwrap_or_default(),
            hw_locality: Some(DeviceLocality {
                pci_bus_id: format!("0000:0{id}"),
            }),
        });
        let attribute = |value: Value, unit: &str| Attribute {
            value: Some(value),
            unit: unit.to_owned(),
        };
        DeviceGroup {
            vendor: "drover".to_owned(),
            device_type: "sample".to_owned(),
            device_name: self
                .model
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            devices: devices.collect(),
            attributes: [
                ("memory".to_owned(), attribute(Value::IntVal(4), "GiB")),
                ("fast".to_owned(), attribute(Value::BoolVal(true), "")),
            ]
            .into(),
        }
    }

    /// Whether it reports nothing.
    pub(crate) fn is_silent(&self) -> bool {
        self.reported
            .borrow()
            .lines
            .iter()
            .any(|line| line == "silent")
    }

    /// Those ids it has.
    pub(crate) fn known(&self, ids: &[String]) -> Result<(), Status> {
        match ids.iter().find(|id| !IDS.contains(&id.as_str())) {
            None => Ok(()),
            Some(id) => Err(Status::unknown(format!("there is no device {id:?}"))),
        }
    }
}

impl DeviceReport {
    fn has(&self, what: &str, id: &str) -> bool {
        self.why(what, id).is_some()
    }

    /// What the lines state of a device.
    fn why(&self, what: &str, id: &str) -> Option<String> {
        self.lines.iter().find_map(|line| {
            let rest = line.strip_prefix(what)?.strip_prefix(' ')?;
            let (named, why) = rest.split_once(' ').unwrap_or((rest, ""));
            (named == id).then(|| why.to_owned())
        })
    }
}
