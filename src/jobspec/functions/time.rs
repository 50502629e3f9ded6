//! Timestamps (RFC 3339).

use super::super::duration;
use super::super::value::Value;
use super::Outcome;
use super::args::Args;
use jiff::{SignedDuration, Zoned, tz::TimeZone};

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "timeadd" => timeadd(args),
        "formatdate" => formatdate(args),
        _ => return None,
    })
}

/// Reads a timestamp, keeping its offset.
fn parse(text: &str) -> Result<Zoned, String> {
    let wrong = || format!("not a valid RFC3339 timestamp: {text:?}");
    let stamp: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
    let offset = match text.get(text.len().saturating_sub(6)..) {
        Some(end) if end.starts_with(['+', '-']) => {
            let hours: i32 = end[1..3].parse().map_err(|_| wrong())?;
            let minutes: i32 = end[4..6].parse().map_err(|_| wrong())?;
            let seconds = (hours * 60 + minutes) * 60;
            if end.starts_with('-') {
                -seconds
            } else {
                seconds
            }
        }
        _ => 0,
    };
    let offset = jiff::tz::Offset::from_seconds(offset).map_err(|_| wrong())?;
    Ok(stamp.to_zoned(TimeZone::fixed(offset)))
}

fn rfc3339(time: &Zoned) -> String {
    let offset = time.offset();
    if offset.is_zero() {
        return time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    }
    time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

fn timeadd(args: &mut Args) -> Outcome {
    let (time, add) = (args.text()?, args.text()?);
    args.end()?;
    let add = duration::parse(&add).map_err(|e| e.to_string())?;
    let sum = parse(&time)?
        .checked_add(SignedDuration::from_nanos(add))
        .map_err(|_| "the result is out of range".to_owned())?;
    Ok(Value::Str(rfc3339(&sum)))
}

/// Tokens are runs of one letter (`YYYY`, `MMM`, `DD`, `hh`, …); text stands in single quotes.
fn formatdate(args: &mut Args) -> Outcome {
    let (pattern, time) = (args.text()?, args.text()?);
    args.end()?;
    let time = parse(&time)?;
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\'' {
            loop {
                match chars.next() {
                    None => return Err("unterminated literal in the format".into()),
                    Some('\'') if chars.peek() == Some(&'\'') => {
                        chars.next();
                        out.push('\'');
                    }
                    Some('\'') => break,
                    Some(c) => out.push(c),
                }
            }
            continue;
        }
        if !c.is_ascii_alphabetic() {
            out.push(c);
            continue;
        }
        let mut run = String::from(c);
        while chars.peek() == Some(&c) {
            run.push(c);
            chars.next();
        }
        out.push_str(&token(&run, &time)?);
    }
    Ok(Value::Str(out))
}

fn token(run: &str, time: &Zoned) -> Result<String, String> {
    let hour12 = (time.hour() + 11) % 12 + 1;
    Ok(match run {
        "YYYY" => time.strftime("%Y").to_string(),
        "YY" => time.strftime("%y").to_string(),
        "MMMM" => time.strftime("%B").to_string(),
        "MMM" => time.strftime("%b").to_string(),
        "MM" => time.strftime("%m").to_string(),
        "M" => time.month().to_string(),
        "DD" => time.strftime("%d").to_string(),
        "D" => time.day().to_string(),
        "EEEE" => time.strftime("%A").to_string(),
        "EEE" => time.strftime("%a").to_string(),
        "hh" => time.strftime("%H").to_string(),
        "h" => time.hour().to_string(),
        "HH" => format!("{hour12:02}"),
        "H" => hour12.to_string(),
        "AA" => if time.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        "aa" => if time.hour() < 12 { "am" } else { "pm" }.to_owned(),
        "mm" => time.strftime("%M").to_string(),
        "m" => time.minute().to_string(),
        "ss" => time.strftime("%S").to_string(),
        "s" => time.second().to_string(),
        "ZZZZZ" => time.strftime("%:z").to_string(),
        "ZZZZ" | "ZZZ" if time.offset().is_zero() => {
            if run == "ZZZ" { "UTC" } else { "+0000" }.to_owned()
        }
        "ZZZZ" | "ZZZ" => time.strftime("%z").to_string(),
        "Z" if time.offset().is_zero() => "Z".to_owned(),
        "Z" => time.strftime("%:z").to_string(),
        other => return Err(format!("invalid format verb {other:?}")),
    })
}
