//! Doc comments that only repeat the name of what they stand on: they say nothing, and cost a line.

use crate::tree::File;

/// Where a doc comment is the help text of a command or of a setting, which has to be there.
const HELP_TEXTS: &[&str] = &["src/cli/", "src/config/"];
/// What a comment has besides the words of a name.
const FILLERS: &[&str] = &[
    "a", "an", "by", "it", "its", "of", "that", "the", "these", "this", "which",
];
/// What says of a thing only that it is written down, unless others are found by it: the name of a
/// table is the table, but tables by name are in the order of their names.
const LABELS: &[&str] = &["file", "id", "name", "number"];
const KEYED: &str = "by";
/// What a name may have besides the words of a comment: a node by its id is the node.
const ID: &str = "id";
/// What stands before the name of an item.
const KEYWORDS: &[&str] = &[
    "async ", "const ", "enum ", "fn ", "mod ", "static ", "struct ", "trait ", "type ", "unsafe ",
];

/// Finds doc comments of one line whose words are those of the name below.
pub(crate) fn check(file: &File, problems: &mut Vec<String>) {
    let is_help = HELP_TEXTS.iter().any(|dir| file.path.starts_with(dir));
    if is_help || file.text.contains("clap::") {
        return;
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    for (number, line) in lines.iter().enumerate() {
        let before = number.checked_sub(1).map_or("", |before| lines[before]);
        let below = &lines[number + 1..];
        let is_longer = |other: &&str| other.starts_with("///");
        let Some(text) = line.strip_prefix("/// ") else {
            continue;
        };
        if is_longer(&before) || below.first().is_some_and(is_longer) || text.contains('`') {
            continue;
        }
        let mut code = below.iter().filter(|line| !line.starts_with("#["));
        if code.next().is_some_and(|code| repeats(text, name(code))) {
            let place = format!("{}:{}", file.path, number + 1);
            problems.push(format!("{place}: the comment only repeats the name"));
        }
    }
}

fn repeats(text: &str, name: &str) -> bool {
    let stated = main_words(text, &[]);
    let mut named = main_words(name, &[]);
    if stated.is_empty() || stated == named {
        return !stated.is_empty();
    }
    named.retain(|word| word != ID);
    if stated == named || words(text).iter().any(|word| word == KEYED) {
        return stated == named;
    }
    let stated = main_words(text, LABELS);
    stated.is_empty() || stated == main_words(name, LABELS)
}

/// The words of a text or a name that are neither fillers nor these, in the singular and in order
/// of the alphabet.
fn main_words(text: &str, besides: &[&str]) -> Vec<String> {
    let mut words = words(text);
    words.retain(|word| !FILLERS.contains(&word.as_str()) && !besides.contains(&word.as_str()));
    let mut words: Vec<String> = words.into_iter().map(singular).collect();
    words.sort_unstable();
    words
}

/// The name of the item, the field or the variant that a line begins.
fn name(code: &str) -> &str {
    let mut rest = match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
        None => code.strip_prefix("pub ").unwrap_or(code),
    };
    while let Some(behind) = KEYWORDS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = behind;
    }
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    rest.split(|c: char| !in_name(c)).next().unwrap_or_default()
}

/// The words of a text or a name, in lower case; what owns something is the same word.
fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before = ' ';
    for c in text.replace("'s", "").chars() {
        if c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit()) {
            spaced.push(' ');
        }
        spaced.push(c);
        before = c;
    }
    let words = spaced.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

fn singular(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut problems = Vec::new();
        check(&file, &mut problems);
        problems.len()
    }

    #[test]
    fn a_comment_says_more_than_the_name_below_it() {
        for text in [
            "/// The node.\npub struct Node {",
            "/// Its name.\n    name: String,",
            "/// Bytes.\n    Bytes(Vec<u8>),",
            "/// The access mode.\n    #[serde(rename = \"AccessMode\")]\n    access_mode: String,",
            "/// A CSI volume.\npub(crate) struct CsiVolume;",
            "/// ACL roles.\n    AclRole = 10,",
            "/// The health of a server.\npub struct ServerHealth {",
            "/// Which node.\n    node_id: String = \"NodeID\",",
            "/// The ids of this node.\npub struct NodeIds {",
            "/// The nodes of a pool.\npub struct NodesByPool;",
            "/// It ends.\n    pub(crate) async fn end(&self) {}",
            "/// The tables.\n    const TABLES: &'static [u16];",
            "/// The table's name.\n        table: &'static str,",
            "/// The table's number.\n    pub table: u16,",
            "/// File name of the segment.\n    segment: String,",
            "/// Number of entries.\n    pub entries: u64,",
            "/// The file.\n        path: PathBuf,",
            "/// Its name.\n    pub hook: String,",
        ] {
            assert_eq!(found("src/a.rs", text), 1, "{text}");
            assert_eq!(found("src/cli/a.rs", text), 0, "{text}");
            let parsed = format!("use clap::Parser;\n{text}");
            assert_eq!(found("tools/a.rs", &parsed), 0, "{text}");
        }
        for text in [
            "/// The node, as its client registered it.\npub struct Node {",
            "/// The name.\n/// It is unique.\n    name: String,",
            "/// Its digest, in hexadecimal.\n    digest: String,",
            "/// `Node.Control`.\npub struct NodeControl;",
            "/// The reason.\n    why: String,",
            "/// The keys, by id.\n    pub keys: Vec<Jwk>,",
            "/// By name.\n    known: BTreeMap<String, Plugin>,",
            "/// The job, by id.\n    job: String,",
            "/// The names of its roles.\n    roles: Vec<String>,",
            "/// Of which.\n    of: String,",
            "// The node.\npub struct Node {",
            "let text = \"/// The node.\"; // text",
            "/// The node.",
        ] {
            assert_eq!(found("src/a.rs", text), 0, "{text}");
        }
    }
}
