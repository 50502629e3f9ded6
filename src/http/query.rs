//! Query strings: decoding, and the parameters every read understands (HTTP API 0.4).

use drover_events::gojson::parse_duration;

use crate::error::ApiError;

/// The decoded parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the part of a target behind the question mark.
    ///
    /// # Errors
    /// 400 for a broken escape or text that is not UTF-8.
    pub(super) fn parse(raw: Option<&str>) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for part in raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            pairs.push((decode(key, true)?, decode(value, true)?));
        }
        Ok(Self(pairs))
    }

    /// The names of all parameters, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// The first value of a parameter.
    #[must_use]
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    /// The first value, empty when absent.
    #[must_use]
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Every value of a repeated parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    /// A boolean extra as Go reads it, false when absent or empty.
    ///
    /// # Errors
    /// 500 with Nomad's text.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        self.flag_or(name, false)
    }

    /// As [`Query::flag`] with another default.
    ///
    /// # Errors
    /// 500 with Nomad's text.
    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.text(name) {
            "" => Ok(default),
            raw => parse_bool(raw).ok_or_else(|| {
                ApiError::refused(format!(
                    "Failed to parse value of \"{name}\" ({raw}) as a bool: \
                     strconv.ParseBool: parsing \"{raw}\": invalid syntax"
                ))
            }),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// 400 that names the parameter.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            raw => raw.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!("failed to parse {name}: {raw:?} is not a number"))
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

/// Undoes percent-encoding; in queries a plus is a space.
///
/// # Errors
/// 400 for a broken escape or text that is not UTF-8.
pub(super) fn decode(raw: &str, plus: bool) -> Result<String, ApiError> {
    if !raw.bytes().any(|b| b == b'%' || (plus && b == b'+')) {
        return Ok(raw.to_owned());
    }
    let bad = || ApiError::bad_request(format!("invalid URL escape in {raw:?}"));
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                let value = high.zip(low).map(|(h, l)| h * 16 + l).ok_or_else(bad)?;
                u8::try_from(value).map_err(|_| bad())?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| bad())
}

/// What every read understands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// `index`: answer only once the resource is beyond it.
    pub(super) index: u64,
    /// `wait`, nanoseconds; 0 means the default.
    pub(super) wait: i64,
    /// `namespace`, `default` when absent.
    pub(super) namespace: String,
    /// `prefix` of the id.
    pub(super) prefix: String,
    /// Rows on a page, 0 for all.
    pub(super) per_page: u32,
    /// Where the page starts.
    pub(super) next_token: String,
    /// The filter expression.
    pub(super) filter: String,
    /// Descending order.
    pub(super) reverse: bool,
    /// Whatever this server knows will do, whether or not there is a leader.
    pub(super) stale: bool,
    /// Bytes after which a list is sent on; the usual number without it.
    pub(super) part: Option<usize>,
    /// The list was begun before: this is a further part of it.
    pub(super) later: bool,
}

impl Options {
    /// Reads them off a query.
    ///
    /// # Errors
    /// 400 with Nomad's texts.
    pub(super) fn read(query: &Query) -> Result<Self, ApiError> {
        let bad = ApiError::bad_request;
        let wait = match query.text("wait") {
            "" => 0,
            raw => parse_duration(raw).ok_or_else(|| bad("Invalid wait time"))?,
        };
        let index = match query.text("index") {
            "" => 0,
            raw => raw.parse().map_err(|_| bad("Invalid index"))?,
        };
        let stale = match query.get("stale") {
            None => false,
            Some("") => true,
            Some(raw) => parse_bool(raw).ok_or_else(|| {
                bad("Expect `true` or `false` for `stale` query string parameter")
            })?,
        };
        let per_page = match query.text("per_page") {
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
            prefix: query.text("prefix").to_owned(),
            per_page,
            next_token: query.text("next_token").to_owned(),
            filter: query.text("filter").to_owned(),
            reverse: query.text("reverse") == "true",
            stale,
            part: None,
            later: false,
        })
    }
}

/// The namespace a request is about.
#[must_use]
pub(super) fn namespace(query: &Query) -> &str {
    match query.text("namespace") {
        "" => "default",
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

    fn options(raw: &str) -> Result<Options, ApiError> {
        Options::read(&Query::parse(Some(raw))?)
    }

    #[test]
    fn every_option_is_read() {
        let all = "index=7&wait=60000ms&stale&namespace=%2A&prefix=a+b&per_page=3&next_token=t\
            &filter=ID%3D%3Dx&reverse=true";
        // Every field by name: a new one is not forgotten here.
        let wanted = Options {
            index: 7,
            wait: 60_000_000_000,
            namespace: "*".to_owned(),
            prefix: "a b".to_owned(),
            per_page: 3,
            next_token: "t".to_owned(),
            filter: "ID==x".to_owned(),
            reverse: true,
            stale: true,
            part: None,
            later: false,
        };
        assert_eq!(options(all).unwrap(), wanted);
        let none = Options {
            namespace: "default".to_owned(),
            ..Options::default()
        };
        assert_eq!(options("").unwrap(), none);
        // Each by itself changes its own field and no other.
        for part in all.split('&') {
            let one = options(part).unwrap();
            assert_ne!(one, none, "{part} is not read");
        }
        assert!(!options("reverse=1").unwrap().reverse);
        assert!(!options("stale=false").unwrap().stale);
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
                (error.code.status(), error.message.as_str()),
                (400, text),
                "{raw}"
            );
        }
    }
}
