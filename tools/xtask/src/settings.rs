//! Settings of the agent: each is read by some code, or is declared unsupported, which is refused.
//!
//! A setting is known by its path (`client.server_join.retry_max`), not by its name alone: a reader
//! of a field is a file that names the block, or its type, as well.

use std::collections::BTreeMap;

use crate::lexer;
use crate::ratchet::Excess;
use crate::tree::File;

const FOLDER: &str = "src/config/";
/// What is made of the settings that are unsupported: the list of those that are refused, which may
/// only shrink, and of those that are taken and do nothing.
const UNSUPPORTED: &str = "src/config/unsupported.rs";
/// The configuration as a whole.
const ROOT: &str = "Config";

/// Files that write settings, or show them to users: neither is to act on them.
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

/// A public field of a block: its name, its type, and whether it is unsupported.
type Field<'a> = (&'a str, &'a str, bool);

/// The fields of each block.
type Structs<'a> = BTreeMap<&'a str, Vec<Field<'a>>>;

/// Finds fields of the configuration that no code outside it reads and that are not declared
/// unsupported, and counts those that are.
pub(crate) fn check(files: &[File], excess: &mut Excess, problems: &mut Vec<String>) {
    let Some(list) = files.iter().find(|file| file.path == UNSUPPORTED) else {
        return;
    };
    for path in ECHOES {
        if !files.iter().any(|file| file.path == path) {
            problems.push(format!(
                "{path}: is exempted from what reads settings, and is not there"
            ));
        }
    }
    let mut structs = Structs::new();
    let mut unsupported = 0;
    for file in files {
        if file.path.starts_with(FOLDER) {
            unsupported += add_structs(&file.text, &mut structs);
        }
    }
    let place = ("unsupported-settings".to_owned(), UNSUPPORTED.to_owned());
    excess.insert(place, unsupported);
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
        let reported = list.text.contains(&format!("{path:?}"));
        let covered = || RESOLVED.iter().any(|one| covers(one, &path));
        if !reported && !covered() && !readers.iter().any(|text| reads(text, &path, block)) {
            problems.push(format!(
                "{path}: nobody reads this setting, and it is not declared unsupported"
            ));
        }
    }
}

/// Adds the blocks that a file declares; answers how many settings, of fields or not, are
/// unsupported.
fn add_structs<'a>(text: &'a str, structs: &mut Structs<'a>) -> usize {
    let blanked = lexer::blank(text);
    let (mut name, mut field, mut declared, mut unsupported) = (None, None, false, 0);
    for (line, code) in text.lines().zip(blanked.lines()) {
        declared |= line == "settings! {";
        if let Some(begun) = line.strip_prefix("pub struct ") {
            name = begun.strip_suffix(" {");
        } else if line.starts_with('}') {
            // The block's end, or that of what is declared.
            declared &= name.take().is_some() || line != "}";
        }
        let begun = line.strip_prefix("    pub ");
        field = begun.and_then(|line| line.split_once(": ")).or(field);
        // A declaration ends with its comma; one without a field is only counted.
        let is_unsupported = declared && code.split_whitespace().any(|word| word == "unsupported");
        unsupported += usize::from(is_unsupported);
        if !code.trim_end().ends_with(',') {
            continue;
        }
        if let (Some(name), Some((field, rest))) = (name, field.take()) {
            let kind = rest.split(" =").next().unwrap_or_default();
            let kind = kind.trim_end_matches(',');
            structs
                .entry(name)
                .or_default()
                .push((field, kind, is_unsupported));
        }
    }
    unsupported
}

/// The paths of all settings below a struct that are not unsupported, each with the struct it is a
/// field of.
fn leaves<'a>(
    (of, path): (&'a str, &str),
    structs: &Structs<'a>,
    found: &mut Vec<(String, &'a str)>,
) {
    let fields = structs.get(of).into_iter().flatten();
    for (field, kind, _) in fields.filter(|(_, _, is_unsupported)| !is_unsupported) {
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

/// Whether a path is that of a setting or block, or below it.
fn covers(listed: &str, path: &str) -> bool {
    let rest = path.strip_prefix(listed);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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

    /// A configuration of two blocks; of the server's `join` more may be said.
    fn config(off: &str) -> String {
        let block = |name: &str, fields: &str| {
            format!("settings! {{\n/// Off.\npub struct {name} {{\n{fields}}}\n}}\n\n")
        };
        let all = "    pub server: Server => block,\n    pub client: Option<Client> => maybe,\n";
        let server = format!(
            "    /// Which.\n    pub join: BTreeMap<String, Join>\n        => labelled{off},\n    \
             pub limit: u32 = 1 => set,\n}} compat {{\n    /// Nobody's.\n    \
             store: bool => set unsupported \"turn it off, or on\",\n"
        );
        [
            block("Config", all),
            block("Server", &server),
            block("Client", "    pub join: Join => block,\n"),
            block("Join", "    pub retry_max: u32 => set,\n"),
        ]
        .concat()
    }

    #[test]
    fn what_is_off_is_counted_whether_a_field_holds_it_or_not() {
        for (off, count) in [("", 1), (" unsupported WHY", 2)] {
            assert_eq!(add_structs(&config(off), &mut Structs::new()), count);
        }
        let code = "fn f() {\n    let off = 1;\n    g(a unsupported b,\n}\n";
        let text = format!("{}{code}", config(""));
        assert_eq!(add_structs(&text, &mut Structs::new()), 1);
    }

    /// What is found wrong with that configuration and what reads it.
    fn problems(off: &str, reader: (&str, &str)) -> Vec<String> {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut files = vec![
            file("src/config/mod.rs", &config(off)),
            file(UNSUPPORTED, ""),
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
        let off = " unsupported WHY";
        assert_eq!(problems("", ("src/a.rs", "")), all);
        assert_eq!(
            problems("", ("src/a.rs", "door.limit + way.retry_max")),
            all
        );
        // A struct that is refused in one block is not in another.
        let rest = problems(off, ("src/a.rs", "config.server.limit"));
        assert_eq!(rest, ["client.join.retry_max"]);
        let read = "config.server.limit + config.client.join.retry_max";
        assert!(problems(off, ("src/a.rs", read)).is_empty());
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
        let reported = format!("{}: is exempted from what reads", ECHOES[1]);
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with(&reported)),
            "{found:?}"
        );
    }

    #[test]
    fn to_show_a_setting_or_to_test_it_is_not_to_act_on_it() {
        let read = "config.server.limit + config.client.join.retry_max";
        let off = " unsupported WHY";
        assert_eq!(problems(off, ("src/server/about.rs", read)).len(), 2);
        assert_eq!(problems(off, ("src/a_test.rs", read)).len(), 2);
        let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{ {read} }}");
        assert_eq!(problems(off, ("src/a.rs", &tests)).len(), 2);
        assert_eq!(
            problems(off, ("src/a.rs", "config.server.limit()")).len(),
            2
        );
    }
}
