//! The audit trail: who changed what, when, why, and from what to what.
//!
//! A [`Question`] says which events are wanted, a [`Trail`] (a view and the log) answers with
//! [`Entry`]s: the event's [`Document`](super::record::Document), whether it was applied or
//! rejected, and the rows it changed, field by field. Objects that are long gone are found as those
//! that live, since `history` keeps their versions. [`trace()`] goes from an event to all that
//! followed from it; [`Between`] compares two states.
//!
//! - It must not know HTTP, the terminal, or the callers' rights: for a caller with limited rights
//!   it is given the changes that this caller may see ([`Eyes`]), and shows no others.
//! - It reads; nothing here changes state or waits.
//! - A rejected event is shown as `refused` and has no changes.
//! - Secret values never leave, and sensitive ones as their keyed hashes, as in exports; a change
//!   of a secret is shown without its bytes. All else in a specification is shown as it is.
//! - Work is bounded: a page looks at [`LOOKS`] events at most and says where it stopped.

mod address;
mod between;
mod chain;
mod cover;
mod diff;
mod entry;
mod object;
mod question;
mod resolve;
mod touched;
mod trace;
mod trail;
mod updates_by_cause;

pub use between::{Between, RowPosition};
pub use diff::{Field, Fields};
pub use entry::{Detail, Entry, RowChange};
pub use object::{Object, ObjectType};
pub use question::{AuditPage, OutcomeFilter, Question};
pub use touched::{TaskReport, Touched};
pub use trace::{Node, Tree, trace};
pub use trail::{Eyes, LOOKS, Sees, Trail};

use crate::log::LogError;
use drover_projections::{StorageError, View};

/// What was read; where it is damaged nothing, and why it cannot be read.
fn or_why<T: Default>(found: Result<T, AuditError>) -> Result<(T, Option<String>), AuditError> {
    match found {
        Ok(found) => Ok((found, None)),
        Err(error) if error.is_damage() => {
            let why = crate::error::chain(&error);
            Ok((T::default(), Some(why)))
        }
        Err(error) => Err(error),
    }
}

impl AuditError {
    /// Whether what is stored is not what was written, or is none that this server reads.
    fn is_damage(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_damage(),
            Self::Decode { .. } => true,
            _ => false,
        }
    }

    /// Nothing of that name is known; where a part of the past was dropped, it may have been there.
    fn unknown(view: &View, text: String) -> Self {
        match view.position().floor {
            0 => Self::Unknown(text),
            floor => Self::Gone(format!(
                "{text}, as far as is known: what happened up to index {floor} is no longer kept"
            )),
        }
    }
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The question itself is wrong; the text says how.
    #[error("{0}")]
    Question(String),
    /// Nothing of that name was ever there.
    #[error("{0}")]
    Unknown(String),
    /// The requested events lie before the first one that is kept.
    #[error("{0}")]
    Gone(String),
    /// Values cannot be looked for: no root key is at hand to hash them with.
    #[error("this server has no root key to hash values with")]
    NoKey,
    /// The projections cannot be read.
    #[error("state store error")]
    Storage(#[from] StorageError),
    /// The log cannot be read.
    #[error("log error")]
    Log(#[from] LogError),
    /// An event cannot be decoded.
    #[error("the event at index {index} cannot be read")]
    Decode {
        index: u64,
        /// Why.
        #[source]
        source: drover_migrations::DecodeError,
    },
}
