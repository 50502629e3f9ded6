//! New kinds of events, and their frozen bytes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use drover_events::EventKind;

/// Registers a kind: its line in the registry, its payload struct, its variant.
pub(crate) fn new_event(root: &Path, name: &str, resource: &str, sentence: &str) -> Result<()> {
    ensure!(
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|b| b.is_ascii_alphanumeric()),
        "{name:?} is no name of a kind"
    );
    ensure!(
        EventKind::from_name(name).is_none(),
        "{name} is registered already"
    );
    let number = EventKind::ALL
        .iter()
        .map(|kind| kind.number())
        .max()
        .unwrap_or(0)
        + 1;
    let payload = format!("events/src/{resource}.rs");
    ensure!(root.join(&payload).is_file(), "there is no {payload}");
    let level = drover_migrations::FEATURE_LEVEL + 1;
    edit(root, "events/src/kind.rs", |text| {
        let end = block_end(text, "\nregistry! {")?;
        let line =
            format!("    /// {sentence}\n    {name} = {number}, version 1, since {level};\n");
        Some(format!("{}{line}{}", &text[..end], &text[end..]))
    })?;
    edit(root, "events/src/event.rs", |text| {
        let end = block_end(text, "\nevents! {")?;
        Some(format!("{}    {name},\n{}", &text[..end], &text[end..]))
    })?;
    edit(root, &payload, |text| {
        let new = format!("\nwire! {{\n    /// {sentence}\n    pub struct {name} {{\n    }}\n}}\n");
        Some(format!("{}\n{new}", text.trim_end()))
    })?;
    println!("{name} is kind {number}, written from feature level {level} on. What is left:");
    for step in [
        format!("fields of `{name}` in {payload}"),
        "what it publishes: `publication` in events/src/kind.rs".to_owned(),
        format!("level {level} and its line in migrations/src/events/changelog.rs"),
        format!("its line in the pinned list of events/src/kind_test.rs: ({number}, {name:?}, 1)"),
        format!("projections/src/apply/{resource}.rs and the dispatcher's arm"),
        format!("src/commands/{resource}.rs: the command that decides it, with its test"),
        "a sample under migrations/src/golden/values/, then `cargo xtask freeze-event`".to_owned(),
    ] {
        println!("  - {step}");
    }
    Ok(())
}

/// Where the block that `opening` opens at the start of a line closes.
fn block_end(text: &str, opening: &str) -> Option<usize> {
    let start = text.rfind(opening)?;
    let length = text[start + 1..].find("\n}")?;
    Some(start + 1 + length + 1)
}

fn edit(root: &Path, path: &str, change: impl Fn(&str) -> Option<String>) -> Result<()> {
    let full = root.join(path);
    let text = fs::read_to_string(&full).with_context(|| path.to_owned())?;
    let changed = change(&text).with_context(|| format!("{path} is not in the expected form"))?;
    fs::write(&full, changed).with_context(|| path.to_owned())
}

/// Writes the golden files and the recorded logs that are missing, and adds new fields to shapes;
/// never changes what is there. Says what has to be frozen by hand where a field changed.
pub(crate) fn freeze(root: &Path, name: Option<&str>) -> Result<()> {
    let kinds = match name {
        Some(name) => match EventKind::from_name(name) {
            Some(kind) => vec![kind],
            None => bail!("{name} is no registered kind"),
        },
        None => EventKind::ALL.to_vec(),
    };
    let golden = root.join("migrations/golden");
    let (mut written, mut broken) = (0, 0);
    let mut paths = Vec::new();
    for kind in kinds {
        if !to_freeze(&golden, kind)? {
            broken += 1;
            continue;
        }
        paths.extend(drover_golden::freeze(&golden, kind)?);
        paths.extend(drover_golden::freeze_shape(&golden, kind)?);
    }
    if name.is_none() && broken == 0 {
        paths.extend(drover_golden::logs::freeze(&root.join("migrations/logs"))?);
    }
    for path in paths {
        println!("{}", path.strip_prefix(root).unwrap_or(&path).display());
        written += 1;
    }
    println!("{written} files written");
    ensure!(broken == 0, "{broken} kinds need a new version");
    Ok(())
}

/// Says what has to be frozen of a kind; false if it changed without a new version.
fn to_freeze(golden: &Path, kind: EventKind) -> Result<bool> {
    let change = drover_golden::reshaped(golden, kind)?;
    if change.broken.is_empty() {
        return Ok(true);
    }
    let (old, new) = (kind.version(), kind.version() + 1);
    let level = drover_migrations::FEATURE_LEVEL + 1;
    let file = drover_golden::directory(kind);
    println!("{kind} v{old} is no longer written as it was frozen:");
    for line in &change.broken {
        println!("  - {line}");
    }
    for line in &change.added {
        println!("  + {line}");
    }
    let structs = change
        .broken
        .iter()
        .filter_map(|line| line.split(['.', ' ']).next());
    let structs: std::collections::BTreeSet<&str> = structs.collect();
    println!(
        "To freeze, as they were: {}",
        structs.into_iter().collect::<Vec<_>>().join(", ")
    );
    println!("  in migrations/src/events/{file}_v{old}.rs, with one step up to v{new};");
    println!("  its line in migrations/src/events/upcast.rs; version {new}, since {level}, in");
    println!("  events/src/kind.rs and its test; level {level} in the change log.");
    Ok(false)
}
