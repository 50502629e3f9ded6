//! What was verified of a signed token, for as long as one request: signatures are dear.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Claims, Keyring, KeyringError, token};

/// What came of verifying one token, once that was done: its claims, or why it is invalid; all
/// clones share the result. What the claims allow is not kept: that is read from the state each
/// time.
#[derive(Clone, Debug, Default)]
pub struct Verified(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    held: OnceLock<(String, Result<Claims, &'static str>)>,
    signatures: AtomicU32,
}

impl Verified {
    /// The claims of a token that was signed here and is good at this moment, Unix nanoseconds. For
    /// a token that was verified before, only what may have changed is checked again: whether its
    /// key is still here, and its times. An invalid token stays invalid. Where its key was not here
    /// nothing was verified.
    ///
    /// # Errors
    /// [`KeyringError::Token`], [`KeyringError::MissingKey`].
    pub fn claims(&self, keyring: &Keyring, token: &str, now: i64) -> Result<Claims, KeyringError> {
        if let Some((_, held)) = self.0.held.get().filter(|(same, _)| same == token) {
            let claims = held.as_ref().map_err(|why| KeyringError::Token(why))?;
            keyring.key(&token::parse(token)?.key_id)?;
            claims.are_in_time(now)?;
            return Ok(claims.clone());
        }
        self.0.signatures.fetch_add(1, Ordering::Relaxed);
        let verified = keyring.verify(token, now);
        let held = match &verified {
            Ok(claims) => Some(Ok(claims.clone())),
            Err(KeyringError::Token(why)) => Some(Err(*why)),
            Err(_) => None,
        };
        if let Some(held) = held {
            // One token is one request's: the first is the one.
            let _ = self.0.held.set((token.to_owned(), held));
        }
        verified
    }

    /// How many signatures were looked at.
    pub fn signatures(&self) -> u32 {
        self.0.signatures.load(Ordering::Relaxed)
    }
}
