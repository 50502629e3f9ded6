//! What was answered as text for people: times, short ids, sizes, `-json` and `-t`.

use super::client::{Client, Query, Reply};
use super::out::Out;
use super::template;
use anyhow::{Result, bail};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// `-json` and `-t`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Format {
    /// Print the API's object as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print through a Go template, e.g. '{{range .}}{{.ID}} {{end}}'
    #[arg(short = 't', value_name = "TEMPLATE")]
    pub(super) template: Option<String>,
}

impl Format {
    /// Whether the user named a form.
    pub(super) fn is_given(&self) -> bool {
        self.json || self.template.is_some()
    }

    /// Whether there is such a form: commands that change something before they print call this
    /// first.
    pub(super) fn check(&self) -> Result<()> {
        match (&self.template, self.json) {
            (Some(_), true) => bail!("Both json and template formatting are not allowed"),
            (Some(text), false) => template::check(text),
            (None, _) => Ok(()),
        }
    }

    /// Prints `value` if the user named a form; returns whether it did.
    pub(super) fn print(&self, value: &Json, out: &Out) -> Result<bool> {
        self.check()?;
        match &self.template {
            Some(text) => out.exact(&template::render(text, value)?),
            None if self.json => out.exact(&pretty(value)),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// An answer, to be shown as text; none where it was printed in the form that the user named.
    pub(super) fn take<T: DeserializeOwned>(&self, reply: &Reply, out: &Out) -> Result<Option<T>> {
        if self.is_given() {
            self.print(&reply.json()?, out)?;
            return Ok(None);
        }
        reply.read().map(Some)
    }

    /// What a path answers, to be shown as text; none where it was printed in the form that the
    /// user named. The moment of the past that it shows is printed before it.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        client: &Client,
        (path, query): (&str, Query<'_>),
        failed: &'static str,
        out: &Out,
    ) -> Result<Option<T>> {
        let reply = client.get(path, query).await;
        let reply = reply.map_err(|err| err.context(failed))?;
        let found = self.take(&reply, out)?;
        if found.is_some() {
            client.report_moment(out);
        }
        Ok(found)
    }
}

/// JSON with four spaces, as Nomad's commands print it.
pub(super) fn pretty(value: &Json) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => value.to_string(),
    }
}

/// An id, cut to eight characters unless the output is verbose.
pub(super) fn short(id: &str, verbose: bool) -> String {
    if verbose {
        id.to_owned()
    } else {
        id.chars().take(8).collect()
    }
}

/// The text for an event that changed nothing, and why.
pub(super) fn refused(reason: &str) -> String {
    format!("REFUSED: {reason}")
}

/// A number of things: `1 key`, `2 keys`, `2 entries`. For words whose plural ends in -s.
pub(super) fn counted(count: impl TryInto<u64>, word: &str) -> String {
    match (count.try_into().unwrap_or(u64::MAX), word.strip_suffix('y')) {
        (1, _) => format!("1 {word}"),
        (count, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => {
            format!("{count} {stem}ies")
        }
        (count, _) => format!("{count} {word}s"),
    }
}

/// A number of bytes: `12 B`, `4.0 KiB`, `17 MiB`.
pub(super) fn size(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // one digit is shown
    let mut amount = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if amount < 1024.0 {
            break;
        }
        (amount, unit) = (amount / 1024.0, larger);
    }
    match unit {
        "B" => format!("{bytes} B"),
        unit if amount < 10.0 => format!("{amount:.1} {unit}"),
        unit => format!("{amount:.0} {unit}"),
    }
}

/// Now, in Unix nanoseconds.
pub(super) fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0)
}

/// A time in Unix nanoseconds as `2006-01-02T15:04:05Z07:00`.
pub(super) fn time(ns: i64) -> String {
    if ns == 0 {
        return String::new();
    }
    let Ok(stamp) = Timestamp::from_nanosecond(ns.into()) else {
        return String::new();
    };
    let zoned = stamp.to_zoned(TimeZone::system());
    if zoned.offset().is_zero() {
        zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}

/// A time in Unix nanoseconds as `2006-01-02T15:04:05Z07:00`; `N/A` for zero.
pub(super) fn stamp(ns: i64) -> String {
    match ns > 0 {
        true => time(ns),
        false => "N/A".to_owned(),
    }
}

/// What to run for the next page: this command line, with the token that came.
pub(super) fn next_page(args: impl Iterator<Item = String>, token: &str) -> String {
    let mut words = vec!["drover".to_owned()];
    let mut is_token = false;
    for arg in args.skip(1) {
        let flag = arg.trim_start_matches('-');
        if std::mem::take(&mut is_token) {
            continue;
        }
        if arg.starts_with('-') && (flag == "page-token" || flag.starts_with("page-token=")) {
            is_token = flag == "page-token";
            continue;
        }
        words.push(
            match arg.contains(|c: char| c.is_whitespace() || "\"'*$".contains(c)) {
                true => format!("'{}'", arg.replace('\'', "'\\''")),
                false => arg,
            },
        );
    }
    // Flags come before what they are about.
    let at = words.iter().position(|w| w.starts_with('-'));
    let at = at.unwrap_or(words.len().min(3));
    words.insert(at, format!("-page-token {token}"));
    format!(
        "\nResults have been paginated. To get the next page run:\n\n{}",
        words.join(" ")
    )
}

/// How long ago: `5m12s ago`, with at most two units.
pub(super) fn ago(ns: i64, now: i64) -> String {
    if ns == 0 {
        return String::new();
    }
    let seconds = (now - ns).max(0) / 1_000_000_000;
    let units = [
        ("y", 31_536_000),
        ("mo", 2_592_000),
        ("d", 86_400),
        ("h", 3600),
        ("m", 60),
        ("s", 1),
    ];
    let mut out = String::new();
    let mut left = seconds;
    let mut shown = 0;
    for (name, size) in units {
        let count = left / size;
        left %= size;
        if count > 0 && shown < 2 {
            out.push_str(&format!("{count}{name}"));
            shown += 1;
        } else if shown == 1 {
            break;
        }
    }
    if out.is_empty() {
        "0s ago".to_owned()
    } else {
        out + " ago"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_users_know_them() {
        let second = 1_000_000_000;
        for (passed, expected) in [
            (0, "0s ago"),
            (59, "59s ago"),
            (312, "5m12s ago"),
            (3600, "1h ago"),
            (90_061, "1d1h ago"),
        ] {
            assert_eq!(ago(100 * second, (100 + passed) * second), expected);
        }
        assert_eq!(ago(0, 5), "");
        assert!(!stamp(1_795_267_121_143_299_055).contains('.'));
        assert_eq!(stamp(0), "N/A");
        assert_eq!(
            pretty(&serde_json::json!({"a": [1]})),
            "{\n    \"a\": [\n        1\n    ]\n}"
        );
    }

    #[test]
    fn numbers_agree_with_their_words() {
        for (count, word, shown) in [
            (1_u64, "key", "1 key"),
            (0, "key", "0 keys"),
            (3, "key", "3 keys"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (1, "more field", "1 more field"),
            (2, "more field", "2 more fields"),
        ] {
            assert_eq!(counted(count, word), shown);
        }
        assert_eq!(counted(1_usize, "byte"), "1 byte");
        assert_eq!(counted(3_i64, "byte"), "3 bytes");
        let sizes = [(12, "12 B"), (4096, "4.0 KiB"), (17 << 20, "17 MiB")];
        for (bytes, shown) in sizes {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn the_next_page_is_asked_for_with_the_same_flags() {
        let next = |line: &str| {
            let all: Vec<String> = line.split('|').map(str::to_owned).collect();
            let reported = next_page(all.into_iter(), "14.b");
            reported.lines().last().unwrap_or_default().to_owned()
        };
        assert_eq!(
            next("drover|eval|list|-per-page|1|-filter|Status == \"complete\"|-page-token|9.a"),
            "drover eval list -page-token 14.b -per-page 1 -filter 'Status == \"complete\"'"
        );
        assert_eq!(
            next("x|var|list|--page-token=9.a"),
            "drover var list -page-token 14.b"
        );
    }
}
