//! Services of the cluster's own registry (provider `nomad`): what an allocation offers is reported
//! to the servers while it is offered, and checked on this machine.
//!
//! [`describe`] says which registrations and checks follow from an allocation and the tasks that
//! run; [`book`] holds them beside what was reported to the servers, which `register` of the client
//! keeps like that; [`check`] runs the checks, over TLS where `secure` says which authorities it
//! trusts.
//!
//! It must not know: drivers, the journal.
//!
//! Invariants:
//! - Registrations are a level, not a history: the book compares what should be with what was
//!   reported, so a call that failed, a restart of the agent or a lost contact leaves nothing out
//!   for good.
//! - A service goes from the book before its tasks are requested to end (CL-22, CHK-09).

pub mod book;
pub mod check;
pub mod describe;
mod secure;
