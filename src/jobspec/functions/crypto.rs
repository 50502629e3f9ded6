//! Digests and UUIDs.

use super::super::value::Value;
use super::Outcome;
use super::args::Args;
use aws_lc_rs::digest;
use md5::{Digest, Md5};
use uuid::Uuid;

pub(super) fn call(name: &str, args: &mut Args) -> Option<Outcome> {
    Some(match name {
        "md5" => md5(args),
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

/// Only ever a checksum here, never a protection.
fn md5(args: &mut Args) -> Outcome {
    let text = args.text()?;
    args.end()?;
    Ok(Value::Str(hex::encode(Md5::digest(text))))
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
