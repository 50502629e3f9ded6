//! Lists: filter, pages and rendering, the same for every resource.

use drover_projections::StorageError;
use drover_projections::filter::{self, FILTER_VERSION, Fields, Filter};
use drover_projections::page::{PageToken, Pager, Step, TokenKind};
use serde::Serialize;

use super::answer::Answer;
use super::pieces::Pieces;
use super::query::Options;
use crate::error::{ApiError, chain};

/// Compiles the filter of a request, if it has one.
///
/// # Errors
/// 400 with Nomad's prefix.
pub(super) fn filter(options: &Options) -> Result<Option<Filter>, ApiError> {
    if options.filter.is_empty() {
        return Ok(None);
    }
    filter::compile(&options.filter, FILTER_VERSION)
        .map(Some)
        .map_err(|e| {
            ApiError::bad_request(format!(
                "failed to create result paginator: failed to read filter expression: {e}"
            ))
        })
}

/// The page a request asks for.
///
/// # Errors
/// 400 for a token of another form.
pub(super) fn pager(options: &Options, kind: TokenKind) -> Result<Pager, ApiError> {
    let start = match options.next_token.as_str() {
        "" => None,
        token => Some(PageToken::parse(kind, token).map_err(|e| {
            ApiError::bad_request(format!("failed to create result paginator: {e}"))
        })?),
    };
    Ok(Pager::new(start, options.per_page, options.reverse))
}

/// A storage failure as the client reads it.
#[must_use]
pub(super) fn storage(error: StorageError) -> ApiError {
    let error = chain(&error);
    tracing::error!(error, "the projections cannot be read");
    ApiError::internal(format!("state store error: {error}"))
}

/// Bytes that are rendered before they are sent.
pub(super) const PART: usize = 1 << 20;
/// Bytes of a page at most: a longer one ends early and names the next.
pub(super) const LONGEST_PAGE: usize = 8 << 20;

/// Renders a page of rows that come in the list's order. A list that was asked for whole is begun
/// only, if it is long: the answer names the row that it goes on with.
///
/// # Errors
/// 400 for a filter or token that is none, 500 when the rows cannot be read.
pub(super) fn render<R, S>(
    options: &Options,
    kind: TokenKind,
    rows: impl Iterator<Item = Result<R, StorageError>>,
    token: impl Fn(&R) -> PageToken,
    show: impl Fn(R) -> Result<S, ApiError>,
) -> Result<Answer, ApiError>
where
    R: Fields,
    S: Serialize,
{
    let filter = filter(options)?;
    let mut pager = pager(options, kind)?;
    let whole = options.per_page == 0;
    let most = match whole {
        true => options.part.unwrap_or(PART),
        false => LONGEST_PAGE,
    };
    let mut pieces = match options.later {
        true => Pieces::later(),
        false => Pieces::default(),
    };
    let mut full = None;
    for row in rows {
        let row = row.map_err(storage)?;
        let matches = || match &filter {
            None => Ok(true),
            Some(filter) => filter
                .matches(&row)
                .map_err(|e| ApiError::bad_request(format!("failed to read result page: {e}"))),
        };
        let at = token(&row);
        match pager.offer(&at, matches)? {
            Step::Skip => {}
            Step::Take if pieces.bytes() >= most => {
                full = Some(at.to_string());
                break;
            }
            Step::Take => pieces.push(&show(row)?)?,
            Step::Stop => break,
        }
    }
    if whole && full.is_some() {
        let mut answer = Answer::pieces(pieces.part());
        answer.rest = full;
        return Ok(answer);
    }
    let mut answer = Answer::pieces(pieces.finish());
    answer.next_token = full.or_else(|| pager.next_token().map(ToString::to_string));
    Ok(answer)
}
