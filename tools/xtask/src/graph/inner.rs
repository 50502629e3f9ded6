//! Which modules within one folder of a crate know which others, at any depth.
//!
//! An arrow is a path from the crate or upwards: `crate::http::gate::Access` or
//! `super::super::gate::Access` in `src/http/jobs/path.rs` is jobs → gate. What a folder's `mod.rs`
//! hands on counts for no module. No two folders may know each other, also by way of single files;
//! how many modules go round in circles, single files among them, may only shrink.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Graph, circle, folder, is_code, product, word};
use crate::tree::File;

/// The modules of one folder.
pub(crate) struct Inner {
    /// All of them, folders and single files.
    pub(crate) modules: Graph,
    /// The folders alone, as they know each other without a file between them.
    pub(crate) folders: Graph,
}

/// The folders below `src`, at any depth, that have folders of their own, each with a slash at its
/// end.
pub(crate) fn places(files: &[File], src: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| is_code(file, src)) {
        // Without the file's own name and its folder, which may have no folder below it.
        let parents = file
            .path
            .rsplit_once('/')
            .and_then(|(own, _)| own.rsplit_once('/'));
        let mut parent = parents.map_or("", |(parent, _)| parent);
        while parent.len() > src.len() {
            found.insert(format!("{parent}/"));
            parent = parent.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    found.into_iter().collect()
}

/// The modules of a place, a folder below `src`.
pub(crate) fn read(files: &[File], src: &str, place: &str) -> Inner {
    let code = || {
        files
            .iter()
            .filter(|file| is_code(file, src) && is_module(file, place))
    };
    let names: BTreeSet<&str> = code()
        .filter_map(|file| folder(&file.path, place))
        .collect();
    let above = above(files, src, place);
    let mut modules = Graph::new();
    for file in code() {
        let way = module(&file.path, place);
        let Some(own) = way.first() else {
            continue;
        };
        let known = modules.entry((*own).to_owned()).or_default();
        let text = product(file);
        let named = paths(&text);
        let named = named
            .iter()
            .filter_map(|path| first(path, way.len(), &above));
        for other in named.filter(|name| name != own && names.contains(name)) {
            let shown = || file.path.clone();
            known.entry(other.to_owned()).or_insert_with(shown);
        }
    }
    let is_folder = |name: &String| {
        let start = format!("{place}{name}/");
        code().any(|file| file.path.starts_with(&start))
    };
    let mut folders = modules.clone();
    folders.retain(|name, _| is_folder(name));
    for known in folders.values_mut() {
        known.retain(|name, _| is_folder(name));
    }
    Inner { modules, folders }
}

/// Circles in which two folders stand or more, single files among them: of each the shortest way
/// from one folder to another and back, which may pass a file twice.
pub(crate) fn circles(inner: &Inner) -> Vec<String> {
    let mut problems = Vec::new();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    for one in inner.folders.keys() {
        if done.contains(one) {
            continue;
        }
        let others = inner.folders.keys().filter(|other| *other != one);
        let rounds = others.filter_map(|other| {
            let there = way(&inner.modules, one, other)?;
            let back = way(&inner.modules, other, one)?;
            Some((other, [there, back].concat()))
        });
        let rounds: Vec<_> = rounds.collect();
        let shortest = rounds.iter().min_by_key(|(_, round)| round.len());
        problems.extend(shortest.map(|(_, round)| circle(&inner.modules, round)));
        done.extend(rounds.into_iter().map(|(other, _)| other));
    }
    problems
}

/// The shortest way from one module to another, without that other at its end.
fn way<'a>(graph: &'a Graph, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::from([from]);
    let mut ways = VecDeque::from([vec![from]]);
    while let Some(way) = ways.pop_front() {
        let known = way.last().and_then(|at| graph.get(*at));
        for next in known.into_iter().flat_map(BTreeMap::keys) {
            if next == to {
                return Some(way);
            }
            if seen.insert(next.as_str()) {
                let longer = way.iter().copied().chain([next.as_str()]);
                ways.push_back(longer.collect());
            }
        }
    }
    None
}

/// Those that know themselves by way of others.
pub(crate) fn circling(graph: &Graph) -> BTreeSet<&str> {
    let knows_itself = |name: &&str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![*name];
        while let Some(at) = next.pop() {
            for other in graph.get(at).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(other.as_str()) {
                    next.push(other.as_str());
                }
            }
        }
        seen.contains(name)
    };
    graph
        .keys()
        .map(String::as_str)
        .filter(knows_itself)
        .collect()
}

/// The modules that a place is in from its crate's root on: none for the root itself. A folder
/// below `src` may be a crate of its own, where paths begin anew.
fn above<'a>(files: &[File], src: &str, place: &'a str) -> Vec<&'a str> {
    let mut above = Vec::new();
    let mut reached = src.to_owned();
    for name in place
        .strip_prefix(src)
        .unwrap_or_default()
        .split_terminator('/')
    {
        reached.push_str(name);
        reached.push('/');
        above.push(name);
        let manifest = format!("{reached}Cargo.toml");
        if files.iter().any(|file| file.path == manifest) {
            above.clear();
        }
    }
    above
}

fn is_module(file: &File, place: &str) -> bool {
    is_code(file, place) && file.path.strip_prefix(place) != Some("mod.rs")
}

/// A file's module, from the place on.
fn module<'a>(path: &'a str, place: &str) -> Vec<&'a str> {
    let inner = path.strip_prefix(place).unwrap_or(path);
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    inner.split('/').collect()
}

/// What a path names first within the place, written `depth` modules below it; `above`: the modules
/// that the place is in from its crate's root on.
fn first<'a>(path: &[&'a str], depth: usize, above: &[&'a str]) -> Option<&'a str> {
    match path {
        ["crate", rest @ ..] => rest.strip_prefix(above)?.first().copied(),
        _ => {
            let up = path.iter().take_while(|part| **part == "super").count();
            path.get(up).copied().filter(|_| up == depth)
        }
    }
}

/// Every path that begins with `crate` or `super`; a list within one is a path for each.
fn paths(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
                walk(&text[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Goes along one path, or along all of a list; what stands behind it.
fn walk<'a>(text: &'a str, way: &mut Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) -> &'a str {
    if let Some(list) = text.strip_prefix('{') {
        let mut rest = list;
        loop {
            rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
            if rest.is_empty() {
                return rest;
            }
            if let Some(behind) = rest.strip_prefix('}') {
                return behind;
            }
            rest = walk(rest, way, found);
            // Behind `as` stands another name for it.
            rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
        }
    }
    let Some(name) = word(text) else {
        found.push(way.clone());
        let one = text.chars().next().map_or(0, char::len_utf8);
        return &text[one..];
    };
    way.push(name);
    let rest = &text[name.len()..];
    let rest = match rest.strip_prefix("::") {
        Some(rest) => walk(rest, way, found),
        None => {
            found.push(way.clone());
            rest
        }
    };
    way.pop();
    rest
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

    fn known<'a>(graph: &'a Graph, name: &str) -> Vec<&'a str> {
        graph[name].keys().map(String::as_str).collect()
    }

    #[test]
    fn paths_are_read_whole_also_in_lists() {
        let text = "use crate::a::{self, b::{C, D as E}, f::*};\npub(in crate::a) fn g() {\n    \
                    super::super::h::i::<J>() && supercrate::k() }";
        let found: Vec<String> = paths(text).iter().map(|path| path.join(" ")).collect();
        let expected = [
            "crate a self",
            "crate a b C",
            "crate a b D",
            "crate a f",
            "crate a",
            "super super h i",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn modules_within_a_folder_are_read_by_paths_from_the_crate_and_upwards() {
        let files = [
            file("src/http/mod.rs", "use jobs::read;\nuse super::log;"),
            file("src/http/jobs/mod.rs", "use super::{gate, super::log};"),
            file(
                "src/http/jobs/path.rs",
                "use super::super::router::Methods;",
            ),
            file("src/http/jobs/it_test.rs", "use crate::http::tests;"),
            file("src/http/router/mod.rs", "use crate::http::{gate, state};"),
            file(
                "src/http/router/table.rs",
                "use super::jobs;\nuse crate::jobs;",
            ),
            file("src/http/gate.rs", "fn f(of: super::state::Api) {}"),
            file("src/http/state.rs", "use crate::http::jobs::list;"),
            file("src/log/mod.rs", "use crate::http::router;"),
            file("src/log/open.rs", ""),
        ];
        assert_eq!(places(&files, "src/"), ["src/http/"]);
        let inner = read(&files, "src/", "src/http/");
        assert_eq!(known(&inner.modules, "jobs"), ["gate", "router"]);
        assert_eq!(known(&inner.modules, "router"), ["gate", "state"]);
        assert_eq!(known(&inner.modules, "gate"), ["state"]);
        assert_eq!(known(&inner.folders, "jobs"), ["router"]);
        assert_eq!(known(&inner.folders, "router"), [""; 0]);
        let all = BTreeSet::from(["gate", "jobs", "router", "state"]);
        assert_eq!(circling(&inner.modules), all, "by way of single files");
        let circle = "folders that know each other: jobs → router (src/http/jobs/path.rs), \
                      router → state (src/http/router/mod.rs), state → jobs (src/http/state.rs)";
        assert_eq!(circles(&inner), [circle]);
    }

    #[test]
    fn two_folders_may_not_know_each_other_by_way_of_files_either() {
        let mut files = [
            file("src/a/hub.rs", "use super::{one, two};"),
            file("src/a/one/mod.rs", "use super::hub::X;"),
            file("src/a/three/mod.rs", "use super::hub::X;"),
            file("src/a/two/mod.rs", ""),
        ];
        let found = |files: &[File]| circles(&read(files, "src/", "src/a/"));
        assert_eq!(found(&files), [""; 0], "one folder, and a file");
        files[3].text = "use super::hub::X;".to_owned();
        let circle = "folders that know each other: one → hub (src/a/one/mod.rs), \
                      hub → two (src/a/hub.rs), two → hub (src/a/two/mod.rs), \
                      hub → one (src/a/hub.rs)";
        assert_eq!(found(&files), [circle], "the file is passed twice");
        files[0].text = "use super::{one, three, two};".to_owned();
        files[3].text = "use super::one::X;".to_owned();
        let circle = "folders that know each other: one → hub (src/a/one/mod.rs), \
                      hub → two (src/a/hub.rs), two → one (src/a/two/mod.rs)";
        assert_eq!(found(&files), [circle], "the shortest way through three");
    }

    #[test]
    fn each_circle_of_folders_is_shown_once() {
        let files = [
            file("src/a/b/one.rs", "use super::super::c::X;"),
            file("src/a/c/one.rs", "use super::super::b::X;"),
            file("src/a/d/one.rs", "use super::super::e;"),
            file("src/a/e.rs", "use super::f;"),
            file("src/a/f/one.rs", "use super::super::{c, d};"),
        ];
        let found = circles(&read(&files, "src/", "src/a/"));
        let begins = |n: usize, way: &str| {
            let begin = format!("folders that know each other: {way}");
            found[n].starts_with(&begin)
        };
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(begins(0, "b → c ") && begins(1, "d → e "), "{found:?}");
    }

    #[test]
    fn folders_at_any_depth_are_read_from_their_crates_root() {
        let files = [
            file("src/a/b/c/mod.rs", "use crate::a::b::d::X;"),
            file("src/a/b/d.rs", "use super::c::Y;\nuse crate::b::c::Z;"),
            file("src/a/b/e.rs", "use crate::c;\nuse crate::a::c;"),
            file("src/a/b/tests/c/it.rs", "use crate::a::b::d::X;"),
            file("src/own/Cargo.toml", ""),
            file("src/own/f/g/mod.rs", "use crate::f::h::X;"),
            file("src/own/f/h.rs", ""),
            file("events/src/f/g/mod.rs", ""),
        ];
        assert_eq!(
            places(&files, "src/"),
            ["src/a/", "src/a/b/", "src/own/", "src/own/f/"]
        );
        assert_eq!(places(&files, "events/src/"), ["events/src/f/"]);
        let inner = read(&files, "src/", "src/a/b/");
        assert_eq!(known(&inner.modules, "c"), ["d"]);
        assert_eq!(known(&inner.modules, "d"), ["c"]);
        assert_eq!(known(&inner.modules, "e"), [""; 0]);
        assert_eq!(circling(&inner.modules), BTreeSet::from(["c", "d"]));
        let inner = read(&files, "src/", "src/own/f/");
        assert_eq!(known(&inner.modules, "g"), ["h"], "a crate of its own");
    }

    #[test]
    fn a_circle_of_folders_is_told_also_within_a_crate() {
        let files = [
            file("src/client/Cargo.toml", ""),
            file("src/client/mod.rs", ""),
            file("src/client/alloc/mod.rs", "use crate::task::Machine;"),
            file("src/client/task/machine.rs", "use crate::alloc::Kind;"),
            file("src/client/env.rs", "use crate::task::Machine;"),
        ];
        let inner = read(&files, "src/", "src/client/");
        let circle = "folders that know each other: alloc → task (src/client/alloc/mod.rs), \
                      task → alloc (src/client/task/machine.rs)";
        assert_eq!(circles(&inner), [circle]);
        let both = BTreeSet::from(["alloc", "task"]);
        assert_eq!(circling(&inner.modules), both);
    }
}
