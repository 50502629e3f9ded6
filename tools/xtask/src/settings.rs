//! Settings of the agent: each is read by somebody, or is in the list of those that are refused.
//!
//! A setting is known by its path (`client.server_join.retry_max`), not by its name alone: a reader
//! of a field is a file that names the block, or its type, as well.

use std::collections::BTreeMap;

use crate::ratchet::Excess;
use crate::tree::File;

const FOLDER: &str = "src/config/";
/// The list of settings that are refused because nobody acts on them. It may only shrink.
const UNSUPPORTED: &str = "src/config/unsupported.rs";
/// The configuration as a whole.
const ROOT: &str = "Config";

/// Files that write settings, or show them to who asks: neither is to act on them.
const ECHOES: [&str; 2] = ["src/cli/agent/mod.rs", "src/server/about.rs"];
/// What the configuration itself turns into what others read, or refuses: paths, or blocks.
const RESOLVED: &[&str] = &[
    "addresses.http",
    "addresses.rpc",
    "advertise.http",
    "advertise.rpc",
    "bind_addr",
    "client.host_volume_plugin_dir",
    "client.host_volumes_dir",
    "event_publisher.kafka.cert_file",
    "event_publisher.kafka.key_file",
    "event_publisher.schemas",
    "ports.http",
    "ports.rpc",
    "server.bootstrap_expect",
    "server.default_scheduler_config",
    "server.raft_protocol",
    "tls.cert_file",
    "tls.key_file",
];
/// Fields that are called otherwise in files.
const CALLED: [(&str, &str); 5] = [
    ("audit.sinks", "audit.sink"),
    ("client.host_networks", "client.host_network"),
    ("client.host_volumes", "client.host_volume"),
    ("log.", ""),
    ("plugins", "plugin"),
];

/// The public fields of each struct, with their types.
type Structs<'a> = BTreeMap<&'a str, Vec<(&'a str, &'a str)>>;

/// Finds fields of the configuration that nobody outside it reads and the list does not name, and
/// counts the list.
pub(crate) fn check(files: &[File], excess: &mut Excess, problems: &mut Vec<String>) {
    let Some(list) = files.iter().find(|file| file.path == UNSUPPORTED) else {
        return;
    };
    let listed: Vec<&str> = list.text.split("not(").skip(1).filter_map(quoted).collect();
    let place = ("unsupported-settings".to_owned(), UNSUPPORTED.to_owned());
    excess.insert(place, listed.len());
    for path in ECHOES {
        if !files.iter().any(|file| file.path == path) {
            problems.push(format!(
                "{path}: is exempted from what reads settings, and is not there"
            ));
        }
    }
    let mut structs = Structs::new();
    for file in files {
        if file.path.starts_with(FOLDER) {
            add_structs(&file.text, &mut structs);
        }
    }
    let readers: Vec<&str> = files
        .iter()
        .filter(|file| file.is_rust() && file.path.starts_with("src/") && !file.is_test())
        .filter(|file| !file.path.starts_with(FOLDER))
        .filter(|file| !ECHOES.contains(&file.path.as_str()))
        .map(|file| file.text.split("\n#[cfg(test)]\nmod tests").next())
        .map(Option::unwrap_or_default)
        .collect();
    let mut settings = Vec::new();
    leaves((ROOT, ""), &structs, &mut settings);
    for (path, block) in settings {
        // What is taken and does nothing is named by its whole path.
        let told = list.text.contains(&format!("{path:?}"));
        let covered = || listed.iter().chain(RESOLVED).any(|one| covers(one, &path));
        if !told && !covered() && !readers.iter().any(|text| reads(text, &path, block)) {
            problems.push(format!(
                "{path}: nobody reads this setting and {UNSUPPORTED} does not refuse it"
            ));
        }
    }
}

/// The text in the first pair of quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

fn add_structs<'a>(text: &'a str, structs: &mut Structs<'a>) {
    let mut name = None;
    for line in text.lines() {
        let begun = line.strip_prefix("pub struct ");
        if let Some(begun) = begun.and_then(|line| line.strip_suffix(" {")) {
            name = Some(begun);
        } else if line == "}" {
            name = None;
        }
        let field = line.strip_prefix("    pub ");
        let field = field.and_then(|line| line.strip_suffix(',')?.split_once(": "));
        if let (Some(name), Some(field)) = (name, field) {
            structs.entry(name).or_default().push(field);
        }
    }
}

/// The paths of all settings below a struct, each with the struct it is a field of.
fn leaves<'a>(
    (of, path): (&'a str, &str),
    structs: &Structs<'a>,
    found: &mut Vec<(String, &'a str)>,
) {
    for (field, kind) in structs.get(of).into_iter().flatten() {
        let gap = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{gap}{field}");
        let mut words = kind.split(|c: char| !c.is_alphanumeric());
        let inner = words.find_map(|word| structs.get_key_value(word));
        match inner {
            Some((inner, _)) => leaves((inner, &path), structs, found),
            None => found.push((path, of)),
        }
    }
}

/// Whether an entry of a list is about a setting: its path, or a block that it is in.
fn covers(listed: &str, path: &str) -> bool {
    let below = |path: &str| {
        let rest = path.strip_prefix(listed);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let called = CALLED.iter().find_map(|(field, name)| {
        let rest = path.strip_prefix(field)?;
        Some(format!("{name}{rest}"))
    });
    below(path) || called.is_some_and(|path| below(&path))
}

/// Whether a text reads a setting of a block of this type.
fn reads(text: &str, path: &str, block: &str) -> bool {
    let mut names = path.rsplit('.');
    let field = names.next().unwrap_or_default();
    let is_near = match names.next() {
        None => true,
        Some(name) => has_field(text, name) || has_word(text, block),
    };
    is_near && has_field(text, field)
}

/// Whether a field of this name is read; a method is something else.
fn has_field(text: &str, name: &str) -> bool {
    let access = format!(".{name}");
    text.match_indices(&access).any(|(at, _)| {
        let rest = &text[at + access.len()..];
        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '(')
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found wrong with a configuration of two blocks and what reads it.
    fn problems(list: &str, reader: (&str, &str)) -> Vec<String> {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let config = "pub struct Config {\n    pub server: Server,\n    pub client: Client,\n}\n\
             pub struct Server {\n    pub join: Join,\n    pub limit: u32,\n}\n\
             pub struct Client {\n    pub join: Join,\n}\n\
             pub struct Join {\n    pub retry_max: u32,\n}\n";
        let mut files = vec![
            file("src/config/mod.rs", config),
            file(UNSUPPORTED, list),
            file(reader.0, reader.1),
        ];
        files.extend(ECHOES.map(|path| file(path, "")));
        let mut found = Vec::new();
        check(&files, &mut Excess::new(), &mut found);
        let paths = found.iter().filter_map(|line| line.split(':').next());
        paths.map(str::to_owned).collect()
    }

    #[test]
    fn a_field_of_the_same_name_elsewhere_reads_no_setting() {
        let all = [
            "server.join.retry_max",
            "server.limit",
            "client.join.retry_max",
        ];
        let listed = "not(\"server.join\", WHY)";
        assert_eq!(problems("", ("src/a.rs", "")), all);
        assert_eq!(
            problems("", ("src/a.rs", "door.limit + way.retry_max")),
            all
        );
        // A struct that is refused in one block is not in another.
        let rest = problems(listed, ("src/a.rs", "config.server.limit"));
        assert_eq!(rest, ["client.join.retry_max"]);
        let read = "config.server.limit + config.client.join.retry_max";
        assert!(problems(listed, ("src/a.rs", read)).is_empty());
        let typed = "fn f(join: &Join) { join.retry_max } fn g(s: &Server) { s.limit }";
        assert!(problems("", ("src/a.rs", typed)).is_empty());
    }

    #[test]
    fn what_is_exempted_is_there() {
        let file = |path: &str| File {
            path: path.to_owned(),
            text: String::new(),
        };
        let mut found = Vec::new();
        let files = [file(UNSUPPORTED), file(ECHOES[0])];
        check(&files, &mut Excess::new(), &mut found);
        let told = format!("{}: is exempted from what reads", ECHOES[1]);
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with(&told)),
            "{found:?}"
        );
    }

    #[test]
    fn to_show_a_setting_or_to_test_it_is_not_to_act_on_it() {
        let read = "config.server.limit + config.client.join.retry_max";
        let listed = "not(\"server.join\", WHY)";
        assert_eq!(problems(listed, ("src/server/about.rs", read)).len(), 2);
        assert_eq!(problems(listed, ("src/a_test.rs", read)).len(), 2);
        let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{ {read} }}");
        assert_eq!(problems(listed, ("src/a.rs", &tests)).len(), 2);
        assert_eq!(
            problems(listed, ("src/a.rs", "config.server.limit()")).len(),
            2
        );
    }
}
