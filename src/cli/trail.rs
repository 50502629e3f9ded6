//! Lists that are read from one end, page by page: what `audit`, `audit requests` and `state diff`
//! have in common, and the span of a trail that the first two show.

use super::answer;
use super::client::{PastRetention, Reply};
use super::out::Out;
use super::show::{Format, time};
use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// Which part is shown.
#[derive(Debug, clap::Args)]
pub(super) struct Span {
    /// From this index, RFC 3339 time, or so long ago (-5m)
    #[arg(
        long,
        value_name = "MOMENT",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) since: String,
    /// Up to this index, RFC 3339 time, or so long ago
    #[arg(
        long,
        value_name = "MOMENT",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) until: String,
    /// Oldest first
    #[arg(long)]
    pub(super) oldest: bool,
    /// Entries at most; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// A page of a trail.
pub(super) struct TrailPage {
    /// What is on it, as it came: it may be printed so.
    pub(super) entries: Vec<Json>,
    /// Where the next one begins; empty after the last.
    pub(super) next: String,
    /// Since when the past is kept, where something of it was dropped.
    pub(super) kept_since: Option<PastRetention>,
}

impl TrailPage {
    /// The page that the agent answered with.
    pub(super) fn of(reply: Reply) -> Result<TrailPage> {
        Ok(TrailPage {
            entries: reply.read()?,
            next: reply.next_token,
            kept_since: reply.kept_since,
        })
    }
}

/// Says since when the past is kept, where something of it was dropped.
pub(super) fn say_kept_since(kept: Option<&PastRetention>, out: &Out) {
    let Some(PastRetention { since, former }) = kept else {
        return;
    };
    let since = time(*since);
    out.line(&match former.as_str() {
        "" => format!("\nWhat happened before {since} is no longer kept."),
        dir => format!(
            "\nA backup was restored at {since}. What happened before is kept on the server: \
             `drover log events -data-dir {dir}` reads it there."
        ),
    });
}

/// The parameters of a query that were given.
pub(super) fn given<'a, const N: usize>(
    query: [(&'static str, &'a str); N],
) -> Vec<(&'static str, &'a str)> {
    let query = query.into_iter();
    query.filter(|(_, value)| !value.is_empty()).collect()
}

impl Span {
    /// Whether the newest come first, as a parameter of a query.
    pub(super) fn reverse(&self) -> &'static str {
        if self.oldest { "" } else { "true" }
    }

    /// Prints the span: each entry as `show` does, or all of them in the requested format. `page`
    /// returns so many entries behind a token, `most` at a time.
    pub(super) async fn print<E: DeserializeOwned>(
        &self,
        most: usize,
        (format, out): (&Format, &Out),
        page: impl AsyncFnMut(usize, &str) -> Result<TrailPage>,
        show: impl Fn(E),
    ) -> Result<()> {
        let printed = print_pages((self.limit, most), (format, out), page, show).await?;
        if format.is_given() {
            return Ok(());
        }
        if printed.entries == 0 {
            out.line("No entries found");
        }
        if !printed.next.is_empty() {
            let flag = if self.oldest { "-since" } else { "-until" };
            out.line(&format!(
                "\nThere is more: repeat with {flag} {}, or with -limit 0 for everything.",
                printed.next
            ));
        }
        say_kept_since(printed.kept_since.as_ref(), out);
        Ok(())
    }
}

/// What was printed of a list.
pub(super) struct Printed {
    /// How many entries.
    pub(super) entries: usize,
    /// Where the rest begins; empty where no rest is left.
    pub(super) next: String,
    kept_since: Option<PastRetention>,
}

/// Prints `limit` entries of a list that comes in pages, 0 for all: each as `show` does, or all of
/// them in the requested format. `page` returns so many behind a token, `most` at a time.
pub(super) async fn print_pages<E: DeserializeOwned>(
    (limit, most): (usize, usize),
    (format, out): (&Format, &Out),
    mut page: impl AsyncFnMut(usize, &str) -> Result<TrailPage>,
    show: impl Fn(E),
) -> Result<Printed> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let whole = format.is_given();
    let mut all = Vec::new();
    let mut printed = Printed {
        entries: 0,
        next: String::new(),
        kept_since: None,
    };
    loop {
        let wanted = most.min(limit - printed.entries);
        let TrailPage {
            entries,
            next,
            kept_since,
        } = page(wanted, &printed.next).await?;
        // A page may be longer than what was requested.
        printed.entries = limit.min(printed.entries + entries.len());
        printed.next = next;
        printed.kept_since = kept_since;
        match whole {
            true => all.extend(entries),
            false => {
                let entries = entries.into_iter();
                entries.for_each(|entry| show_one::<E>(entry, &show, out));
            }
        }
        if printed.next.is_empty() || printed.entries == limit {
            break;
        }
    }
    if whole {
        format.print(&Json::from(all), out)?;
    }
    Ok(printed)
}

/// Shows an entry; for one that cannot be read, its index if known and that it is unreadable.
fn show_one<E: DeserializeOwned>(entry: Json, show: impl Fn(E), out: &Out) {
    let index = answer::index(&entry);
    match answer::of(entry) {
        Ok(entry) => show(entry),
        Err(error) => {
            let place = index.map(|index| format!("{index:>8}  "));
            let why = answer::unreadable(&error);
            out.line(&format!("{}{why}", place.unwrap_or_default()));
        }
    }
}
