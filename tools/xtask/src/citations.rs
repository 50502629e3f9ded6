//! What comments cite is there: documents of the project, functions by their file, and behaviours
//! that are listed.

use crate::behaviours;
use crate::lexer;
use crate::tree::File;

/// Problems with what the comments of Rust files cite.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let listed = behaviours::listed(files);
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let blanked = lexer::blank(&file.text);
        for (number, (line, code)) in file.text.lines().zip(blanked.lines()).enumerate() {
            let place = format!("{}:{}", file.path, number + 1);
            let comment = comment(line, code);
            if cites_numbers(comment) {
                problems.push(format!(
                    "{place}: the HTTP API has no numbered document here"
                ));
            }
            let functions = functions(comment);
            let gone = functions.filter(|(path, name)| !is_function(files, path, name));
            problems.extend(gone.map(|(path, name)| format!("{place}: {path} has no fn {name}")));
            for word in words(comment) {
                if behaviours::is_id(word) && !listed.contains(word) {
                    problems.push(format!("{place}: {word} is no behaviour that is listed"));
                } else if is_document(word) && !files.iter().any(|file| is_at(&file.path, word)) {
                    problems.push(format!("{place}: {word} is no file of the project"));
                }
            }
        }
    }
    problems
}

/// The comment of a line, given the line without comments and texts.
fn comment<'l>(line: &'l str, code: &str) -> &'l str {
    let mut begins = line.match_indices("//").map(|(at, _)| at);
    let begins = begins.find(|at| {
        let behind = code.get(*at..);
        behind.is_some_and(|behind| behind.trim().is_empty())
    });
    begins.map_or("", |at| &line[at + 2..])
}

fn words(comment: &str) -> impl Iterator<Item = &str> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let words = comment.split(move |c| !in_word(c));
    words.map(|word| word.trim_end_matches(['.', '-', '/']))
}

/// Functions that are cited as `src/a.rs` and their name behind two colons: file and name.
fn functions(comment: &str) -> impl Iterator<Item = (&str, &str)> {
    let spans = comment.split('`').skip(1).step_by(2);
    spans.filter_map(|span| {
        let (path, name) = span.split_once(".rs::")?;
        Some((&span[..path.len() + ".rs".len()], name))
    })
}

fn is_function(files: &[File], path: &str, name: &str) -> bool {
    let file = files.iter().find(|file| file.path == path);
    file.is_some_and(|file| {
        let begins = format!("fn {name}");
        let mut behind = file.text.split(&begins).skip(1);
        behind.any(|rest| rest.starts_with(['(', '<']))
    })
}

/// Whether a chapter of a document about the HTTP API is cited.
fn cites_numbers(comment: &str) -> bool {
    let mut behind = comment.split("HTTP API ").skip(1);
    behind.any(|behind| behind.starts_with(|c: char| c.is_ascii_digit()))
}

/// A page, or a folder of pages. What begins with a slash is part of an address elsewhere, and what
/// a program wrote is not read here.
fn is_document(word: &str) -> bool {
    let is_below = |folder: &str| word.starts_with(folder) || word.contains(&format!("/{folder}"));
    let is_page = word.ends_with(".md") && word != ".md";
    let is_elsewhere = word.starts_with('/') || word.contains("generated/");
    !is_elsewhere && (is_page || is_below("docs/") || is_below("decisions/"))
}

/// Whether a path is what was cited, from any folder on; a decision may be cited by its number.
fn is_at(path: &str, cited: &str) -> bool {
    path.match_indices(cited).any(|(at, _)| {
        let is_whole = at == 0 || path[..at].ends_with('/');
        let behind = &path[at + cited.len()..];
        is_whole && (behind.is_empty() || behind.starts_with(['/', '-']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let list = "| EV-01 | one | `ev_01_one` |\n| EV-02 | two | `ev_02_two` |\n";
        check(&[
            file("src/docs/behaviours.md", list),
            file("src/docs/decisions/0001-one.md", ""),
            file("src/b.rs", "fn one(a: u8) {}\nfn other<T>(a: T) {}\n"),
            file("src/a.rs", text),
        ])
        .len()
    }

    #[test]
    fn what_is_not_there_is_not_cited() {
        for text in [
            "// As it must be (EV-03).",
            "let a = 1; // EV-77",
            "//! (scheduler.md 4)",
            "/// See `src/docs/gone.md`.",
            "/// See decisions/0002.",
            "//! By `src/b.rs::on`.",
            "//! By `src/c.rs::one`.",
            "/// As it is (HTTP API 0.2).",
        ] {
            assert_eq!(found(text), 1, "{text}");
        }
        assert_eq!(found("// EV-03, EV-04 and gone.md"), 3);
    }

    #[test]
    fn what_is_there_may_be_cited_and_other_texts_say_what_they_like() {
        for text in [
            "// As it must be (EV-01, EV-02).",
            "/// See `src/docs/behaviours.md`, behaviours.md and `docs/decisions/`.",
            "/// See decisions/0001, or `src/docs/decisions/0001-one.md`.",
            "let a = \"EV-03 gone.md\";",
            "// SHA-256 and UTF-8, https://example.com/docs/gone",
            "let ev_03 = EV - 03;",
            "//! By `src/b.rs::one` and `src/b.rs::other`.",
            "// The HTTP API, not an HTTP API of 2.",
        ] {
            assert_eq!(found(text), 0, "{text}");
        }
    }
}
