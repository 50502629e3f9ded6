//! Digests and UUIDs.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;
use aws_lc_rs::digest;
use uuid::Uuid;

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "md5" => args
            .text()
            .map(|s| Value::Str(hex::encode(md5(s.as_bytes())))),
        "sha1" => digest(args, &digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256" => digest(args, &digest::SHA256),
        "sha512" => digest(args, &digest::SHA512),
        "uuidv4" => Ok(Value::Str(Uuid::new_v4().to_string())),
        "uuidv5" => uuidv5(args),
        "bcrypt" | "rsadecrypt" => Err("this function is not available".into()),
        _ => return None,
    })
}

fn digest(args: &mut Args, algorithm: &'static digest::Algorithm) -> Outcome {
    let text = args.text()?;
    args.end()?;
    Ok(Value::Str(hex::encode(
        digest::digest(algorithm, text.as_bytes()).as_ref(),
    )))
}

/// RFC 9562: a name-based UUID by SHA-1.
fn uuidv5(args: &mut Args) -> Outcome {
    let (namespace, name) = (args.text()?, args.text()?);
    args.end()?;
    let namespace = match namespace.as_str() {
        "dns" => Uuid::NAMESPACE_DNS,
        "url" => Uuid::NAMESPACE_URL,
        "oid" => Uuid::NAMESPACE_OID,
        "x500" => Uuid::NAMESPACE_X500,
        other => Uuid::parse_str(other)
            .map_err(|e| format!("uuidv5() doesn't support namespace {other} ({e})"))?,
    };
    let mut input = namespace.as_bytes().to_vec();
    input.extend_from_slice(name.as_bytes());
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &input);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    bytes[6] = (bytes[6] & 0x0f) | 0x50;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Ok(Value::Str(Uuid::from_bytes(bytes).to_string()))
}

/// RFC 1321. Only ever a checksum here, never a protection.
fn md5(input: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    let mut message = input.to_vec();
    message.push(0x80);
    message.resize(message.len().next_multiple_of(64), 0);
    if message.len() - 8 < input.len() + 1 {
        message.resize(message.len() + 64, 0);
    }
    let end = message.len() - 8;
    message[end..].copy_from_slice(&(input.len() as u64).wrapping_mul(8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in message.chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64usize {
            let (f, word) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )]
            let constant = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a
                .wrapping_add(f)
                .wrapping_add(constant)
                .wrapping_add(words[word]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
        }
        for (slot, add) in state.iter_mut().zip([a, b, c, d]) {
            *slot = slot.wrapping_add(add);
        }
    }
    let mut out = [0; 16];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    out
}
