//! Which files the listed behaviours rest on.
//!
//! That is not written down: it follows from where the tests of `behaviours.md` stand. A test rests
//! on the file it is in or beside; where there is no such file (`scheduler/reconnect_test.rs`), on
//! its whole folder, and of that on the functions which it reaches when it runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree;

/// Folders of code that may be changed.
const CODE: [&str; 4] = ["src/", "events/src/", "projections/src/", "migrations/src/"];

/// Files of code, not of tests.
pub(crate) fn code(files: &[tree::File]) -> BTreeSet<String> {
    let mut code: BTreeSet<String> = files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test() && !file.path.contains("/tests/"))
        // Programs of their own, which no test of a library reaches.
        .filter(|file| file.path != "src/main.rs" && !file.path.starts_with("src/csi/generate/"))
        .filter(|file| CODE.iter().any(|folder| file.path.starts_with(folder)))
        .map(|file| file.path.clone())
        .collect();
    for file in files.iter().filter(|file| file.is_rust()) {
        let folder = match file
            .path
            .strip_suffix("/mod.rs")
            .or(file.path.strip_suffix("/lib.rs"))
        {
            Some(folder) => folder.to_owned(),
            None => file.path.trim_end_matches(".rs").to_owned(),
        };
        for name in modules_of_tests(&file.text) {
            code.remove(&format!("{folder}/{name}.rs"));
        }
    }
    code
}

/// The names in `#[cfg(test)] mod name;`.
fn modules_of_tests(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let line = rest.trim_start().lines().next()?;
        let (_, name) = line.strip_suffix(';')?.rsplit_once("mod ")?;
        Some(name)
    })
}

/// The files that tests rest on; `tests` are their names with the file each is in.
pub(crate) fn of(files: &[tree::File], tests: &BTreeMap<String, String>) -> BTreeSet<String> {
    let names = self::code(files);
    let code: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| names.contains(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let places: BTreeSet<&str> = tests.values().map(String::as_str).collect();
    places
        .into_iter()
        .flat_map(|place| beside(place, &code))
        .collect()
}

fn beside(place: &str, code: &BTreeMap<&str, &str>) -> Vec<String> {
    if code.contains_key(place) {
        return vec![place.to_owned()];
    }
    if let Some(stem) = place.strip_suffix("_test.rs")
        && let Some((path, _)) = code.get_key_value(format!("{stem}.rs").as_str())
    {
        return vec![(*path).to_owned()];
    }
    let (folder, name) = place.rsplit_once('/').unwrap_or(("", place));
    let declared = format!("#[path = \"{name}\"]");
    let declares = |path: &str, text: &str| {
        path.rsplit_once('/')
            .is_some_and(|(other, _)| other == folder)
            && text.contains(&declared)
    };
    if let Some((path, _)) = code.iter().find(|(path, text)| declares(path, text)) {
        return vec![(*path).to_owned()];
    }
    // A suite belongs to the folder of its name, a folder of tests to the one it is in.
    let suite = folder
        .strip_prefix("tests/")
        .map(|name| format!("src/{name}"));
    let folder = suite.as_deref().unwrap_or(folder);
    let folder = folder.split("/tests").next().unwrap_or(folder);
    let below = format!("{folder}/");
    let inside = code.keys().filter(|path| path.starts_with(&below));
    inside.map(|path| (*path).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects(place: &str) -> Vec<String> {
        let file = |path: &str, text: &str| tree::File {
            path: path.into(),
            text: text.into(),
        };
        let files = [
            file(
                "src/a/mod.rs",
                "mod one_test;\n#[cfg(test)]\npub(crate) mod world;",
            ),
            file("src/a/world.rs", "fn only_tests_use_it() {}"),
            file("src/a/b.rs", "#[path = \"of_b_test.rs\"]\nmod tests;"),
            file("src/a/c.rs", ""),
            file("src/a/c_test.rs", ""),
            file("src/z.rs", ""),
            file("tests/api/x.rs", ""),
        ];
        let tests = BTreeMap::from([("cl_01_it".to_owned(), place.to_owned())]);
        of(&files, &tests).into_iter().collect()
    }

    #[test]
    fn a_test_rests_on_what_it_stands_beside() {
        assert_eq!(subjects("src/z.rs"), ["src/z.rs"]);
        assert_eq!(subjects("src/a/c_test.rs"), ["src/a/c.rs"]);
        assert_eq!(subjects("tests/z/it.rs"), [""; 0]);
        assert_eq!(subjects("src/a/of_b_test.rs"), ["src/a/b.rs"]);
        let all = ["src/a/b.rs", "src/a/c.rs", "src/a/mod.rs"];
        assert_eq!(subjects("tests/a/it.rs"), all);
        assert_eq!(subjects("src/a/one_test.rs"), all);
        assert_eq!(subjects("src/a/tests/rows.rs"), all);
        assert_eq!(subjects("tests/api/x.rs"), [""; 0]);
    }
}
