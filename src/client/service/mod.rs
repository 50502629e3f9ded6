//! Services of the cluster's own registry (provider `nomad`): what an allocation offers is told to
//! the servers while it is offered, and checked on this machine.
//!
//! [`describe`] says which registrations and checks follow from an allocation and the tasks that
//! run; [`book`] holds them beside what the servers were told, which `register` of the client keeps
//! like that; [`check`] runs the checks, over TLS where `secure` says whom it trusts.
//!
//! It must not know: drivers, the journal.
//!
//! Invariants:
//! - Registrations are a level, not a history: the book compares what should be with what was told,
//!   so a call that failed, a restart of the agent or a lost contact leaves nothing out for good.
//! - A service goes from the book before its tasks are asked to end (CL-22, CHK-09).

pub mod book;
pub mod check;
pub mod describe;
mod secure;
