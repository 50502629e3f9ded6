//! Samples in the form that `go tool pprof` reads: `profile.proto`, compressed with gzip.
//!
//! Only what is written here is encoded: integers, texts and messages in protocol buffers' form.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A function, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Function {
    /// As people read it.
    pub(super) name: String,
    /// As the linker knows it.
    pub(super) symbol: String,
    /// Its source file.
    pub(super) file: String,
}

/// A place in a program: one function, and those that were put into it.
pub(super) type Place = Vec<(Function, u32)>;

/// A call stack and how often it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// From the inside out.
    pub(super) stack: Vec<Place>,
    /// One for each kind of the profile.
    pub(super) values: Vec<i64>,
    pub(super) thread: String,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// What the values are, and their units.
    pub(super) kinds: Vec<(&'static str, &'static str)>,
    /// How far apart samples are, in the unit of the last kind.
    pub(super) period: i64,
    /// When it began, unix nanoseconds.
    pub(super) began: i64,
    /// How long it took.
    pub(super) took: Duration,
    pub(super) samples: Vec<Sample>,
}

/// The texts of a profile, each once; the first is empty.
struct Texts {
    known: HashMap<String, u64>,
    all: Vec<String>,
}

impl Texts {
    fn new() -> Self {
        Self {
            known: HashMap::from([(String::new(), 0)]),
            all: vec![String::new()],
        }
    }

    fn at(&mut self, text: &str) -> u64 {
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = self.all.len() as u64;
        self.known.insert(text.to_owned(), at);
        self.all.push(text.to_owned());
        at
    }
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(&mut self, field: u64, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }

    fn packed(&mut self, field: u64, values: impl Iterator<Item = u64>) -> &mut Self {
        let mut inner = Self::default();
        values.for_each(|value| inner.varint(value));
        self.message(field, &inner)
    }
}

/// The bits of a signed number, as protocol buffers write it.
const fn bits(value: i64) -> u64 {
    value.cast_unsigned()
}

/// A kind of value and its unit.
fn kind(texts: &mut Texts, (name, unit): (&str, &str)) -> Message {
    let mut kind = Message::default();
    kind.number(1, texts.at(name)).number(2, texts.at(unit));
    kind
}

impl Measured {
    /// The profile.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Message::default();
        let mut texts = Texts::new();
        for one in &self.kinds {
            out.message(1, &kind(&mut texts, *one));
        }
        let mut functions: HashMap<&Function, u64> = HashMap::new();
        let mut places: HashMap<&Place, u64> = HashMap::new();
        let mut tables = Message::default();
        let thread = texts.at("thread");
        for sample in &self.samples {
            let mut stack = Vec::with_capacity(sample.stack.len());
            for place in &sample.stack {
                let next = places.len() as u64 + 1;
                let id = *places.entry(place).or_insert(next);
                if id == next {
                    let location = location(id, place, &mut functions, (&mut texts, &mut tables));
                    tables.message(4, &location);
                }
                stack.push(id);
            }
            let mut label = Message::default();
            label.number(1, thread).number(2, texts.at(&sample.thread));
            let mut message = Message::default();
            message
                .packed(1, stack.into_iter())
                .packed(2, sample.values.iter().copied().map(bits))
                .message(3, &label);
            out.message(2, &message);
        }
        out.0.extend_from_slice(&tables.0);
        let period = self.kinds.last().map(|last| kind(&mut texts, *last));
        for text in &texts.all {
            out.bytes(6, text.as_bytes());
        }
        out.number(9, bits(self.began));
        out.number(10, u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(period) = period {
            out.message(11, &period);
        }
        out.number(12, bits(self.period));
        gzip(&out.0)
    }

    /// A line for each stack, from the outside in, with its first value.
    pub(super) fn folded(&self) -> String {
        let mut lines: HashMap<String, i64> = HashMap::new();
        for sample in &self.samples {
            let frames = sample.stack.iter().rev();
            let names = frames.flat_map(|place| place.iter().rev().map(|(f, _)| f.name.as_str()));
            let line: Vec<&str> = std::iter::once(sample.thread.as_str())
                .chain(names)
                .collect();
            *lines.entry(line.join(";")).or_default() += sample.values.first().unwrap_or(&0);
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        lines.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        lines
            .iter()
            .map(|(stack, count)| format!("{stack} {count}\n"))
            .collect()
    }
}

/// A place, and its functions that are new.
fn location<'a>(
    id: u64,
    place: &'a Place,
    functions: &mut HashMap<&'a Function, u64>,
    (texts, tables): (&mut Texts, &mut Message),
) -> Message {
    let mut location = Message::default();
    location.number(1, id);
    for (function, line) in place {
        let next = functions.len() as u64 + 1;
        let known = *functions.entry(function).or_insert(next);
        if known == next {
            let mut message = Message::default();
            message
                .number(1, known)
                .number(2, texts.at(&function.name))
                .number(3, texts.at(&function.symbol))
                .number(4, texts.at(&function.file));
            tables.message(5, &message);
        }
        let mut message = Message::default();
        message.number(1, known).number(2, u64::from(*line));
        location.message(4, &message);
    }
    location
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes)
        .and_then(|()| out.finish())
        .expect("a vector takes all")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn place(name: &str) -> Place {
        let function = Function {
            name: name.to_owned(),
            symbol: format!("_{name}"),
            file: "x.rs".to_owned(),
        };
        vec![(function, 300)]
    }

    fn measured() -> Measured {
        let sample = |stack: &[&str], count| Sample {
            stack: stack.iter().map(|name| place(name)).collect(),
            values: vec![count, count * 10],
            thread: "t".to_owned(),
        };
        Measured {
            kinds: vec![("samples", "count"), ("cpu", "nanoseconds")],
            period: 10,
            began: 1,
            took: Duration::from_nanos(2),
            samples: vec![
                sample(&["b", "a"], 3),
                sample(&["a"], 5),
                sample(&["b", "a"], 1),
            ],
        }
    }

    #[test]
    fn mod_23_stacks_are_told_once_each_the_most_frequent_first() {
        assert_eq!(measured().folded(), "t;a 5\nt;a;b 4\n");
    }

    #[test]
    fn mod_23_a_profile_is_written_field_by_field_as_its_format_says() {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&*measured().encode())
            .read_to_end(&mut bytes)
            .expect("gzip");
        // Field numbers with their wire types, in order; lengths of those that have one.
        let mut fields = Vec::new();
        let mut at = 0;
        let varint = |at: &mut usize| {
            let (mut value, mut shift) = (0_u64, 0);
            loop {
                let byte = bytes[*at];
                *at += 1;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        };
        let mut texts = Vec::new();
        while at < bytes.len() {
            let tag = varint(&mut at);
            fields.push(tag >> 3);
            let value = varint(&mut at);
            if tag & 7 == 2 {
                let end = at + value as usize;
                if tag >> 3 == 6 {
                    texts.push(String::from_utf8(bytes[at..end].to_vec()).expect("text"));
                }
                at = end;
            }
        }
        let count = |field| fields.iter().filter(|f| **f == field).count();
        assert_eq!((count(1), count(2), count(4), count(5)), (2, 3, 2, 2));
        assert_eq!((count(9), count(10), count(11), count(12)), (1, 1, 1, 1));
        assert_eq!(texts[0], "", "the format wants it so");
        let wanted = [
            "samples",
            "count",
            "cpu",
            "nanoseconds",
            "thread",
            "b",
            "_b",
            "x.rs",
            "t",
        ];
        assert!(
            wanted.iter().all(|text| texts.iter().any(|t| t == text)),
            "{texts:?}"
        );
        assert_eq!(texts.len(), 12, "each once: {texts:?}");
    }
}
