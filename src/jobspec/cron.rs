//! Cron expressions: five fields, optionally a year after and seconds before them, an alias such as
//! `@daily`, or an interval such as `@every 90s`; and when such a time comes next.
//!
//! A schedule is met when the clock of its time zone shows such a time: what lies in an hour that
//! the clock skips does not happen that day, what lies in one that it shows twice happens twice.

use std::collections::BTreeSet;

use drover_events::gojson::parse_duration;
use drover_events::model::PeriodicConfig;
use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{Offset, TimeZone};

/// Aliases, and the five fields they stand for.
const ALIASES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Years looked ahead: every combination of day and weekday comes up within forty.
const LOOKAHEAD_YEARS: i16 = 40;
/// How many expressions a job may have, and how long each may be, in bytes.
const MAX_SPEC_COUNT: usize = 64;
const MAX_SPEC_BYTES: usize = 1_024;
const SECOND_NANOS: i64 = 1_000_000_000;

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

/// What one field allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CronField {
    any: bool,
    values: BTreeSet<u32>,
    days: Vec<Special>,
}

/// Days that a number alone does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// The last day of the month.
    Last,
    /// The last weekday of the month that is not on the weekend.
    LastWorkday,
    /// The working day nearest to a day of the month, in the same month.
    Nearest(u32),
    /// The last such day of the week of the month.
    LastOf(u32),
    /// The nth such day of the week of the month.
    Nth(u32, u32),
}

impl CronField {
    fn matches(&self, value: u32) -> bool {
        self.any || self.values.contains(&value)
    }

    fn matches_day(&self, number: u32, date: Date) -> bool {
        self.matches(number) || self.days.iter().any(|day| day.is(date))
    }
}

impl Special {
    fn is(self, date: Date) -> bool {
        let day = u32::from(date.day().unsigned_abs());
        let last = u32::from(date.days_in_month().unsigned_abs());
        match self {
            Self::Last => day == last,
            Self::LastWorkday => nearest(date, last) == Some(day),
            Self::Nearest(wanted) => nearest(date, wanted) == Some(day),
            Self::LastOf(wanted) => weekday(date) == wanted && day + 7 > last,
            Self::Nth(wanted, nth) => weekday(date) == wanted && day.div_ceil(7) == nth,
        }
    }
}

/// Days since Sunday.
fn weekday(date: Date) -> u32 {
    u32::from(date.weekday().to_sunday_zero_offset().unsigned_abs())
}

/// The working day of the date's month that is nearest to a day of it.
fn nearest(date: Date, day: u32) -> Option<u32> {
    let last = u32::from(date.days_in_month().unsigned_abs());
    let there = date.with().day(i8::try_from(day).ok()?).build().ok()?;
    Some(match there.weekday() {
        Weekday::Saturday if day == 1 => 3,
        Weekday::Saturday => day - 1,
        Weekday::Sunday if day == last => day - 2,
        Weekday::Sunday => day + 1,
        _ => day,
    })
}

/// An expression, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Times that a clock shows.
    Clock(Box<CronFields>),
    /// Every so many seconds, counted from the start of 1970.
    Every(i64),
}

/// The fields of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronFields {
    seconds: CronField,
    minutes: CronField,
    hours: CronField,
    days: CronField,
    months: CronField,
    weekdays: CronField,
    years: CronField,
}

impl Schedule {
    /// Understands an expression.
    ///
    /// # Errors
    /// The part that does not parse.
    pub fn parse(spec: &str) -> Result<Self, String> {
        if let Some(interval) = spec.strip_prefix("@every ") {
            let nanos = parse_duration(interval.trim()).unwrap_or_default();
            if nanos < SECOND_NANOS || nanos % SECOND_NANOS != 0 {
                let wanted = "an interval is a whole number of seconds, from 1s on";
                return Err(format!("{wanted}: '{}'", interval.trim()));
            }
            return Ok(Self::Every(nanos / SECOND_NANOS));
        }
        CronFields::parse(spec).map(|fields| Self::Clock(Box::new(fields)))
    }

    /// Whether the schedule ever occurs at all.
    #[must_use]
    pub fn ever_occurs(&self) -> bool {
        let first = i16::try_from(YEAR.low).unwrap_or_default();
        let last = i16::try_from(YEAR.high).unwrap_or(i16::MAX);
        match self {
            Self::Clock(fields) => fields.day(Date::constant(first, 1, 1), last).is_some(),
            Self::Every(_) => true,
        }
    }

    /// The first time of the schedule after another, by the clock of a time zone; none within
    /// forty years.
    #[must_use]
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Clock(fields) => fields.next(after, zone),
            Self::Every(step) => {
                let passed = after.as_nanosecond().div_euclid(i128::from(SECOND_NANOS));
                let passed = i64::try_from(passed).ok()?;
                let next = passed.div_euclid(*step).checked_add(1)?;
                Timestamp::from_second(next.checked_mul(*step)?).ok()
            }
        }
    }
}

/// From one change of a zone's offset to the next: its clock neither skips nor repeats.
struct Stretch {
    offset: Offset,
    /// When it ends; none if it never does.
    until: Option<Timestamp>,
}

impl Stretch {
    fn of(zone: &TimeZone, from: Timestamp) -> Self {
        Self {
            offset: zone.to_offset(from),
            until: zone.following(from).next().map(|next| next.timestamp()),
        }
    }

    /// When the clock shows this, if that is before its end.
    fn at(&self, date: Date, time: Time) -> Option<Timestamp> {
        let at = self.offset.to_timestamp(date.to_datetime(time)).ok()?;
        self.until.is_none_or(|until| at < until).then_some(at)
    }
}

impl CronFields {
    fn parse(spec: &str) -> Result<Self, String> {
        let spec = if spec.starts_with('@') {
            let lower = spec.to_ascii_lowercase();
            let known = ALIASES.iter().find(|(name, _)| *name == lower);
            known.ok_or_else(|| format!("unknown alias {spec}"))?.1
        } else {
            spec
        };
        let mut fields: Vec<&str> = spec.split_whitespace().collect();
        match fields.len() {
            5 | 6 => fields.insert(0, "0"),
            7 => {}
            n if n < 5 => return Err("missing field(s)".into()),
            _ => return Err("too many fields".into()),
        }
        let one = |at: usize, range: &Range| match fields.get(at) {
            Some(text) => field(text, range),
            None => field("*", range),
        };
        Ok(Self {
            seconds: one(0, &SECOND)?,
            minutes: one(1, &MINUTE)?,
            hours: one(2, &HOUR)?,
            days: one(3, &DAY)?,
            months: one(4, &MONTH)?,
            weekdays: one(5, &WEEKDAY)?,
            years: one(6, &YEAR)?,
        })
    }

    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = after.as_nanosecond().div_euclid(i128::from(SECOND_NANOS));
        let mut from = Timestamp::from_second(i64::try_from(second).ok()?.checked_add(1)?).ok()?;
        let last = zone
            .to_datetime(from)
            .date()
            .year()
            .checked_add(LOOKAHEAD_YEARS)?;
        loop {
            let stretch = Stretch::of(zone, from);
            let shown = stretch.offset.to_datetime(from);
            let (mut date, mut earliest) = (shown.date(), shown.time());
            while stretch.at(date, earliest).is_some() {
                let day = self.day(date, last)?;
                if day > date {
                    (date, earliest) = (day, Time::midnight());
                    continue;
                }
                if let Some(time) = self.times(earliest).next() {
                    match stretch.at(date, time) {
                        Some(found) => return Some(found),
                        None => break,
                    }
                }
                (date, earliest) = (date.tomorrow().ok()?, Time::midnight());
            }
            from = stretch.until.filter(|until| *until > from)?;
        }
    }

    /// The first day from this one on, none after the last year. Years and months that do not match
    /// are skipped as a whole.
    fn day(&self, mut date: Date, last: i16) -> Option<Date> {
        while date.year() <= last {
            if !self.years.matches(u32::from(date.year().unsigned_abs())) {
                date = date.last_of_year().tomorrow().ok()?;
            } else if !self.months.matches(u32::from(date.month().unsigned_abs())) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if !self.matches(date) {
                date = date.tomorrow().ok()?;
            } else {
                return Some(date);
            }
        }
        None
    }

    /// Days: of the month or of the week, whichever fits if both are restricted.
    fn matches(&self, date: Date) -> bool {
        let day = u32::from(date.day().unsigned_abs());
        let of_month = self.days.matches_day(day, date);
        let of_week = self.weekdays.matches_day(weekday(date), date);
        let both = !self.days.any && !self.weekdays.any;
        self.years.matches(u32::from(date.year().unsigned_abs()))
            && self.months.matches(u32::from(date.month().unsigned_abs()))
            && if both {
                of_month || of_week
            } else {
                of_month && of_week
            }
    }

    /// The times of a day, from a second on.
    fn times(&self, from: Time) -> impl Iterator<Item = Time> {
        let (hour, from) = (from.hour(), from.with().subsec_nanosecond(0).build());
        let from = from.unwrap_or_else(|_| Time::midnight());
        let hours =
            (hour..24).filter(move |hour| self.hours.matches(u32::from(hour.unsigned_abs())));
        let times = hours.flat_map(move |hour| {
            let minutes =
                (0..60_i8).filter(move |m| self.minutes.matches(u32::from(m.unsigned_abs())));
            minutes.flat_map(move |minute| {
                let seconds =
                    (0..60_i8).filter(move |s| self.seconds.matches(u32::from(s.unsigned_abs())));
                seconds.filter_map(move |second| Time::new(hour, minute, second, 0).ok())
            })
        });
        times.filter(move |time| *time >= from)
    }
}

/// Refuses more expressions, or longer ones, than the limits allow.
///
/// # Errors
/// The limit.
pub fn check_limits(periodic: &PeriodicConfig) -> Result<(), String> {
    let count = periodic.specs.len();
    if count > MAX_SPEC_COUNT {
        return Err(format!(
            "a periodic job has {count} cron specs; at most {MAX_SPEC_COUNT} are accepted"
        ));
    }
    let longest = specs(periodic).map(String::len).max().unwrap_or(0);
    if longest > MAX_SPEC_BYTES {
        return Err(format!(
            "a cron spec is {longest} bytes long; at most {MAX_SPEC_BYTES} are accepted"
        ));
    }
    Ok(())
}

fn specs(periodic: &PeriodicConfig) -> impl Iterator<Item = &String> {
    let one = Some(&periodic.spec).filter(|spec| !spec.is_empty());
    one.into_iter().chain(periodic.specs.iter())
}

/// The parsed schedules of a periodic job, and their time zone.
#[derive(Clone, Debug)]
pub struct LaunchSchedule {
    zone: TimeZone,
    schedules: Vec<Schedule>,
}

impl LaunchSchedule {
    /// The schedules of a specification. Invalid expressions are skipped: registration refused
    /// them.
    ///
    /// # Errors
    /// An unknown time zone, or a specification above the limits ([`check_limits`]).
    pub fn of(periodic: &PeriodicConfig) -> Result<Self, String> {
        check_limits(periodic)?;
        let zone = match periodic.time_zone.as_str() {
            "" => TimeZone::UTC,
            name => TimeZone::get(name).map_err(|error| error.to_string())?,
        };
        let schedules = specs(periodic).filter_map(|spec| Schedule::parse(spec).ok());
        Ok(Self {
            zone,
            schedules: schedules.collect(),
        })
    }

    /// When the job is launched next after a time (Unix nanoseconds); none if never.
    #[must_use]
    pub fn after(&self, time: i64) -> Option<i64> {
        let after = Timestamp::from_nanosecond(i128::from(time)).ok()?;
        let schedules = self.schedules.iter();
        let next = schedules
            .filter_map(|schedule| schedule.next(after, &self.zone))
            .min()?;
        i64::try_from(next.as_nanosecond()).ok()
    }
}

/// When a periodic job is launched next after a time (Unix nanoseconds); none if never, or if its
/// specification is invalid.
#[must_use]
pub fn next_launch(periodic: &PeriodicConfig, after: i64) -> Option<i64> {
    LaunchSchedule::of(periodic).ok()?.after(after)
}

fn field(text: &str, range: &Range) -> Result<CronField, String> {
    let mut field = CronField::default();
    for part in text.split(',') {
        item(part, range, &mut field)
            .ok_or_else(|| format!("syntax error in {} field: '{part}'", range.name))?;
    }
    Ok(field)
}

fn item(text: &str, range: &Range, field: &mut CronField) -> Option<()> {
    let (body, step) = text
        .split_once('/')
        .map_or((text, None), |(b, s)| (b, Some(s)));
    let step = match step.map(str::parse::<u32>).transpose().ok()? {
        Some(step) if step == 0 || step > range.high => return None,
        step => step,
    };
    let upper = body.to_ascii_uppercase();
    if let Some(day) = special(&upper, range) {
        field.days.push(day?);
        return Some(());
    }
    let (from, to) = if matches!(body, "*" | "?") {
        field.any |= step.is_none_or(|step| step == 1);
        (range.low, range.high)
    } else if let Some((from, to)) = upper.split_once('-') {
        (value(from, range)?, value(to, range)?)
    } else {
        let from = value(&upper, range)?;
        (from, if step.is_some() { range.high } else { from })
    };
    let step = usize::try_from(step.unwrap_or(1)).ok()?;
    let is_weekday_field = range.name == WEEKDAY.name;
    field.values.extend(
        (from..=to)
            .step_by(step)
            .map(|n| if is_weekday_field { n % 7 } else { n }),
    );
    (from <= to).then_some(())
}

/// Parses a day that a number alone does not name. `None` if the text is not such a form,
/// `Some(None)` if it is but its value is invalid.
fn special(upper: &str, range: &Range) -> Option<Option<Special>> {
    if range.name == DAY.name {
        return match upper {
            "L" => Some(Some(Special::Last)),
            "LW" => Some(Some(Special::LastWorkday)),
            _ => {
                let day = upper.strip_suffix('W')?;
                Some(value(day, range).map(Special::Nearest))
            }
        };
    }
    if range.name != WEEKDAY.name {
        return None;
    }
    if let Some(day) = upper.strip_suffix('L').filter(|day| !day.is_empty()) {
        return Some(value(day, range).map(|day| Special::LastOf(day % 7)));
    }
    let (day, nth) = upper.split_once('#')?;
    let nth = nth.parse().ok().filter(|nth| (1..=5).contains(nth));
    Some(
        value(day, range)
            .zip(nth)
            .map(|(day, nth)| Special::Nth(day % 7, nth)),
    )
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
#[path = "cron_test.rs"]
mod tests;
