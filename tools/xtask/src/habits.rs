//! Habits: tests that wait for conditions in places of their own, numbers and words that have
//! names, answers that have types, and no second copy of what the language has.

use crate::tidy::Measured;
use crate::tree::File;
use crate::vocabulary;

/// Functions that the language's own collections make needless: sets contain, compare, intersect
/// and subtract; maps and lists are cloned and compared as they are.
const NEEDLESS: &[&str] = &[
    "any_prefix",
    "clone_list",
    "clone_map",
    "clone_slice",
    "contains_string",
    "copy_list",
    "copy_map",
    "copy_slice",
    "copy_string_map",
    "dedup_strings",
    "has_any_prefix",
    "is_disjoint_set",
    "is_subset_of",
    "lists_equal",
    "map_equals",
    "maps_equal",
    "prefix_in_list",
    "same_elements",
    "set_contains",
    "set_difference",
    "set_from_list",
    "slice_contains",
    "slice_set_eq",
    "slices_equal",
    "string_in_list",
    "string_in_slice",
    "unique_strings",
];

/// Something that a file, or what is in a folder, does not do by itself.
struct LeftToOthers {
    within: &'static str,
    words: &'static [&'static str],
    /// Those that do it all the same.
    but: &'static [&'static str],
    /// What does it instead.
    why: &'static str,
}

const LEFT_TO_OTHERS: &[LeftToOthers] = &[
    LeftToOthers {
        within: "src/reactors/volume_watcher.rs",
        words: &[
            "client_terminal(",
            "get::<Allocs>",
            "requests_of_alloc(",
            "row::<Allocs>",
            "rows::<Allocs>",
            "scan::<Allocs>",
            "terminal_status(",
            "AllocsBy",
        ],
        but: &[],
        why: "which claims are past is found by one function of the store",
    },
    LeftToOthers {
        within: "src/http/",
        // However the view is called there: what a read sees through has no such names.
        words: &[
            "by_index::<",
            "by_index_keyed::<",
            "cursor::<",
            "scan::<",
            "scan_keyed::<",
            "View::",
        ],
        but: &[
            "src/http/sight.rs",
            // The claim, the tag, the node and the job of which the request is.
            "src/http/jobs/statuses.rs",
            "src/http/jobs/tags.rs",
            "src/http/nodes/write.rs",
            "src/http/volumes/host.rs",
            // Shows none of the rows.
            "src/http/ready.rs",
        ],
        why: "who reads many rows asks whether they may be seen: sight.rs",
    },
    LeftToOthers {
        within: "src/http/",
        words: &["proposer.submit(", "server.submit("],
        but: &["src/http/front.rs"],
        why: "a command is submitted by a Write, which shows that its caller may: gate.rs",
    },
    LeftToOthers {
        within: "src/endpoints/",
        words: &["proposer.submit(", "Server::submit(", "Origin::default("],
        // The batch writes what was checked for its callers before.
        but: &["src/endpoints/auth.rs", "src/endpoints/alloc_batch.rs"],
        why: "a command is submitted in the name of who is Allowed, whom auth.rs asks",
    },
    LeftToOthers {
        within: "projections/src/",
        words: &["cf_handle("],
        but: &[
            "projections/src/engine/db.rs",
            // Opens one family of a database that is somebody else's, and reads it once.
            "projections/src/read/rejections.rs",
        ],
        why: "families are looked up by name once, when the database is opened: Database::family",
    },
    LeftToOthers {
        within: "projections/src/",
        words: &["rocksdb::Options::default("],
        but: &["projections/src/engine/db.rs"],
        why: "options of a database are those of engine/db.rs, with which a process may end",
    },
];

/// What is counted on the command line, where the number may be one.
const COUNTED: &[&str] = &[
    "allocations",
    "bytes",
    "checkpoints",
    "databases",
    "entries",
    "events",
    "fields",
    "files",
    "jobs",
    "keys",
    "nodes",
    "pages",
    "parts",
    "problems",
    "rows",
    "schemas",
    "tables",
];

/// Ways to write a duration or a size that should have a name.
const DURATIONS: &[&str] = &[
    "from_secs(",
    "from_secs_f64(",
    "from_millis(",
    "from_micros(",
    "from_nanos(",
    "from_mins(",
    "from_hours(",
];

/// Measures one Rust file, given its lines without comments and strings, and which are tests.
pub(crate) fn check(file: &File, lines: &[&str], test: &[bool], measured: &mut Measured) {
    let tested = |number: usize| test[number] || file.is_test();
    if file.path.starts_with("src/") {
        measured.count("bare-numbers", file, bare_numbers(lines, tested));
    }
    if file.path.starts_with("src/cli/") {
        let raw = file.text.lines().zip(lines).enumerate();
        for (number, (line, code)) in raw.filter(|(number, _)| !tested(*number)) {
            let place = format!("{}:{}", file.path, number + 1);
            let found = always_many(line).map(|noun| format!("{place}: {noun}: show::counted"));
            measured.problems.extend(found);
            let found = looked_up(line, code).chain(looked_at(line, code));
            measured.problems.extend(found.map(|name| {
                format!("{place}: {name:?}: an answer is read as a type, which has its fields")
            }));
        }
    }
    left_to_others(file, lines, tested, &mut measured.problems);
    vocabulary::check(file, tested, &mut measured.problems);
    for (number, line) in lines.iter().enumerate() {
        if let Some(name) = needless(line) {
            let place = format!("{}:{}", file.path, number + 1);
            let problem = format!("{place}: {name}: the language's own collections do this");
            measured.problems.push(problem);
        }
    }
}

/// What is done here and is the duty of other code.
fn left_to_others(
    file: &File,
    lines: &[&str],
    tested: impl Fn(usize) -> bool,
    problems: &mut Vec<String>,
) {
    let left = LEFT_TO_OTHERS.iter().filter(|left| {
        file.path.starts_with(left.within) && !left.but.contains(&file.path.as_str())
    });
    for LeftToOthers { words, why, .. } in left {
        let lines = lines.iter().enumerate();
        for (number, line) in lines.filter(|(number, _)| !tested(*number)) {
            let found = words.iter().filter(|word| line.contains(**word));
            let place = format!("{}:{}", file.path, number + 1);
            problems.extend(found.map(|word| format!("{place}: {word}: {why}")));
        }
    }
}

/// Names of the API by which a line looks into JSON, where no compiler sees that a field has
/// another name. What is assigned is no answer, but a request that is built.
fn looked_up<'a>(line: &'a str, code: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices("[\"").filter_map(move |(at, bracket)| {
        // Neither in a comment or a text nor a list.
        let code = code.as_bytes();
        let before = *code.get(at.checked_sub(1)?)?;
        let is_value = before.is_ascii_alphanumeric() || b"_)]?".contains(&before);
        let (name, behind) = line[at + bracket.len()..].split_once("\"]")?;
        let is_field = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric());
        let behind = behind.trim_start();
        let is_assigned = behind == "=" || behind.starts_with("= ");
        let is_lookup = code.get(at) == Some(&b'[') && is_value && is_field && !is_assigned;
        is_lookup.then_some(name)
    })
}

/// Places in JSON, by names of the API: `at(answer, "/Status")`. Paths of the API begin with small
/// letters.
fn looked_at<'a>(line: &'a str, code: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices("\"/").filter_map(move |(at, quote)| {
        // What is in a text or a comment is blank: before that of an argument stands code.
        let is_argument = code.get(..at)?.trim_end().ends_with(['(', ',']);
        let (place, _) = line[at + quote.len()..].split_once('"')?;
        let in_place = |b: u8| b.is_ascii_alphanumeric() || b == b'/';
        let is_place = place.starts_with(|c: char| c.is_ascii_uppercase());
        (is_argument && is_place && place.bytes().all(in_place)).then_some(place)
    })
}

/// A number in a text with a word that is right for many alone.
fn always_many(line: &str) -> Option<&'static str> {
    let is_text = !line.trim_start().starts_with("//") && line.contains('"');
    let mut behind = line.split("} ").skip(1).filter(|_| is_text);
    behind.find_map(|rest| {
        let rest = rest.strip_prefix("more ").unwrap_or(rest);
        let noun = COUNTED.iter().find(|noun| rest.starts_with(**noun))?;
        let in_word = |c: char| c.is_alphanumeric() || c == '_';
        (!rest[noun.len()..].starts_with(in_word)).then_some(*noun)
    })
}

/// Durations and sizes written as numbers where nothing names them: outside constants and the
/// fields of a structure.
fn bare_numbers(lines: &[&str], tested: impl Fn(usize) -> bool) -> usize {
    let mut found = 0;
    let mut constant = false;
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim();
        constant |= begins_constant(code);
        if !constant && !tested(number) && !is_field(code) {
            found += durations(code) + sizes(code);
        }
        constant &= !code.ends_with(';');
    }
    found
}

fn begins_constant(code: &str) -> bool {
    let behind = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or("", |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let item = behind.starts_with("const ") || behind.starts_with("static ");
    item && !behind.starts_with("const fn")
}

/// `name: value,` as in the expression that builds a structure.
fn is_field(code: &str) -> bool {
    let Some((name, value)) = code.split_once(": ") else {
        return false;
    };
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    plain && value.ends_with(',')
}

fn durations(code: &str) -> usize {
    let number = |rest: &str| {
        let digits = rest
            .split(|c: char| !(c.is_ascii_digit() || matches!(c, '_' | '.')))
            .next();
        digits
            .is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()) && digits != "0")
    };
    let count = |word: &&str| {
        code.split(*word)
            .skip(1)
            .filter(|rest| number(rest))
            .count()
    };
    DURATIONS.iter().map(count).sum()
}

/// Numbers shifted to kibibytes, mebibytes or gibibytes.
fn sizes(code: &str) -> usize {
    let mut found = 0;
    for (at, _) in code.match_indices(" << ") {
        let before = code[..at].chars().next_back();
        let after: String = code[at + 4..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let size = matches!(after.as_str(), "10" | "20" | "30");
        found += usize::from(size && before.is_some_and(|c| c.is_ascii_digit()));
    }
    found
}

fn needless(line: &str) -> Option<&str> {
    let name = line.split("fn ").nth(1)?;
    let name = name.split(['(', '<']).next()?.trim();
    NEEDLESS.contains(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer;
    use crate::testing;

    fn measure(path: &str, text: &str) -> Measured {
        testing::measure(check, path, text)
    }

    fn count(measure: &str, path: &str, text: &str) -> usize {
        testing::count(check, measure, path, text)
    }

    #[test]
    fn sim_04_helpers_that_the_language_has_are_refused() {
        for text in [
            "fn copy_map(a: &Map) -> Map {}",
            "pub(crate) fn slice_contains<T>(a: &[T]) {}",
            "    async fn string_in_list() {}",
        ] {
            assert_eq!(measure("src/a.rs", text).problems.len(), 1, "{text}");
        }
        for text in [
            "fn copy(a: &Map) {}",
            "a.contains(b)",
            "// fn copy_map()",
            "x.copy_map()",
        ] {
            assert_eq!(measure("src/a.rs", text).problems.len(), 0, "{text}");
        }
    }

    #[test]
    fn vw_14_the_watcher_of_volumes_searches_no_allocations() {
        let watcher = "src/reactors/volume_watcher.rs";
        for line in [
            "let row = view.get::<Allocs>(&id)?;",
            "for row in view.scan::<Allocs>(Scan::all()) {}",
            "if row.alloc.client_terminal() {}",
            "let asked = csi::requests_of_alloc(view, &row)?;",
        ] {
            assert_eq!(measure(watcher, line).problems.len(), 1, "{line}");
            assert_eq!(measure("src/a.rs", line).problems.len(), 0, "{line}");
        }
        let asks = "csi::left_by(view, &id, change.index)";
        assert_eq!(measure(watcher, asks).problems.len(), 0);
        // The rule is about a file that is there.
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = std::fs::read_to_string(root.join(watcher)).expect("the watcher");
        assert_eq!(measure(watcher, &text).problems, [""; 0]);
    }

    #[test]
    fn families_are_looked_up_by_name_once_at_the_opening() {
        let found = |path: &str, line: &str| measure(path, line).problems.len();
        let by_name = "batch.put_cf(self.db.raw().cf_handle(name)?, key, value);";
        for path in ["projections/src/engine/staged.rs", "projections/src/lib.rs"] {
            assert_eq!(found(path, by_name), 1, "{path}");
        }
        let at_hand = "batch.put_cf(self.db.family(family), key, value);";
        assert_eq!(found("projections/src/engine/staged.rs", at_hand), 0);
        assert_eq!(found("projections/src/read/rejections.rs", by_name), 0);
        // Where it may be done it is done by one function, and that is called by one.
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let place = root.join("projections/src/engine/db.rs");
        let text = lexer::blank(&std::fs::read_to_string(place).expect("the database"));
        let lines: Vec<&str> = text.lines().collect();
        let within = |word: &str| {
            let mut found = Vec::new();
            let mut function = "";
            for line in &lines {
                match line.split_once("fn ") {
                    Some((_, rest)) => function = rest.split('(').next().unwrap_or_default(),
                    None if line.contains(word) => found.push(function.to_owned()),
                    None => {}
                }
            }
            found
        };
        assert_eq!(within("cf_handle("), ["handles"]);
        assert_eq!(within("handles("), ["open"]);
    }

    #[test]
    fn what_a_read_sees_of_many_rows_it_asks_for() {
        for line in [
            "for row in read.view.unfiltered().scan::<Jobs>(Scan::all()) {}",
            "let view = read.view.unfiltered();\nfor row in view.by_index::<JobsByType>(kind) {}",
            "let rows = read\n.view\n.unfiltered()\n.by_index_scan::<JobsByType>(scan);",
            "let rows = View::scan(read.view.unfiltered(), scan);",
        ] {
            let found = |path: &str| measure(path, line).problems.len();
            assert_eq!(found("src/http/jobs/list.rs"), 1, "{line}");
            assert_eq!(found("src/explain/mod.rs"), 0, "{line}");
            assert_eq!(found("src/http/jobs/list_test.rs"), 0, "{line}");
        }
        let asks = "read.view.rows::<Jobs>(Scan::all()).of_route()";
        assert_eq!(measure("src/http/jobs/list.rs", asks).problems.len(), 0);
    }

    #[test]
    fn auth_12_a_command_is_submitted_only_with_the_right_to_it() {
        let reported = "let done = read.api.proposer.submit(command, origin).await;";
        let own = "let done = write.submit(command).await;";
        let found = |path: &str, line: &str| measure(path, line).problems.len();
        assert_eq!(found("src/http/jobs/write.rs", reported), 1);
        assert_eq!(found("src/http/jobs/write.rs", own), 0);
        assert_eq!(found("src/http/front.rs", reported), 0);
        let unrequested = "let done = server.submit(command, Origin::default()).await;";
        assert_eq!(found("src/endpoints/node.rs", unrequested), 1);
        assert_eq!(found("src/endpoints/node.rs", reported), 1);
        assert_eq!(found("src/endpoints/auth.rs", unrequested), 0);
    }

    #[test]
    fn answers_are_read_as_types() {
        let found = |path: &str, line: &str| measure(path, line).problems.len();
        for (line, count) in [
            ("let status = answer[\"Status\"].as_str();", 1),
            ("let id = &found[0][\"ID\"];", 1),
            ("let at = told(&answer)?[\"At\"].as_u64();", 1),
            ("let seconds = done[\"Result\"][\"Seconds\"].as_f64();", 2),
            ("if volume[\"ID\"] == id {}", 1),
            ("let name = answer::at(one, \"/Name\");", 1),
            (
                "let same = told.pointer(\"/Comparison/Identical\") == other;",
                1,
            ),
        ] {
            assert_eq!(found("src/cli/a.rs", line), count, "{line}");
            assert_eq!(found("src/cli/a_test.rs", line), 0, "{line}");
            assert_eq!(found("src/http/a.rs", line), 0, "{line}");
            let test = format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
            assert_eq!(found("src/cli/a.rs", &test), 0, "{line}");
        }
        for line in [
            "volume[\"ID\"] = id.into();",
            "volume[\"Capabilities\"] =\n    capabilities(value)?;",
            "let heads = [\"ID\", \"Name\"];",
            "let heads = vec![\"ID\"];",
            "let kind = word[\"access_mode\"].clone();",
            "// answer[\"Status\"] would be empty",
            "let text = \"answer[\\\"Status\\\"]\";",
            "let found = client.fetch(\"/v1/jobs\", &[]);",
            "// as in at(answer, \"/Status\")",
            "let text = \"at(answer, \\\"/Status\\\")\";",
        ] {
            assert_eq!(found("src/cli/a.rs", line), 0, "{line}");
        }
    }

    #[test]
    fn numbers_agree_with_their_words_on_the_command_line() {
        let found = |path: &str, line: &str| measure(path, line).problems.len();
        for line in [
            "out.line(&format!(\"{count} entries folded\"));",
            "    \"and {more} more rows\"",
            "format!(\"{} bytes, and {} more fields\", a, b)",
        ] {
            assert_eq!(found("src/cli/a.rs", line), 1, "{line}");
            assert_eq!(found("src/cli/a_test.rs", line), 0, "{line}");
            assert_eq!(found("src/raft/a.rs", line), 0, "{line}");
        }
        for line in [
            "format!(\"{} folded\", counted(count, \"entry\"))",
            "// {count} entries",
            "format!(\"{what} rowsets\")",
            "match rows { Rows { .. } => rows, }",
        ] {
            assert_eq!(found("src/cli/a.rs", line), 0, "{line}");
        }
    }

    #[test]
    fn sim_08_durations_and_sizes_have_names() {
        for line in [
            "let a = Duration::from_secs(5);",
            "wait(Duration::from_millis(1_500)).await",
            "Duration::from_secs_f64(0.5)",
            "let size = 4 << 20;",
        ] {
            assert_eq!(count("bare-numbers", "src/a.rs", line), 1, "{line}");
            assert_eq!(count("bare-numbers", "src/a_test.rs", line), 0, "{line}");
        }
        for line in [
            "const A: Duration = Duration::from_secs(5);",
            "pub(super) const A: Duration = Duration::from_secs(5);",
            "pub const A: usize = 4 << 20;",
            "const A: &[Duration] = &[\n    Duration::from_secs(5),\n];",
            "static A: Lazy = Lazy::new(4 << 20);",
            "Duration::from_secs(0)",
            "Duration::from_secs(seconds)",
            "    zero_ahead: 256 << 10,",
            "    idle: Some(Duration::from_secs(5)),",
            "1_u64 << bits",
            "hash << 20",
        ] {
            assert_eq!(count("bare-numbers", "src/a.rs", line), 0, "{line}");
        }
        let function = "const fn a() -> Duration {\n    Duration::from_secs(5)\n}";
        assert_eq!(count("bare-numbers", "src/a.rs", function), 1);
    }
}
