//! The words of the code: `src/docs/glossary.md` says which are used, and which are not.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer;
use crate::tree::File;

const FILE: &str = "src/docs/glossary.md";
/// How the table of terms begins, and that of the words that are not used.
const TERMS: &str = "| Term |";
const WORDS: &str = "| Not |";

/// How many types may share a name.
const NAMESAKES: usize = 3;
/// The words that are in no comment of the product either: there is always a plainer one.
const IN_COMMENTS: &[&str] = &["aside", "asked", "said", "settled"];
/// Whose types are counted, and whose comments are read. Each tool is read by itself, and tests
/// name what they need.
const PRODUCT: &[&str] = &["src/", "events/", "projections/", "migrations/"];
/// Where types are named after the command line: the module says which noun and verb it is.
const COMMANDS: &str = "src/cli/";

/// What the page says.
struct Glossary<'t> {
    /// What stands as code in the table of terms.
    code: BTreeSet<&'t str>,
    /// Each word that is not used, as the parts of a name, and what is written instead.
    words: Vec<(Vec<String>, &'t str)>,
}

/// Problems with the page and with the names of all Rust files.
pub(crate) fn check(files: &[File]) -> Vec<String> {
    let page = files.iter().find(|file| file.path == FILE);
    let mut glossary = read(page.map(|page| page.text.as_str()).unwrap_or_default());
    let mut problems = Vec::new();
    if glossary.code.is_empty() || glossary.words.is_empty() {
        problems.push(format!(
            "{FILE}: has no terms, or no words that are not used"
        ));
    }
    glossary.code.retain(|code| !is_path(files, code));
    let mut types = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        glossary
            .code
            .retain(|code| !has_word(&file.text, last(code)));
        let blanked = lexer::blank(&file.text);
        let lines: Vec<&str> = blanked.lines().collect();
        names(file, &lines, &glossary.words, &mut problems);
        if is_product(file) {
            let test = lexer::test_lines(&lines);
            comments(file, &test, &glossary.words, &mut problems);
            count(file, (&lines, &test), &mut types);
        }
    }
    let missing = glossary.code.iter();
    problems.extend(missing.map(|code| format!("{FILE}: `{code}` is not in the sources")));
    for (name, places) in types.iter().filter(|(_, places)| places.len() > NAMESAKES) {
        let places = places.join(", ");
        problems.push(format!(
            "{name}: more than {NAMESAKES} types have this name; say what each is: {places}"
        ));
    }
    problems
}

/// Reads the two tables.
fn read(text: &str) -> Glossary<'_> {
    let mut glossary = Glossary {
        code: BTreeSet::new(),
        words: Vec::new(),
    };
    let mut table = "";
    for line in text.lines() {
        if line.starts_with(TERMS) || line.starts_with(WORDS) {
            table = line;
        } else if !line.starts_with("| ") {
            // The rule below a head, or text.
        } else if table.starts_with(TERMS) {
            glossary.code.extend(code(line));
        } else if table.starts_with(WORDS) {
            let cells = line.trim_matches(['|', ' ']).split_once(" | ");
            let (not, instead) = cells.unwrap_or((line, ""));
            let words = code(not).map(|word| (parts(word), instead));
            glossary.words.extend(words);
        }
    }
    glossary
}

/// What stands between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A file of the project, or a folder of it.
fn is_path(files: &[File], code: &str) -> bool {
    let is_below = |path: &str| path.strip_prefix(code).is_some_and(|r| r.starts_with('/'));
    let mut paths = files.iter().map(|file| file.path.as_str());
    code.contains('/') && paths.any(|path| path == code || is_below(path))
}

/// The last name of a path of modules.
fn last(code: &str) -> &str {
    code.rsplit("::").next().unwrap_or(code)
}

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        !before.is_some_and(is_in_name) && !behind.is_some_and(is_in_name)
    })
}

/// The words of a name, whether it is written `like_this`, `LikeThis` or `LIKE_THIS`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && small) {
            parts.push(String::new());
        }
        small = c.is_lowercase();
        if c != '_' {
            let part = parts.last_mut().expect("one was pushed first");
            part.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Finds the names that hold a word that is not used: of the file, and of what stands in it.
fn names(file: &File, lines: &[&str], words: &[(Vec<String>, &str)], problems: &mut Vec<String>) {
    let path = file.path.trim_end_matches(".rs");
    for name in path.split('/') {
        problems.extend(unused(name, words).map(|why| format!("{}: {why}", file.path)));
    }
    for (number, line) in lines.iter().enumerate() {
        let mut found: BTreeSet<&str> = line.split(|c| !is_in_name(c)).collect();
        if names_test(lines, number) {
            found.retain(|name| !line.contains(&format!("fn {name}")));
        }
        let whys = found.iter().filter_map(|name| unused(name, words));
        problems.extend(whys.map(|why| format!("{}:{}: {why}", file.path, number + 1)));
    }
}

/// Why a name should be another.
fn unused(name: &str, words: &[(Vec<String>, &str)]) -> Option<String> {
    let parts = parts(name);
    let (_, instead) = words.iter().find(|(word, _)| {
        let mut windows = parts.windows(word.len().max(1));
        windows.any(|window| window == word.as_slice())
    })?;
    Some(format!(
        "{name}: a word that {FILE} has no use for: {instead}"
    ))
}

/// Whether a line begins a test, whose name is a sentence.
fn names_test(lines: &[&str], number: usize) -> bool {
    let above = lines[..number].iter().rev().map(|line| line.trim());
    let mut above = above.take_while(|line| !line.ends_with(['}', ';', '{', ',']));
    lines[number].contains("fn ")
        && above.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

fn is_product(file: &File) -> bool {
    let is_product = PRODUCT.iter().any(|dir| file.path.starts_with(dir));
    is_product && !file.is_test() && !file.path.contains("/tests/")
}

/// Finds the words in comments, but for what stands there as code. `test`: the lines of tests.
fn comments(file: &File, test: &[bool], words: &[(Vec<String>, &str)], problems: &mut Vec<String>) {
    let comments = lexer::comments(&file.text);
    let lines = comments.lines().zip(test).enumerate();
    for (number, (line, _)) in lines.filter(|(_, (_, test))| !**test) {
        let prose = line.split('`').step_by(2);
        let prose = prose.flat_map(|text| text.split(|c| !is_in_name(c)));
        let found: BTreeSet<String> = prose.map(str::to_lowercase).collect();
        for word in IN_COMMENTS.iter().filter(|word| found.contains(**word)) {
            let why = unused(word, words);
            problems.extend(why.map(|why| format!("{}:{}: {why}", file.path, number + 1)));
        }
    }
}

/// Notes where the types of a file are.
fn count(
    file: &File,
    (lines, test): (&[&str], &[bool]),
    types: &mut BTreeMap<String, Vec<String>>,
) {
    let within = within_impls(lines);
    for (number, line) in lines
        .iter()
        .enumerate()
        .filter(|(number, _)| !test[*number])
    {
        let Some(name) = defined(line, within[number]) else {
            continue;
        };
        let is_command = name == "Verb" || name.ends_with("Args");
        if !(is_command && file.path.starts_with(COMMANDS)) {
            let place = format!("{}:{}", file.path, number + 1);
            types.entry(name.to_owned()).or_default().push(place);
        }
    }
}

/// The name of the structure, enum, trait or alias that a line defines. What an impl or a trait has
/// as `type` is no alias: its name is another's, and may be had by as many as like.
fn defined(line: &str, is_within_impl: bool) -> Option<&str> {
    let code = without_visibility(line);
    let kinds = ["struct ", "enum ", "trait "].into_iter();
    let mut kinds = kinds.chain((!is_within_impl).then_some("type "));
    let name = kinds.find_map(|kind| code.strip_prefix(kind))?;
    let name = name.split(|c| !is_in_name(c)).next()?;
    (!name.is_empty()).then_some(name)
}

/// What a line has behind `pub` and whom that is for.
fn without_visibility(line: &str) -> &str {
    let code = line.trim();
    match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(code, |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => code,
    }
}

/// Which lines (from 0) belong to an impl or a trait.
fn within_impls(lines: &[&str]) -> Vec<bool> {
    let mut depth = 0_usize;
    // How deep the outermost one lies that is not closed yet. Its end is found by braces alone: a
    // semicolon may stand before the first of them, as in `impl From<[u8; 4]> for A`.
    let mut outermost = None;
    let each = lines.iter().map(|line| {
        let code = without_visibility(line);
        let code = code.strip_prefix("unsafe ").unwrap_or(code);
        let mut kinds = ["impl ", "impl<", "trait "].iter();
        if kinds.any(|kind| code.starts_with(kind)) {
            outermost = outermost.or(Some(depth));
        }
        let is_within = outermost.is_some();
        for byte in line.bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth = depth.saturating_sub(1);
                    outermost = outermost.filter(|outermost| *outermost != depth);
                }
                _ => {}
            }
        }
        is_within
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Words\n\n| Term | What | Where |\n|---|---|---|\n\
        | report | `Report` of `a::sent` | `src/a.rs` |\n\n\
        | Not | Instead |\n|---|---|\n| `told`, `see_through` | reported |\n| `said` | set |\n";

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        let known = "struct Report;\nfn sent() {}\n";
        check(&[file(FILE, PAGE), file("src/a.rs", known), file(path, text)])
    }

    #[test]
    fn names_are_split_however_they_are_written() {
        for name in ["see_through", "SeeThrough", "SEE_THROUGH", "_see_through"] {
            assert_eq!(parts(name), ["see", "through"], "{name}");
        }
    }

    #[test]
    fn words_that_are_not_used_are_in_no_name() {
        for text in [
            "fn told() {}",
            "    pub(super) is_told: bool,",
            "struct Told;",
            "static TOLD: u8 = 0;",
            "mod told;",
            "let told = 1;",
            "fn to_see_through_it() {}",
        ] {
            assert_eq!(found("src/b.rs", text).len(), 1, "{text}");
        }
        assert_eq!(found("src/told.rs", "").len(), 1);
        assert_eq!(found("src/told_test.rs", "").len(), 1);
    }

    #[test]
    fn texts_other_words_and_names_of_tests_may_have_them() {
        for text in [
            "// told",
            "let a = \"told\";",
            "fn see() { through() }",
            "fn retold() {}",
            "#[test]\nfn what_is_told_is_heard() {}",
            "#[tokio::test]\nasync fn told() {}",
        ] {
            assert_eq!(found("src/b.rs", text), Vec::<String>::new(), "{text}");
        }
        let within = "#[test]\nfn a() {\n    told();\n}\n";
        assert_eq!(found("src/b.rs", within).len(), 1);
    }

    #[test]
    fn some_words_are_in_no_comment_of_the_product() {
        for text in [
            "/// What is said of it.\nstruct A;",
            "//! Said once.",
            "fn a() {} // not said",
            "/* as\nsaid */",
        ] {
            assert_eq!(found("src/b.rs", text).len(), 1, "{text}");
            assert_eq!(found("tools/b.rs", text), Vec::<String>::new(), "{text}");
            assert_eq!(found("src/b_test.rs", text), Vec::<String>::new(), "{text}");
        }
        for text in [
            "// unsaid, and told",
            "/// The file `as-said`.\nstruct A;",
            "const A: &str = \"// said\";",
            "#[cfg(test)]\nmod tests {\n    // said\n}\n",
        ] {
            assert_eq!(found("src/b.rs", text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn what_the_page_has_as_code_is_there() {
        let missing = check(&[file(FILE, PAGE), file("src/b.rs", "struct Reports;")]);
        let wanted = ["`Report`", "`a::sent`", "`src/a.rs`"];
        let wanted = wanted.map(|code| format!("{FILE}: {code} is not in the sources"));
        assert_eq!(missing, wanted);
        assert_eq!(check(&[]).len(), 1, "a page without tables");
    }

    #[test]
    fn few_types_share_a_name() {
        let four = "struct A;\npub enum A {}\npub(crate) trait A {}\n    pub struct A<T>(T);\n";
        assert_eq!(found("src/b.rs", four).len(), 1);
        let three = "struct A;\npub enum A {}\npub(in crate::a) trait A {}\n";
        let test = "#[cfg(test)]\nmod tests {\n    struct A;\n}\n";
        for (path, text) in [
            ("src/b.rs", format!("{three}{test}")),
            ("src/b_test.rs", four.to_owned()),
            ("tools/b.rs", four.to_owned()),
            ("src/cli/b.rs", four.replace(" A", " Verb")),
        ] {
            assert_eq!(found(path, &text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn aliases_are_counted_and_associated_types_are_not() {
        let three = "struct A;\nenum A {}\npub(crate) trait A {}\n";
        for alias in [
            "type A = u8;\n",
            "pub(in crate::a) type A<T> = Vec<T>;\n",
            "fn f() {\n    type A = u8;\n}\n",
            "impl B for C {\n    type A = u8;\n}\ntype A = u8;\n",
            "impl B for C {}\ntype A = u8;\n",
        ] {
            let text = format!("{three}{alias}");
            assert_eq!(found("src/b.rs", &text).len(), 1, "{alias}");
        }
        for associated in [
            "impl B for C {\n    fn f() {}\n    type A = u8;\n}\n",
            "unsafe impl B for [u8; 4] {\n    type A = u8;\n}\n",
            "impl<T> B\nfor C<T>\nwhere\n    T: D,\n{\n    type A = u8;\n}\n",
            "mod b {\n    impl B for C {\n        type A = u8;\n    }\n}\n",
            "pub trait B {\n    type A: C;\n}\n",
        ] {
            let text = format!("{three}{associated}");
            assert_eq!(found("src/b.rs", &text), Vec::<String>::new(), "{text}");
        }
    }
}
