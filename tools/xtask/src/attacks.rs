//! The table of attacks: each row names the tests that try it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::behaviours;

const FILE: &str = "src/docs/attacks.md";

/// Checks that every attack has its tests: problems, then notes.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let tests = behaviours::tests(root)?;
    let (problems, rows) = compare(&text, |test| tests.contains_key(test));
    Ok((problems, vec![format!("{rows} attacks are tried")]))
}

fn compare(text: &str, is_there: impl Fn(&str) -> bool) -> (Vec<String>, usize) {
    let (mut problems, mut rows) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line.strip_prefix("| ") else {
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").collect();
        let place = format!("{FILE}:{}", number + 1);
        let [attack, _, tests] = cells.as_slice() else {
            problems.push(format!("{place}: a row has three cells"));
            continue;
        };
        if *attack == "Attack" {
            continue;
        }
        rows += 1;
        let named = tests.split('`').skip(1).step_by(2);
        let mut none = true;
        for test in named {
            none = false;
            if !is_there(test) {
                problems.push(format!("{place}: there is no test `{test}`"));
            }
        }
        if none {
            problems.push(format!("{place}: no test tries it"));
        }
    }
    (problems, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_without_its_test_is_named() {
        let text = "# x\n| Attack | What comes of it | Tests |\n|---|---|---|\n\
            | one | no | `there` |\n| two | no | `gone` |\n| three | no | none |\n| four |\n";
        let (problems, rows) = compare(text, |test| test == "there");
        assert_eq!(rows, 3);
        let expected = [
            "src/docs/attacks.md:5: there is no test `gone`",
            "src/docs/attacks.md:6: no test tries it",
            "src/docs/attacks.md:7: a row has three cells",
        ];
        assert_eq!(problems, expected);
    }
}
