//! Compiles the changed tree; what the compiler refuses is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::crates;
use super::generate::Generated;
use crate::run;

/// The tests of one crate.
pub(crate) struct Executable {
    pub(crate) path: PathBuf,
    /// The package's folder, where its tests run.
    pub(crate) folder: PathBuf,
}

/// One of the compiler's complaints.
struct Complaint {
    file: String,
    spans: Vec<Range<usize>>,
    text: String,
}

/// The tests of a crate, by the names of their executables' targets.
pub(crate) type Executables = BTreeMap<String, Executable>;

/// Compiles what `words` say and answers the executables of the tests, by their target.
fn cargo(
    copy: &Path,
    target: &Path,
    words: &[&str],
) -> Result<(Executables, Vec<Complaint>, bool)> {
    let output = run::cargo_at(copy)
        .args(words)
        .args([
            "--offline",
            "--message-format",
            "json",
            "--config",
            "profile.dev.debug=false",
        ])
        // Not in the copy: what the tree does not have is removed there.
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    let mut executables = BTreeMap::new();
    let mut complaints = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if let (Some(name), Some(path)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
        ) && message["profile"]["test"] == true
        {
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().unwrap_or(copy).to_owned();
            executables.insert(
                name.to_owned(),
                Executable {
                    path: PathBuf::from(path),
                    folder,
                },
            );
        }
        if message["message"]["level"] == "error" {
            complaints.extend(complaint(&message["message"]));
        }
    }
    Ok((executables, complaints, output.status.success()))
}

fn complaint(message: &Value) -> Option<Complaint> {
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().filter(|span| span["is_primary"] == true);
    let place = |span: &Value| {
        let start = usize::try_from(span["byte_start"].as_u64()?).ok()?;
        let end = usize::try_from(span["byte_end"].as_u64()?).ok()?;
        Some(start..end)
    };
    let file = spans.first()?["file_name"].as_str()?.to_owned();
    let text = message["rendered"].as_str().unwrap_or_default().to_owned();
    Some(Complaint {
        file,
        spans: primary.filter_map(place).collect(),
        text,
    })
}

/// Builds the tests of a package: their executables, or the names of changes that the compiler
/// refuses. It sees them before it makes anything, so that nothing is checked beforehand.
pub(crate) fn tests(
    (copy, target): (&Path, &Path),
    package: &str,
    files: &BTreeMap<String, Generated>,
) -> Result<Result<Executables, BTreeSet<String>>> {
    let mut all = vec![vec!["test", "--no-run", "--lib", "-p", package]];
    let of_suite = |suite| vec!["test", "--no-run", "--test", suite, "-p", crates::TOP];
    all.extend(crates::suites(package).map(of_suite));
    let mut built = Executables::new();
    for words in all {
        let (executables, complaints, success) = cargo(copy, target, &words)?;
        let names = refused(&complaints, success, files)?;
        if !names.is_empty() {
            return Ok(Err(names));
        }
        built.extend(executables);
    }
    Ok(Ok(built))
}

fn refused(
    complaints: &[Complaint],
    success: bool,
    files: &BTreeMap<String, Generated>,
) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for complaint in complaints {
        let blamed = files
            .get(&complaint.file)
            .map_or_else(BTreeSet::new, |file| {
                let each = complaint.spans.iter().flat_map(|span| blame(file, span));
                each.collect()
            });
        if blamed.is_empty() {
            bail!("the changed copy does not compile:\n{}", complaint.text);
        }
        names.extend(blamed);
    }
    if names.is_empty() && !success {
        bail!("the changed copy does not compile");
    }
    Ok(names)
}

/// Which changes a complaint about these bytes is about: those whose text it cuts; else those that
/// it holds; else all of the function it is in.
fn blame(file: &Generated, span: &Range<usize>) -> BTreeSet<String> {
    let meets = |piece: &Range<usize>| piece.start < span.end && span.start < piece.end;
    let name = |index: usize| file.mutants[index].name.clone();
    let met: BTreeSet<usize> = file
        .pieces
        .iter()
        .filter(|(piece, _)| meets(piece))
        .map(|(_, mutant)| *mutant)
        .collect();
    let inside = |mutant: usize| {
        let mut own = file.pieces.iter().filter(|(_, other)| *other == mutant);
        let (first, last) = (own.clone().next(), own.next_back());
        let start = first.map_or(0, |(piece, _)| piece.start);
        let end = last.map_or(0, |(piece, _)| piece.end);
        span.start <= start && end <= span.end && span.len() > end - start
    };
    let cut: BTreeSet<String> = met
        .iter()
        .filter(|one| !inside(**one))
        .map(|one| name(*one))
        .collect();
    if !cut.is_empty() {
        return cut;
    }
    if !met.is_empty() {
        return met.into_iter().map(name).collect();
    }
    // Where functions lie in one another the inner one begins last.
    let holds = |body: &Range<usize>| body.start <= span.start && span.end <= body.end;
    let Some(body) = file.bodies.iter().rev().find(|body| holds(body)) else {
        return BTreeSet::new();
    };
    let within = file
        .pieces
        .iter()
        .filter(|(piece, _)| holds_piece(body, piece));
    within.map(|(_, mutant)| name(*mutant)).collect()
}

fn holds_piece(body: &Range<usize>, piece: &Range<usize>) -> bool {
    body.start <= piece.start && piece.end <= body.end
}

#[cfg(test)]
mod tests {
    use super::super::generate;
    use super::*;

    #[test]
    fn a_complaint_is_about_the_smallest_change_that_it_cuts() {
        let source = "fn f(a: u8, b: u8) -> bool { a < b && other(a + 1) }";
        let file = generate::generate("src/a.rs", source, (0, 0), &|_| false).expect("it parses");
        let at = |text: &str| {
            let start = file.text.find(text).expect(text);
            blame(&file, &(start..start + text.len()))
        };
        let names = |text: &str| at(text).into_iter().collect::<Vec<_>>();
        assert_eq!(names("return false;"), ["src/a.rs: f: -> false"]);
        assert_eq!(names("&( b)"), ["src/a.rs: f: a < b -> <="]);
        assert_eq!(names("add(4, (a ), ( 1))"), ["src/a.rs: f: a + 1 -> -"]);
        assert_eq!(
            at("other").len(),
            file.mutants.len(),
            "nobody's place: all of the function"
        );
    }
}
