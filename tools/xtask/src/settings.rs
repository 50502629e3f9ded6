//! Settings of the agent: each is read by somebody, or is in the list of those that are refused.

use crate::ratchet::Excess;
use crate::tree::File;

const FOLDER: &str = "src/config/";
/// The list of settings that are refused because nobody acts on them. It may only shrink.
const UNSUPPORTED: &str = "src/config/unsupported.rs";

/// What the command line sets of the configuration: to write a setting is not to act on it.
const FLAGS: &str = "src/cli/agent.rs";
/// What the configuration itself turns into what others read, or refuses.
const RESOLVED: &[&str] = &[
    "bind_addr",
    "bootstrap_expect",
    "cert_file",
    "key_file",
    "raft_protocol",
];

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
        .filter(|file| !file.path.starts_with(FOLDER) && file.path != FLAGS)
        .collect();
    for file in files.iter().filter(|file| file.path.starts_with(FOLDER)) {
        for field in fields(&file.text) {
            let access = format!(".{field}");
            let read = readers.iter().any(|other| {
                other.text.match_indices(&access).any(|(at, _)| {
                    let rest = &other.text[at + access.len()..];
                    // A method of that name is something else.
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(')
                })
            });
            let parts = |path: &&&str| path.split('.').any(|part| part == field);
            if !read
                && !RESOLVED.contains(&field)
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
