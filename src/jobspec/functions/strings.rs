//! Text.

use super::super::budget::{Budget, Cost};
use super::super::pattern;
use super::super::value::Value;
use super::args::Args;
use super::{MAX_TEXT, Outcome};

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "upper" => one(args, |s| s.to_uppercase()),
        "lower" => one(args, |s| s.to_lowercase()),
        "title" => one(args, title),
        "chomp" => one(args, |s| s.trim_end_matches(['\r', '\n']).to_owned()),
        "trimspace" => one(args, |s| s.trim().to_owned()),
        "strrev" => one(args, |s| s.chars().rev().collect()),
        "strlen" => strlen(args),
        "trim" => two(args, |s, cut| {
            s.trim_matches(|c| cut.contains(c)).to_owned()
        }),
        "trimprefix" => two(args, |s, p| s.strip_prefix(p).unwrap_or(s).to_owned()),
        "trimsuffix" => two(args, |s, p| s.strip_suffix(p).unwrap_or(s).to_owned()),
        "split" => split(args),
        "join" => join(args),
        "indent" => indent(args),
        "replace" => replace(args),
        "regex_replace" => regex_replace(args),
        "substr" => substr(args),
        "format" => format(args).map(Value::Str),
        "formatlist" => formatlist(args),
        _ => return None,
    })
}

fn one(args: &mut Args, f: impl Fn(&str) -> String) -> Outcome {
    let text = args.text()?;
    args.end()?;
    Ok(Value::Str(f(&text)))
}

fn two(args: &mut Args, f: impl Fn(&str, &str) -> String) -> Outcome {
    let (text, other) = (args.text()?, args.text()?);
    args.end()?;
    Ok(Value::Str(f(&text, &other)))
}

fn title(text: &str) -> String {
    let mut start = true;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if start {
            out.extend(c.to_uppercase())
        } else {
            out.push(c)
        }
        start = !c.is_alphanumeric() && c != '\'' && c != '_';
    }
    out
}

fn strlen(args: &mut Args) -> Outcome {
    let text = args.text()?;
    args.end()?;
    Ok(Value::Int(text.chars().count() as i128))
}

fn split(args: &mut Args) -> Outcome {
    let (separator, text) = (args.text()?, args.text()?);
    args.end()?;
    if separator.is_empty() {
        return Ok(Value::List(
            text.chars().map(|c| Value::Str(c.into())).collect(),
        ));
    }
    Ok(Value::List(
        text.split(separator.as_str()).map(Value::str).collect(),
    ))
}

fn join(args: &mut Args) -> Outcome {
    let separator = args.text()?;
    let mut parts = args.texts()?;
    while args.left() > 0 {
        parts.extend(args.texts()?);
    }
    bounded(parts.iter().map(|p| p.len() + separator.len()).sum())?;
    Ok(Value::Str(parts.join(&separator)))
}

fn bounded(bytes: usize) -> Result<(), String> {
    if bytes > MAX_TEXT {
        Err("the result is too long".to_owned())
    } else {
        Ok(())
    }
}

fn indent(args: &mut Args) -> Outcome {
    let (spaces, text) = (args.whole()?, args.text()?);
    args.end()?;
    let spaces = usize::try_from(spaces).map_err(|_| "spaces may not be negative".to_owned())?;
    let breaks = text.matches('\n').count();
    if breaks == 0 {
        // Nothing is indented, and spaces for it would never be counted.
        return Ok(Value::Str(text));
    }
    bounded(text.len().saturating_add(breaks.saturating_mul(spaces)))?;
    Ok(Value::Str(
        text.replace('\n', &format!("\n{}", " ".repeat(spaces))),
    ))
}

fn replace(args: &mut Args) -> Outcome {
    let (text, what, with) = (args.text()?, args.text()?, args.text()?);
    args.end()?;
    if what.len() > 1 && what.starts_with('/') && what.ends_with('/') {
        return regex(&text, &what[1..what.len() - 1], &with, args.budget);
    }
    let count = if what.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(&what).count()
    };
    bounded(text.len().saturating_add(count.saturating_mul(with.len())))?;
    Ok(Value::Str(text.replace(&what, &with)))
}

fn regex_replace(args: &mut Args) -> Outcome {
    let (text, pattern, with) = (args.text()?, args.text()?, args.text()?);
    args.end()?;
    regex(&text, &pattern, &with, args.budget)
}

/// The longest text that a pattern is looked for in, bytes. One search takes time in proportion to
/// text times pattern, and nothing ends it before.
const MAX_SEARCHED: usize = 64 << 10;

/// Replaces every match. Whatever it finds, a search may read all of the text that is left, so this
/// is what each is charged, and the clock is looked at between them.
fn regex(text: &str, pattern: &str, with: &str, budget: &Budget) -> Outcome {
    if text.len() > MAX_SEARCHED {
        let most = MAX_SEARCHED >> 10;
        return Err(format!(
            "patterns are looked for in at most {most} KiB of text"
        ));
    }
    let steps = |steps: usize| Cost {
        bytes: 0,
        steps: steps as u64,
    };
    // A class of one letter may stand for hundreds of ranges.
    budget.charge(steps(pattern.len().saturating_mul(64)))?;
    let pattern = pattern::compile_small(pattern)?;
    // Groups lie within the match, so that each reference to one brings at most its length.
    let references = with.matches('$').count();
    let (mut out, mut end) = (String::new(), 0);
    let mut matches = pattern.captures_iter(text);
    loop {
        budget.charge(steps((text.len() - end) / 64))?;
        let Some(groups) = matches.next() else { break };
        let found = groups.get_match();
        let brought = references.saturating_mul(found.len());
        let between = found.start().saturating_sub(end);
        bounded([out.len(), between, with.len(), brought].iter().sum())?;
        out.push_str(&text[end..found.start()]);
        groups.expand(with, &mut out);
        end = found.end();
    }
    out.push_str(&text[end..]);
    Ok(Value::Str(out))
}

fn substr(args: &mut Args) -> Outcome {
    let (text, offset, length) = (args.text()?, args.whole()?, args.whole()?);
    args.end()?;
    let chars: Vec<char> = text.chars().collect();
    let count = i64::try_from(chars.len()).unwrap_or(i64::MAX);
    let start = if offset < 0 {
        (count + offset).max(0)
    } else {
        offset.min(count)
    };
    let end = match length {
        -1 => count,
        n if n < 0 => return Err("length should be a non-negative integer".to_owned()),
        n => start.saturating_add(n).min(count),
    };
    let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
    Ok(Value::Str(
        chars
            .get(range)
            .map(|c| c.iter().collect())
            .unwrap_or_default(),
    ))
}

fn formatlist(args: &mut Args) -> Outcome {
    let pattern = args.text()?;
    let rest = args.rest();
    let lengths: Vec<usize> = rest
        .iter()
        .filter_map(|v| {
            if let Value::List(l) = v {
                Some(l.len())
            } else {
                None
            }
        })
        .collect();
    let rows = lengths.first().copied().unwrap_or(1);
    if lengths.iter().any(|l| *l != rows) {
        return Err("all lists must have the same length".to_owned());
    }
    let mut out = Vec::with_capacity(rows);
    let mut length = 0;
    for row in 0..rows {
        let pick = |v: &Value| match v {
            Value::List(items) => items.get(row).cloned().unwrap_or(Value::Null),
            other => other.clone(),
        };
        let values = std::iter::once(Value::Str(pattern.clone())).chain(rest.iter().map(pick));
        let text = format(&mut Args::new(values.collect(), args.budget))?;
        length += text.len();
        bounded(length)?;
        out.push(Value::Str(text));
    }
    Ok(Value::List(out))
}

/// The verbs of Go's `fmt` that the language knows: `%v %s %q %d %f %e %g %x %X %o %b %t %#v %%`.
fn format(args: &mut Args) -> Result<String, String> {
    let pattern = args.text()?;
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::default();
        loop {
            match chars.next() {
                None => {
                    return Err(
                        "unrecognized format character at the end of the pattern".to_owned()
                    );
                }
                Some('%') => out.push('%'),
                Some('-') => {
                    spec.left = true;
                    continue;
                }
                Some('+') => {
                    spec.plus = true;
                    continue;
                }
                Some('#') => {
                    spec.sharp = true;
                    continue;
                }
                Some('0') if spec.width.is_none() && spec.precision.is_none() => {
                    spec.zero = true;
                    continue;
                }
                Some(' ') => continue,
                Some('.') => {
                    spec.precision = Some(0);
                    continue;
                }
                Some(d @ '0'..='9') => {
                    let digit = usize::from(d as u8 - b'0');
                    let slot = spec
                        .precision
                        .as_mut()
                        .unwrap_or(spec.width.get_or_insert(0));
                    *slot = *slot * 10 + digit;
                    if *slot > 4096 {
                        return Err("the width is too large".to_owned());
                    }
                    continue;
                }
                Some(verb) => {
                    let value = args.any()?;
                    out.push_str(&spec.pad(spec.render(verb, &value)?, verb));
                    bounded(out.len())?;
                }
            }
            break;
        }
    }
    args.end()?;
    Ok(out)
}

#[derive(Default)]
struct Spec {
    left: bool,
    plus: bool,
    sharp: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Spec {
    fn render(&self, verb: char, value: &Value) -> Result<String, String> {
        let wrong = |needed: &str| format!("unsupported value for \"%{verb}\": {needed}");
        let number = || {
            value
                .to_number()
                .ok_or_else(|| wrong("a number is required"))
        };
        let whole = || match number()? {
            Value::Int(n) => Ok(n),
            other => Err(wrong(&format!(
                "a whole number is required, not {:?}",
                other.to_text()
            ))),
        };
        let float = || Ok::<f64, String>(number()?.as_f64().unwrap_or(0.0));
        let sign = |s: String| {
            if self.plus && !s.starts_with('-') {
                format!("+{s}")
            } else {
                s
            }
        };
        Ok(match verb {
            'v' => match value {
                Value::Str(s) if self.sharp => serde_json::Value::String(s.clone()).to_string(),
                Value::Null => "null".to_owned(),
                other => other
                    .to_text()
                    .unwrap_or_else(|| other.to_json().to_string()),
            },
            's' => {
                let text = value.to_text().ok_or_else(|| wrong("string required"))?;
                self.precision
                    .map_or(text.clone(), |p| text.chars().take(p).collect())
            }
            'q' => {
                let text = value.to_text().ok_or_else(|| wrong("string required"))?;
                serde_json::Value::String(text).to_string()
            }
            't' => value
                .to_bool()
                .ok_or_else(|| wrong("bool required"))?
                .to_string(),
            'd' => sign(whole()?.to_string()),
            'x' => format!("{:x}", whole()?),
            'X' => format!("{:X}", whole()?),
            'o' => format!("{:o}", whole()?),
            'b' => format!("{:b}", whole()?),
            'f' => sign(format!("{:.*}", self.precision.unwrap_or(6), float()?)),
            'e' => sign(go_exponent(float()?, self.precision.unwrap_or(6))),
            'g' => sign(float()?.to_string()),
            other => return Err(format!("unrecognized format verb {other:?}")),
        })
    }

    fn pad(&self, text: String, verb: char) -> String {
        let Some(width) = self.width else { return text };
        let count = text.chars().count();
        if count >= width {
            return text;
        }
        let fill = width - count;
        if self.left {
            return text + &" ".repeat(fill);
        }
        if self.zero && !matches!(verb, 's' | 'q' | 'v' | 't') {
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['-', '+'])));
            return format!("{sign}{}{digits}", "0".repeat(fill));
        }
        " ".repeat(fill) + &text
    }
}

fn go_exponent(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(("+", exponent), |d| ("-", d));
    format!("{mantissa}e{sign}{digits:0>2}")
}
