//! Readers: what is visible at one index, or was at an earlier one.
//!
//! **What it is.** Views ([`view`]) with their cursors over rows, parts of rows ([`part`]) and
//! changes ([`change_cursor`]); what audits and operators read of tables by number ([`trail`],
//! [`inspect`]); pages ([`page`]); lists that are kept rendered ([`lists`]) and caches that follow
//! what changes ([`followed`]); and the rejected events of a database that another
//! process may have open ([`rejections`]).
//!
//! **What it must not know.** Nothing is written here. No table of drover's, so no query over one
//! (`query`), and no holder of the database: lists and followers are handed a view, or the way to
//! one. It imports the engine and the past.
//!
//! **Invariants.** A view shows one index, whatever is applied meanwhile, and keeps the database
//! alive that it reads from. What is kept in memory never answers for another index than it says.
//!
//! Start reading at [`view`].

pub mod change_cursor;
pub mod followed;
pub mod inspect;
pub mod lists;
#[cfg(test)]
mod lists_test;
pub mod page;
mod part;
pub(crate) mod rejections;
pub mod trail;
#[cfg(test)]
mod trail_test;
pub mod view;
