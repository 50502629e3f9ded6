//! The public keys as a JSON Web Key Set (RFC 7517, RFC 8037), for services that check identities.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

/// The document served at `/.well-known/jwks.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Jwks {
    /// The keys, by id.
    pub keys: Vec<Jwk>,
}

/// One public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Jwk {
    /// What it is for: `sig`.
    #[serde(rename = "use")]
    pub usage: &'static str,
    /// Key type: `OKP`.
    pub kty: &'static str,
    /// The root key's id.
    pub kid: String,
    /// Algorithm: `EdDSA`.
    pub alg: &'static str,
    /// Curve: `Ed25519`.
    pub crv: &'static str,
    /// The public key, base64url without padding.
    pub x: String,
}

impl Jwks {
    /// The set of the given ids and public keys. They come from the log, so the keys of every
    /// server are there even where their material is not.
    pub fn new<'k>(keys: impl IntoIterator<Item = (&'k str, &'k [u8])>) -> Jwks {
        let keys = keys.into_iter().map(|(id, public)| Jwk {
            usage: "sig",
            kty: "OKP",
            kid: id.to_owned(),
            alg: "EdDSA",
            crv: "Ed25519",
            x: URL_SAFE_NO_PAD.encode(public),
        });
        let mut keys: Vec<Jwk> = keys.collect();
        keys.sort_by(|a, b| a.kid.cmp(&b.kid));
        Jwks { keys }
    }
}
