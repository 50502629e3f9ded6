//! TLS: certificates from files, who may be at the other end, and how that changes while all runs.
//!
//! Start at [`Loader`]: it holds what was read from the files, ready to be used, and swaps it whole
//! on a reload. New handshakes take what is there then; connections that stand keep what they
//! have. A file that is no good is refused as a whole ([`TlsError`]) and the old material stays.
//!
//! HTTP shows the agent's certificate and may request one of its callers. RPC is mutual: both sides
//! show one of the authority in `ca_file`, and names in it say which role of which region it is
//! for: `server.<region>.nomad`, `client.<region>.nomad` ([`PeerCertificate`]). A certificate of a
//! client never passes for one of a server.
//!
//! It must not know: routes, methods, the agent's configuration.

mod anybody;
mod caller;
mod explain;
mod loader;
mod material;
mod names;
mod settings;
#[cfg(test)]
pub(crate) mod testing;
mod verify;

pub use anybody::system_roots;
pub use caller::{CallerError, Own, Trusted, client};
pub use explain::{Fault, explain};
pub use loader::{Expiry, Loader, Port, PortTls};
pub use material::{TlsError, certificates, private_key};
pub use names::{Certificate, PeerCertificate, Role};
pub use settings::{TlsSettings, cipher_suites, min_version};

use rustls::crypto::CryptoProvider;

/// The cryptography that is used, with all that it offers.
#[must_use]
pub fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}
