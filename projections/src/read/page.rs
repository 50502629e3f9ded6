//! Pages of a list: where one starts, when it is full, what the next one is called.
//!
//! Lists in the API and rule-shaped events in apply use this one pager, so a page that a command
//! names is the page that apply works on. It knows neither tables nor requests: it is given rows in
//! order, with each row's token.
//!
//! Invariants:
//! - A token names the **first row of the next page**, inclusive. If that row is gone by then, the
//!   page starts at the next row in order.
//! - Rows are passed through the filter before they are counted, so the token names a row that
//!   matched (unless the scan limit ended the page, see [`Pager::scan_limit`]).
//! - Same rows, same pager: same page. No clock and no state outside the pager.

use std::cmp::Ordering;
use std::fmt;

/// The order that a list is in, and thereby the form of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// `<ID>`: nodes, node pools, and any table listed by a prefix of the id.
    Id,
    /// `<namespace>.<id>`: jobs, variables, volumes, services.
    NamespaceId,
    /// `<index>.<ID>`: evaluations, allocations, deployments, tokens by create index; job statuses
    /// by modify index.
    IndexId,
}

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageToken {
    /// See [`TokenKind::Id`].
    Id(String),
    /// See [`TokenKind::NamespaceId`].
    NamespaceId(String, String),
    /// See [`TokenKind::IndexId`].
    IndexId(u64, String),
}

/// A token that is not of the list's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid next_token {token:?}: expected {expected}")]
pub struct BadToken {
    /// The token as it was given.
    pub token: String,
    /// The form that this list uses.
    pub expected: &'static str,
}

impl PageToken {
    /// Reads a token of the given form.
    ///
    /// # Errors
    /// [`BadToken`] when a part is missing or the index is not a number.
    pub fn parse(kind: TokenKind, token: &str) -> Result<PageToken, BadToken> {
        let bad = |expected| BadToken {
            token: token.to_owned(),
            expected,
        };
        match kind {
            TokenKind::Id => Ok(PageToken::Id(token.to_owned())),
            TokenKind::NamespaceId => {
                let (namespace, id) = token
                    .split_once('.')
                    .ok_or_else(|| bad("<namespace>.<id>"))?;
                Ok(PageToken::NamespaceId(namespace.to_owned(), id.to_owned()))
            }
            TokenKind::IndexId => {
                let (index, id) = token.split_once('.').ok_or_else(|| bad("<index>.<id>"))?;
                let index = index.parse().map_err(|_| bad("<index>.<id>"))?;
                Ok(PageToken::IndexId(index, id.to_owned()))
            }
        }
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageToken::Id(id) => f.write_str(id),
            PageToken::NamespaceId(namespace, id) => write!(f, "{namespace}.{id}"),
            PageToken::IndexId(index, id) => write!(f, "{index}.{id}"),
        }
    }
}

/// How a row is to be treated; the answer of [`Pager::offer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStep {
    /// The row lies before the page or did not match.
    Skip,
    /// The row belongs to the page.
    Take,
    /// The page is full: the row is the first of the next one. Offer no more.
    Stop,
}

/// One page in the making.
#[derive(Debug, Clone)]
pub struct Pager {
    start: Option<PageToken>,
    reverse: bool,
    per_page: u32,
    scan_limit: u64,
    taken: u64,
    scanned: u64,
    next: Option<PageToken>,
}

impl Pager {
    /// A page of at most `per_page` rows from `start` on; 0 means all of them. `reverse` says that
    /// rows come in descending order.
    pub fn new(start: Option<PageToken>, per_page: u32, reverse: bool) -> Pager {
        let scan_limit = u64::MAX;
        Pager {
            start,
            reverse,
            per_page,
            scan_limit,
            taken: 0,
            scanned: 0,
            next: None,
        }
    }

    /// Ends the page after looking at `rows` rows, matching or not, so that a filter which matches
    /// little cannot hold up apply. The next token then names the first row not looked at.
    #[must_use]
    pub fn scan_limit(mut self, rows: u64) -> Pager {
        self.scan_limit = rows;
        self
    }

    /// Where the page starts: a scan may begin there instead of at the table's start.
    pub fn start(&self) -> Option<&PageToken> {
        self.start.as_ref()
    }

    /// Whether rows are expected in descending order.
    pub fn reverse(&self) -> bool {
        self.reverse
    }

    /// Decides about the next row in order; `matches` is called only when its result counts.
    ///
    /// # Errors
    /// What `matches` says.
    pub fn offer<E>(
        &mut self,
        token: &PageToken,
        matches: impl FnOnce() -> Result<bool, E>,
    ) -> Result<PageStep, E> {
        if self.next.is_some() {
            return Ok(PageStep::Stop);
        }
        if self
            .start
            .as_ref()
            .is_some_and(|start| self.before(token, start))
        {
            return Ok(PageStep::Skip);
        }
        if self.scanned >= self.scan_limit {
            self.next = Some(token.clone());
            return Ok(PageStep::Stop);
        }
        self.scanned += 1;
        if !matches()? {
            return Ok(PageStep::Skip);
        }
        if self.per_page != 0 && self.taken >= u64::from(self.per_page) {
            self.next = Some(token.clone());
            return Ok(PageStep::Stop);
        }
        self.taken += 1;
        Ok(PageStep::Take)
    }

    fn before(&self, token: &PageToken, start: &PageToken) -> bool {
        let wanted = if self.reverse {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        token.cmp(start) == wanted
    }

    /// The token of the next page, once a row was answered with [`PageStep::Stop`].
    pub fn next_token(&self) -> Option<&PageToken> {
        self.next.as_ref()
    }

    /// How many rows the page holds so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Runs the page over `rows` and returns what it holds and the next page's token.
    ///
    /// # Errors
    /// The first error of a row or of `matches`.
    pub fn collect<T, E>(
        mut self,
        rows: impl IntoIterator<Item = Result<T, E>>,
        token_of: impl Fn(&T) -> PageToken,
        matches: impl Fn(&T) -> Result<bool, E>,
    ) -> Result<(Vec<T>, Option<PageToken>), E> {
        let mut page = Vec::new();
        for row in rows {
            let row = row?;
            match self.offer(&token_of(&row), || matches(&row))? {
                PageStep::Skip => {}
                PageStep::Take => page.push(row),
                PageStep::Stop => break,
            }
        }
        Ok((page, self.next))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn page(
        rows: &[u64],
        start: Option<&str>,
        per_page: u32,
        reverse: bool,
        even: bool,
    ) -> (Vec<u64>, Option<String>) {
        let start = start.map(|text| PageToken::parse(TokenKind::IndexId, text).expect("a token"));
        let mut rows = rows.to_vec();
        if reverse {
            rows.reverse();
        }
        let (rows, next) = Pager::new(start, per_page, reverse)
            .collect(
                rows.into_iter().map(Ok::<u64, Infallible>),
                |row| PageToken::IndexId(*row, format!("id-{row}")),
                |row| Ok(!even || row % 2 == 0),
            )
            .expect("infallible");
        (rows, next.map(|token| token.to_string()))
    }

    #[test]
    fn token_names_the_first_row_of_the_next_page() {
        let rows = [1, 2, 3, 4, 5];
        assert_eq!(
            page(&rows, None, 2, false, false),
            (vec![1, 2], Some("3.id-3".into()))
        );
        assert_eq!(
            page(&rows, Some("3.id-3"), 2, false, false),
            (vec![3, 4], Some("5.id-5".into()))
        );
        assert_eq!(
            page(&rows, Some("5.id-5"), 2, false, false),
            (vec![5], None)
        );
        assert_eq!(
            page(&rows, Some("3.id-3"), 9, true, false),
            (vec![3, 2, 1], None)
        );
    }

    #[test]
    fn page_starts_after_a_row_that_is_gone() {
        assert_eq!(
            page(&[1, 4, 5], Some("3.id-3"), 1, false, false),
            (vec![4], Some("5.id-5".into()))
        );
    }

    #[test]
    fn filter_counts_only_what_matches() {
        let rows = [1, 2, 3, 4, 5, 6];
        assert_eq!(
            page(&rows, None, 2, false, true),
            (vec![2, 4], Some("6.id-6".into()))
        );
        assert_eq!(page(&rows, None, 0, false, true), (vec![2, 4, 6], None));
    }

    #[test]
    fn indexes_are_compared_as_numbers() {
        assert_eq!(
            page(&[9, 10, 11], Some("9.id-9"), 0, false, false).0,
            vec![9, 10, 11]
        );
    }

    #[test]
    fn scan_limit_ends_a_page_that_finds_nothing() {
        let mut pager = Pager::new(None, 10, false).scan_limit(3);
        let mut looked = 0;
        for row in 0..100_u64 {
            let token = PageToken::IndexId(row, String::new());
            let no: Result<bool, Infallible> = Ok(false);
            match pager.offer(&token, || no).expect("infallible") {
                PageStep::Stop => break,
                _ => looked += 1,
            }
        }
        assert_eq!(looked, 3);
        assert_eq!(
            pager.next_token(),
            Some(&PageToken::IndexId(3, String::new()))
        );
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for bad in ["", "x", "x.y", "-1.a", "99999999999999999999.a"] {
            assert!(
                PageToken::parse(TokenKind::IndexId, bad).is_err(),
                "{bad:?}"
            );
        }
        assert!(PageToken::parse(TokenKind::NamespaceId, "default").is_err());
        let token = PageToken::parse(TokenKind::NamespaceId, "default.a.b").expect("a token");
        assert_eq!(
            token,
            PageToken::NamespaceId("default".into(), "a.b".into())
        );
    }

    proptest! {
        #[test]
        fn pages_joined_are_the_whole_list(
            rows in proptest::collection::btree_set(0_u64..500, 0..60),
            per_page in 1_u32..9,
            reverse: bool,
            even: bool,
        ) {
            let rows: Vec<u64> = rows.into_iter().collect();
            let (whole, end) = page(&rows, None, 0, reverse, even);
            prop_assert_eq!(end, None);
            let (mut joined, mut token) = page(&rows, None, per_page, reverse, even);
            while let Some(start) = token {
                let (more, next) = page(&rows, Some(&start), per_page, reverse, even);
                prop_assert!(!more.is_empty());
                joined.extend(more);
                prop_assert!(joined.len() <= whole.len(), "{:?}", joined);
                token = next;
            }
            prop_assert_eq!(joined, whole);
        }
    }
}
