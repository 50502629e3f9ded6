//! Authenticated encryption: AES-256-GCM with a random nonce in front of the ciphertext.
//!
//! A key is good for 2^32 messages under random nonces; rotation keeps far below that.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// First byte of everything sealed; another layout gets another number.
const LAYOUT: u8 = 1;

fn key(bytes: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, bytes).expect("the key has the algorithm's length");
    LessSafeKey::new(key)
}

/// Encrypts `clear`, bound to `place`; `None` when the system gives no random bytes.
pub(super) fn seal(with: &[u8; 32], place: &[u8], clear: &[u8]) -> Option<Vec<u8>> {
    let mut nonce = [0; NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).ok()?;
    let mut sealed = Zeroizing::new(clear.to_vec());
    key(with)
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(place),
            &mut *sealed,
        )
        .ok()?;
    let mut out = Vec::with_capacity(1 + NONCE_LEN + sealed.len());
    out.push(LAYOUT);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    Some(out)
}

/// Decrypts what [`seal`] made with the same key and place; `None` for anything else.
pub(super) fn open(with: &[u8; 32], place: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (layout, rest) = sealed.split_first()?;
    if *layout != LAYOUT || rest.len() < NONCE_LEN {
        return None;
    }
    let (nonce, ciphertext) = rest.split_at(NONCE_LEN);
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut buffer = Zeroizing::new(ciphertext.to_vec());
    let length = key(with)
        .open_in_place(nonce, Aad::from(place), &mut buffer)
        .ok()?
        .len();
    buffer.truncate(length);
    Some(buffer)
}
