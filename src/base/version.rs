//! What this build is called.

/// drover's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Nomad whose surface this is: what clients and other servers are told.
pub const NOMAD_VERSION: &str = "2.0.5";
