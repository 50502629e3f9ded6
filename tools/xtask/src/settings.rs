//! Settings of the agent: each is read by somebody, or is in the list of those that are refused.

use crate::ratchet::Excess;
use crate::tree::File;

const FOLDER: &str = "src/config/";
/// The list of settings that are refused because nobody acts on them. It may only shrink.
const UNSUPPORTED: &str = "src/config/unsupported.rs";

/// Finds fields of the configuration that nobody outside it reads and the list does not name, and
/// counts the list.
pub(crate) fn check(files: &[File], excess: &mut Excess, problems: &mut Vec<String>) {
    let Some(list) = files.iter().find(|file| file.path == UNSUPPORTED) else {
        return;
    };
    let listed: Vec<&str> = list.text.split("not(").skip(1).filter_map(quoted).collect();
    let place = ("unsupported-settings".to_owned(), UNSUPPORTED.to_owned());
    excess.insert(place, listed.len());
    let readers: Vec<&File> = files
        .iter()
        .filter(|file| file.is_rust() && file.path.starts_with("src/") && !file.is_test())
        .collect();
    for file in files.iter().filter(|file| file.path.starts_with(FOLDER)) {
        for field in fields(&file.text) {
            let access = format!(".{field}");
            let read = readers.iter().any(|other| {
                let own = other.path == file.path;
                let mut uses = other.text.match_indices(&access).filter(|(at, _)| {
                    let rest = &other.text[at + access.len()..];
                    let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
                    // What only reads the setting from a file does not count.
                    ends && !other.text[..*at].ends_with("&mut self")
                });
                uses.next().is_some() && !(own && other.path == UNSUPPORTED)
            });
            let parts = |path: &&&str| path.split('.').any(|part| part == field);
            if !read
                && listed.iter().find(parts).is_none()
                && !in_listed_block(&file.text, field, &listed)
            {
                problems.push(format!(
                    "{}: {field}: nobody reads this setting and {UNSUPPORTED} does not refuse it",
                    file.path
                ));
            }
        }
    }
}

/// The text in the first pair of quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

/// The names of public fields.
fn fields(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "))
        .map(|(name, _)| name)
        .filter(|name| {
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        })
        .collect()
}

/// Whether the struct that has this field is of a block that is refused as a whole.
fn in_listed_block(text: &str, field: &str, listed: &[&str]) -> bool {
    let Some(at) = text.find(&format!("    pub {field}: ")) else {
        return false;
    };
    let Some(start) = text[..at].rfind("pub struct ") else {
        return false;
    };
    let name = text[start + "pub struct ".len()..]
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    let block = name.trim_end_matches("Config").to_ascii_lowercase();
    listed.iter().any(|path| {
        path.rsplit('.')
            .next()
            .is_some_and(|last| last.replace('_', "") == block)
    })
}
