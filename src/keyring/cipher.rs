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
    let key = key(with);
    // As long as it will ever be: a vector that grew would leave the clear text in what it freed.
    let mut out = Zeroizing::new(Vec::with_capacity(
        1 + NONCE_LEN + clear.len() + AES_256_GCM.tag_len(),
    ));
    out.push(LAYOUT);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(clear);
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(place),
            &mut out[1 + NONCE_LEN..],
        )
        .ok()?;
    out.extend_from_slice(tag.as_ref());
    // No clear text is left in it.
    Some(std::mem::take(&mut *out))
}

/// A value as JSON, in memory that is cleared when it is given back, also while it grows.
///
/// # Errors
/// When the value itself refuses to be serialised.
pub fn secret_json(value: &impl serde::Serialize) -> serde_json::Result<Zeroizing<Vec<u8>>> {
    let mut out = Secret(Zeroizing::new(Vec::with_capacity(256)));
    serde_json::to_writer(&mut out, value)?;
    Ok(out.0)
}

/// Grows by moving into a larger piece and clearing the smaller one.
struct Secret(Zeroizing<Vec<u8>>);

impl std::io::Write for Secret {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let wanted = self.0.len() + bytes.len();
        if wanted > self.0.capacity() {
            let larger = Vec::with_capacity(wanted.next_power_of_two());
            let smaller = std::mem::replace(&mut self.0, Zeroizing::new(larger));
            self.0.extend_from_slice(&smaller);
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
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
