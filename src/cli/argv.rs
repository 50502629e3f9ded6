//! Makes arguments as Nomad's users write them (`-config x`, `-detach=false`) into what the parser
//! reads.
//!
//! Only the command's own flags matter, so the walk knows which command it is in: a flag with one
//! dash gets two, a switch with a value is kept or dropped, and what follows a flag that takes a
//! value is left alone.

use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

/// Rewrites a whole command line, program name included.
pub(super) fn prepare(args: impl IntoIterator<Item = OsString>, root: &Command) -> Vec<OsString> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    let mut command = root;
    let mut is_value = false;
    let mut verbatim = false;
    for arg in args {
        let text = arg.to_str().map(str::to_owned);
        let Some(text) = text.filter(|_| !verbatim && !is_value) else {
            is_value = false;
            out.push(arg);
            continue;
        };
        if text == "--" {
            verbatim = true;
            out.push(arg);
            continue;
        }
        if !text.starts_with('-') || text == "-" || is_number(&text) {
            match command.find_subcommand(&text) {
                Some(inner) => command = inner,
                // What is behind it belongs to another command.
                None => verbatim = command.get_arguments().any(Arg::is_trailing_var_arg_set),
            }
            out.push(arg);
            continue;
        }
        if std::ptr::eq(command, root) && matches!(text.as_str(), "-v" | "-version" | "--version") {
            out.push("version".into());
            continue;
        }
        if let Some(arg) = flag(&text, command, &mut is_value) {
            out.push(arg.into());
        }
    }
    out
}

fn is_number(text: &str) -> bool {
    text[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn flag(text: &str, command: &Command, is_value: &mut bool) -> Option<String> {
    let bare = text.trim_start_matches('-');
    let (name, value) = match bare.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (bare, None),
    };
    if matches!(name, "h" | "help") {
        return Some("--help".to_owned());
    }
    let known = command.get_arguments().find(|a| {
        a.get_long() == Some(name)
            || a.get_all_aliases().is_some_and(|all| all.contains(&name))
            || a.get_short()
                .is_some_and(|s| name.len() == s.len_utf8() && name.starts_with(s))
    });
    let Some(known) = known else {
        // An unknown flag keeps its form but for the dashes, so that the parser names it.
        return Some(format!("--{bare}"));
    };
    let dashes = if known.get_long() == Some(name) || name.chars().count() > 1 {
        "--"
    } else {
        "-"
    };
    if matches!(known.get_action(), ArgAction::SetTrue) {
        return match value {
            None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => {
                Some(format!("{dashes}{name}"))
            }
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => None,
            Some(_) => Some(format!("{dashes}{bare}")),
        };
    }
    *is_value = value.is_none() && !known.is_require_equals_set();
    Some(format!("{dashes}{bare}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table;

    #[test]
    fn one_dash_or_two() {
        let mut command = table();
        command.build();
        for (given, expected) in [
            (
                "agent -dev -config=a.hcl -config b.hcl",
                "agent --dev --config=a.hcl --config b.hcl",
            ),
            ("agent --dev --data-dir /x", "agent --dev --data-dir /x"),
            (
                "job run -detach=false -var a=b -var=c=-d x.hcl",
                "job run --var a=b --var=c=-d x.hcl",
            ),
            ("job run -detach=true -", "job run --detach -"),
            ("alloc logs -f -n=5 abc", "alloc logs -f -n=5 abc"),
            ("alloc logs -tail -n 5 abc", "alloc logs --tail -n 5 abc"),
            ("job run -check-index -1 x", "job run --check-index -1 x"),
            ("job status -h", "job status --help"),
            ("-version", "version"),
            ("-v", "version"),
            ("job run -nope=1", "job run --nope=1"),
            (
                "eval delete -yes -filter -x",
                "eval delete --yes --filter -x",
            ),
            ("job stop -- -odd-name", "job stop -- -odd-name"),
            ("job run -verbose=maybe x", "job run --verbose=maybe x"),
            (
                "alloc exec -t -task=a -i=false abc ls -la -task x -- -h",
                "alloc exec -t --task=a -i=false abc ls -la -task x -- -h",
            ),
        ] {
            let given = std::iter::once("drover")
                .chain(given.split(' '))
                .map(OsString::from);
            let got: Vec<_> = prepare(given, &command).into_iter().skip(1).collect();
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(got, expected);
        }
    }
}
