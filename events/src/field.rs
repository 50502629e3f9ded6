//! What there is to know of a field of a job specification: once, in the line that declares it.
//!
//! The structs of a job (`events/src/model/job`) are declared with [`wire!`](crate::wire). Where
//! a struct is a block of specifications, its line says so, and the line of each field says all
//! there is to know about the field:
//!
//! ```text
//! pub struct LogConfig = "logs" {
//!     max_files: i64 = "MaxFiles" [hcl().optional().default_int(10)],
//!     max_file_size_mb: i64 = "MaxFileSizeMB"
//!         [hcl_as("max_file_size").optional().default_int(10)],
//!     disabled: bool = "Disabled" [hcl().optional()],
//! } + {
//!     enabled: bool = "Enabled" [hcl().optional()],
//! }
//! ```
//!
//! - `max_files: i64`: its name and type in the model. The type says what the field holds in
//!   specifications and in JSON, too ([`Held`]): a number, a text, a list of blocks.
//! - `"MaxFiles"`: its name in JSON, stored rows and JSON Schemas; they have the fields in the
//!   order in which they stand here. `omit` behind it leaves the field out when it is empty.
//! - `(Sensitive)` behind that: how confidential it is ([`Class`]). It is left out of what is
//!   public and looks it.
//! - `[hcl()]`: specifications say it, under its name in the model; `[hcl_as("max_file_size")]`:
//!   under another one. Without, a field is had by JSON alone. What else there is to say follows
//!   behind a dot, the default too; each is a method of [`Field`], which says what it does.
//! - In a second block behind `+` stand fields that a job has in specifications or in JSON, and
//!   that are kept elsewhere or nowhere: `enabled` becomes `Disabled`. Names that begin with `@`
//!   are of specifications only, and `fixup.rs` of the job specification puts them where they
//!   belong.
//!
//! **To add a field:** its line, and no more. Specifications in both forms, requests, defaults,
//! the answer of the parse route, jobs that are shown and stored, schemas, masks and debug output
//! read it here, through [`Specified::SHAPE`], `FIELDS`, `CLASSES` and `fields_schema`. The
//! change log of events (`migrations/src/events/changelog.rs`) has a line for each, as for every
//! change of an event. A new block is a struct: its line says under which name it is written, and
//! a field of a struct above holds it.
//!
//! What is not *one* field's own stays where it is done: defaults that follow from other fields
//! (`canonical*.rs` of the job specification), what is a mistake (`validate`), and what is not
//! built yet (`validate/unbuilt.rs`, `validate/warnings.rs`).

use crate::class::Class;
use crate::gojson::{Any, Base64, List, Map};

/// Nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// A struct that is a block of job specifications. [`wire!`](crate::wire) implements it.
pub trait Specified {
    /// The block and its fields.
    const SHAPE: &'static Shape;
}

/// A type that a field of a job may have.
pub trait Held {
    /// What a field of this type holds, if nothing else is given.
    const KIND: Kind;
}

/// A block of job specifications, and the struct of the API that it becomes.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Shape {
    /// Its name, by which the special cases of decoding know it.
    pub name: &'static str,
    pub fields: &'static [Field],
}

/// A field of a block.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in specifications; empty if it cannot be set there.
    pub hcl: &'static str,
    /// Its name in JSON. Names that begin with `@` exist only between decoding and the special
    /// cases.
    pub json: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// A specification must say it.
    pub required: bool,
    /// Clients' own form has it; what has not is read where a server showed it.
    pub shown: bool,
    /// What it is where it is not set, in every job. Other defaults follow from other fields.
    pub default: Option<Preset>,
    /// A specification with zero or an empty text gets the default as well.
    pub empty_is_unset: bool,
    /// How confidential it is.
    pub class: Class,
    /// A job keeps it, or makes something else of it.
    pub kept: bool,
    /// Its name in the model.
    own: &'static str,
}

/// What a field holds. `opt`: `null` when unset, else the zero value.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Kind {
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
    /// Blocks with one label, as a map by label; the label is the named field too.
    ByLabel(&'static Shape, &'static str),
    /// Any JSON, never set in a specification.
    Json,
}

/// The value of a field that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Preset {
    Text(&'static str),
    /// A number, or a duration in nanoseconds.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// An empty list.
    List,
}

/// The methods are what a field's line may say of it in brackets.
impl Field {
    /// A field of the model, of which nothing else is known yet.
    pub const fn of(own: &'static str, json: &'static str, kind: Kind) -> Self {
        Self {
            hcl: "",
            json,
            kind,
            required: false,
            shown: true,
            default: None,
            empty_is_unset: false,
            class: Class::Public,
            kept: true,
            own: plain(own),
        }
    }

    /// Whether it exists only between decoding and the special cases.
    pub fn is_internal(&self) -> bool {
        self.json.starts_with('@')
    }

    /// The class that stands in parentheses.
    pub const fn of_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// Specifications say it, under its name in the model.
    pub const fn hcl(self) -> Self {
        self.hcl_as(self.own)
    }

    /// Specifications say it, under this name.
    pub const fn hcl_as(self, hcl: &'static str) -> Self {
        Self { hcl, ..self }
    }

    /// Specifications must say it.
    pub const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// Only jobs that a server showed have it: no specification can say it (so no `hcl()`), the
    /// official client's types lack it, and no parsed job shows it.
    pub const fn server_only(self) -> Self {
        Self {
            shown: false,
            ..self
        }
    }

    /// No job keeps it, and nothing is made of it: who says it has to hear so.
    pub const fn dropped(self) -> Self {
        Self {
            kept: false,
            ..self
        }
    }

    /// `null` when unset: an unset field and a zero are different.
    ///
    /// # Panics
    /// At compile time, of what is `null` when unset anyway.
    pub const fn optional(self) -> Self {
        let kind = match self.kind {
            Kind::Str { .. } => Kind::Str { opt: true },
            Kind::Int { min, max, .. } => Kind::Int {
                opt: true,
                min,
                max,
            },
            Kind::Bool { .. } => Kind::Bool { opt: true },
            Kind::Dur { .. } => Kind::Dur { opt: true },
            _ => panic!("lists, maps and blocks are optional as they are"),
        };
        Self { kind, ..self }
    }

    /// A duration, in nanoseconds.
    ///
    /// # Panics
    /// At compile time, of what is no number.
    pub const fn duration(self) -> Self {
        let kind = match self.kind {
            Kind::Int { opt, .. } => Kind::Dur { opt },
            _ => panic!("durations are whole numbers"),
        };
        Self { kind, ..self }
    }

    /// This text where it is not set.
    pub const fn default_text(self, text: &'static str) -> Self {
        self.with_default(Preset::Text(text))
    }

    /// This number where it is not set.
    pub const fn default_int(self, number: i64) -> Self {
        self.with_default(Preset::Int(number))
    }

    /// So many seconds where it is not set; of a duration.
    pub const fn default_seconds(self, seconds: i64) -> Self {
        self.with_default(Preset::Int(seconds * SECOND))
    }

    /// True or false where it is not set.
    pub const fn default_bool(self, flag: bool) -> Self {
        self.with_default(Preset::Bool(flag))
    }

    /// An empty list where it is not set, which is not the same as none.
    pub const fn default_list(self) -> Self {
        self.with_default(Preset::List)
    }

    /// Zero and an empty text count as not set: the default takes their place.
    pub const fn empty_is_unset(self) -> Self {
        Self {
            empty_is_unset: true,
            ..self
        }
    }

    const fn with_default(self, default: Preset) -> Self {
        let fits = matches!(
            (self.kind, default),
            (Kind::Str { .. }, Preset::Text(_))
                | (Kind::Int { .. } | Kind::Dur { .. }, Preset::Int(_))
                | (Kind::Bool { .. }, Preset::Bool(_))
                | (Kind::Strs, Preset::List)
        );
        assert!(fits, "a default is of its field's kind");
        Self {
            default: Some(default),
            ..self
        }
    }

    /// The blocks have a label, which becomes the field of this name in each.
    ///
    /// # Panics
    /// At compile time, of what is no list of blocks.
    pub const fn labelled(self, label: &'static str) -> Self {
        let kind = match self.kind {
            Kind::Many(shape) => Kind::Labelled(shape, label),
            _ => panic!("lists of blocks have labels"),
        };
        Self { kind, ..self }
    }

    /// JSON has no key at all where the block is absent.
    ///
    /// # Panics
    /// At compile time, of what is not one block.
    pub const fn absent(self) -> Self {
        let kind = match self.kind {
            Kind::One(shape) => Kind::Omit(shape),
            _ => panic!("one block may be absent"),
        };
        Self { kind, ..self }
    }
}

/// A name without the `r#` of those that are words of the language.
const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => match std::str::from_utf8(rest) {
            Ok(plain) => plain,
            Err(_) => name,
        },
        _ => name,
    }
}

impl Shape {
    /// The field an attribute or block of this name goes to.
    pub fn hcl(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|f| !f.hcl.is_empty() && f.hcl == name)
    }

    /// The field of this JSON name, in any case, exact matches first.
    pub fn json(&self, name: &str) -> Option<&'static Field> {
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
    pub fn is_block(self) -> bool {
        self.shape().is_some() || self.is_map()
    }

    /// Whether specifications may write it as an attribute.
    pub fn is_attribute(self) -> bool {
        !self.is_block() || self.is_map()
    }

    /// Whether it is a list or a map, of whatever.
    pub fn is_collection(self) -> bool {
        let blocks = matches!(self, Kind::Many(_) | Kind::Labelled(..) | Kind::ByLabel(..));
        blocks || matches!(self, Kind::Strs | Kind::Ports) || self.is_map()
    }

    /// Whether it is a map of texts or of anything.
    pub fn is_map(self) -> bool {
        matches!(self, Kind::StrMap | Kind::StrsMap | Kind::AnyMap)
    }

    /// The shape of its blocks, if it has one, and how many labels they carry.
    pub fn shape(self) -> Option<(&'static Shape, usize)> {
        match self {
            Kind::One(s) | Kind::Omit(s) | Kind::Many(s) => Some((s, 0)),
            Kind::Labelled(s, _) | Kind::ByLabel(s, _) => Some((s, 1)),
            _ => None,
        }
    }
}

impl Preset {
    /// As JSON has it.
    pub fn to_json(self) -> Any {
        match self {
            Self::Text(text) => text.into(),
            Self::Int(number) => number.into(),
            Self::Bool(flag) => flag.into(),
            Self::List => Any::Array(Vec::new()),
        }
    }
}

macro_rules! held {
    ($($type:ty => $kind:expr),* $(,)?) => {$(
        impl Held for $type {
            const KIND: Kind = $kind;
        }
    )*};
}

macro_rules! numbers {
    ($($type:ty),*) => { held! { $(
        $type => Kind::Int {
            opt: false,
            min: <$type>::MIN as i128,
            max: <$type>::MAX as i128,
        },
        Option<$type> => Kind::Int {
            opt: true,
            min: <$type>::MIN as i128,
            max: <$type>::MAX as i128,
        },
    )* } };
}

numbers!(i8, i64, u8, u16, u32, u64);

held! {
    String => Kind::Str { opt: false },
    Option<String> => Kind::Str { opt: true },
    bool => Kind::Bool { opt: false },
    Option<bool> => Kind::Bool { opt: true },
    List<String> => Kind::Strs,
    List<u16> => Kind::Ports,
    Map<String> => Kind::StrMap,
    Map<List<String>> => Kind::StrsMap,
    Map<Any> => Kind::AnyMap,
    Base64 => Kind::Json,
}

impl<T: Specified> Held for Option<T> {
    const KIND: Kind = Kind::One(T::SHAPE);
}

impl<T: Specified> Held for List<T> {
    const KIND: Kind = Kind::Many(T::SHAPE);
}

/// The label of each is its name.
impl<T: Specified> Held for Map<T> {
    const KIND: Kind = Kind::ByLabel(T::SHAPE, "Name");
}

/// Makes a block of a struct of which its line says so. For [`wire!`](crate::wire).
#[doc(hidden)]
#[macro_export]
macro_rules! jobspec_block {
    ($name:ident { $($rest:tt)* }) => {};
    ($name:ident = $hcl_block:literal {
        $($field:ident: $ty:ty = $key:literal $(($class:ident))? $([$($attrs:tt)+])?,)*
    }) => {
        impl $crate::field::Specified for $name {
            const SHAPE: &'static $crate::field::Shape = &$crate::field::Shape {
                name: $hcl_block,
                fields: &[$(
                    $crate::field::Field::of(
                        stringify!($field), $key, <$ty as $crate::field::Held>::KIND)
                        $(.of_class($crate::class::Class::$class))?
                        $(.$($attrs)+)?,
                )*],
            };
        }

        impl $crate::field::Held for $name {
            const KIND: $crate::field::Kind =
                $crate::field::Kind::One(<Self as $crate::field::Specified>::SHAPE);
        }
    };
}

#[cfg(test)]
#[path = "field_test.rs"]
mod tests;
