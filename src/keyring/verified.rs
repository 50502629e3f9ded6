//! What was verified of a signed token, for as long as one request: signatures are dear.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Claims, Keyring, KeyringError, token};

/// The claims of one token, once they are verified; all clones know them. What they allow is not
/// kept: that is asked of the state each time.
#[derive(Clone, Debug, Default)]
pub struct Verified(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    held: OnceLock<(String, Claims)>,
    signatures: AtomicU32,
}

impl Verified {
    /// The claims of a token that was signed here and is good at this moment, Unix nanoseconds. Of
    /// a token that was verified before only what may have changed is looked at again: whether its
    /// key is still here, and its times.
    ///
    /// # Errors
    /// [`KeyringError::Token`], [`KeyringError::MissingKey`].
    pub fn claims(&self, keyring: &Keyring, token: &str, now: i64) -> Result<Claims, KeyringError> {
        if let Some((_, claims)) = self.0.held.get().filter(|(same, _)| same == token) {
            keyring.key(&token::parse(token)?.key_id)?;
            claims.are_in_time(now)?;
            return Ok(claims.clone());
        }
        self.0.signatures.fetch_add(1, Ordering::Relaxed);
        let claims = keyring.verify(token, now)?;
        // One token is one request's: the first is the one.
        let _ = self.0.held.set((token.to_owned(), claims.clone()));
        Ok(claims)
    }

    /// How many signatures were looked at.
    pub fn signatures(&self) -> u32 {
        self.0.signatures.load(Ordering::Relaxed)
    }
}
