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

/// Renders a page of rows that come in the list's order.
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
    let mut pieces = Pieces::default();
    for row in rows {
        let row = row.map_err(storage)?;
        let matches = || match &filter {
            None => Ok(true),
            Some(filter) => filter
                .matches(&row)
                .map_err(|e| ApiError::bad_request(format!("failed to read result page: {e}"))),
        };
        match pager.offer(token(&row), matches)? {
            Step::Skip => {}
            Step::Take => pieces.push(&show(row)?)?,
            Step::Stop => break,
        }
    }
    let mut answer = Answer::pieces(pieces.finish());
    answer.next_token = pager.next_token().map(ToString::to_string);
    Ok(answer)
}
