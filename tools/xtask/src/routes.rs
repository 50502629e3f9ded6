//! Every route and every method between agents: what it requires of its caller, which test requests
//! it, and where it is documented.
//!
//! The page `src/docs/routes.md` is written from what is registered; a test refuses one that is out
//! of date. A test requests a route where a path in its text fits it, and a method of the route's
//! is named on the same line or close above; it calls a method where it names it, or its type.
//! Those without a test stand in a list, which may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::lexer;
use crate::tree::{self, File};

const PAGE: &str = "src/docs/routes.md";
/// Those without a test.
const LIST: &str = "tools/xtask/untested.txt";
/// Lines above a path on which its method may be named.
const ABOVE: usize = 4;

/// A line of the page.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Its line on the page.
    line: usize,
    /// The table that it stands in: the head of its first column.
    table: String,
    /// The path, or the method's name.
    name: String,
    /// The methods of HTTP; none for a method between agents.
    methods: Option<String>,
    access: String,
}

impl Row {
    /// As it stands in the list.
    fn listed(&self) -> String {
        match &self.methods {
            Some(methods) => format!("{} {}", methods.replace(' ', ""), self.name),
            None => self.name.clone(),
        }
    }
}

/// What is done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Read,
    Write,
    Delete,
}

/// Prints all of them.
pub(crate) fn print(root: &Path) -> Result<()> {
    let files = tree::read(root)?;
    let rows = rows(&files)?;
    for (row, test) in rows.iter().zip(tested(&files, &rows)) {
        let name = row.listed();
        let test = test.as_deref().unwrap_or("-");
        let place = format!("{PAGE}:{}\t{}", row.line, row.table);
        println!("{name}\t{}\t{test}\t{place}", row.access);
    }
    Ok(())
}

/// Compares those without a test with the list.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let files = tree::read(root)?;
    let rows = rows(&files)?;
    let text = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let known: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    let without: BTreeSet<String> = rows
        .iter()
        .zip(tested(&files, &rows))
        .filter(|(_, test)| test.is_none())
        .map(|(row, _)| row.listed())
        .collect();
    let mut problems = Vec::new();
    for name in &without {
        if !known.contains(name.as_str()) {
            problems.push(format!("{name} has no test that asks it"));
        }
    }
    for name in known {
        if !without.contains(name) {
            problems.push(format!(
                "{LIST}: {name} has a test, or is gone: take it out"
            ));
        }
    }
    let notes = vec![format!(
        "{} routes and methods, {} without a test",
        rows.len(),
        without.len()
    )];
    Ok((problems, notes))
}

fn rows(files: &[File]) -> Result<Vec<Row>> {
    let page = files.iter().find(|file| file.path == PAGE).context(PAGE)?;
    let mut rows = Vec::new();
    let mut table = String::new();
    for (number, line) in page.text.lines().enumerate() {
        let Some(cells) = line.strip_prefix("| `") else {
            if let Some(head) = line.strip_prefix("| ") {
                table = head.split(" | ").next().unwrap_or_default().to_owned();
            }
            continue;
        };
        let cells: Vec<&str> = cells.trim_end_matches('|').split(" | ").collect();
        let name = cells[0].trim_end_matches('`').to_owned();
        let (methods, access) = match cells.as_slice() {
            [_, access] => (None, access),
            [_, methods, access] => (Some((*methods).to_owned()), access),
            _ => anyhow::bail!("{PAGE}:{}: cannot read {line:?}", number + 1),
        };
        rows.push(Row {
            line: number + 1,
            table: table.clone(),
            name,
            methods,
            access: access.trim().to_owned(),
        });
    }
    Ok(rows)
}

/// How the table of what a client's agent answers itself is called.
const AT_CLIENT: &str = "client's agent";

/// The test of each row, where there is one.
fn tested(files: &[File], rows: &[Row]) -> Vec<Option<String>> {
    let types = types(files);
    let mut routes: BTreeMap<(&str, &str, Verb), String> = BTreeMap::new();
    let tables: BTreeSet<&str> = rows.iter().map(|row| row.table.as_str()).collect();
    let mut calls: BTreeMap<&str, String> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        each_test_line(file, |lines, at, test| {
            for path in paths(lines[at]) {
                let requested = tables
                    .iter()
                    .filter(|table| is_requested(&file.path, table));
                for table in requested {
                    let Some(route) = best(rows, table, &path) else {
                        continue;
                    };
                    for verb in verbs(lines, at) {
                        let key = (*table, route, verb);
                        routes.entry(key).or_insert_with(|| test.clone());
                    }
                }
            }
            for (name, of_type) in &types {
                if has_word(lines[at], name) || has_word(lines[at], of_type) {
                    calls.entry(name).or_insert_with(|| test.clone());
                }
            }
        });
    }
    let test = |row: &Row| match &row.methods {
        None => calls.get(row.name.as_str()).cloned(),
        Some(methods) => {
            let mut verbs = verbs_of(methods).into_iter();
            let (table, name) = (row.table.as_str(), row.name.as_str());
            verbs.find_map(|verb| routes.get(&(table, name, verb)).cloned())
        }
    };
    rows.iter().map(test).collect()
}

/// Whether a test in a file may reach the agent that serves a table: a client's agent is another
/// process.
fn is_requested(path: &str, table: &str) -> bool {
    !table.contains(AT_CLIENT) || path.starts_with("tests/api/remote/")
}

/// Names of methods between agents, and their types.
fn types(files: &[File]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.path.starts_with("src/rpc/"))
    {
        let mut kind = "";
        for line in file.text.lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("impl Streaming for ") {
                kind = name.trim_end_matches(" {");
            }
            let quoted = line.split('"').nth(1).unwrap_or_default();
            if line.starts_with("const NAME") && !kind.is_empty() {
                found.push((quoted.to_owned(), kind.to_owned()));
            } else if let Some((name, rest)) = line.split_once(" = \"")
                && (rest.contains(" -> ") || rest.ends_with("\":"))
            {
                found.push((quoted.to_owned(), name.to_owned()));
            }
        }
    }
    found
}

/// Calls `take` for every line of tests, with the function and the file it stands in.
fn each_test_line(file: &File, mut take: impl FnMut(&[&str], usize, &String)) {
    let blanked = lexer::blank(&file.text);
    let blanked: Vec<&str> = blanked.lines().collect();
    let lines: Vec<&str> = file.text.lines().collect();
    let inside = lexer::test_lines(&blanked);
    let mut names = vec![file.path.clone(); lines.len()];
    for function in lexer::functions(&blanked) {
        let end = function.end.min(lines.len() - 1);
        let name = format!("{} ({})", function.name, file.path);
        names[function.start..=end].fill(name);
    }
    for (at, name) in names.iter().enumerate() {
        if file.is_test() || inside.get(at) == Some(&true) {
            take(&lines, at, name);
        }
    }
}

/// The paths that a line names.
fn paths(line: &str) -> Vec<String> {
    let ends = |c: char| matches!(c, '"' | '?' | ' ' | '\'' | '`' | '\\' | ')' | ',' | '#');
    let mut found = Vec::new();
    for start in ["/v1/", "/.well-known/"] {
        for (at, _) in line.match_indices(start) {
            let rest = &line[at..];
            let end = rest.find(ends).unwrap_or(rest.len());
            found.push(rest[..end].trim_end_matches('/').to_owned());
        }
    }
    found
}

/// The route of a table that a path fits best: the one with the most words of its own.
fn best<'r>(rows: &'r [Row], table: &str, path: &str) -> Option<&'r str> {
    let routes = rows
        .iter()
        .filter(|row| row.table == table && row.methods.is_some());
    let fitting = routes.filter_map(|row| Some((fits(&row.name, path)?, row.name.as_str())));
    fitting
        .max_by_key(|(words, _)| *words)
        .map(|(_, name)| name)
}

/// How many words of a route a path has in common with it, if it fits. An id may hold slashes where
/// what stands behind it is found from the end: jobs are named so.
fn fits(route: &str, path: &str) -> Option<usize> {
    let route: Vec<&str> = route.trim_end_matches('/').split('/').skip(1).collect();
    let path: Vec<&str> = path.split('/').skip(1).collect();
    let missing = path.len().checked_sub(route.len())?;
    let mut words = 0;
    let mut given = path.into_iter();
    for part in &route {
        let one = given.next()?;
        if part.starts_with("{*") {
            return Some(words);
        }
        match part.starts_with('{') {
            true if one.is_empty() => return None,
            true if route.starts_with(&["v1", "job"]) => {
                for _ in 0..missing {
                    given.next()?;
                }
            }
            true => {}
            false if one == *part => words += 1,
            false => return None,
        }
    }
    given.next().is_none().then_some(words)
}

/// What is done with the path on a line, by what stands on it and close above; a read where
/// nothing is.
fn verbs(lines: &[&str], at: usize) -> BTreeSet<Verb> {
    const WORDS: [(Verb, &[&str]); 3] = [
        (Verb::Delete, &["DELETE", "delete("]),
        (Verb::Write, &["PUT", "POST", "put(", "post("]),
        (Verb::Read, &["GET", "get(", "seen(", "json_of("]),
    ];
    let verbs_on = |line: &str| -> BTreeSet<Verb> {
        let named = |words: &[&str]| words.iter().any(|word| line.contains(word));
        let all = WORDS.iter().filter(|(_, words)| named(words));
        all.map(|(verb, _)| *verb).collect()
    };
    for line in (at.saturating_sub(ABOVE)..=at).rev() {
        let found = verbs_on(lines[line]);
        if !found.is_empty() {
            return found;
        }
    }
    BTreeSet::from([Verb::Read])
}

fn verbs_of(methods: &str) -> Vec<Verb> {
    match methods {
        "any" => vec![Verb::Read, Verb::Write, Verb::Delete],
        methods => {
            let verb = |name: &str| match name {
                "GET" => Verb::Read,
                "DELETE" => Verb::Delete,
                _ => Verb::Write,
            };
            methods.split(", ").map(verb).collect()
        }
    }
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_path_is_of_the_route_it_fits_best() {
        for (route, path, expected) in [
            ("/v1/jobs", "/v1/jobs", Some(2)),
            ("/v1/job/{id}", "/v1/job/x", Some(2)),
            ("/v1/job/{id}", "/v1/job", None),
            ("/v1/job/{id}", "/v1/job/x/y", Some(2)),
            ("/v1/job/{id}/tag", "/v1/job/x/versions/y/tag", Some(3)),
            ("/v1/node/{id}", "/v1/node/x/drain", None),
            ("/v1/job/{id}/plan", "/v1/job/{name}/plan", Some(3)),
            ("/v1/var/{*path}", "/v1/var/a/b/c", Some(2)),
            ("/v1/var/{*path}", "/v1/var", None),
        ] {
            assert_eq!(fits(route, path), expected, "{route} {path}");
        }
    }

    #[test]
    fn a_route_without_a_test_is_found_and_one_with_a_test_names_it() {
        let page = "| `Node.Get` | public |\n| `Node.Put` | public |\n\
            | Path | Methods | Access |\n|---|---|---|\n\
            | `/v1/jobs` | GET | public |\n| `/v1/jobs` | PUT, POST | submit-job |\n\
            | `/v1/job/{id}` | DELETE | submit-job |\n| `/v1/job/{id}` | GET | read-job |\n\n\
            | Elsewhere | Methods | Access |\n|---|---|---|\n| `/v1/job/a` | any | public |\n\
            | `/v1/jobs` | GET | public |\n";
        let files = [
            file(PAGE, page),
            file(
                "src/rpc/methods.rs",
                "    NodeGet = \"Node.Get\": A -> B;\n",
            ),
            file(
                "tests/api/jobs.rs",
                "#[test]\nfn lists() {\n    let _ = http.get(\"/v1/jobs?prefix=a\");\n\
                 }\n\n#[test]\nfn deletes() {\n    http.send(\n        \"DELETE\",\n        \
                 &format!(\"/v1/job/{id}\"),\n    );\n    call::<NodeGet>();\n}\n",
            ),
            file(
                "src/http/jobs.rs",
                "fn list() {\n    put(\"/v1/jobs\");\n}\n",
            ),
        ];
        let rows = rows(&files).unwrap();
        let tested: Vec<bool> = tested(&files, &rows).iter().map(Option::is_some).collect();
        // Each table has its own: where two have a path, both rows count as tested.
        assert_eq!(tested, [true, false, true, false, true, false, false, true]);
    }
}
