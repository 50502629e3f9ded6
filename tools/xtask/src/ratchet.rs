//! The list of known exceptions. It may only shrink.
//!
//! A line is `<measure> <place> <value>`, as in `file-lines src/a.rs 612`. An exception that is no
//! longer needed, or that got smaller, has to leave or be lowered: `cargo xtask fix` does it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const FILE: &str = "tools/xtask/ratchet.txt";

/// What was found above a limit: measure and place, and how much.
pub(crate) type Excess = BTreeMap<(String, String), usize>;

fn load(root: &Path) -> Result<Excess> {
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let mut known = Excess::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [measure, place, value] = parts.as_slice() else {
            anyhow::bail!("{FILE}: cannot read {line:?}");
        };
        let value = value.parse().with_context(|| format!("{FILE}: {line:?}"))?;
        known.insert(((*measure).to_owned(), (*place).to_owned()), value);
    }
    Ok(known)
}

/// Compares what was found with what is known; every difference is a problem.
pub(crate) fn check(root: &Path, found: &Excess) -> Result<Vec<String>> {
    let known = load(root)?;
    let mut problems = Vec::new();
    for ((measure, place), value) in found {
        match known.get(&(measure.clone(), place.clone())) {
            None => problems.push(format!("{place}: {measure} is {value}, above the limit")),
            Some(allowed) if value > allowed => {
                problems.push(format!("{place}: {measure} grew from {allowed} to {value}"));
            }
            Some(_) => {}
        }
    }
    for ((measure, place), allowed) in &known {
        let now = found.get(&(measure.clone(), place.clone()));
        if now.is_none_or(|now| now < allowed) {
            problems.push(format!(
                "{FILE}: {measure} {place} shrank; run `cargo xtask fix`"
            ));
        }
    }
    Ok(problems)
}

/// Lowers the known values to what is true now, and never raises or adds one.
pub(crate) fn lower(root: &Path, found: &Excess) -> Result<()> {
    let known = load(root)?;
    let path = root.join(FILE);
    let text = fs::read_to_string(&path)?;
    let mut out: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    for (key, allowed) in known {
        if let Some(now) = found.get(&key) {
            out.push(format!("{} {} {}", key.0, key.1, allowed.min(*now)));
        }
    }
    out.push(String::new());
    fs::write(&path, out.join("\n"))?;
    Ok(())
}
