//! What tests do not do: wait for a time, look at a clock, share a port or a directory.

use crate::tidy::Measured;
use crate::tree::File;

/// Counts such places in one file, given its lines without comments and strings, and which of them
/// are tests.
pub(crate) fn check(file: &File, lines: &[&str], test: &[bool], measured: &mut Measured) {
    // The test kit waits on behalf of all tests, and the task runner looks for these words.
    if file.path.starts_with("tools/") {
        return;
    }
    let tested = |number: usize| test[number] || file.is_test();
    let of_tests = || {
        let lines = lines.iter().enumerate();
        lines.filter(|(number, _)| tested(*number))
    };
    let sleeps = of_tests().filter(|(_, line)| line.contains("sleep("));
    measured.count("test-sleeps", file, sleeps.count());
    // In a simulation time stands still while any thread runs.
    let spins = of_tests().filter(|_| !file.path.starts_with("tests/sim/"));
    let spins = spins.filter(|(number, line)| spins_on(line) || only_turns(lines, *number));
    measured.count("test-spins", file, spins.count());
    let spans = spans(of_tests().map(|(_, line)| *line));
    let hasty =
        of_tests().filter(|(number, _)| hasty(lines, *number, &spans) || is_own(lines[*number]));
    measured.count("test-clocks", file, hasty.count());
    let raw = file.text.lines().enumerate();
    let shared = raw.filter(|(number, line)| tested(*number) && shared_place(line));
    measured.count("test-places", file, shared.count());
}

/// Looks again at once, on a processor that another thread may need for what is waited for.
fn spins_on(line: &str) -> bool {
    line.contains("yield_now(") || line.contains("spin_loop(")
}

/// Whether a loop begins before this line that does nothing but let other tasks run, and so never
/// ends where nothing comes of it. (What waits so for a condition is `volumes::testing::reached`.)
fn only_turns(lines: &[&str], number: usize) -> bool {
    let before = number.checked_sub(1).map_or("", |before| lines[before]);
    let begins = before.trim_start();
    let begins = begins.starts_with("while ") || begins.starts_with("loop {");
    begins && lines[number].trim_start().starts_with("turns(")
}

/// What these lines call the time that something took.
fn spans<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let taken = lines.filter_map(|line| {
        let (_, bound) = line.split_once("let ")?;
        let (name, value) = bound.split_once(" = ")?;
        value.ends_with(".elapsed();").then_some(name)
    });
    taken.collect()
}

/// Asserts that something took less than this or that, which a loaded machine does not keep to.
/// What never ends is found by the one bound that is generous enough for whatever ends: `LONG`.
fn hasty(lines: &[&str], number: usize, spans: &[&str]) -> bool {
    let before = number.checked_sub(1).map_or("", |before| lines[before]);
    let line = lines[number];
    if !line.contains("assert!(") && !before.trim_end().ends_with("assert!(") {
        return false;
    }
    [" < ", " <= "].into_iter().any(|sign| {
        line.match_indices(sign).any(|(at, _)| {
            let measured = line[..at].rsplit(' ').next().unwrap_or_default();
            let name = measured.rsplit('(').next().unwrap_or_default();
            let by_clock = measured.contains(".elapsed()") || spans.contains(&name);
            by_clock && !is_generous(&line[at + sign.len()..])
        })
    })
}

/// Whether a text begins with the bound that is generous, and not with a part of it.
fn is_generous(text: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let rest = text.trim_start_matches(in_name);
    let name = &text[..text.len() - rest.len()];
    let is_whole = rest.starts_with([',', ')', ' ']) && !rest.starts_with(" /");
    is_whole && name.rsplit("::").next() == Some("LONG")
}

/// A bound by the name of the generous one, which may be any.
fn is_own(line: &str) -> bool {
    line.contains("const LONG:")
}

/// A port or a directory that a test shares with whatever else runs.
fn shared_place(line: &str) -> bool {
    let directory = line.contains("\"/tmp") || line.contains("temp_dir()");
    let port = line.split("bind(").nth(1).is_some_and(|rest| {
        let rest = rest.split(')').next().unwrap_or_default();
        let last = rest.rsplit([':', ',']).next().unwrap_or_default();
        let last = last.trim().trim_end_matches('"');
        last.parse::<u16>().is_ok_and(|port| port != 0)
    });
    directory || port
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::testing;

    fn count(measure: &str, path: &str, text: &str) -> usize {
        testing::count(check, measure, path, text)
    }

    #[test]
    fn sim_06_tests_share_no_place_and_do_not_sleep() {
        let test = |line: &str| format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
        for line in [
            "let l = TcpListener::bind(\"127.0.0.1:4646\");",
            "let l = TcpListener::bind((LOCALHOST, 8080));",
            "let dir = Path::new(\"/tmp/x\");",
            "let dir = std::env::temp_dir().join(name);",
        ] {
            assert_eq!(count("test-places", "src/a.rs", &test(line)), 1, "{line}");
            assert_eq!(count("test-places", "tests/a.rs", line), 1, "{line}");
            assert_eq!(count("test-places", "src/a.rs", line), 0, "{line}");
        }
        for line in [
            "let l = TcpListener::bind(\"127.0.0.1:0\");",
            "let l = TcpListener::bind((LOCALHOST, 0));",
            "let l = TcpListener::bind(addr);",
            "let dir = tempfile::tempdir();",
        ] {
            assert_eq!(count("test-places", "tests/a.rs", line), 0, "{line}");
        }
        let spin = "while !done() { std::thread::yield_now(); }";
        assert_eq!(count("test-spins", "src/a_test.rs", spin), 1);
        assert_eq!(count("test-spins", "src/a.rs", &test(spin)), 1);
        assert_eq!(count("test-spins", "src/a.rs", spin), 0);
        assert_eq!(count("test-spins", "tests/sim/a.rs", spin), 0);
        let turns = "while !done() {\n    turns(1).await;\n}\n";
        assert_eq!(count("test-spins", "src/a_test.rs", turns), 1);
        let does_more = "while !done() {\n    assert!(in_time());\n    turns(1).await;\n}\n";
        assert_eq!(count("test-spins", "src/a_test.rs", does_more), 0);
        assert_eq!(count("test-spins", "src/a_test.rs", "turns(10).await;"), 0);
        let sleep = "tokio::time::sleep(PAUSE).await;";
        assert_eq!(count("test-sleeps", "src/a_test.rs", sleep), 1);
        assert_eq!(count("test-sleeps", "src/a.rs", &test(sleep)), 1);
        assert_eq!(count("test-sleeps", "src/a.rs", sleep), 0);
    }

    #[test]
    fn tests_assert_no_time_that_a_loaded_machine_does_not_keep_to() {
        let test = |line: &str| format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
        for line in [
            "assert!(begun.elapsed() < PATIENCE / 2);",
            "assert!(begun.elapsed().as_secs() < 60, \"took long\");",
            "assert!(is_done && begun.elapsed() <= Duration::from_secs(1));",
            "assert!(begun.elapsed() < LONG / 10);",
            "assert!(\n        begun.elapsed() < SOON,\n        \"took long\"\n    );",
            "let took = begun.elapsed();\n    assert!(took < SOON);",
            "const LONG: Duration = Duration::from_secs(2);",
        ] {
            assert_eq!(count("test-clocks", "src/a.rs", &test(line)), 1, "{line}");
            assert_eq!(count("test-clocks", "tests/a.rs", line), 1, "{line}");
            assert_eq!(count("test-clocks", "src/a.rs", line), 0, "{line}");
        }
        for line in [
            "assert!(begun.elapsed() < LONG);",
            "assert!(begun.elapsed() >= QUIET && begun.elapsed() < LONG, \"took long\");",
            "assert!(begun.elapsed() < drover_testkit::LONG, \"took long\");",
            "let took = begun.elapsed();\n    assert!(took < LONG, \"{took:?}\");",
            "assert!(begun.elapsed() >= QUIET);",
            "assert!(found.len() < 10);",
            "if begun.elapsed() < SHARE {}",
        ] {
            assert_eq!(count("test-clocks", "tests/a.rs", line), 0, "{line}");
        }
    }
}
