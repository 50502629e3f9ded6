//! The plugin that is built in: a directory beneath `host_volumes_dir`, named as the volume's id.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use drover_events::gojson::Map;
use rustix::fs::{Gid, Uid};

use super::plugin::{Made, PluginError};
use crate::alloc_dir::make_path;
use crate::beneath;

pub(super) const NAME: &str = "mkdir";
/// Its version, as Nomad's says.
pub(super) const VERSION: &str = "0.0.1";
/// The permissions of a directory, where no parameter sets them.
const MODE: u32 = 0o700;

/// What a volume may request of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct MkdirOptions {
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
}

fn wanted(parameters: &Map<String>) -> Result<MkdirOptions, PluginError> {
    let mut wanted = MkdirOptions::default();
    for (name, value) in parameters {
        let number = |base: u32| {
            let wrong = |_| PluginError::new(format!("mkdir: parameter {name} is no {value:?}"));
            u32::from_str_radix(value, base).map_err(wrong)
        };
        match name.as_str() {
            "mode" => match number(8)? {
                mode if mode <= 0o7777 => wanted.mode = Some(mode),
                _ => {
                    let text = format!("mkdir: parameter mode is no {value:?}");
                    return Err(PluginError::new(text));
                }
            },
            "uid" => wanted.user = Some(number(10)?),
            "gid" => wanted.group = Some(number(10)?),
            other => {
                let text = format!("mkdir has no parameter {other:?}: it has mode, uid and gid");
                return Err(PluginError::new(text));
            }
        }
    }
    Ok(wanted)
}

/// Makes the directory of a volume, or makes it as it is to be now; what lies in it stays.
pub(super) fn create(
    volumes: &Path,
    id: &str,
    parameters: &Map<String>,
) -> Result<Made, PluginError> {
    let wanted = wanted(parameters)?;
    let path = volumes.join(id);
    let failed = |error: io::Error| PluginError::new(format!("mkdir: {}: {error}", path.display()));
    make_path(volumes).map_err(failed)?;
    let is_new = match DirBuilder::new().mode(MODE).create(&path) {
        Ok(()) => true,
        // A link that was put there is no volume.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match path.symlink_metadata().map_err(failed)?.is_dir() {
                true => false,
                false => return Err(failed(error)),
            }
        }
        Err(error) => return Err(failed(error)),
    };
    if wanted.user.is_some() || wanted.group.is_some() {
        let (user, group) = (
            wanted.user.map(Uid::from_raw),
            wanted.group.map(Gid::from_raw),
        );
        let owned = rustix::fs::chown(&path, user, group);
        owned.map_err(|error| failed(error.into()))?;
    }
    // What the process is forbidden to give by its own mask is given all the same.
    let mode = wanted.mode.or(is_new.then_some(MODE));
    if let Some(mode) = mode {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)?;
    }
    let path = path.to_str();
    let path = path.ok_or_else(|| PluginError::new("mkdir: the path is no UTF-8"))?;
    Ok(Made {
        path: path.to_owned(),
        bytes: 0,
    })
}

/// Removes the directory of a volume with all that is in it; none is as good.
pub(super) fn delete(volumes: &Path, id: &str) -> Result<(), PluginError> {
    let removed = match beneath::open_dir(volumes) {
        Ok(parent) => beneath::remove_tree(parent, id),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(|error| {
        let path = volumes.join(id);
        PluginError::new(format!("mkdir: {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const ID: &str = "00000000-0000-4000-8000-000000000001";

    #[test]
    fn a_directory_is_made_once_and_what_lies_in_it_stays_until_it_is_deleted() {
        let tmp = tempfile::tempdir().unwrap();
        let volumes = tmp.path().join("deep/volumes");
        let none = Map::empty();
        let made = create(&volumes, ID, &none).unwrap();
        assert_eq!(Path::new(&made.path), volumes.join(ID));
        let mode = || volumes.join(ID).metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode(), 0o700);
        std::fs::write(volumes.join(ID).join("kept"), "x").unwrap();
        let open = Map::from([("mode", "1777".to_owned())]);
        create(&volumes, ID, &open).unwrap();
        assert_eq!(mode(), 0o1777);
        create(&volumes, ID, &none).unwrap();
        assert_eq!(mode(), 0o1777, "what was said before stays");
        assert!(volumes.join(ID).join("kept").exists());
        delete(&volumes, ID).unwrap();
        assert!(!volumes.join(ID).exists());
        delete(&volumes, ID).unwrap();
        delete(&tmp.path().join("none"), ID).unwrap();
    }

    #[test]
    fn a_directory_belongs_to_whom_it_is_asked_for() {
        let tmp = tempfile::tempdir().unwrap();
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let (user, group) = match user.is_root() {
            true => (4321, 1234),
            false => (user.as_raw(), group.as_raw()),
        };
        let parameters = [("uid", user.to_string()), ("gid", group.to_string())];
        let made = create(tmp.path(), ID, &Map::from(parameters)).unwrap();
        let found = Path::new(&made.path).metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (user, group));
    }

    #[test]
    fn what_it_does_not_know_is_refused_and_nothing_is_made() {
        let tmp = tempfile::tempdir().unwrap();
        for (name, value, text) in [
            ("mode", "rwx", "parameter mode is no \"rwx\""),
            ("mode", "17777", "parameter mode is no \"17777\""),
            ("uid", "-1", "parameter uid is no \"-1\""),
            ("gid", "users", "parameter gid is no \"users\""),
            ("size", "1", "mkdir has no parameter \"size\""),
        ] {
            let parameters = Map::from([(name, value.to_owned())]);
            let error = create(tmp.path(), ID, &parameters).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(!tmp.path().join(ID).exists());
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), tmp.path().join(ID)).unwrap();
        assert!(create(tmp.path(), ID, &Map::empty()).is_err(), "a link");
        delete(tmp.path(), ID).unwrap();
        assert!(elsewhere.path().exists());
    }
}
