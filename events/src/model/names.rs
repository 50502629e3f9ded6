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

/// The most tags of a service, and the most bytes of all of them: they stand in each of its
/// registrations.
pub const MAX_TAGS: usize = 1_024;
/// See [`MAX_TAGS`].
pub const MAX_TAGS_BYTES: usize = 64 << 10;

/// Why the tags of a service are not taken in, if they are too many or too long.
#[must_use]
pub fn tags_too_long(tags: &[String]) -> Option<String> {
    let (count, bytes) = (tags.len(), tags.iter().map(String::len).sum::<usize>());
    if count > MAX_TAGS {
        return Some(format!(
            "there are {count} tags; at most {MAX_TAGS} are accepted"
        ));
    }
    (bytes > MAX_TAGS_BYTES)
        .then(|| format!("tags are {bytes} bytes long; at most {MAX_TAGS_BYTES} are accepted"))
}
