//! What lies beside a log in a server's directory, read whole: its request log, its keys, its id.

use crate::error::chain;
use crate::keyring::Keystore;
use crate::log::{LogError, ReadOnlyLog};
use std::io;
use std::path::Path;

/// What is wrong there; nothing is wrong with what is not there. A server may be running.
pub(in crate::cli) fn findings(server: &Path) -> Vec<String> {
    let mut found = Vec::new();
    if let Err(error) = requests(&server.join("requests")) {
        found.push(format!("the request log: {}", chain(&error)));
    }
    // A backup has no id, and its keys come without what wraps them.
    let of_server = server.join("node-id").exists();
    keys(&server.join("keystore"), of_server, &mut found);
    found.extend(id(&server.join("node-id")));
    found
}

fn requests(dir: &Path) -> Result<(), LogError> {
    let log = match ReadOnlyLog::open(dir) {
        Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        other => other?,
    };
    if let Some(damage) = log.damage() {
        return Err(damage.clone());
    }
    for record in log.scan(log.bounds().0) {
        match record {
            // The server dropped it meanwhile.
            Err(LogError::Purged { .. }) => break,
            other => drop(other?),
        }
    }
    Ok(())
}

/// Every key must be what it was when it was wrapped; a server has what wraps them too.
fn keys(dir: &Path, of_server: bool, found: &mut Vec<String>) {
    let store = match Keystore::existing(dir) {
        Ok(Some(store)) => store,
        Ok(None) if of_server => return found.extend(without_wrap(dir)),
        Ok(None) => return,
        Err(error) => return found.push(chain(&error)),
    };
    match store.ids() {
        Ok(ids) => {
            let wrong = ids.iter().filter_map(|id| store.load(id).err());
            found.extend(wrong.map(|error| chain(&error)));
        }
        Err(error) => found.push(chain(&error)),
    }
}

/// Keys that nothing can unwrap.
fn without_wrap(dir: &Path) -> Option<String> {
    let mut files = std::fs::read_dir(dir).ok()?.flatten();
    let is_key = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
    files.find(|file| is_key(&file.path())).map(|_| {
        let dir = dir.display();
        format!("{dir}/wrap.key is gone: no key can be read, nor what was encrypted with them")
    })
}

fn id(path: &Path) -> Option<String> {
    let wrong = match std::fs::read_to_string(path) {
        Ok(text) => text.trim().parse::<uuid::Uuid>().err()?.to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    Some(format!("{} holds no id: {wrong}", path.display()))
}
