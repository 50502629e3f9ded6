//! The names that Nomad has for suites and versions of TLS, and which of them can be chosen here.

/// The names of the suites that can be chosen, the best first. Those of TLS 1.3 begin with
/// `TLS_AES` or `TLS_CHACHA20`.
pub const CIPHER_SUITES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// The lowest versions that can be chosen, the usual one first.
const MIN_VERSIONS: [&str; 2] = ["tls12", "tls13"];

/// The suites that a text names, separated by commas, in its order.
///
/// # Errors
/// A suite that is not supported; the text has those that can be chosen.
pub fn cipher_suites(names: &str) -> Result<Vec<&'static str>, String> {
    let names = names.split(',').map(str::trim).filter(|n| !n.is_empty());
    let read = |wanted: &str| {
        // Older files name the ChaCha20 suites without their hash.
        let is_it =
            |known: &&str| *known == wanted || known.strip_suffix("_SHA256") == Some(wanted);
        CIPHER_SUITES.into_iter().find(is_it).ok_or_else(|| {
            format!(
                "tls.tls_cipher_suites: {wanted:?} is not supported, use some of {}",
                CIPHER_SUITES.join(", ")
            )
        })
    };
    names.map(read).collect()
}

/// The lowest version that a text names; the usual one where it is empty.
///
/// # Errors
/// It is not supported; the text has those that can be chosen.
pub fn min_version(name: &str) -> Result<&'static str, String> {
    let mut known = MIN_VERSIONS.into_iter();
    known
        .find(|known| *known == name || name.is_empty())
        .ok_or_else(|| {
            format!(
                "tls.tls_min_version: {name:?} is not supported, use one of {}",
                MIN_VERSIONS.join(", ")
            )
        })
}
