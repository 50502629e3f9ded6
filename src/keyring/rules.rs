//! The rules for keys, as plain functions of what is known about them.

use super::KeyringError;

/// What is known about a key when its removal is requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// It is the key that new things are encrypted and signed with.
    pub active: bool,
    /// How many live allocations it signed identities for.
    pub live_allocs: u64,
    /// How many variables are encrypted with it.
    pub variables: u64,
}

/// Whether a key may be removed (KR-08): never the active one; one in use only when `force` says
/// that the caller knows what is lost.
///
/// # Errors
/// [`KeyringError::ActiveKey`], [`KeyringError::KeyInUse`]; the texts are those that clients know.
pub fn check_delete(key: KeyUse, force: bool) -> Result<(), KeyringError> {
    if key.active {
        return Err(KeyringError::ActiveKey);
    }
    if !force && (key.live_allocs > 0 || key.variables > 0) {
        return Err(KeyringError::KeyInUse);
    }
    Ok(())
}
