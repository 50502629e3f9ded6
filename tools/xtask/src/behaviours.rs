//! Which behaviours are shown, and by which test.
//!
//! `src/docs/behaviours.md` lists them as table rows `| ID | what, in our words | tests |`. The
//! name of a test begins with the ID: `ev_05_every_table_survives_a_snapshot`, in Go `TestEV05…`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::lexer;
use crate::tree;

const FILE: &str = "src/docs/behaviours.md";
pub(crate) const REMAINING: &str = "src/docs/remaining.md";

/// The areas, as test names spell them.
const AREAS: &[&str] = &[
    "acl", "auth", "chk", "cl", "csi", "dep", "drv", "env", "ev", "eval", "hb", "hv", "job", "kr",
    "mod", "ns", "plg", "sch", "sim", "var", "vw", "wi",
];

/// How many behaviours there are in all.
const TOTAL: usize = 346;

/// Checks the list: problems, then notes.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let tests = tests(root)?;
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        let Some((id, shown_by)) = row(line) else {
            continue;
        };
        let place = format!("{FILE}:{}", number + 1);
        if !listed.insert(id.clone()) {
            problems.push(format!("{place}: {id} is listed twice"));
        }
        for test in &shown_by {
            if !ids_of(test).contains(&id) {
                problems.push(format!(
                    "{place}: the name of the test must begin with {id}: `{test}`"
                ));
            } else if !tests.contains_key(test) {
                problems.push(format!("{place}: there is no test `{test}`"));
            }
        }
        if shown_by.is_empty() {
            problems.push(format!("{place}: {id} names no test"));
        }
    }
    let with_id: BTreeSet<String> = tests.keys().flat_map(|name| ids_of(name)).collect();
    for id in with_id.difference(&listed) {
        problems.push(format!("{FILE}: {id} has a test and is not listed"));
    }
    let notes = vec![format!("{} of {TOTAL} behaviours are shown", listed.len())];
    Ok((problems, notes))
}

/// The tests that rows name, with the file each is in.
pub(crate) fn shown_by(root: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let named: BTreeSet<String> = text
        .lines()
        .filter_map(row)
        .flat_map(|(_, by)| by)
        .collect();
    let mut tests = tests(root)?;
    tests.retain(|name, _| named.contains(name));
    Ok(tests)
}

/// How many things the second list leaves for later; each must belong to a row of the first.
pub(crate) fn remaining(files: &[tree::File]) -> Result<usize> {
    let listed = listed(files);
    let mut rows = 0;
    for (id, _) in text(files, REMAINING).lines().filter_map(row) {
        anyhow::ensure!(listed.contains(&id), "{REMAINING}: {id} is not in {FILE}");
        rows += 1;
    }
    Ok(rows)
}

/// The IDs of the first list.
pub(crate) fn listed(files: &[tree::File]) -> BTreeSet<String> {
    let rows = text(files, FILE).lines().filter_map(row);
    rows.map(|(id, _)| id).collect()
}

fn text<'f>(files: &'f [tree::File], path: &str) -> &'f str {
    let file = files.iter().find(|file| file.path == path);
    file.map(|file| file.text.as_str()).unwrap_or_default()
}

/// Whether a word has the form of an ID of one of the areas.
pub(crate) fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(area, number)| {
        let known = AREAS.iter().any(|known| known.to_uppercase() == area);
        known && number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// The ID and the tests of a table row.
fn row(line: &str) -> Option<(String, Vec<String>)> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    let id = cells.next()?;
    let (area, number) = id.split_once('-')?;
    let plain = area.bytes().all(|b| b.is_ascii_uppercase()) && !area.is_empty();
    if !plain || number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let tests = cells.nth(1)?.split('`').map(str::trim);
    let tests = tests.filter(|test| !test.is_empty());
    Some((id.to_owned(), tests.map(str::to_owned).collect()))
}

/// The IDs that a test's name begins with; one test may show several.
fn ids_of(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('_').collect();
    let pairs = parts.as_chunks::<2>().0.iter();
    pairs
        .map_while(|[area, number]| {
            let known = AREAS.contains(area);
            let digits = number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit());
            (known && digits).then(|| format!("{}-{number}", area.to_uppercase()))
        })
        .collect()
}

/// Prints every test that names behaviours, with their IDs.
pub(crate) fn list(root: &Path) -> Result<()> {
    for name in tests(root)?.keys() {
        let ids = ids_of(name);
        if !ids.is_empty() {
            println!("test {name} {}", ids.join(" "));
        }
    }
    Ok(())
}

/// Every test function of the tree, with its file.
pub(crate) fn tests(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for file in tree::read(root)?.into_iter().filter(tree::File::is_rust) {
        let blanked = lexer::blank(&file.text);
        let lines: Vec<&str> = blanked.lines().collect();
        for function in lexer::functions(&lines) {
            let above = lines[function.start.saturating_sub(6)..function.start]
                .iter()
                .rev();
            let attributes = above.take_while(|line| !line.trim_end().ends_with('}'));
            let is_test = attributes
                .map(|line| line.trim())
                .any(|line| line == "#[test]" || line.starts_with("#[tokio::test"));
            let ignored = lines[function.start.saturating_sub(3)..function.start]
                .iter()
                .any(|line| line.contains("#[ignore"));
            if is_test && !ignored {
                found.insert(function.name, file.path.clone());
            }
        }
    }
    Ok(found)
}
