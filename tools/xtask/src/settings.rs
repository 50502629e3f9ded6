//! Settings of the agent: each is read by some code, or is declared unsupported, which is refused.
//!
//! A setting is known by its path (`client.server_join.retry_max`), not by its name alone: it is
//! read of its block, which is named in the same expression or taken in the same function, or of a
//! name that is declared to be of the block's type.

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
    "client.alloc_dir",
    "client.host_volume_plugin_dir",
    "client.host_volumes_dir",
    "client.state_dir",
    "event_publisher.kafka.ca_file",
    "event_publisher.kafka.cert_file",
    "event_publisher.kafka.cursor_topic",
    "event_publisher.kafka.key_file",
    "event_publisher.schemas",
    "ports.http",
    "ports.rpc",
    "server.bootstrap_expect",
    "server.data_dir",
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
    let readers: Vec<Reader> = files
        .iter()
        .filter(|file| file.is_rust() && file.path.starts_with("src/") && !file.is_test())
        .filter(|file| !file.path.starts_with(FOLDER))
        .filter(|file| !ECHOES.contains(&file.path.as_str()))
        .map(|file| Reader::new(&file.text))
        .collect();
    let mut settings = Vec::new();
    leaves((ROOT, ""), &structs, &mut settings);
    for (path, block) in settings {
        // What is taken and does nothing is named by its whole path.
        let reported = list.text.contains(&format!("{path:?}"));
        let covered = || RESOLVED.iter().any(|one| covers(one, &path));
        if !reported && !covered() && !readers.iter().any(|one| one.reads(&path, block)) {
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

/// What may read settings: a file without its tests, comments and texts.
struct Reader {
    code: String,
    functions: Vec<String>,
}

impl Reader {
    fn new(text: &str) -> Self {
        let text = text.split("\n#[cfg(test)]\nmod tests").next();
        let code = lexer::blank(text.unwrap_or_default());
        let functions = {
            let lines: Vec<&str> = code.lines().collect();
            let found = lexer::functions(&lines).into_iter();
            found
                .map(|one| lines[one.start..=one.end].join("\n"))
                .collect()
        };
        Self { code, functions }
    }

    /// Whether it reads a setting of a block of this type.
    fn reads(&self, path: &str, block: &str) -> bool {
        let mut names = path.rsplit('.');
        let field = names.next().unwrap_or_default();
        let read = uses(&self.code, field);
        let Some(parent) = names.next() else {
            return !read.is_empty();
        };
        let in_one = uses(&self.code, parent)
            .iter()
            .any(|(_, behind)| next_field(behind) == Some(field));
        // Another block's field may have the same name: who reads `reserved.cpu` beside the cores
        // of a processor reads no `reserved.cores`.
        let takes = |text: &str| {
            let mut blocks = uses(text, parent).into_iter();
            blocks.any(|(_, behind)| next_field(behind).is_none())
        };
        in_one
            || is_read_of_type(&self.code, block, &read)
            || self
                .functions
                .iter()
                .any(|text| takes(text) && !uses(text, field).is_empty())
    }
}

/// What stands before and behind each use of a field of this name; a method is something else.
fn uses<'a>(code: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let access = format!(".{name}");
    let found = code.match_indices(&access);
    let parts = found.map(|(at, _)| (&code[..at], &code[at + access.len()..]));
    parts
        .filter(|(_, behind)| !behind.starts_with(is_of_name) && !behind.starts_with('('))
        .collect()
}

/// The field that is read of what was read before.
fn next_field(behind: &str) -> Option<&str> {
    let next = behind.trim_start().strip_prefix('.')?.trim_start();
    let end = next.find(|c: char| !is_of_name(c)).unwrap_or(next.len());
    let (name, rest) = next.split_at(end);
    (!rest.starts_with('(')).then_some(name)
}

/// Whether one of these uses is of a name that is declared to be of a type: `join: &Join`.
fn is_read_of_type(code: &str, kind: &str, read: &[(&str, &str)]) -> bool {
    code.match_indices(kind).any(|(at, _)| {
        let (before, behind) = (&code[..at], &code[at + kind.len()..]);
        if before.ends_with(is_of_name) || behind.starts_with(is_of_name) {
            return false;
        }
        let begin = before.rfind([',', ';', '=', '{', '}', '\n']);
        let declared = &before[begin.map_or(0, |at| at + 1)..];
        let Some((name, _)) = declared.rsplit_once(": ") else {
            return false;
        };
        let name = name
            .rsplit(|c: char| !is_of_name(c))
            .next()
            .unwrap_or_default();
        read.iter().any(|(before, _)| {
            let rest = before.trim_end().strip_suffix(name);
            !name.is_empty() && rest.is_some_and(|rest| !rest.ends_with(is_of_name))
        })
    })
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration of two blocks; the server's `join` may have more.
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
    fn a_field_of_this_name_beside_another_of_the_block_reads_no_setting() {
        let reads = |text: &str| Reader::new(text).reads("client.reserved.cores", "Reserved");
        for text in [
            "fn probe(info: &CpuInfo, settings: &ClientSettings) {\n    \
             let total = info.mhz * info.cores.len();\n    \
             total - settings.client.reserved.cpu\n}\n",
            "fn a(s: &S) {\n    f(&s.client.reserved)\n}\nfn b(info: &Info) {\n    info.cores\n}\n",
            "fn a(kept: &Reserved, info: &Info) {\n    info.cores - kept.cpu\n}\n",
            "// s.client.reserved.cores\nfn a(reserved: NotReserved) {\n    reserved.cores\n}\n",
            "fn a(s: &S) {\n    s.reserved.cores()\n}\n",
        ] {
            assert!(!reads(text), "{text}");
        }
        for text in [
            "fn a(s: &S) {\n    list(&s.client.reserved.cores)\n}\n",
            "fn a(s: &S) {\n    list(&s.client\n        .reserved\n        .cores)\n}\n",
            "fn a(s: &S) {\n    let kept = &s.client.reserved;\n    list(&kept.cores)\n}\n",
            "fn a(s: &S) {\n    s.reserved.as_ref().map(|kept| &kept.cores)\n}\n",
            "fn a(kept: &Reserved) {\n    list(&kept.cores)\n}\n",
            "struct A {\n    kept: Option<config::Reserved>,\n}\n\
             fn a(a: &A) {\n    a.kept.cores\n}\n",
        ] {
            assert!(reads(text), "{text}");
        }
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
