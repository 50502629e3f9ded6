//! Lists that are kept rendered: allocations, nodes, jobs in their plain form.
//!
//! A plain request (no filter, no prefix, no extra fields) is answered with pieces that all
//! requests share, compressed once if a caller wants them so; everything else goes through
//! `list.rs`. How a row looks in a list is known where its resource is (`ready_list.rs` there);
//! keeping the lists up is the projections' work.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use drover_events::gojson;
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_projections::key::KeyBuf;
use drover_projections::lists::{List, ListPart, ListSnapshot, Listed, Page};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::view::View;
use drover_projections::{Prefix, Scan, StorageError};
use serde::Serialize;

use super::answer::Answer;
use super::front::Read;
use super::gzip::{self, Packed};
use super::list::storage;
use super::query::ReadOptions;
use super::rows::is_uuid;
use super::sight::SeesAll;
use crate::error::Refusal;

/// A list with Nomad's tokens.
pub(super) trait Ready: List {
    /// The form of its tokens.
    const TOKEN: TokenKind;
    /// Whether its rows have namespaces; places then begin with them.
    const SPACED: bool;

    /// The place a token names, in a namespace.
    fn place(namespace: &str, token: &PageToken) -> KeyBuf;

    /// The token of a place.
    fn token(place: &[u8]) -> Option<PageToken>;
}

/// The answer to a plain request of a caller that may see all of it; none when rows must be walked
/// after all.
///
/// # Errors
/// 400 for a token of another form, 500 when the rows cannot be read.
pub(super) fn answer<L: Ready>(
    read: &Read<'_>,
    _proof: SeesAll,
) -> Result<Option<Answer>, Refusal> {
    let options = read.options;
    let everywhere = options.namespace == "*";
    if read.view.is_past()
        // What was begun from rows goes on from rows.
        || options.later
        || !begins::<L>(options)
        || !options.filter().is_empty()
        || !options.prefix().is_empty()
        || (L::SPACED
            && everywhere
            && L::TOKEN == TokenKind::IndexId
            && several(read.view.unfiltered())?)
    {
        return Ok(None);
    }
    match read.api.projections.list::<L>().map_err(storage)? {
        Listed::Ready(list) => page_of::<L>(read, &list).map(Some),
        Listed::TooLarge => Ok(None),
        Listed::Busy(waiter) => Ok(Some(Answer::later(waiter))),
    }
}

/// Whether a page begins where its place says: places are keys, in which an id that is no UUID
/// comes elsewhere than as the text that a token is.
fn begins<L: Ready>(options: &ReadOptions) -> bool {
    match options.next_token() {
        "" => true,
        token => match PageToken::parse(L::TOKEN, token) {
            Ok(PageToken::Id(id) | PageToken::IndexId(_, id)) => is_uuid(&id),
            Ok(PageToken::NamespaceId(..)) | Err(_) => true,
        },
    }
}

/// The page of a list that is requested.
fn page_of<L: Ready>(read: &Read<'_>, list: &ListSnapshot) -> Result<Answer, Refusal> {
    let options = read.options;
    let everywhere = options.namespace == "*";
    let prefix = match options.namespace.as_str() {
        name if L::SPACED && !everywhere => Prefix::new().str(name),
        _ => Prefix::new(),
    };
    let from = match options.next_token() {
        "" => None,
        token => {
            let token = PageToken::parse(L::TOKEN, token).map_err(|e| {
                Refusal::bad_request(format!("failed to create result paginator: {e}"))
            })?;
            let namespace = if everywhere {
                DEFAULT_NAMESPACE
            } else {
                &options.namespace
            };
            Some(L::place(namespace, &token))
        }
    };
    let limit = match options.per_page() {
        0 => usize::MAX,
        rows => usize::try_from(rows).unwrap_or(usize::MAX),
    };
    let page = if options.reverse() {
        list.page_back(prefix.as_bytes(), from.as_deref(), limit)
    } else {
        list.page(prefix.as_bytes(), from.as_deref(), limit)
    };
    let mut answer = rendered(&page, read.wants_gzip());
    answer.next_token = page
        .next
        .as_deref()
        .and_then(L::token)
        .map(|token| token.to_string());
    Ok(answer.at(list.table_index()))
}

/// The answer to a plain request for a list that is ready, from memory alone.
pub(super) fn near<L: Ready>(read: &Read<'_>, _proof: SeesAll) -> Option<Answer> {
    let options = read.options;
    let plain = options.filter().is_empty() && options.prefix().is_empty();
    let across = options.namespace == "*" && L::SPACED;
    if !plain || across || !begins::<L>(options) {
        return None;
    }
    let list = read.api.projections.list_if_ready::<L>()?;
    page_of::<L>(read, &list).ok()
}

/// Whether there is more than one namespace, so that order by creation runs across them.
fn several(view: &View) -> Result<bool, Refusal> {
    let first = view.scan::<Namespaces>(Scan::all()).take(2);
    Ok(first.collect::<Result<Vec<_>, _>>().map_err(storage)?.len() > 1)
}

fn rendered(page: &Page, gzip: bool) -> Answer {
    let size: usize = page.parts.iter().map(|part| part.bytes().len()).sum();
    if gzip && size as u64 >= gzip::MINIMUM {
        return packed(page);
    }
    let mut pieces = Vec::with_capacity(page.parts.len() * 2 + 1);
    pieces.push(Bytes::from_static(b"["));
    for (n, part) in page.parts.iter().enumerate() {
        if n > 0 {
            pieces.push(Bytes::from_static(b","));
        }
        pieces.push(part.bytes().clone());
    }
    pieces.push(Bytes::from_static(b"]"));
    Answer::pieces(pieces)
}

/// The page compressed; chunks keep their compressed form.
fn packed(page: &Page) -> Answer {
    static MARKS: OnceLock<[Packed; 3]> = OnceLock::new();
    let [open, comma, close] = MARKS.get_or_init(|| [b"[", b",", b"]"].map(|m| Packed::new(m)));
    let packed = |part: &ListPart| part.derived(|bytes| Packed::new(bytes));
    let parts: Vec<Arc<Packed>> = page.parts.iter().map(packed).collect();
    let mut pieces = vec![open];
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            pieces.push(comma);
        }
        pieces.push(part);
    }
    pieces.push(close);
    let mut answer = Answer::pieces(gzip::join(pieces));
    answer.gzipped = true;
    answer
}

/// Writes what a list shows of a row.
///
/// # Errors
/// When it has no form in JSON.
pub(super) fn write<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), StorageError> {
    gojson::to_writer(out, value).map_err(|_| StorageError::Damaged {
        what: "row (it cannot be shown)",
        key: String::new(),
    })
}
