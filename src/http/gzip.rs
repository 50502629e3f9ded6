//! Compression of answers: gzip at level 1, for bodies of 1 KiB and more, where the request accepts
//! it.
//!
//! Pieces are compressed one by one, each ending on a byte boundary, so that a piece that is kept
//! compressed can be sent again as part of another answer; the checksum of the whole is put
//! together from those of the pieces.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};

use super::body::BodyChange;

/// Bodies below this are sent as they are, bytes.
pub const MINIMUM: u64 = 1024;

/// When answers are compressed, if the caller accepts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gzip {
    /// For every caller.
    Always,
    /// For callers on other machines.
    #[default]
    Remote,
    /// For no caller.
    Never,
}

impl Gzip {
    /// Reads the setting (`always`, `remote`, `never`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "remote" | "" => Some(Self::Remote),
            "never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Whether an answer to this caller is compressed.
    #[must_use]
    pub fn wanted(self, loopback: bool, accept_encoding: Option<&str>) -> bool {
        let setting = match self {
            Self::Always => true,
            Self::Remote => !loopback,
            Self::Never => false,
        };
        setting && accept_encoding.is_some_and(accepts)
    }
}

/// Whether an `Accept-Encoding` takes gzip (RFC 9110 section 12.5.3).
fn accepts(header: &str) -> bool {
    header.split(',').any(|part| {
        let (name, rest) = part.split_once(';').unwrap_or((part, ""));
        let refused = rest
            .trim()
            .strip_prefix("q=")
            .is_some_and(|q| q.trim().parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

/// A piece of a body in its compressed form, with what the trailer needs of it.
#[derive(Debug)]
pub struct Packed {
    deflated: Bytes,
    crc: Crc,
}

impl Packed {
    /// Compresses a piece by itself.
    #[must_use]
    pub fn new(piece: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(piece);
        let mut deflate = Compress::new(Compression::new(1), false);
        let mut out = Vec::with_capacity(piece.len() / 4 + 64);
        loop {
            let read = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
            let rest = piece.get(read..).unwrap_or_default();
            out.reserve(rest.len() / 4 + 64);
            // Cannot fail: the state is fresh and the buffers are valid.
            if deflate
                .compress_vec(rest, &mut out, FlushCompress::Full)
                .is_err()
            {
                break;
            }
            if deflate.total_in() == piece.len() as u64 && out.len() < out.capacity() {
                break;
            }
        }
        Self {
            deflated: out.into(),
            crc,
        }
    }

    /// Bytes it takes.
    #[cfg(test)]
    fn size(&self) -> usize {
        self.deflated.len()
    }
}

/// A gzip stream (RFC 1952) of the pieces, in order.
#[must_use]
pub fn join<'a>(pieces: impl IntoIterator<Item = &'a Packed>) -> Vec<Bytes> {
    let mut out = vec![Bytes::from_static(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255])];
    let mut crc = Crc::new();
    for piece in pieces {
        out.push(piece.deflated.clone());
        crc.combine(&piece.crc);
    }
    // A last, empty block of stored data ends the stream.
    let mut end = vec![1, 0, 0, 0xff, 0xff];
    end.extend_from_slice(&crc.sum().to_le_bytes());
    end.extend_from_slice(&crc.amount().to_le_bytes());
    out.push(end.into());
    out
}

/// Compresses a body that comes in pieces.
#[derive(Debug)]
pub(super) struct Flowing(flate2::write::GzEncoder<Vec<u8>>);

impl Default for Flowing {
    fn default() -> Self {
        Self(flate2::write::GzEncoder::new(
            Vec::new(),
            Compression::new(1),
        ))
    }
}

impl BodyChange for Flowing {
    fn piece(&mut self, piece: &[u8]) -> Vec<u8> {
        // Writing into memory does not fail.
        let _ = self.0.write_all(piece);
        std::mem::take(self.0.get_mut())
    }

    fn end(&mut self) -> Vec<u8> {
        let _ = self.0.try_finish();
        std::mem::take(self.0.get_mut())
    }
}

/// Compresses a body in one go.
#[must_use]
pub fn compress(pieces: &[Bytes]) -> Vec<u8> {
    let size: usize = pieces.iter().map(Bytes::len).sum();
    let buffer = Vec::with_capacity(size / 4 + 64);
    let mut encoder = flate2::write::GzEncoder::new(buffer, Compression::new(1));
    for piece in pieces {
        // Writing into memory does not fail.
        let _ = encoder.write_all(piece);
    }
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn unpack(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes)
            .read_to_end(&mut out)
            .unwrap();
        out
    }

    #[test]
    fn pieces_packed_apart_make_one_stream() {
        let noise: Vec<u8> = (0..300_000_u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let pieces = [&b"hello "[..], &b""[..], &noise[..], &[b'x'; 100_000][..]];
        let packed: Vec<Packed> = pieces.iter().map(|p| Packed::new(p)).collect();
        let stream: Vec<u8> = join(&packed).concat();
        assert_eq!(unpack(&stream), pieces.concat());
        assert!(packed[3].size() < 2_000);
        let mut flowing = Flowing::default();
        let mut flown = pieces.map(|piece| flowing.piece(piece)).concat();
        flown.extend(flowing.end());
        assert_eq!(unpack(&flown), pieces.concat());
        let whole: Vec<Bytes> = pieces.iter().map(|p| Bytes::copy_from_slice(p)).collect();
        assert_eq!(unpack(&compress(&whole)), pieces.concat());
    }

    #[test]
    fn the_setting_and_the_caller_both_decide() {
        assert!(Gzip::Always.wanted(true, Some("deflate, GZIP;q=0.5")));
        assert!(!Gzip::Remote.wanted(true, Some("gzip")));
        assert!(Gzip::Remote.wanted(false, Some("gzip")));
        assert!(!Gzip::Never.wanted(false, Some("gzip")));
        assert!(!Gzip::Always.wanted(false, Some("gzip;q=0")));
        assert!(!Gzip::Always.wanted(false, None));
    }
}
