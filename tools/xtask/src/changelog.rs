//! A change that users see has an entry in the changelog.
//!
//! Two checks, so that something is checked in every clone. The text alone: each noun of the API's
//! routes and of the command line is named in `CHANGELOG.md`, so that nothing new appears without
//! a word. And the history, as far as this clone has it: no commit after the newest one that
//! touches the changelog changes what users see, unless its message says `Changelog: none`. What
//! is not committed yet counts as the newest commit. The oldest commit of a shallow clone has no
//! parent here and is taken as a whole, so it ends the search. No network is needed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const FILE: &str = "CHANGELOG.md";
const ROUTES: [&str; 2] = ["src/http/router/objects.rs", "src/http/router/work.rs"];
const NOUNS: &str = "src/cli/mod.rs";
/// Where changes are that users see.
const VISIBLE: &[&str] = &[
    "src/agent/",
    "src/cli/",
    "src/client/drivers/",
    "src/config/",
    "src/http/",
    "src/jobspec/",
];
/// The line of a commit's message that says users notice nothing.
const NOTHING: &str = "changelog: none";
/// How far back is looked.
const COMMITS: &str = "--max-count=200";

/// Checks text and history: problems, then notes.
pub(crate) fn check(root: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(root.join(FILE)).context(FILE)?;
    let mut problems = entries(&text);
    let routes = ROUTES.map(|file| (file, route_nouns as fn(&str) -> Vec<String>));
    for (file, nouns) in routes.into_iter().chain([(NOUNS, cli_nouns as _)]) {
        let source = fs::read_to_string(root.join(file)).context(file)?;
        problems.extend(unnamed(&text, file, nouns(&source)));
    }
    let (more, note) = history(root)?;
    problems.extend(more);
    Ok((problems, vec![note]))
}

/// The first section is the unreleased one, and it says something.
fn entries(text: &str) -> Vec<String> {
    let mut sections = text.split("\n## ").skip(1);
    let first = sections.next().unwrap_or_default();
    if !first.starts_with("Unreleased") {
        return vec![format!("{FILE}: the first section is not `## Unreleased`")];
    }
    if !first.lines().any(|line| line.starts_with("- ")) {
        return vec![format!("{FILE}: `## Unreleased` has no entry")];
    }
    Vec::new()
}

/// The first parts of the paths in the route table.
fn route_nouns(source: &str) -> Vec<String> {
    let found = source.split("\"/v1/").skip(1);
    let mut nouns: Vec<String> = found
        .filter_map(|rest| rest.split(['"', '/']).next())
        .map(str::to_owned)
        .collect();
    nouns.sort();
    nouns.dedup();
    nouns
}

/// The variants of the command line's first level.
fn cli_nouns(source: &str) -> Vec<String> {
    let body = source.split("enum Noun {").nth(1).unwrap_or_default();
    let body = body.split("\n}").next().unwrap_or_default();
    let variants = body
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()) && line.ends_with(','));
    variants
        .filter_map(|line| line.split(['(', ',']).next())
        .map(as_typed)
        .collect()
}

/// A variant's name as it is typed: `AgentInfo` is `agent-info`.
fn as_typed(variant: &str) -> String {
    let mut typed = String::new();
    for c in variant.chars() {
        if c.is_ascii_uppercase() && !typed.is_empty() {
            typed.push('-');
        }
        typed.push(c.to_ascii_lowercase());
    }
    typed
}

/// The nouns that the changelog never names, in the singular or the plural.
fn unnamed(text: &str, file: &str, nouns: Vec<String>) -> Vec<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
        .collect();
    let named = |noun: &str| words.iter().any(|w| stem(w) == stem(noun));
    nouns
        .into_iter()
        .filter(|noun| !named(noun))
        .map(|noun| format!("{FILE}: says nothing of `{noun}` ({file})"))
        .collect()
}

fn stem(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}

/// A commit as the search sees it.
struct Commit {
    name: String,
    message: String,
    files: Vec<String>,
}

/// The commits since the newest entry that need one; a note about what was looked at.
fn history(root: &Path) -> Result<(Vec<String>, String)> {
    let Some(commits) = commits(root)? else {
        return Ok((
            Vec::new(),
            "no history here: only the text was checked".to_owned(),
        ));
    };
    let mut problems = Vec::new();
    let mut looked = 0;
    for commit in &commits {
        if commit.files.iter().any(|file| file == FILE) {
            break;
        }
        looked += 1;
        let silent = commit
            .message
            .lines()
            .any(|line| line.trim().to_lowercase() == NOTHING);
        let seen = commit.files.iter().find(|file| visible(file));
        if let Some(file) = seen.filter(|_| !silent) {
            problems.push(format!(
                "{FILE}: no entry since {} changed {file}; where users see nothing of it, the \
                 message says `Changelog: none`",
                commit.name
            ));
        }
    }
    Ok((problems, format!("{looked} commits since the newest entry")))
}

fn visible(file: &str) -> bool {
    let test = file.ends_with("_test.rs") || file.ends_with("/harness.rs");
    VISIBLE.iter().any(|dir| file.starts_with(dir)) && !test
}

/// What is not committed, then the commits, newest first; `None` where there is no history.
fn commits(root: &Path) -> Result<Option<Vec<Commit>>> {
    let format = "--format=%x00%h %s%x01%B%x01";
    let log = [
        "log",
        COMMITS,
        "--first-parent",
        "-m",
        "--root",
        "--name-only",
        format,
    ];
    let Some(log) = git(root, &log)? else {
        return Ok(None);
    };
    let changed = git(root, &["status", "--porcelain", "--untracked-files=all"])?;
    let changed = changed.unwrap_or_default();
    let files = changed.lines().filter_map(|line| line.get(3..));
    let mut commits = vec![Commit {
        name: "what is not committed yet".to_owned(),
        message: String::new(),
        files: files
            .map(|file| file.rsplit(" -> ").next().unwrap_or(file).to_owned())
            .collect(),
    }];
    for commit in log.split('\0').skip(1) {
        let mut parts = commit.split('\u{1}');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        let (name, message, files) = (next(), next(), next());
        commits.push(Commit {
            name,
            message,
            files: files
                .lines()
                .filter(|l| !l.is_empty())
                .map(str::to_owned)
                .collect(),
        });
    }
    Ok(Some(commits))
}

/// What git prints; `None` without git, or where this is no working tree of its own.
fn git(root: &Path, words: &[&str]) -> Result<Option<String>> {
    if !root.join(".git").exists() {
        return Ok(None);
    }
    let mut command = Command::new("git");
    command
        .arg("-c")
        .arg("core.quotepath=off")
        .args(words)
        .current_dir(root);
    // Set where a hook runs this; they would name another repository.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(_) => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("git"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Repository(tempfile::TempDir);

    impl Repository {
        fn new() -> Repository {
            let repository = Repository(tempfile::tempdir().unwrap());
            repository.git(&["init", "-q"]);
            repository.write(
                "CHANGELOG.md",
                "# C\n\n## Unreleased\n\n- Jobs and agents.\n",
            );
            repository.write(ROUTES[0], ".route(\"/v1/jobs\", x)\n");
            repository.write(ROUTES[1], ".route(\"/v1/job/{id}\", x)\n");
            repository.write(
                NOUNS,
                "enum Noun {\n    /// x\n    Agent(agent::Args),\n}\n",
            );
            repository.commit("Begin");
            repository
        }

        fn git(&self, words: &[&str]) {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
            let mut command = Command::new("git");
            command.args(who).args(words).current_dir(self.0.path());
            let output = command
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .output()
                .unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn commit(&self, message: &str) {
            self.git(&["add", "-A"]);
            self.git(&["commit", "-q", "-m", message]);
        }

        fn problems(&self) -> Vec<String> {
            check(self.0.path()).unwrap().0
        }
    }

    #[test]
    fn sim_07_a_change_that_users_see_needs_an_entry() {
        let repository = Repository::new();
        assert_eq!(repository.problems(), [""; 0]);
        repository.write("src/log/engine.rs", "x");
        repository.write("src/http/jobs_test.rs", "x");
        repository.commit("Change what nobody sees");
        assert_eq!(repository.problems(), [""; 0]);
        repository.write("src/http/jobs.rs", "one");
        assert_eq!(repository.problems().len(), 1, "not committed yet");
        repository.commit("Answer otherwise");
        let problems = repository.problems();
        assert!(problems[0].contains("Answer otherwise"), "{problems:?}");
        assert!(problems[0].contains("src/http/jobs.rs"), "{problems:?}");
        repository.write(
            "CHANGELOG.md",
            "# C\n\n## Unreleased\n\n- Jobs and agents, otherwise.\n",
        );
        assert_eq!(
            repository.problems(),
            [""; 0],
            "the entry is about to be committed"
        );
        repository.commit("Say so");
        assert_eq!(repository.problems(), [""; 0]);
        repository.write("src/cli/job.rs", "two");
        repository.commit("Move a line\n\nChangelog: none");
        assert_eq!(repository.problems(), [""; 0]);
    }

    #[test]
    fn sim_07_a_shallow_clone_is_checked_as_far_as_it_goes() {
        let repository = Repository::new();
        repository.write("src/config/load.rs", "one");
        repository.commit("Take another key");
        let clone = Repository(tempfile::tempdir().unwrap());
        let from = format!("file://{}", repository.0.path().display());
        clone.git(&["clone", "-q", "--depth", "1", &from, "."]);
        // Its one commit is a whole tree, changelog included: the text is what is left to check.
        assert_eq!(clone.problems(), [""; 0]);
        clone.write("src/config/load.rs", "two");
        clone.commit("Take two");
        assert_eq!(clone.problems().len(), 1);
        clone.git(&["checkout", "-q", "HEAD~1"]);
        clone.write(
            ROUTES[1],
            ".route(\"/v1/jobs\", x)\n.route(\"/v1/volumes\", x)\n",
        );
        clone.git(&["add", "-A"]);
        clone.git(&["commit", "-q", "--amend", "-m", "Everything"]);
        let problems = clone.problems();
        assert!(
            problems.len() == 1 && problems[0].contains("volumes"),
            "{problems:?}"
        );
    }

    #[test]
    fn sim_07_without_history_the_text_is_checked() {
        let repository = Repository::new();
        fs::remove_dir_all(repository.0.path().join(".git")).unwrap();
        assert_eq!(repository.problems(), [""; 0]);
        repository.write(
            NOUNS,
            "enum Noun {\n    Agent(agent::Args),\n    Volume(v::Args),\n}\n",
        );
        assert_eq!(repository.problems().len(), 1);
        repository.write(
            "CHANGELOG.md",
            "# C\n\n## Unreleased\n\n## 1.0\n- Agent, volume, job\n",
        );
        let problems = repository.problems();
        assert!(problems[0].contains("no entry"), "{problems:?}");
    }
}
