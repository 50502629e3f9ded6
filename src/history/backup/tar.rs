//! A tar (ustar) of regular files, written and read as a stream, with the SHA-256 of every part.
//!
//! Any tar reads what is written here. The reader takes such archives alone, and takes nothing on
//! trust: checksums of headers, names without a way out, zeros where zeros must be.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

const BLOCK: usize = 512;
const COPY: usize = 256 << 10;
/// Bytes of the name's field.
const NAME: usize = 100;
/// Where the field of long names' directories is, and its bytes.
const DIR: usize = 345;
const LONGEST_DIR: usize = 155;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, with `/` between directories.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// The hash of its bytes.
    pub sha256: [u8; 32],
}

/// Writes an archive.
pub struct TarWriter<'a> {
    out: &'a mut dyn Write,
    parts: Vec<Part>,
    bytes: u64,
    hash: Sha256,
}

impl<'a> TarWriter<'a> {
    /// An archive without parts.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self {
            out,
            parts: Vec::new(),
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    /// What was written so far.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds a part of exactly `size` bytes.
    ///
    /// # Errors
    /// What cannot be read or written; a source that ends before.
    pub fn add(&mut self, name: &str, size: u64, from: &mut dyn Read) -> io::Result<()> {
        self.put(&header(name, size)?)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; COPY];
        let mut left = size;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(COPY));
            let got = from.read(&mut buffer[..want])?;
            if got == 0 {
                let text = format!("{name} ended early: {left} of its {size} bytes are missing");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            hash.update(&buffer[..got]);
            self.put(&buffer[..got])?;
            left -= got as u64;
        }
        let over = (size % BLOCK as u64) as usize;
        if over > 0 {
            self.put(&[0; BLOCK][over..])?;
        }
        self.parts.push(Part {
            name: name.to_owned(),
            size,
            sha256: hash.finalize().into(),
        });
        Ok(())
    }

    /// Adds a part that is in memory.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.add(name, bytes.len() as u64, &mut &*bytes)
    }

    /// Ends the archive; answers the hash and the number of all bytes.
    ///
    /// # Errors
    /// A failed write.
    pub fn finish(mut self) -> io::Result<([u8; 32], u64)> {
        self.put(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok((self.hash.finalize().into(), self.bytes))
    }
}

fn header(name: &str, size: u64) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let Some((dir, name)) = in_two(name).filter(|_| size < 1 << 33) else {
        let text = format!("{name} ({size} bytes) does not fit in a tar");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[DIR..DIR + dir.len()].copy_from_slice(dir.as_bytes());
    for (at, text) in [
        (100, "0000600\0".to_owned()),
        (108, "0000000\0".to_owned()),
        (116, "0000000\0".to_owned()),
        (124, format!("{size:011o}\0")),
        (136, "00000000000\0".to_owned()),
        (156, "0".to_owned()),
        (257, "ustar\x0000".to_owned()),
    ] {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum = format!("{:06o}\0 ", checksum(&block));
    block[148..156].copy_from_slice(sum.as_bytes());
    Ok(block)
}

/// A name as its fields take it: one that is too long for its own has its directories in another.
fn in_two(name: &str) -> Option<(&str, &str)> {
    if name.len() < NAME {
        return Some(("", name));
    }
    let fits = |(dir, name): &(&str, &str)| dir.len() <= LONGEST_DIR && name.len() < NAME;
    let cuts = name.match_indices('/');
    cuts.map(|(at, _)| (&name[..at], &name[at + 1..]))
        .find(fits)
}

/// The sum of a header's bytes, its own field taken as blanks.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let own = 148..156;
    let byte = |(at, byte): (usize, &u8)| {
        if own.contains(&at) {
            u32::from(b' ')
        } else {
            u32::from(*byte)
        }
    };
    block.iter().enumerate().map(byte).sum()
}

/// Where a part goes, for its name and size.
pub type Sinks<'a> = &'a mut dyn FnMut(&str, u64) -> io::Result<Box<dyn Write>>;

/// Reads an archive.
pub struct TarReader<'a> {
    from: &'a mut dyn Read,
    at: u64,
}

/// What is wrong with an archive, and where.
fn damaged(at: u64, what: &str) -> io::Error {
    let text = format!("damaged at byte {at}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<'a> TarReader<'a> {
    /// Reads from the first byte on.
    pub fn new(from: &'a mut dyn Read) -> Self {
        Self { from, at: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.at
    }

    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(self.at, "it ends here"),
                _ => error,
            })?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    /// The next part, its content given to what `to` answers for its name and size; none at the
    /// end.
    ///
    /// # Errors
    /// What cannot be read or written; bytes that are no tar, with their place.
    pub fn next(&mut self, to: Sinks<'_>) -> io::Result<Option<Part>> {
        let begin = self.at;
        let block = self.block()?;
        if begin == 0
            && let Some(what) = foreign(&block)
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if block == [0; BLOCK] {
            let ends = self.block()? == [0; BLOCK] && self.from.read(&mut [0])? == 0;
            return match ends {
                true => Ok(None),
                false => Err(damaged(begin, "something follows its end")),
            };
        }
        let (name, size) = parse(&block).ok_or_else(|| damaged(begin, "no header of a part"))?;
        let mut out = to(&name, size)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; COPY];
        let mut left = size;
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(COPY));
            let got = self.from.read(&mut buffer[..want])?;
            if got == 0 {
                return Err(damaged(self.at, &format!("it ends within {name}")));
            }
            self.at += got as u64;
            hash.update(&buffer[..got]);
            out.write_all(&buffer[..got])?;
            left -= got as u64;
        }
        out.flush()?;
        let over = (size % BLOCK as u64) as usize;
        if over > 0 {
            let behind = self.at;
            let mut rest = vec![0; BLOCK - over];
            self.fill(&mut rest)?;
            if rest.iter().any(|byte| *byte != 0) {
                return Err(damaged(behind, &format!("no zeros behind {name}")));
            }
        }
        Ok(Some(Part {
            name,
            size,
            sha256: hash.finalize().into(),
        }))
    }
}

/// What else could be mistaken for a backup, by its first block.
fn foreign(block: &[u8; BLOCK]) -> Option<String> {
    use std::io::Read as _;
    if !block.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    let mut head = Vec::new();
    // Only the beginning of the stream is here: it ends in an error after what is wanted.
    let _ = flate2::read::GzDecoder::new(&block[..])
        .take(BLOCK as u64)
        .read_to_end(&mut head);
    let ours = "drover restores its own backups only (a tar, `drover operator snapshot save`)";
    Some(match head.starts_with(b"meta.json\0") {
        true => format!(
            "this is a backup of Nomad (`nomad operator snapshot save`): {ours}. Jobs, namespaces \
             and variables of a Nomad cluster come over through its API"
        ),
        false => format!("this is compressed with gzip: {ours}"),
    })
}

/// Name and size of a header, if it is one that is written here.
fn parse(block: &[u8; BLOCK]) -> Option<(String, u64)> {
    let octal = |range: std::ops::Range<usize>| {
        let text = std::str::from_utf8(&block[range]).ok()?;
        u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok()
    };
    let end = block[..NAME].iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&block[..end]).ok()?;
    let plain = |piece: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !piece.is_empty() && !piece.starts_with('.') && piece.chars().all(allowed)
    };
    if !name.split('/').all(plain) {
        return None;
    }
    let size = octal(124..136)?;
    // Nothing else is ever written.
    let same = header(name, size).is_ok_and(|own| own == *block);
    same.then(|| (name.to_owned(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        let mut tar = TarWriter::new(&mut out);
        tar.add_bytes("head", b"hello").unwrap();
        tar.add_bytes("state/rows-00000.sst", &[7; 1024]).unwrap();
        tar.add_bytes("empty", b"").unwrap();
        let (hash, bytes) = tar.finish().unwrap();
        assert_eq!(bytes, out.len() as u64);
        assert_eq!(hash, <[u8; 32]>::from(Sha256::digest(&out)));
        out
    }

    fn read(mut bytes: &[u8]) -> io::Result<Vec<Part>> {
        let mut tar = TarReader::new(&mut bytes);
        let mut parts = Vec::new();
        while let Some(part) = tar.next(&mut |_, _| Ok(Box::new(io::sink())))? {
            parts.push(part);
        }
        Ok(parts)
    }

    #[test]
    fn parts_come_back_with_their_hashes() {
        let parts = read(&sample()).unwrap();
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["head", "state/rows-00000.sst", "empty"]);
        assert_eq!(parts[0].sha256, <[u8; 32]>::from(Sha256::digest(b"hello")));
        assert_eq!((parts[1].size, parts[2].size), (1024, 0));
    }

    #[test]
    fn every_flipped_bit_is_found_or_changes_a_hash() {
        let whole = sample();
        let good = read(&whole).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            if let Ok(parts) = read(&bytes) {
                assert_ne!(parts, good, "byte {at}");
            }
        }
        let longer = [whole.as_slice(), &[0]].concat();
        let error = read(&longer).unwrap_err();
        assert!(error.to_string().contains("follows its end"), "{error}");
        for length in 0..whole.len() {
            let error = read(&whole[..length]).unwrap_err();
            let kind = io::ErrorKind::InvalidData;
            assert_eq!(error.kind(), kind, "cut at {length}: {error}");
            assert!(error.to_string().contains("it ends"), "{error}");
        }
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["../x", "/etc/passwd", "a//b", "a/../b", "a\u{e9}", ".x", ""] {
            let mut out = Vec::new();
            let mut tar = TarWriter::new(&mut out);
            tar.add_bytes(name, b"x").unwrap();
            tar.finish().unwrap();
            assert!(read(&out).is_err(), "{name}");
        }
    }

    #[test]
    fn the_system_s_tar_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tar");
        std::fs::write(&path, sample()).unwrap();
        let listed = std::process::Command::new("tar")
            .arg("-tf")
            .arg(&path)
            .output();
        let Ok(listed) = listed else { return };
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert_eq!(text, "head\nstate/rows-00000.sst\nempty\n");
    }
}
