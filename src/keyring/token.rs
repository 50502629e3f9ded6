//! Signed tokens: JWS compact form (RFC 7515) with EdDSA over Ed25519 (RFC 8037).
//!
//! Only that one algorithm is made and accepted, and the key is chosen by the `kid` of the header
//! alone, so a token cannot choose how it is checked.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer, VerifyingKey};
use serde::{Deserialize, Serialize};

use super::{Claims, KeyringError, RootKey};

/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

#[derive(Serialize, Deserialize)]
struct TokenHeader {
    alg: String,
    kid: String,
    typ: String,
}

/// Signs claims with a key. Deterministic.
pub(super) fn sign(key: &RootKey, claims: &Claims) -> Result<String, KeyringError> {
    let header = TokenHeader {
        alg: "EdDSA".to_owned(),
        kid: key.id().to_owned(),
        typ: "JWT".to_owned(),
    };
    let encode = |json: Result<Vec<u8>, serde_json::Error>| match json {
        Ok(json) => Ok(URL_SAFE_NO_PAD.encode(json)),
        Err(_) => Err(KeyringError::Token("claims cannot be encoded")),
    };
    let mut token = encode(serde_json::to_vec(&header))?;
    token.push('.');
    token.push_str(&encode(serde_json::to_vec(claims))?);
    let signature = key.identity_key().sign(token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature.to_bytes()));
    Ok(token)
}

/// A token taken apart and not yet believed.
pub(super) struct Unverified<'t> {
    /// Id of the key that it says it was signed with.
    pub(super) key_id: String,
    signed: &'t str,
    claims: Vec<u8>,
    signature: Signature,
}

/// Takes a token apart.
pub(super) fn parse(token: &str) -> Result<Unverified<'_>, KeyringError> {
    let malformed = KeyringError::Token;
    if token.len() > MAX_TOKEN {
        return Err(malformed("too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(malformed("malformed"))?;
    let (header, claims) = signed.split_once('.').ok_or(malformed("malformed"))?;
    let decode = |part: &str| {
        URL_SAFE_NO_PAD
            .decode(part)
            .map_err(|_| malformed("malformed"))
    };
    let header: TokenHeader =
        serde_json::from_slice(&decode(header)?).map_err(|_| malformed("malformed header"))?;
    if header.alg != "EdDSA" {
        return Err(malformed("unsupported algorithm"));
    }
    let signature =
        Signature::from_slice(&decode(signature)?).map_err(|_| malformed("malformed signature"))?;
    Ok(Unverified {
        key_id: header.kid,
        signed,
        claims: decode(claims)?,
        signature,
    })
}

impl Unverified<'_> {
    /// Checks the signature and the times; `now` is in Unix nanoseconds.
    pub(super) fn verify(&self, key: &VerifyingKey, now: i64) -> Result<Claims, KeyringError> {
        key.verify_strict(self.signed.as_bytes(), &self.signature)
            .map_err(|_| KeyringError::Token("wrong signature"))?;
        let claims: Claims = serde_json::from_slice(&self.claims)
            .map_err(|_| KeyringError::Token("malformed claims"))?;
        claims.are_in_time(now)?;
        Ok(claims)
    }
}

impl Claims {
    /// Checks the times; `now` is in Unix nanoseconds.
    pub(super) fn are_in_time(&self, now: i64) -> Result<(), KeyringError> {
        let seconds = now.div_euclid(1_000_000_000);
        if self.exp.is_some_and(|end| end <= seconds) {
            return Err(KeyringError::Token("token is expired"));
        }
        if self.nbf > seconds {
            return Err(KeyringError::Token("token is not valid yet"));
        }
        Ok(())
    }
}
