//! What `alloc fs` and `alloc logs` share: which allocation, and from where a text is printed.

use super::super::client::{Client, Stream};
use super::super::conn::Conn;
use super::super::out::Out;
use super::super::show::short;
use super::pick::NamedAlloc;
use anyhow::Result;
use drover_events::model::Allocation;

/// Which allocation's files or output are wanted. The flags around it name what of it.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TailTarget {
    #[command(flatten)]
    conn: Conn,
    /// The allocation's id or a prefix of it; with -job, the job's ID
    allocation: String,
    /// Name a job in place of an allocation
    #[arg(long)]
    job: bool,
    /// Only allocations of this group (with -job)
    #[arg(long)]
    group: Option<String>,
    /// Show full ids
    #[arg(long)]
    pub(super) verbose: bool,
}

impl TailTarget {
    /// The allocation, and the client to call about it.
    pub(super) async fn find(&self) -> Result<(Client, Allocation)> {
        let client = self.conn.client()?;
        let named = NamedAlloc {
            name: &self.allocation,
            is_job: self.job,
            group: self.group.as_deref(),
        };
        let alloc = named.allocation(&client).await?;
        Ok((client, alloc))
    }

    /// How the allocation is called in messages.
    pub(super) fn shown(&self, alloc: &Allocation) -> String {
        short(&alloc.id, self.verbose)
    }
}

/// From where a text is printed, and how far.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Tail {
    /// Follow it as it grows
    #[arg(short)]
    pub(super) follow: bool,
    /// Begin near the end
    #[arg(long)]
    pub(super) tail: bool,
    /// How many lines from the end
    #[arg(short = 'n', value_name = "LINES")]
    lines: Option<usize>,
    /// How many bytes from the end
    #[arg(short = 'c', value_name = "BYTES")]
    bytes: Option<u64>,
}

/// Lines from the end where the user names no number.
const LINES: usize = 10;
/// How far from the end lines are looked for, per line.
const BYTES_PER_LINE: u64 = 120;

impl Tail {
    fn is_from_end(&self) -> bool {
        self.tail || self.lines.is_some() || self.bytes.is_some()
    }

    /// The parameters that say it to the API.
    pub(super) fn query(&self) -> [(&'static str, String); 4] {
        let lines = u64::try_from(self.lines.unwrap_or(LINES)).unwrap_or(u64::MAX);
        let offset = match self.bytes {
            Some(bytes) => bytes,
            None if self.is_from_end() => lines.saturating_mul(BYTES_PER_LINE),
            None => 0,
        };
        let origin = if self.is_from_end() { "end" } else { "start" };
        [
            ("origin", origin.to_owned()),
            ("offset", offset.to_string()),
            ("follow", self.follow.to_string()),
            ("plain", "true".to_owned()),
        ]
    }

    /// The same for a log. There an offset of 0 from the end is all of its last file: to show only
    /// what is new, the query begins beyond its end.
    pub(super) fn query_of_log(&self) -> [(&'static str, String); 4] {
        let mut query = self.query();
        if self.is_from_end() && query[1].1 == "0" {
            query[0].1 = "start".to_owned();
            query[1].1 = i64::MAX.to_string();
        }
        query
    }

    /// Prints a stream that begins where the query says.
    pub(super) async fn print(&self, mut stream: Stream, out: &Out) -> Result<()> {
        let lines = self.lines.unwrap_or(LINES);
        // With no lines requested, none are printed before what is new.
        let cuts = self.is_from_end() && self.bytes.is_none() && lines > 0;
        let (mut first, mut held) = (true, Vec::new());
        while let Some(chunk) = stream.chunk().await? {
            if cuts && !self.follow {
                held.extend_from_slice(&chunk);
                continue;
            }
            let cut = cuts && std::mem::take(&mut first);
            out.raw(if cut {
                last_lines(&chunk, lines)
            } else {
                &chunk
            });
        }
        out.raw(last_lines(&held, lines));
        Ok(())
    }
}

/// The last lines of a text.
fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut found = 0;
    for (i, byte) in body.iter().enumerate().rev() {
        if *byte == b'\n' {
            found += 1;
            if found == lines {
                return &bytes[i + 1..];
            }
        }
    }
    if lines == 0 { &[] } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_cut_out() {
        let text = b"a\nb\nc\n";
        for (n, expected) in [
            (0, &b""[..]),
            (1, b"c\n"),
            (2, b"b\nc\n"),
            (9, b"a\nb\nc\n"),
        ] {
            assert_eq!(last_lines(text, n), expected);
        }
        assert_eq!(last_lines(b"a\nb", 1), b"b");
    }

    #[test]
    fn where_to_begin_is_said_to_the_api() {
        let beyond = i64::MAX.to_string();
        for (tail, lines, bytes, of_file, of_log) in [
            (false, None, None, ("start", "0"), ("start", "0")),
            (true, None, None, ("end", "1200"), ("end", "1200")),
            (false, Some(2), None, ("end", "240"), ("end", "240")),
            (false, None, Some(0), ("end", "0"), ("start", &*beyond)),
            (false, Some(0), None, ("end", "0"), ("start", &*beyond)),
        ] {
            let tail = Tail {
                follow: false,
                tail,
                lines,
                bytes,
            };
            for (query, wanted) in [(tail.query(), of_file), (tail.query_of_log(), of_log)] {
                let [(_, origin), (_, offset), ..] = &query;
                assert_eq!((&**origin, &**offset), wanted, "{tail:?}");
            }
        }
    }
}
