//! Lists: filter, pages and rendering, the same for every resource.

use drover_projections::filter::{self, FILTER_VERSION, Fields, Filter};
use drover_projections::page::{PageStep, PageToken, Pager, TokenKind};
use drover_projections::{Index, Scan, StorageError, Table};
use serde::Serialize;

use super::answer::Answer;
use super::front::Read;
use super::pieces::Pieces;
use super::query::ReadOptions;
use super::sight::{Keyed, Rows, Unchecked};
use crate::error::{Refusal, chain};

/// Compiles the filter of a request, if it has one.
///
/// # Errors
/// 400 with Nomad's prefix.
pub(super) fn filter(options: &ReadOptions) -> Result<Option<Filter>, Refusal> {
    if options.filter().is_empty() {
        return Ok(None);
    }
    filter::compile(options.filter(), FILTER_VERSION)
        .map(Some)
        .map_err(|e| {
            Refusal::bad_request(format!(
                "failed to create result paginator: failed to read filter expression: {e}"
            ))
        })
}

/// The page that a request selects.
///
/// # Errors
/// 400 for a token of another form.
pub(super) fn pager(options: &ReadOptions, kind: TokenKind) -> Result<Pager, Refusal> {
    let start = match options.next_token() {
        "" => None,
        token => Some(PageToken::parse(kind, token).map_err(|e| {
            Refusal::bad_request(format!("failed to create result paginator: {e}"))
        })?),
    };
    Ok(Pager::new(start, options.per_page(), options.reverse()))
}

/// A storage failure as the client reads it.
#[must_use]
pub(super) fn storage(error: StorageError) -> Refusal {
    let at_hand = !matches!(error, StorageError::WouldBlock);
    let error = chain(&error);
    // What is not in memory is read again by a thread that may wait for it.
    if at_hand {
        tracing::error!(error, "the projections cannot be read");
    }
    Refusal::internal(format!("state store error: {error}"))
}

/// Whether a filter, if there is one, leaves a row.
///
/// # Errors
/// 400 with Nomad's prefix where the filter does not fit the row.
pub(super) fn matches<R: Fields>(filter: Option<&Filter>, row: &R) -> Result<bool, Refusal> {
    let matches = filter.map_or(Ok(true), |filter| filter.matches(row));
    matches.map_err(|e| Refusal::bad_request(format!("failed to read result page: {e}")))
}

/// Bytes after which a page ends, or a list that comes whole is sent on.
pub(super) fn most(options: &ReadOptions) -> usize {
    match options.per_page() {
        0 => part(options),
        _ => LONGEST_PAGE,
    }
}

/// Bytes after which a list without pages is sent on.
pub(super) fn part(options: &ReadOptions) -> usize {
    options.part.unwrap_or(PART)
}

/// The list that a request begins, or goes on with.
pub(super) fn begun(options: &ReadOptions) -> Pieces {
    match options.later {
        true => Pieces::later(),
        false => Pieces::default(),
    }
}

/// Bytes that are rendered before they are sent.
pub(super) const PART: usize = 1 << 20;
/// Bytes of a page at most: a longer one ends early and names the next.
pub(super) const LONGEST_PAGE: usize = 8 << 20;

/// Renders a page of rows that come in the list's order. A list that was requested whole is begun
/// only, if it is long: the answer names the row that it goes on with.
///
/// # Errors
/// 400 for a filter or token that is none, 500 when the rows cannot be read.
pub(super) fn render<R, S>(
    options: &ReadOptions,
    kind: TokenKind,
    rows: impl Iterator<Item = Result<R, StorageError>>,
    token: impl Fn(&R) -> PageToken,
    show: impl Fn(R) -> Result<S, Refusal>,
) -> Result<Answer, Refusal>
where
    R: Fields,
    S: Serialize,
{
    let filter = filter(options)?;
    let mut pager = pager(options, kind)?;
    let (whole, most) = (options.per_page() == 0, most(options));
    let mut pieces = begun(options);
    let mut full = None;
    for row in rows {
        let row = row.map_err(storage)?;
        let matches = || matches(filter.as_ref(), &row);
        let at = token(&row);
        match pager.offer(&at, matches)? {
            PageStep::Skip => {}
            PageStep::Take if pieces.bytes() >= most => {
                full = Some(at.to_string());
                break;
            }
            PageStep::Take => pieces.push(&show(row)?)?,
            PageStep::Stop => break,
        }
    }
    if let (true, Some(rest)) = (whole, &full) {
        return Ok(Answer::begun(pieces, rest.clone()));
    }
    let mut answer = Answer::pieces(pieces.finish());
    answer.next_token = full.or_else(|| pager.next_token().map(ToString::to_string));
    Ok(answer)
}

/// The rows of a range of an index; of a list that was begun before, those that are left.
///
/// # Errors
/// 500 where the list was not begun here.
pub(super) fn of_index<'v, I: Index>(
    read: &'v Read<'_>,
    scan: Scan,
) -> Result<Unchecked<'v, Keyed<<I::Table as Table>::Row>>, Refusal> {
    let scan = left(read.options, scan)?;
    Ok(read.view.keyed_by::<I>(scan))
}

/// The same of a table.
///
/// # Errors
/// As [`of_index`].
pub(super) fn of_table<'v, T: Table>(
    read: &'v Read<'_>,
    scan: Scan,
) -> Result<Unchecked<'v, Keyed<T::Row>>, Refusal> {
    let scan = left(read.options, scan)?;
    Ok(read.view.keyed::<T>(scan))
}

fn left(options: &ReadOptions, scan: Scan) -> Result<Scan, Refusal> {
    Ok(match options.later {
        true => scan.after(&place(options.place())?),
        false => scan,
    })
}

/// The key that a part of an answer ended with.
///
/// # Errors
/// 500 where it is none: only answers that were begun here go on.
pub(super) fn place(rest: &str) -> Result<Vec<u8>, Refusal> {
    hex::decode(rest)
        .ok()
        .ok_or_else(|| Refusal::internal("a list goes on where it never was"))
}

/// Renders a list that has no pages, as those of what belongs to one object: what `show` leaves
/// out is not part of it. If it is long it is begun only, and goes on while it is sent.
///
/// # Errors
/// 400 for a filter that is none, 500 when the rows cannot be read.
pub(super) fn render_whole<R, S>(
    options: &ReadOptions,
    rows: Rows<'_, Keyed<R>>,
    mut show: impl FnMut(R) -> Result<Option<S>, Refusal>,
) -> Result<Answer, Refusal>
where
    S: Serialize,
{
    let (most, mut pieces) = (part(options), begun(options));
    for row in rows {
        let (key, row) = row.map_err(storage)?;
        if let Some(shown) = show(row)? {
            pieces.push(&shown)?;
        }
        if pieces.bytes() >= most {
            return Ok(Answer::begun(pieces, hex::encode(&key)));
        }
    }
    Ok(Answer::pieces(pieces.finish()))
}
