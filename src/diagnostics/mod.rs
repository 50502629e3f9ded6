//! What an operator asks of one agent about itself: its log while it is written, its machine, where
//! it spends its time.
//!
//! What it is: functions that take a request and answer with a value or with pieces through a
//! channel. It must not know who asks, whether he may, how the request came, nor any server, table
//! or event: an agent without a server answers the same.
//!
//! Invariants:
//! - Nothing of it costs anything while nobody asks.
//! - Nobody who asks holds the agent up: who is slow loses lines and is told how many; what takes
//!   long runs where it may; there are bounds on how many ask at once and for how long.
//! - What looks like a secret is not told.

pub mod export;
pub mod host;
pub mod monitor;
pub mod profile;
mod proto;
pub mod redact;
pub mod threads;
