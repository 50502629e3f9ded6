//! The hooks of allocations and of tasks: what is done for them before, beside and after they run.
//!
//! Both modules have one shape: their page ([`alloc`], [`task`]) says what a hook is given, what it
//! answers and when each call is made; `list` holds the hooks in their order; `chain` runs them one
//! after the other. What they share is here: how an answer comes to the journal before the next
//! hook begins ([`notes`]), what hooks leave for those after them ([`resources`]), how long they
//! take (`metrics`), and what a list of them is ([`list`]).
//!
//! It must not know: what runs allocations and how, what the journal looks like, which plugins
//! there are: the caller that puts a client together hands the hooks of plugins to the lists.

pub mod alloc;
#[cfg(test)]
mod hooks_end_test;
#[cfg(test)]
mod hooks_test;
pub mod list;
mod metrics;
pub mod notes;
pub mod resources;
pub mod task;
#[cfg(test)]
pub(crate) mod testing;
