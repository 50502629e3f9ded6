//! What this build is called.

/// drover's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Nomad whose surface this is, as reported to clients and other servers.
pub const NOMAD_VERSION: &str = "2.0.5";
