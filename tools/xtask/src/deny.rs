//! Licences, sources and duplicates of the dependencies, from `cargo metadata` without a network.
//!
//! `.deny.toml` is written so that cargo-deny reads it too; of its format only what is needed here
//! is understood.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

const FILE: &str = ".deny.toml";

struct Rules {
    licences: BTreeSet<String>,
    duplicates: BTreeSet<String>,
}

/// Checks the dependencies: problems, then notes.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let rules = rules(&fs::read_to_string(root.join(FILE)).context(FILE)?);
    let metadata = metadata(root)?;
    let used = used(&metadata);
    let packages = metadata["packages"].as_array().context("no packages")?;
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut count = 0;
    for package in packages
        .iter()
        .filter(|p| p["id"].as_str().is_some_and(|id| used.contains(id)))
    {
        let name = package["name"].as_str().unwrap_or_default();
        let version = package["version"].as_str().unwrap_or_default();
        count += 1;
        versions.entry(name).or_default().insert(version);
        match package["license"].as_str() {
            Some(licence) if allowed(licence, &rules.licences) => {}
            Some(licence) => problems.push(format!("{name} {version}: licence {licence}")),
            None => problems.push(format!("{name} {version}: no licence")),
        }
        let registry = concat!("registry+https://github.com/rust-lang/crates", ".io-index");
        match package["source"].as_str() {
            None => {}
            Some(source) if source == registry => {}
            Some(source) => problems.push(format!("{name} {version}: source {source}")),
        }
    }
    let doubled: BTreeMap<&str, BTreeSet<&str>> = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .collect();
    for (name, versions) in &doubled {
        if !rules.duplicates.contains(*name) {
            let versions: Vec<&str> = versions.iter().copied().collect();
            problems.push(format!("{name}: versions {} at once", versions.join(", ")));
        }
    }
    for name in rules
        .duplicates
        .iter()
        .filter(|name| !doubled.contains_key(name.as_str()))
    {
        problems.push(format!(
            "{FILE}: {name} is there once only, remove it from the list"
        ));
    }
    let notes = vec![format!(
        "{count} packages, {} of them in two versions",
        doubled.len()
    )];
    Ok((problems, notes))
}

fn metadata(root: &Path) -> Result<Value> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// The ids of packages that something depends on for this platform.
fn used(metadata: &Value) -> BTreeSet<&str> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect()
}

/// Reads the strings of `allow = […]` and the names of `skip = […]`.
fn rules(text: &str) -> Rules {
    let mut rules = Rules {
        licences: BTreeSet::new(),
        duplicates: BTreeSet::new(),
    };
    let mut list = "";
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        if let Some((key, rest)) = line.split_once('=')
            && rest.trim_start().starts_with('[')
        {
            list = if key.trim() == "allow" { "allow" } else { "" };
            if key.trim() == "skip" {
                list = "skip";
            }
        }
        match list {
            "allow" => rules
                .licences
                .extend(line.split('"').skip(1).step_by(2).map(str::to_owned)),
            "skip" if line.contains("name") => {
                rules
                    .duplicates
                    .extend(line.split('"').nth(1).map(str::to_owned));
            }
            _ => {}
        }
        if line.ends_with(']') {
            list = "";
        }
    }
    rules
}

/// Whether an SPDX expression can be satisfied with the allowed licences.
fn allowed(expression: &str, licences: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&tokens, &mut at, licences) && at == tokens.len()
}

fn either(tokens: &[&str], at: &mut usize, licences: &BTreeSet<String>) -> bool {
    let mut good = both(tokens, at, licences);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        good |= both(tokens, at, licences);
    }
    good
}

fn both(tokens: &[&str], at: &mut usize, licences: &BTreeSet<String>) -> bool {
    let mut good = one(tokens, at, licences);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        good &= one(tokens, at, licences);
    }
    good
}

fn one(tokens: &[&str], at: &mut usize, licences: &BTreeSet<String>) -> bool {
    let Some(token) = tokens.get(*at) else {
        return false;
    };
    *at += 1;
    if *token == "(" {
        let good = either(tokens, at, licences);
        *at += 1;
        return good;
    }
    let mut name = (*token).to_owned();
    if tokens.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", tokens.get(*at + 1).unwrap_or(&""));
        *at += 2;
    }
    licences.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        let rules = rules("[licenses]\nallow = [\n  \"MIT\", # short\n  \"ISC\",\n]\n");
        let ok = |text: &str| allowed(text, &rules.licences);
        assert!(ok("MIT") && ok("GPL-3.0 OR MIT") && ok("MIT AND ISC") && ok("GPL-3.0/MIT"));
        assert!(ok("(MIT OR GPL-3.0) AND ISC"));
        assert!(!ok("GPL-3.0") && !ok("MIT AND GPL-3.0") && !ok("MIT WITH x") && !ok(""));
    }
}
