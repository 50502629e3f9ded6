//! What an operator can request of one agent about itself: its log while it is written, its
//! machine, where it spends its time.
//!
//! What it is: functions that take a request and answer with a value or with pieces through a
//! channel. It must not know the caller, the caller's rights, how the request came, nor any server,
//! table or event: an agent without a server answers the same.
//!
//! Invariants:
//! Nothing here costs anything while there is no request.
//! No reader holds the agent up: a slow one loses lines and gets their number; what takes long runs
//!   where it may; the number of requests at once and the time of each are bounded.
//! What looks like a secret is not shown.

pub mod export;
pub mod host;
pub mod monitor;
pub mod profile;
mod proto;
pub mod redact;
pub mod threads;
