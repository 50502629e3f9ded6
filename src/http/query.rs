//! Query strings: decoding, and the parameters every read understands.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drover_events::gojson::parse_duration;
use drover_events::model::status::DEFAULT_NAMESPACE;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::ignored;
use crate::error::Refusal;

/// The decoded parameters of a request, in order, and which of them were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Arc<Parameter>);

#[derive(Debug, Default)]
struct Parameter {
    pairs: Vec<(String, String)>,
    /// One bit for each of the first parameters that were read.
    read: AtomicU64,
    /// What else of the request has no effect.
    ignored: Mutex<Vec<String>>,
}

impl Query {
    /// Decodes the part of a target behind the question mark.
    ///
    /// # Errors
    /// 400 for a broken escape or text that is not UTF-8.
    pub(super) fn parse(raw: Option<&str>) -> Result<Self, Refusal> {
        let mut pairs = Vec::new();
        for part in raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            pairs.push((decode(key, true)?, decode(value, true)?));
        }
        let requested = Parameter {
            pairs,
            ..Parameter::default()
        };
        Ok(Self(Arc::new(requested)))
    }

    /// The names of all parameters, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.pairs.iter().map(|(name, _)| name.as_str())
    }

    /// Adds what of the request besides its parameters has no effect, once however often it is
    /// found: a query that waits is read at each wake.
    pub(super) fn ignore(&self, names: impl IntoIterator<Item = String>) {
        let mut ignored = self.0.ignored.lock();
        for name in names {
            if !ignored.contains(&name) {
                ignored.push(name);
            }
        }
    }

    /// What of the request had no effect: parameters that no handler read so far, and what was
    /// added.
    pub(super) fn ignored(&self) -> Vec<String> {
        let read = self.0.read.load(Ordering::Relaxed);
        let unread = |(at, (name, _)): &(usize, &(String, String))| {
            let heard = *at < 64 && read >> at & 1 == 1;
            !heard && !ignored::EVERYWHERE.contains(&name.as_str())
        };
        let pairs = self.0.pairs.iter().enumerate().filter(unread);
        let mut names: Vec<String> = pairs.map(|(_, (name, _))| name.clone()).collect();
        names.dedup();
        names.extend(self.0.ignored.lock().iter().cloned());
        names
    }

    /// The values of a parameter. It does not count as read.
    fn seen<'a>(&'a self, name: &str) -> impl Iterator<Item = (usize, &'a str)> {
        let pairs = self.0.pairs.iter().enumerate();
        pairs.filter_map(move |(at, (key, value))| (key == name).then_some((at, value.as_str())))
    }

    /// Every value of a parameter; a handler may read them later.
    pub(super) fn peek_all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.seen(name).map(|(_, value)| value)
    }

    /// The first value of a parameter, empty when absent; a handler may read it later.
    fn peek(&self, name: &str) -> &str {
        self.seen(name).next().map_or("", |(_, value)| value)
    }

    fn heard(&self, at: usize) {
        if at < 64 {
            self.0.read.fetch_or(1 << at, Ordering::Relaxed);
        }
    }

    /// The first value of a parameter.
    #[must_use]
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (at, value) = self.seen(name).next()?;
        self.heard(at);
        Some(value)
    }

    /// The first value, empty when absent.
    #[must_use]
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Every value of a repeated parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.seen(name).map(|(at, value)| {
            self.heard(at);
            value
        })
    }

    /// A boolean extra as Go reads it, false when absent or empty.
    ///
    /// # Errors
    /// 500 with Nomad's text.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        self.flag_or(name, false)
    }

    /// As [`Query::flag`] with another default.
    ///
    /// # Errors
    /// 500 with Nomad's text.
    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.text(name) {
            "" => Ok(default),
            raw => parse_bool(raw).ok_or_else(|| {
                Refusal::by_rule(format!(
                    "Failed to parse value of \"{name}\" ({raw}) as a bool: \
                     strconv.ParseBool: parsing \"{raw}\": invalid syntax"
                ))
            }),
        }
    }

    /// Whether what is read may be old.
    ///
    /// # Errors
    /// 400 with Nomad's text.
    pub(super) fn stale(&self) -> Result<bool, Refusal> {
        let text = "Expect `true` or `false` for `stale` query string parameter";
        match self.get("stale") {
            None => Ok(false),
            Some("") => Ok(true),
            Some(raw) => parse_bool(raw).ok_or_else(|| Refusal::bad_request(text)),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// 400 that names the parameter.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        match self.text(name) {
            "" => Ok(None),
            raw => raw.parse().map(Some).map_err(|_| {
                Refusal::bad_request(format!("failed to parse {name}: {raw:?} is not a number"))
            }),
        }
    }
}

/// A boolean as Go's `ParseBool` takes it.
#[must_use]
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// What is not written as it is in a query value or a path segment.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Percent-encodes a query value or a path segment.
#[must_use]
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Undoes percent-encoding; in queries a plus is a space.
///
/// # Errors
/// 400 for a broken escape or text that is not UTF-8.
pub(super) fn decode(raw: &str, plus: bool) -> Result<String, Refusal> {
    let bad = || Refusal::bad_request(format!("invalid URL escape in {raw:?}"));
    if !is_escaped(raw) {
        return Err(bad());
    }
    let spaced = match plus && raw.contains('+') {
        true => Cow::Owned(raw.replace('+', " ")),
        false => Cow::Borrowed(raw),
    };
    let text = percent_decode_str(&spaced).decode_utf8();
    text.map(Cow::into_owned).map_err(|_| bad())
}

/// Whether every percent sign has its two digits: the library leaves others as they are.
fn is_escaped(raw: &str) -> bool {
    raw.split('%').skip(1).all(|behind| {
        let digits = behind.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// What every read understands. What a handler reads through a function counts as acted on.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadOptions {
    query: Query,
    index: u64,
    wait: i64,
    /// `namespace`, `default` when absent.
    pub(super) namespace: String,
    prefix: String,
    per_page: u32,
    next_token: String,
    filter: String,
    reverse: bool,
    /// Whatever this server knows will do, whether or not there is a leader.
    pub(super) stale: bool,
    /// Bytes after which a list is sent on; the usual number without it.
    pub(super) part: Option<usize>,
    /// The list was begun before: this is a further part of it.
    pub(super) later: bool,
}

impl ReadOptions {
    /// Reads them off a query.
    ///
    /// # Errors
    /// 400 with Nomad's texts.
    pub(super) fn read(query: &Query) -> Result<Self, Refusal> {
        let bad = Refusal::bad_request;
        let wait = match query.peek("wait") {
            "" => 0,
            raw => parse_duration(raw).ok_or_else(|| bad("Invalid wait time"))?,
        };
        let index = match query.peek("index") {
            "" => 0,
            raw => raw.parse().map_err(|_| bad("Invalid index"))?,
        };
        let stale = query.stale()?;
        let per_page = match query.peek("per_page") {
            "" => 0,
            raw => raw
                .parse::<i32>()
                .ok()
                .and_then(|n| u32::try_from(n.max(0)).ok())
                .ok_or_else(|| bad("Expect a number for `per_page` query string parameter"))?,
        };
        Ok(Self {
            index,
            wait,
            namespace: namespace(query).to_owned(),
            prefix: query.peek("prefix").to_owned(),
            per_page,
            next_token: query.peek("next_token").to_owned(),
            filter: query.peek("filter").to_owned(),
            reverse: query.peek("reverse") == "true",
            stale,
            query: query.clone(),
            part: None,
            later: false,
        })
    }

    /// The ids under a prefix.
    pub(super) fn by_prefix(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            ..Self::default()
        }
    }

    /// The same without pages: from the first row on, in ascending order.
    pub(super) fn of_all(&self) -> Self {
        Self {
            next_token: String::new(),
            reverse: false,
            ..self.clone()
        }
    }

    /// The same for the part of a list that goes on at a place.
    pub(super) fn going_on(&self, from: String) -> Self {
        Self {
            next_token: from,
            later: true,
            ..self.clone()
        }
    }

    /// `index`: answer only once the resource is beyond it.
    pub(super) fn index(&self) -> u64 {
        self.note_read("index");
        self.index
    }

    /// `wait`, nanoseconds; 0 means the default.
    pub(super) fn wait(&self) -> i64 {
        self.note_read("wait");
        self.wait
    }

    /// `prefix` of the id.
    pub(super) fn prefix(&self) -> &str {
        self.note_read("prefix");
        &self.prefix
    }

    /// Rows on a page, 0 for all.
    pub(super) fn per_page(&self) -> u32 {
        self.note_read("per_page");
        self.per_page
    }

    /// Where the page starts.
    pub(super) fn next_token(&self) -> &str {
        self.note_read("next_token");
        &self.next_token
    }

    /// Where this part of a list without pages starts.
    pub(super) fn place(&self) -> &str {
        match self.later {
            true => &self.next_token,
            false => "",
        }
    }

    /// The filter expression.
    pub(super) fn filter(&self) -> &str {
        self.note_read("filter");
        &self.filter
    }

    /// Descending order.
    pub(super) fn reverse(&self) -> bool {
        self.note_read("reverse");
        self.reverse
    }

    /// Whether nothing is to be worked out about what is requested. Nothing counts as acted on by
    /// this.
    pub(super) fn is_plain(&self) -> bool {
        self.filter.is_empty() && self.query.peek("diffs").is_empty()
    }

    /// What was read before counts as acted on from now on.
    fn note_read(&self, name: &str) {
        let _ = self.query.get(name);
    }
}

/// The namespace a request is about.
#[must_use]
pub(super) fn namespace(query: &Query) -> &str {
    match query.text("namespace") {
        "" => DEFAULT_NAMESPACE,
        name => name,
    }
}

/// Whether JSON is to be indented.
#[must_use]
pub(super) fn pretty(query: &Query) -> bool {
    query.get("pretty").is_some_and(|value| value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(raw: &str) -> Result<ReadOptions, Refusal> {
        ReadOptions::read(&Query::parse(Some(raw))?)
    }

    #[test]
    fn every_option_is_read() {
        let all = "index=7&wait=60000ms&stale&namespace=%2A&prefix=a+b&per_page=3&next_token=t\
            &filter=ID%3D%3Dx&reverse=true";
        let wanted = fields_of(&ReadOptions {
            index: 7,
            wait: 60_000_000_000,
            namespace: "*".to_owned(),
            prefix: "a b".to_owned(),
            per_page: 3,
            next_token: "t".to_owned(),
            filter: "ID==x".to_owned(),
            reverse: true,
            stale: true,
            ..ReadOptions::default()
        });
        assert_eq!(fields_of(&options(all).unwrap()), wanted);
        let none = fields_of(&ReadOptions {
            namespace: "default".to_owned(),
            ..ReadOptions::default()
        });
        assert_eq!(fields_of(&options("").unwrap()), none);
        // Each by itself changes its own field and no other.
        for part in all.split('&') {
            let one = fields_of(&options(part).unwrap());
            let changed = one.iter().zip(&none).filter(|(one, none)| one != none);
            assert_eq!(changed.count(), 1, "{part}");
        }
        assert!(!options("reverse=1").unwrap().reverse);
        assert!(!options("stale=false").unwrap().stale);
    }

    /// Every field by name: a new one is not forgotten here.
    fn fields_of(options: &ReadOptions) -> Vec<String> {
        let ReadOptions {
            query: _,
            index,
            wait,
            namespace,
            prefix,
            per_page,
            next_token,
            filter,
            reverse,
            stale,
            part,
            later,
        } = options;
        assert!(part.is_none() && !later, "no parameter says that");
        let numbers = [index.to_string(), wait.to_string(), per_page.to_string()];
        let texts = [namespace, prefix, next_token, filter].map(String::clone);
        let flags = [reverse, stale].map(bool::to_string);
        numbers.into_iter().chain(texts).chain(flags).collect()
    }

    #[test]
    fn what_nobody_asked_for_is_ignored() {
        let query = Query::parse(Some("a=1&b=2&%63=3&per_page=3&filter=x&a=4&pretty")).unwrap();
        assert_eq!(query.ignored(), ["a", "b", "c", "per_page", "filter", "a"]);
        assert_eq!((query.text("a"), query.get("none")), ("1", None));
        assert_eq!(query.all("c").count(), 1);
        let options = ReadOptions::read(&query).unwrap();
        assert_eq!(query.ignored(), ["b", "per_page", "filter", "a"], "twice");
        assert_eq!((options.per_page(), options.filter()), (3, "x"));
        query.ignore(["header X".to_owned()]);
        query.ignore(["header X".to_owned()]);
        assert_eq!(query.ignored(), ["b", "a", "header X"]);
    }

    #[test]
    fn an_option_counts_as_acted_on_once_it_is_asked_for() {
        type Ask = fn(&ReadOptions) -> String;
        let all = "index=7&wait=1s&prefix=a&per_page=3&next_token=t&filter=ID&reverse=true";
        let names = Query::parse(Some(all)).unwrap().ignored();
        let asks: [(&str, &str, Ask); 7] = [
            ("index", "7", |options| options.index().to_string()),
            ("wait", "1000000000", |options| options.wait().to_string()),
            ("prefix", "a", |options| options.prefix().to_owned()),
            ("per_page", "3", |options| options.per_page().to_string()),
            ("next_token", "t", |options| options.next_token().to_owned()),
            ("filter", "ID", |options| options.filter().to_owned()),
            ("reverse", "true", |options| options.reverse().to_string()),
        ];
        assert_eq!(names.len(), asks.len());
        for (name, value, ask) in asks {
            let query = Query::parse(Some(all)).unwrap();
            let options = ReadOptions::read(&query).unwrap();
            assert_eq!(query.ignored(), names, "{name}: reading them is not asking");
            assert_eq!(ask(&options), value, "{name}");
            let others: Vec<String> = names
                .iter()
                .filter(|other| *other != name)
                .cloned()
                .collect();
            assert_eq!(query.ignored(), others, "{name}");
        }
    }

    #[test]
    fn bad_options_are_refused_with_nomads_texts() {
        for (raw, text) in [
            ("wait=soon", "Invalid wait time"),
            ("index=-1", "Invalid index"),
            (
                "stale=perhaps",
                "Expect `true` or `false` for `stale` query string parameter",
            ),
            (
                "per_page=x",
                "Expect a number for `per_page` query string parameter",
            ),
            ("prefix=%zz", "invalid URL escape in \"%zz\""),
            ("prefix=%ff", "invalid URL escape in \"%ff\""),
        ] {
            let error = options(raw).unwrap_err();
            assert_eq!(
                (crate::net::status(error.code), error.message.as_str()),
                (400, text),
                "{raw}"
            );
        }
    }

    #[test]
    fn whether_a_wish_is_plain_is_asked_of_nobody() {
        for (raw, plain) in [
            ("", true),
            ("a=b", true),
            ("filter=ID", false),
            ("diffs=1", false),
        ] {
            let query = Query::parse(Some(raw)).unwrap();
            let options = ReadOptions::read(&query).unwrap();
            let before = query.ignored();
            assert_eq!(options.is_plain(), plain, "{raw}");
            assert_eq!(query.ignored(), before, "{raw}");
        }
    }
}
