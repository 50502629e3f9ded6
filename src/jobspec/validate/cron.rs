//! Whether a text is a cron expression: five fields, optionally a year after and seconds before
//! them, or an alias such as `@daily`.

const ALIASES: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

struct Range {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const SECOND: Range = Range {
    name: "second",
    low: 0,
    high: 59,
    names: &[],
};
const MINUTE: Range = Range {
    name: "minute",
    low: 0,
    high: 59,
    names: &[],
};
const HOUR: Range = Range {
    name: "hour",
    low: 0,
    high: 23,
    names: &[],
};
const DAY: Range = Range {
    name: "day-of-month",
    low: 1,
    high: 31,
    names: &[],
};
const MONTH: Range = Range {
    name: "month",
    low: 1,
    high: 12,
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
};
const WEEKDAY: Range = Range {
    name: "day-of-week",
    low: 0,
    high: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};
const YEAR: Range = Range {
    name: "year",
    low: 1970,
    high: 2099,
    names: &[],
};

/// Checks an expression.
pub(super) fn check(spec: &str) -> Result<(), String> {
    if spec.starts_with('@') {
        let known = ALIASES.contains(&spec.to_ascii_lowercase().as_str());
        return if known {
            Ok(())
        } else {
            Err(format!("unknown alias {spec}"))
        };
    }
    let fields: Vec<&str> = spec.split_whitespace().collect();
    let ranges: &[&Range] = match fields.len() {
        5 => &[&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY],
        6 => &[&MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY, &YEAR],
        7 => &[&SECOND, &MINUTE, &HOUR, &DAY, &MONTH, &WEEKDAY, &YEAR],
        n if n < 5 => return Err("missing field(s)".into()),
        _ => return Err("too many fields".into()),
    };
    fields
        .iter()
        .zip(ranges)
        .try_for_each(|(text, range)| field(text, range))
}

fn field(text: &str, range: &Range) -> Result<(), String> {
    text.split(',').try_for_each(|part| {
        item(part, range).ok_or_else(|| format!("syntax error in {} field: '{part}'", range.name))
    })
}

fn item(text: &str, range: &Range) -> Option<()> {
    let (body, step) = text
        .split_once('/')
        .map_or((text, None), |(b, s)| (b, Some(s)));
    if let Some(step) = step {
        let step: u32 = step.parse().ok()?;
        if step == 0 || step > range.high {
            return None;
        }
    }
    if matches!(body, "*" | "?") {
        return Some(());
    }
    if range.name == DAY.name && matches!(body.to_ascii_uppercase().as_str(), "L" | "LW") {
        return Some(());
    }
    let upper = body.to_ascii_uppercase();
    if range.name == DAY.name
        && let Some(day) = upper.strip_suffix('W')
    {
        return value(day, range).map(|_| ());
    }
    if range.name == WEEKDAY.name {
        if let Some(day) = upper.strip_suffix('L').filter(|d| !d.is_empty()) {
            return value(day, range).map(|_| ());
        }
        if let Some((day, nth)) = upper.split_once('#') {
            let nth: u32 = nth.parse().ok()?;
            return value(day, range)
                .filter(|_| (1..=5).contains(&nth))
                .map(|_| ());
        }
    }
    match upper.split_once('-') {
        Some((from, to)) => {
            let (from, to) = (value(from, range)?, value(to, range)?);
            (from <= to).then_some(())
        }
        None => value(&upper, range).map(|_| ()),
    }
}

fn value(text: &str, range: &Range) -> Option<u32> {
    if let Some(at) = range
        .names
        .iter()
        .position(|n| *n == text || (text.len() > 3 && text.starts_with(n)))
    {
        return u32::try_from(at).ok().map(|n| n + range.low);
    }
    text.parse()
        .ok()
        .filter(|n| (range.low..=range.high).contains(n))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn expressions() {
        for good in [
            "*/5 * * * *",
            "0 0 1 JAN mon-fri",
            "0,30 8-18/2 ? * *",
            "0 0 L * *",
            "0 0 * * 5#2",
            "0 0 15W * * 2030",
            "30 0 0 1 1 * 2025-2030",
            "@daily",
            "@HOURLY",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "* * *",
            "60 * * * *",
            "* 5-2 * * *",
            "*/0 * * * *",
            "a * * * *",
            "@never",
            "1 2 3 4 5 6 7 8",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
