//! What callers may take of this process before it owes them anything: connections, bytes, time.
//!
//! HTTP and RPC share it: the one loop that lets connections in ([`accept()`]), over TCP, [`tls`]
//! and sockets of this machine, and what it knows of the other end ([`Peer`]). [`Visitors`] counts
//! connections by address, [`Rates`] requests by their caller, [`Budget`] the bytes of bodies that
//! are held at once (or calls), [`body::gather`] takes a body in under a limit, a deadline and a
//! budget, [`status`] says what a refusal is answered with.
//!
//! **The bound.** Whatever callers do, bodies hold at most [`BODIES`], or as much as is configured
//! (bodies of strangers [`STRANGERS`]), twice that while they grow; long ones are decoded two at a
//! time, and what a query makes of its own counts with it; a connection of the API holds at most
//! [`HTTP_BUFFER`] on each side (over HTTP/2 a quarter of it for each request that is open, and all
//! open ones but the first count as connections), one of RPC its window and, until a node proved
//! itself on it, a hundred streams; there are at most [`most_connections`] of each kind.
//!
//! It must not know: routes, methods, what is in a body.

mod accept;
pub mod body;
mod budget;
mod files;
mod peer;
mod proxies;
mod rate;
mod status;
mod stream;
pub mod tls;
mod visitors;

pub use accept::{Arrival, Door, Host, Listener, Patience, accept, reloaded, until};
pub use budget::{Budget, Hold, PATIENCE, busy};
pub use drover_config::BODIES;
pub use files::{
    Seldom, inherited_open_files, most_connections, raise_open_files, restore_open_files,
};
pub use peer::Peer;
pub use proxies::Proxies;
pub use rate::{Asking, By, PerSecond, Rates};
pub use status::{code, denies, status};
pub use stream::{Prefixed, Stream};
pub use visitors::{Refusals, Visit, Visitors};

/// Of those that come through another agent each may take what an address may; all of them this
/// many times as much: an agent could name any address as that of its caller.
pub const CROWD: u32 = 32;
/// Bytes of bodies of callers that proved nothing (RPC) that are held at once.
pub const STRANGERS: usize = 32 << 20;
/// Over how long a time connections are closed once certificates were loaded anew.
pub const PARTING: std::time::Duration = std::time::Duration::from_secs(10);
/// How long what is open on them may go on then.
pub const LEAVING: std::time::Duration = std::time::Duration::from_secs(600);
/// Bytes that a connection of the API buffers in each direction.
pub const HTTP_BUFFER: usize = 64 << 10;
