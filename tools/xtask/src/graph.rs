//! Which folders of a crate know which others: those of `src`, and those of `projections/src`.
//!
//! An arrow is a path in code that is not a test: `crate::net::Budget` in `src/http/front.rs` is
//! http → net. The compiler holds the crates apart; within a crate nothing but this keeps two
//! folders from knowing each other. In the projections a folder that names something of the crate's
//! root knows whatever the root hands on, all folders, so that no arrow is hidden there. What is
//! within a folder is read by [`inner`].

pub(crate) mod inner;

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer;
use crate::tree::File;

/// Which folder knows which others, each with a file that shows it.
pub(crate) type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// The projections, whose root only hands on what its folders have.
pub(crate) const PROJECTIONS: &str = "projections/src/";
/// The folders of the program itself.
pub(crate) const OURS: &str = "src/";
/// Where the crates begin whose folders may not know each other.
pub(crate) const CRATES: [&str; 2] = [OURS, PROJECTIONS];
/// Where the crates begin whose folders are read from within too, at any depth.
pub(crate) const INNER: [&str; 3] = [OURS, PROJECTIONS, "events/src/"];
/// What a crate's root is called among its folders.
const ROOT: &str = "lib";

/// The folders and single files right below the `src` of a crate.
pub(crate) fn read(files: &[File], src: &str) -> Graph {
    let mut graph = Graph::new();
    let code = || files.iter().filter(|file| is_code(file, src));
    let names: BTreeSet<&str> = code().filter_map(|file| folder(&file.path, src)).collect();
    let is_crate = |name: &str| {
        let manifest = format!("{src}{name}/Cargo.toml");
        files.iter().any(|file| file.path == manifest)
    };
    for file in code() {
        let Some(own) = folder(&file.path, src) else {
            continue;
        };
        // Paths of a crate of its own begin there.
        let (prefix, root) = match is_crate(own) {
            true => ("drover_", false),
            false => ("crate::", src == PROJECTIONS),
        };
        let known = graph.entry(own.to_owned()).or_default();
        let text = product(file);
        for other in named(&text, prefix).into_iter().filter(|name| *name != own) {
            let other = match names.contains(other) {
                true => other,
                false if root => ROOT,
                false => continue,
            };
            let shown = || file.path.clone();
            known.entry(other.to_owned()).or_insert_with(shown);
        }
    }
    if graph.values().any(|known| known.contains_key(ROOT)) {
        let lib = || format!("{src}{ROOT}.rs");
        let all = names.iter().map(|name| ((*name).to_owned(), lib()));
        graph.insert(ROOT.to_owned(), all.collect());
    }
    graph
}

/// Circles, each as the way around it.
pub(crate) fn circles(graph: &Graph) -> Vec<String> {
    let mut problems = Vec::new();
    let mut done = BTreeSet::new();
    for start in graph.keys() {
        let mut way = Vec::new();
        follow(graph, start, &mut way, &mut done, &mut problems);
    }
    problems
}

fn follow<'a>(
    graph: &'a Graph,
    at: &'a str,
    way: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
    problems: &mut Vec<String>,
) {
    if let Some(begin) = way.iter().position(|seen| *seen == at) {
        problems.push(circle(graph, &way[begin..]));
        return;
    }
    if !done.insert(at) {
        return;
    }
    way.push(at);
    for next in graph.get(at).into_iter().flat_map(BTreeMap::keys) {
        follow(graph, next, way, done, problems);
    }
    way.pop();
}

/// One circle: its steps, each with the file that shows it.
fn circle(graph: &Graph, way: &[&str]) -> String {
    let steps = way.iter().zip(way.iter().cycle().skip(1));
    let steps = steps.map(|(from, to)| format!("{from} → {to} ({})", graph[*from][*to]));
    let text = steps.collect::<Vec<_>>().join(", ");
    format!("folders that know each other: {text}")
}

/// The graph as people read it: folders that know no other first, and each after all that it knows.
pub(crate) fn reported(graph: &Graph) -> String {
    let mut text = String::new();
    let mut placed = BTreeSet::new();
    while placed.len() < graph.len() {
        let ready = |known: &BTreeMap<String, String>| known.keys().all(|k| placed.contains(k));
        let next = graph.iter().filter(|(name, _)| !placed.contains(*name));
        let level: Vec<_> = next.clone().filter(|(_, known)| ready(known)).collect();
        let level = match level.is_empty() {
            // What is left goes round in circles.
            true => next.collect(),
            false => level,
        };
        for (name, known) in &level {
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            text.push_str(&format!("{name:12} → {}\n", known.join(" ")));
        }
        placed.extend(level.into_iter().map(|(name, _)| name.clone()));
        text.push('\n');
    }
    text
}

/// Prints all graphs: of crates, and of what is within their folders.
pub(crate) fn print(files: &[File]) {
    for src in CRATES {
        print!("{src}\n{}", reported(&read(files, src)));
    }
    for src in INNER {
        for place in inner::places(files, src) {
            let modules = inner::read(files, src, &place);
            print!("{place}\n{}", reported(&modules.folders));
            let circling: Vec<&str> = inner::circling(&modules.modules).into_iter().collect();
            if !circling.is_empty() {
                println!("in circles: {}\n", circling.join(" "));
            }
        }
    }
}

/// The code of a file that is no test, without texts and comments.
fn product(file: &File) -> String {
    let blanked = lexer::blank(&file.text);
    let lines: Vec<&str> = blanked.lines().collect();
    let tests = lexer::test_lines(&lines);
    let product = lines.iter().zip(&tests).filter(|(_, test)| !**test);
    product.map(|(line, _)| format!("{line}\n")).collect()
}

fn is_code(file: &File, src: &str) -> bool {
    let inner = file.path.strip_prefix(src);
    let code = inner.is_some_and(|inner| !["lib.rs", "main.rs"].contains(&inner));
    // A folder of tests, as that of apply.
    let tests = inner.is_some_and(|inner| inner.contains("/tests/"));
    file.is_rust() && code && !tests && !file.is_test()
}

fn folder<'a>(path: &'a str, src: &str) -> Option<&'a str> {
    let inner = path.strip_prefix(src)?;
    let first = inner.split('/').next()?;
    Some(first.trim_end_matches(".rs"))
}

/// The first names behind a prefix, also of `use crate::{a::X, b}`.
fn named<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (_, rest) in text
        .match_indices(prefix)
        .map(|(at, it)| (at, &text[at + it.len()..]))
    {
        let Some(list) = rest.strip_prefix('{') else {
            found.extend(word(rest));
            continue;
        };
        let mut depth = 0_u32;
        let mut begins = true;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && c.is_alphabetic() => {
                    found.extend(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn word(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let word = &text[..end.unwrap_or(text.len())];
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn who_knows_whom_is_read_of_code_and_not_of_tests_or_comments() {
        let files = [
            file("src/a/mod.rs", "use crate::b::X;\n// crate::c\n"),
            file(
                "src/b.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::a::Y;\n}\n",
            ),
            file(
                "src/c/mod.rs",
                "use crate::{a::{X, Y}, b};\nuse crate::c::own;\n",
            ),
            file("src/c/it_test.rs", "use crate::d;"),
            file("src/d.rs", "fn f() { crate::c::g() }\n"),
            file("src/lib.rs", "use crate::a;"),
            file("src/e/Cargo.toml", ""),
            file(
                "src/e/mod.rs",
                "use crate::a;\nuse drover_c::X;\nuse drover_events::Y;",
            ),
        ];
        let graph = read(&files, "src/");
        let known = |name: &str| graph[name].keys().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(known("a"), ["b"]);
        assert_eq!(known("b"), [""; 0]);
        assert_eq!(known("c"), ["a", "b"]);
        assert_eq!(known("d"), ["c"]);
        assert_eq!(known("e"), ["c"], "it is a crate");
        assert_eq!(circles(&graph), [""; 0]);
        assert_eq!(
            reported(&graph).split("\n\n").next(),
            Some("b            → ")
        );
    }

    #[test]
    fn a_circle_is_told_with_the_files_that_close_it() {
        let files = [
            file("src/a.rs", "use crate::b;"),
            file("src/b.rs", "use crate::c;"),
            file("src/c.rs", "use crate::b;"),
        ];
        let circle = "folders that know each other: b → c (src/b.rs), c → b (src/c.rs)";
        let graph = read(&files, "src/");
        assert_eq!(circles(&graph), [circle]);
        assert!(reported(&graph).contains("c            → b"));
    }

    #[test]
    fn rooms_of_the_projections_are_read_and_their_root_hides_no_arrow() {
        let mut files = vec![
            file("projections/src/engine/key.rs", "use crate::engine::row;"),
            file("projections/src/read/view.rs", "use crate::engine::key;"),
            file("projections/src/read/it_test.rs", "use crate::View;"),
            file("projections/src/apply/tests/job.rs", "use crate::View;"),
            file("projections/src/lib.rs", "pub use read::view::View;"),
            file("projections/src/filter/Cargo.toml", ""),
            file("projections/src/filter/mod.rs", "use crate::ast;"),
            file("src/a.rs", "use crate::View;"),
        ];
        let reported = |files: &[File]| {
            let graph = read(files, PROJECTIONS);
            (
                graph.keys().cloned().collect::<Vec<_>>().join(" "),
                circles(&graph),
            )
        };
        assert_eq!(reported(&files), ("engine filter read".to_owned(), vec![]));
        assert_eq!(circles(&read(&files, "src/")), [""; 0]);
        files[0].text = "use crate::View;".to_owned();
        let circle = "folders that know each other: engine → lib (projections/src/engine/key.rs), \
                      lib → engine (projections/src/lib.rs)";
        assert_eq!(reported(&files).1[0], circle);
        files[0].text = "use crate::read::view;".to_owned();
        let circle = "folders that know each other: engine → read (projections/src/engine/key.rs), \
                      read → engine (projections/src/read/view.rs)";
        assert_eq!(reported(&files).1, [circle]);
    }

    /// The project's own folders.
    fn ours() -> Graph {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = crate::tree::read(&root).expect("the project's files");
        read(&files, "src/")
    }

    #[test]
    fn the_configuration_is_plain_values_and_knows_nobody() {
        let graph = ours();
        // But for the language that its files are written in.
        let known: Vec<&str> = graph["config"].keys().map(String::as_str).collect();
        assert_eq!(known, ["hcl1"]);
        assert!(graph["agent"].contains_key("config"));
    }

    #[test]
    fn plg_08_what_calls_plugins_knows_nothing_of_volumes() {
        let graph = ours();
        let knows = |name: &str, other: &str| graph[name].contains_key(other);
        for folder in ["csi", "csi_calls", "rpc", "client"] {
            for other in ["volumes", "commands", "endpoints", "reactors"] {
                assert!(!knows(folder, other), "{folder} knows {other}");
            }
        }
        assert!(knows("volumes", "csi_calls"));
        // And folders that serve, or watch, may call them.
        for folder in ["http", "reactors"] {
            assert!(knows(folder, "volumes"), "{folder}");
        }
    }
}
