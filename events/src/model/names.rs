//! How long the names may be that others are kept by.

/// The longest name of a job, a group, a task, a node and the like, in bytes. Names are keys of
/// rows, of Kafka's messages and of metrics, and stand in every evaluation and allocation. What is
/// in a log already may be longer: only what comes in is held to it.
pub const MAX_NAME: usize = 1_024;

/// Why a name is not taken in, if it is too long.
#[must_use]
pub fn too_long(what: &str, name: &str) -> Option<String> {
    let bytes = name.len();
    (bytes > MAX_NAME)
        .then(|| format!("{what} is {bytes} bytes long; at most {MAX_NAME} are accepted"))
}
