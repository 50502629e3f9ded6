//! Files: only where a user parses a specification, never on a server.

use super::super::value::Value;
use super::args::Args;
use super::{MAX_TEXT, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::{Component, Path, PathBuf};

pub(super) fn call(name: &str, args: &mut Args, base: &Path) -> Option<Outcome> {
    Some(match name {
        "abspath" => path(args, |p| {
            let path = std::path::absolute(base.join(p)).map_err(|e| e.to_string())?;
            Ok(Value::Str(clean(&path).display().to_string()))
        }),
        "basename" => path(args, |p| {
            let name = Path::new(p)
                .file_name()
                .map(|n| n.to_string_lossy().into_owned());
            Ok(Value::Str(name.unwrap_or_else(|| {
                if p.is_empty() { "." } else { "/" }.into()
            })))
        }),
        "dirname" => path(args, |p| {
            let parent = Path::new(p)
                .parent()
                .map(|n| n.display().to_string())
                .unwrap_or_default();
            Ok(Value::Str(if parent.is_empty() {
                ".".into()
            } else {
                parent
            }))
        }),
        "pathexpand" => path(args, |p| Ok(Value::Str(expand(p).display().to_string()))),
        "fileexists" => path(args, |p| Ok(Value::Bool(base.join(expand(p)).is_file()))),
        "file" => path(args, |p| {
            String::from_utf8(read(base, p)?)
                .map(Value::Str)
                .map_err(|_| {
                    format!("contents of {p} are not valid UTF-8; use the filebase64 function")
                })
        }),
        "filebase64" => path(args, |p| Ok(Value::Str(STANDARD.encode(read(base, p)?)))),
        "fileset" => fileset(args, base),
        _ => return None,
    })
}

fn path(args: &mut Args, f: impl Fn(&str) -> Outcome) -> Outcome {
    let text = args.text()?;
    args.end()?;
    f(&text)
}

fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn read(base: &Path, path: &str) -> Result<Vec<u8>, String> {
    let full = base.join(expand(path));
    let failed = |e: std::io::Error| format!("failed to read {}: {e}", full.display());
    let meta = std::fs::metadata(&full).map_err(failed)?;
    if meta.len() > MAX_TEXT as u64 {
        return Err(format!("{} is too large", full.display()));
    }
    std::fs::read(&full).map_err(failed)
}

fn fileset(args: &mut Args, base: &Path) -> Outcome {
    let (dir, pattern) = (args.text()?, args.text()?);
    args.end()?;
    let root = base.join(expand(&dir));
    let matcher = regex::Regex::new(&glob(&pattern)).map_err(|e| e.to_string())?;
    let (mut found, mut open) = (Vec::new(), vec![root.clone()]);
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
                continue;
            }
            if let Ok(relative) = path.strip_prefix(&root)
                && matcher.is_match(&relative.to_string_lossy())
            {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
        if found.len() + open.len() > 100_000 {
            return Err("too many files".into());
        }
    }
    found.sort();
    Ok(Value::List(found.into_iter().map(Value::Str).collect()))
}

/// `*`, `**`, `?`, `[…]` and `{a,b}` as a regular expression.
fn glob(pattern: &str) -> String {
    let mut out = String::from("^");
    let mut chars = pattern.chars().peekable();
    let mut braces = 0;
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                if chars.peek() == Some(&'/') {
                    chars.next();
                    out.push_str("(?:.*/)?");
                } else {
                    out.push_str(".*");
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '{' => {
                braces += 1;
                out.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if braces > 0 => out.push('|'),
            '[' | ']' => out.push(c),
            c => out.push_str(&regex::escape(&c.to_string())),
        }
    }
    out.push('$');
    out
}
