//! Rows in the order lists have: by creation, or by id under a prefix; of one namespace or all.

use drover_events::model::{Deployment, Evaluation};
use drover_projections::page::{PageToken, TokenKind};
use drover_projections::tables::allocs::AllocRow;
use drover_projections::tables::namespaces::Namespaces;
use drover_projections::{Id, Index, Prefix, Scan, Table};

use super::list::storage;
use super::query::ReadOptions;
use super::sight::{Rows, Sight, Unchecked};
use crate::acl::NamespaceCapability as Ns;
use crate::error::Refusal;

/// A row that lists order by its creation.
pub(super) trait Created {
    fn id(&self) -> &str;
    fn namespace(&self) -> &str;
    /// The index it was created at.
    fn created(&self) -> u64;

    /// Its place in a list.
    fn token(&self, kind: TokenKind) -> PageToken {
        match kind {
            TokenKind::IndexId => PageToken::IndexId(self.created(), self.id().to_owned()),
            _ => PageToken::Id(self.id().to_owned()),
        }
    }
}

macro_rules! created {
    ($($row:ty),*) => {$(
        impl Created for $row {
            fn id(&self) -> &str {
                &self.id
            }

            fn namespace(&self) -> &str {
                &self.namespace
            }

            fn created(&self) -> u64 {
                self.create_index
            }
        }
    )*};
}

created!(Evaluation, Deployment, AllocRow);

/// Rows of an index's table, and the form of their tokens.
type Listing<'v, I> = (TokenKind, Rows<'v, <<I as Index>::Table as Table>::Row>);

/// The rows that a request selects, and the form of their tokens.
pub(super) fn created<'v, I>(
    view: &'v Sight,
    options: &'v ReadOptions,
    any_of: &'static [Ns],
) -> Result<Listing<'v, I>, Refusal>
where
    I: Index<Group = String, Order = u64>,
    I::Table: Table<Key = Id>,
    <I::Table as Table>::Row: Created,
{
    if !options.prefix().is_empty() {
        return Ok((TokenKind::Id, by_prefix::<I::Table>(view, options, any_of)?));
    }
    if options.namespace != "*" {
        let rows = view.rows_by::<I>(by_creation(&options.namespace, options));
        let rows = rows.in_namespace(&options.namespace, any_of);
        return Ok((TokenKind::IndexId, rows));
    }
    let names = seen_namespaces(view, options, any_of)?;
    let streams = names.iter().map(|name| {
        let rows = view.rows_by::<I>(by_creation(name, options));
        rows.in_namespace(name, any_of).peekable()
    });
    Ok((
        TokenKind::IndexId,
        merge(streams.collect(), options.reverse()),
    ))
}

/// The namespaces that a request selects and its caller may see.
fn seen_namespaces(
    view: &Sight,
    options: &ReadOptions,
    any_of: &'static [Ns],
) -> Result<Vec<String>, Refusal> {
    if options.namespace != "*" {
        return Ok(vec![options.namespace.clone()]);
    }
    let rows = view.rows::<Namespaces>(Scan::all());
    let seen = rows.seen_by(move |acl, row| acl.namespace_allows_any(&row.name, any_of));
    let names = seen.map(|row| row.map(|row| row.name));
    names.collect::<Result<_, _>>().map_err(storage)
}

/// How many rows a list without prefix and filter has; none of them is read.
pub(super) fn count<I>(
    view: &Sight,
    options: &ReadOptions,
    any_of: &'static [Ns],
) -> Result<u64, Refusal>
where
    I: Index<Group = String, Order = u64>,
{
    let mut count = 0;
    for name in seen_namespaces(view, options, any_of)? {
        count += view.count_in::<I>(&name, any_of).map_err(storage)?;
    }
    Ok(count)
}

/// The names that begin with the prefix, from the page's start on.
pub(super) fn named(options: &ReadOptions) -> Scan {
    let scan = Scan::prefix(Prefix::new().str_prefix(options.prefix()));
    let scan = match options.next_token() {
        "" => scan,
        token => scan.from(Prefix::new().str(token).as_bytes()),
    };
    if options.reverse() {
        scan.reverse()
    } else {
        scan
    }
}

/// The part of a creation index that a namespace takes, from the page's start on.
fn by_creation(namespace: &str, options: &ReadOptions) -> Scan {
    let group = Prefix::new().str(namespace);
    let scan = Scan::prefix(group.clone());
    let scan = match PageToken::parse(TokenKind::IndexId, options.next_token()) {
        Ok(PageToken::IndexId(index, id)) => {
            // An id that is none sorts otherwise as a key than as text: from the first row of that
            // index on, the pager passes over what lies before the token.
            let place = match (is_uuid(&id), options.reverse()) {
                (true, _) => group.u64(index).id(&id),
                (false, false) => group.u64(index),
                (false, true) => group.u64(index.saturating_add(1)),
            };
            scan.from(place.as_bytes())
        }
        _ => scan,
    };
    if options.reverse() {
        scan.reverse()
    } else {
        scan
    }
}

/// Whether an id is written as all that drover makes are.
pub(super) fn is_uuid(id: &str) -> bool {
    uuid::Uuid::try_parse(id).is_ok_and(|uuid| uuid.hyphenated().to_string() == id)
}

/// The rows whose ids begin with the prefix.
fn by_prefix<'v, T>(
    view: &'v Sight,
    options: &'v ReadOptions,
    any_of: &'static [Ns],
) -> Result<Rows<'v, T::Row>, Refusal>
where
    T: Table<Key = Id>,
    T::Row: Created,
{
    let rows = ids::<T>(view, options)?;
    let rows = rows.seen_by(move |acl, row| acl.namespace_allows_any(row.namespace(), any_of));
    Ok(Box::new(rows.filter(|row| {
        options.namespace == "*"
            || row
                .as_ref()
                .map_or(true, |row| row.namespace() == options.namespace)
    })))
}

/// The rows of a table of ids whose ids begin with the prefix, in the order of ids, from the page's
/// start on.
pub(super) fn ids<'v, T: Table<Key = Id>>(
    view: &'v Sight,
    options: &ReadOptions,
) -> Result<Unchecked<'v, T::Row>, Refusal> {
    if let Some(why) = no_id_prefix(options.prefix()) {
        return Err(Refusal::by_rule(format!("index error: {why}")));
    }
    let mut scans = Scan::id_prefix(&Prefix::new(), options.prefix());
    let start = Some(options.next_token()).filter(|token| is_uuid(token));
    // Of the two ranges the first holds what is written as ids are; where the other begins for a
    // token is the pager's to say.
    if let (Some(start), [of_uuids, _]) = (start, scans.as_mut_slice()) {
        *of_uuids = of_uuids.clone().from(Prefix::new().id(start).as_bytes());
    }
    if options.reverse() {
        scans = scans.into_iter().rev().map(Scan::reverse).collect();
    }
    Ok(view.ranges::<T>(scans))
}

/// Why a text begins no id, in Nomad's words.
fn no_id_prefix(prefix: &str) -> Option<String> {
    let hyphens = prefix.matches('-').count();
    let digits = prefix.len() - hyphens;
    let odd = prefix.chars().find(|c| *c != '-' && !c.is_ascii_hexdigit());
    if prefix.len() > 36 {
        let length = prefix.len();
        let text = format!("Invalid UUID length. UUID have 36 characters; got {length}");
        return Some(text);
    }
    if hyphens > 4 {
        let text = format!("UUID should have maximum of 4 \"-\"; got {hyphens}");
        return Some(text);
    }
    if !digits.is_multiple_of(2) {
        return Some("Input (without hyphens) must be even length".to_owned());
    }
    odd.map(|c| {
        let code = u32::from(c);
        format!("Invalid UUID: encoding/hex: invalid byte: U+{code:04X} '{c}'")
    })
}

/// Merges rows that come in order from several sources.
fn merge<'v, R: Created + 'v>(
    mut streams: Vec<std::iter::Peekable<Rows<'v, R>>>,
    reverse: bool,
) -> Rows<'v, R> {
    Box::new(std::iter::from_fn(move || {
        let mut best: Option<(usize, PageToken)> = None;
        for (at, stream) in streams.iter_mut().enumerate() {
            let token = match stream.peek() {
                None => continue,
                Some(Err(_)) => return stream.next(),
                Some(Ok(row)) => row.token(TokenKind::IndexId),
            };
            let better = best.as_ref().is_none_or(|(_, b)| (token < *b) != reverse);
            if better {
                best = Some((at, token));
            }
        }
        streams.get_mut(best?.0)?.next()
    }))
}

#[cfg(test)]
mod tests {
    use super::no_id_prefix;

    #[test]
    fn what_begins_no_id_is_said_in_nomads_words() {
        for (prefix, why) in [
            ("", None),
            ("ab-cd", None),
            ("ab-cd-ef-01-23", None),
            ("abc", Some("Input (without hyphens) must be even length")),
            (
                "nope",
                Some("Invalid UUID: encoding/hex: invalid byte: U+006E 'n'"),
            ),
            ("-----a", Some("UUID should have maximum of 4 \"-\"; got 5")),
            (
                "0123456789012345678901234567890123456789",
                Some("Invalid UUID length. UUID have 36 characters; got 40"),
            ),
        ] {
            assert_eq!(no_id_prefix(prefix).as_deref(), why, "{prefix}");
        }
    }
}
