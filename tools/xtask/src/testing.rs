//! What the tests of several checks and scripts need.

use std::path::Path;
use std::process::Command;

use crate::lexer;
use crate::ratchet::Excess;
use crate::tidy::Measured;
use crate::tree::File;

/// A check of one file, given its lines without comments and strings, and which of them are tests.
type Check = fn(&File, &[&str], &[bool], &mut Measured);

/// What a check finds in a file of this text.
pub(crate) fn measure(check: Check, path: &str, text: &str) -> Measured {
    let file = File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let mut measured = Measured {
        excess: Excess::new(),
        problems: Vec::new(),
        notes: Vec::new(),
    };
    let blanked = lexer::blank(text);
    let lines: Vec<&str> = blanked.lines().collect();
    let test = lexer::test_lines(&lines);
    check(&file, &lines, &test, &mut measured);
    measured
}

/// How much of this measure it finds.
pub(crate) fn count(check: Check, of: &str, path: &str, text: &str) -> usize {
    let excess = measure(check, path, text).excess;
    let found = excess.get(&(of.to_owned(), path.to_owned()));
    found.copied().unwrap_or(0)
}

/// A program that does this and nothing else. A process of its own writes it: what is open for
/// writing here may be so in whatever another thread starts, and cannot be run as long.
pub(crate) fn program(dir: &Path, name: &str, does: &str) {
    let mut writes = Command::new("/bin/sh");
    writes.args([
        "-c",
        "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"",
        "sh",
    ]);
    writes.arg(dir.join(name)).arg(does);
    assert!(writes.status().unwrap().success(), "{name}");
}
