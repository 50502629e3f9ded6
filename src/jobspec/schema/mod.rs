//! The decode table: which block and attribute of a specification becomes which field of the API's
//! job.
//!
//! One table serves three readers: native and JSON specifications ([`super::decode`]), jobs in the
//! API's JSON form ([`super::normal`]), and the full form that the parse route answers with. A
//! field that is `null` when unset is *optional*: canonicalisation can tell "not said" from "said
//! zero".

mod connect;
mod group;
mod job;
mod service;
mod task;

pub(super) use job::JOB;

/// A struct of the API.
#[derive(Debug)]
pub(super) struct Shape {
    /// Its name in error texts and for the special cases of decoding.
    pub name: &'static str,
    pub fields: &'static [Field],
}

/// A field: its name in specifications (empty if they have none), in JSON, and its kind.
#[derive(Debug)]
pub(super) struct Field {
    /// In specifications; empty if it cannot be said there.
    pub hcl: &'static str,
    /// In JSON. Names that begin with `@` exist only between decoding and the special cases.
    pub json: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// A specification must say it.
    pub required: bool,
    /// Clients' own form has it; what has not is read where a server showed it.
    pub shown: bool,
}

/// What a field holds. `opt`: `null` when unset, else the zero value.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub(super) enum Kind {
    /// Text.
    Str { opt: bool },
    /// A whole number within bounds.
    Int { opt: bool, min: i128, max: i128 },
    /// True or false.
    Bool { opt: bool },
    /// A duration in nanoseconds; specifications write `"30s"`.
    Dur { opt: bool },
    /// A list of texts.
    Strs,
    /// A list of ports.
    Ports,
    /// Texts by key, as an attribute or a block.
    StrMap,
    /// Lists of texts by key.
    StrsMap,
    /// Anything by key, as an attribute or a block.
    AnyMap,
    /// One block; `null` when absent.
    One(&'static Shape),
    /// One block; no key at all when absent.
    Omit(&'static Shape),
    /// Blocks without label, as a list.
    Many(&'static Shape),
    /// Blocks with one label, as a list; the label is the named field.
    Labelled(&'static Shape, &'static str),
    /// Blocks with one label, as a map by label; the label is the named field too (unless it is
    /// empty).
    ByLabel(&'static Shape, &'static str),
    /// Any JSON, never said in a specification.
    Json,
}

pub(crate) const STR: Kind = Kind::Str { opt: false };
pub(crate) const OSTR: Kind = Kind::Str { opt: true };
pub(crate) const BOOL: Kind = Kind::Bool { opt: false };
pub(crate) const OBOOL: Kind = Kind::Bool { opt: true };
pub(crate) const DUR: Kind = Kind::Dur { opt: false };
pub(crate) const ODUR: Kind = Kind::Dur { opt: true };
pub(crate) const INT: Kind = bounded(false, i64::MIN as i128, i64::MAX as i128);
pub(crate) const OINT: Kind = bounded(true, i64::MIN as i128, i64::MAX as i128);
pub(crate) const OI8: Kind = bounded(true, -128, 127);
pub(crate) const U8: Kind = bounded(false, 0, 255);
pub(crate) const U16: Kind = bounded(false, 0, 65_535);
pub(crate) const OU32: Kind = bounded(true, 0, u32::MAX as i128);
pub(crate) const U64: Kind = bounded(false, 0, u64::MAX as i128);
pub(crate) const OU64: Kind = bounded(true, 0, u64::MAX as i128);

const fn bounded(opt: bool, min: i128, max: i128) -> Kind {
    Kind::Int { opt, min, max }
}

/// A field said in specifications.
pub(crate) const fn f(hcl: &'static str, json: &'static str, kind: Kind) -> Field {
    Field {
        hcl,
        json,
        kind,
        required: false,
        shown: true,
    }
}

/// A field that specifications must say.
pub(crate) const fn req(hcl: &'static str, json: &'static str, kind: Kind) -> Field {
    Field {
        hcl,
        json,
        kind,
        required: true,
        shown: true,
    }
}

/// A field only JSON has.
pub(crate) const fn j(json: &'static str, kind: Kind) -> Field {
    Field {
        hcl: "",
        json,
        kind,
        required: false,
        shown: true,
    }
}

/// A field that only servers' jobs have.
pub(crate) const fn stored(json: &'static str, kind: Kind) -> Field {
    Field {
        shown: false,
        ..j(json, kind)
    }
}

impl Shape {
    /// The field an attribute or block of this name goes to.
    pub(super) fn hcl(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|f| !f.hcl.is_empty() && f.hcl == name)
    }

    /// The field of this JSON name, in any case, exact matches first.
    pub(super) fn json(&self, name: &str) -> Option<&'static Field> {
        let exact = self.fields.iter().find(|f| f.json == name);
        exact.or_else(|| {
            self.fields
                .iter()
                .find(|f| f.json.eq_ignore_ascii_case(name))
        })
    }
}

impl Kind {
    /// Whether specifications may write it as a block.
    pub(super) fn is_block(self) -> bool {
        use Kind::{AnyMap, ByLabel, Labelled, Many, Omit, One, StrMap, StrsMap};
        matches!(
            self,
            One(_) | Omit(_) | Many(_) | Labelled(..) | ByLabel(..) | StrMap | StrsMap | AnyMap
        )
    }

    /// Whether specifications may write it as an attribute.
    pub(super) fn is_attribute(self) -> bool {
        !self.is_block() || matches!(self, Kind::StrMap | Kind::StrsMap | Kind::AnyMap)
    }

    /// The shape of its blocks, if it has one, and how many labels they carry.
    pub(super) fn shape(self) -> Option<(&'static Shape, usize)> {
        match self {
            Kind::One(s) | Kind::Omit(s) | Kind::Many(s) => Some((s, 0)),
            Kind::Labelled(s, _) | Kind::ByLabel(s, _) => Some((s, 1)),
            _ => None,
        }
    }
}
