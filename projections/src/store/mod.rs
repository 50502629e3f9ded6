//! The store: the one module that knows all others of this crate and puts them together.
//!
//! **What it is.** The database in use with all that depends on it ([`projections`]), the token
//! that writes it ([`writer`], and the fold that fills a whole one), and what is done with a
//! database as a whole: opening it (`load`), handing its state on and taking one in ([`snapshot`]),
//! another in its place ([`switch`]), an end to its past (`horizon`). And an event that is only
//! tried out (`trial`).
//!
//! **What it must not know.** How rows, the past or lists are encoded: it calls the module that
//! does. No other module imports it, so other modules are handed whatever they need of this one.
//!
//! **Invariants.** There is one writer. What a batch wrote becomes visible at once, after lists and
//! followers were notified and before waiters are woken. After an error all is as before the batch.
//!
//! Tests of several modules together stand here too. Start reading at [`projections`], then
//! [`writer`].

#[cfg(test)]
mod damage_test;
#[cfg(test)]
pub(crate) mod engine_test;
#[cfg(test)]
mod flush_test;
mod horizon;
#[cfg(test)]
pub(crate) mod indexes_test;
mod load;
pub(crate) mod projections;
pub mod snapshot;
#[cfg(test)]
mod stories_test;
pub(crate) mod switch;
#[cfg(test)]
mod switch_test;
#[cfg(test)]
pub(crate) mod things_test;
mod trial;
pub mod writer;
