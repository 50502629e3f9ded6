//! The ordered key codec. It is for ever: stored keys, guards and digests depend on it.
//!
//! | component | bytes |
//! |---|---|
//! | `u8`, `u16`, `u32`, `u64` | big-endian |
//! | `i64` | big-endian, sign bit flipped |
//! | `bool` | 0 or 1 |
//! | `String` | the bytes, 0x00 as 0x00 0xFF, then the terminator 0x00 0x01 |
//! | [`Id`] | 0x01 and 16 bytes for a lower-case UUID text; else 0x02 and the string's form |
//! | tuple | its components one after the other; `()` is nothing: the key of a singleton |
//!
//! Every component ends by itself, so the encoding of a leading part is a prefix of the whole, and
//! bytes sort as the values do.

use smallvec::SmallVec;
use uuid::Uuid;

/// Bytes of a key under construction.
pub type KeyBuf = SmallVec<[u8; 96]>;

/// Stored bytes that are no key of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes are no key of this type")]
pub struct KeyError;

/// A typed key: what it encodes to sorts as it does and decodes to itself.
pub trait Key: Clone + Ord + std::fmt::Debug + Send + Sync + 'static {
    /// Appends the encoding.
    fn encode(&self, out: &mut KeyBuf);
    /// Takes the encoding off the front of the bytes.
    fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError>;

    /// Passes over the encoding without building the value.
    fn skip(bytes: &mut &[u8]) -> Result<(), KeyError> {
        Self::decode(bytes).map(|_| ())
    }

    /// Appends the components as texts, for people.
    fn words(&self, out: &mut Vec<String>);

    /// Decodes a whole key; nothing may follow it.
    fn from_bytes(mut bytes: &[u8]) -> Result<Self, KeyError> {
        let key = Self::decode(&mut bytes)?;
        if bytes.is_empty() {
            Ok(key)
        } else {
            Err(KeyError)
        }
    }

    /// The encoding.
    fn to_bytes(&self) -> KeyBuf {
        let mut out = KeyBuf::new();
        self.encode(&mut out);
        out
    }
}

/// Whatever encodes as a key of type `K` without owning one: `&str` for an [`Id`] or a `String`,
/// a tuple of such for a tuple key, a reference to the key itself.
pub trait AsKey<K: Key> {
    /// Appends the encoding of the key.
    fn encode_as(&self, out: &mut KeyBuf);
}

impl<K: Key> AsKey<K> for &K {
    fn encode_as(&self, out: &mut KeyBuf) {
        K::encode(self, out);
    }
}

/// An identifier: usually the text of a UUID, which is stored in 16 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(IdOrder);

/// The order of the encoding: UUID texts first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum IdOrder {
    Uuid(String),
    Text(String),
}

impl Default for IdOrder {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Id {
    /// The identifier with this text.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self(match uuid_bytes(&text) {
            Some(_) => IdOrder::Uuid(text),
            None => IdOrder::Text(text),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdOrder::Uuid(text) | IdOrder::Text(text) => text,
        }
    }

    /// The text, taken out.
    pub fn into_string(self) -> String {
        match self.0 {
            IdOrder::Uuid(text) | IdOrder::Text(text) => text,
        }
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Id {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

const UUID_TAG: u8 = 1;
const TEXT_TAG: u8 = 2;

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The 16 bytes of a lower-case UUID text of the usual form; none for any other text.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut at = 0;
    for byte in &mut bytes {
        if matches!(at, 8 | 13 | 18 | 23) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = nibble(text[at])? << 4 | nibble(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

fn uuid_text(bytes: &[u8]) -> Result<String, KeyError> {
    let uuid = Uuid::from_slice(bytes).map_err(|_| KeyError)?;
    Ok(uuid.hyphenated().to_string())
}

/// Appends an identifier's encoding.
pub(crate) fn push_id(out: &mut KeyBuf, text: &str) {
    if let Some(bytes) = uuid_bytes(text) {
        out.push(UUID_TAG);
        out.extend_from_slice(&bytes);
    } else {
        out.push(TEXT_TAG);
        push_str(out, text);
    }
}

/// Appends a string's encoding.
pub(crate) fn push_str(out: &mut KeyBuf, text: &str) {
    push_open_str(out, text);
    out.extend_from_slice(&[0, 1]);
}

/// Appends the encoding of strings that begin so: no terminator.
pub(crate) fn push_open_str(out: &mut KeyBuf, text: &str) {
    if memchr_zero(text) {
        for byte in text.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(0xff);
            }
        }
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

fn memchr_zero(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], KeyError> {
    let (head, tail) = bytes.split_at_checked(count).ok_or(KeyError)?;
    *bytes = tail;
    Ok(head)
}

impl Key for Id {
    fn words(&self, out: &mut Vec<String>) {
        out.push(self.as_str().to_owned());
    }

    fn encode(&self, out: &mut KeyBuf) {
        push_id(out, self.as_str());
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        match take(bytes, 1)? {
            [UUID_TAG] => Ok(Self(IdOrder::Uuid(uuid_text(take(bytes, 16)?)?))),
            [TEXT_TAG] => match Self::new(String::decode(bytes)?) {
                Self(IdOrder::Uuid(_)) => Err(KeyError),
                text => Ok(text),
            },
            _ => Err(KeyError),
        }
    }

    fn skip(bytes: &mut &[u8]) -> Result<(), KeyError> {
        match take(bytes, 1)? {
            [UUID_TAG] => take(bytes, 16).map(|_| ()),
            _ => String::skip(bytes),
        }
    }
}

impl Key for String {
    fn words(&self, out: &mut Vec<String>) {
        out.push(self.clone());
    }

    fn encode(&self, out: &mut KeyBuf) {
        push_str(out, self);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        let mut text = Vec::new();
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0).ok_or(KeyError)?;
            text.extend_from_slice(take(bytes, zero)?);
            match take(bytes, 2)? {
                [0, 1] => return String::from_utf8(text).map_err(|_| KeyError),
                [0, 0xff] => text.push(0),
                _ => return Err(KeyError),
            }
        }
    }

    fn skip(bytes: &mut &[u8]) -> Result<(), KeyError> {
        loop {
            let zero = bytes.iter().position(|byte| *byte == 0).ok_or(KeyError)?;
            take(bytes, zero)?;
            if take(bytes, 2)? == [0, 1] {
                return Ok(());
            }
        }
    }
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn words(&self, out: &mut Vec<String>) {
                out.push(self.to_string());
            }
            fn encode(&self, out: &mut KeyBuf) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                let bytes = take(bytes, size_of::<$t>())?;
                Ok(<$t>::from_be_bytes(bytes.try_into().map_err(|_| KeyError)?))
            }
        }
        impl AsKey<$t> for $t {
            fn encode_as(&self, out: &mut KeyBuf) {
                self.encode(out);
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64);

const SIGN: u64 = 1 << 63;

impl Key for i64 {
    fn words(&self, out: &mut Vec<String>) {
        out.push(self.to_string());
    }

    fn encode(&self, out: &mut KeyBuf) {
        (self.cast_unsigned() ^ SIGN).encode(out);
    }
    fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        Ok((u64::decode(bytes)? ^ SIGN).cast_signed())
    }
}

impl AsKey<i64> for i64 {
    fn encode_as(&self, out: &mut KeyBuf) {
        self.encode(out);
    }
}

impl Key for bool {
    fn words(&self, out: &mut Vec<String>) {
        out.push(self.to_string());
    }

    fn encode(&self, out: &mut KeyBuf) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
        match take(bytes, 1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(KeyError),
        }
    }
}

impl AsKey<bool> for bool {
    fn encode_as(&self, out: &mut KeyBuf) {
        self.encode(out);
    }
}

impl Key for () {
    fn words(&self, _: &mut Vec<String>) {}
    fn encode(&self, _: &mut KeyBuf) {}
    fn decode(_: &mut &[u8]) -> Result<Self, KeyError> {
        Ok(())
    }
}

impl AsKey<()> for () {
    fn encode_as(&self, _: &mut KeyBuf) {}
}

macro_rules! texts {
    ($($t:ty),*) => {$(
        impl AsKey<Id> for $t {
            fn encode_as(&self, out: &mut KeyBuf) {
                push_id(out, self.as_ref());
            }
        }
    )*};
}

texts!(&str, &String, String);

impl AsKey<Id> for Id {
    fn encode_as(&self, out: &mut KeyBuf) {
        self.encode(out);
    }
}

impl AsKey<String> for &str {
    fn encode_as(&self, out: &mut KeyBuf) {
        push_str(out, self);
    }
}

impl AsKey<String> for String {
    fn encode_as(&self, out: &mut KeyBuf) {
        push_str(out, self);
    }
}

macro_rules! tuples {
    ($(($($k:ident $x:ident $n:tt),+)),*) => {$(
        impl<$($k: Key),+> Key for ($($k,)+) {
            fn words(&self, out: &mut Vec<String>) {
                $(self.$n.words(out);)+
            }
            fn encode(&self, out: &mut KeyBuf) {
                $(self.$n.encode(out);)+
            }
            fn decode(bytes: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(($($k::decode(bytes)?,)+))
            }
            fn skip(bytes: &mut &[u8]) -> Result<(), KeyError> {
                $($k::skip(bytes)?;)+
                Ok(())
            }
        }
        impl<$($k: Key, $x: AsKey<$k>),+> AsKey<($($k,)+)> for ($($x,)+) {
            fn encode_as(&self, out: &mut KeyBuf) {
                $(self.$n.encode_as(out);)+
            }
        }
    )*};
}

tuples!(
    (A X 0),
    (A X 0, B Y 1),
    (A X 0, B Y 1, C Z 2),
    (A X 0, B Y 1, C Z 2, D W 3)
);

/// The range of UUID identifiers whose text begins so; none if no UUID's text does.
pub(crate) fn uuid_range(text: &str) -> Option<([u8; 17], Vec<u8>)> {
    let mut lower = [0_u8; 17];
    let mut upper = [0xff_u8; 17];
    (lower[0], upper[0]) = (UUID_TAG, UUID_TAG);
    let mut digits = 0;
    for (at, byte) in text.bytes().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        if digits == 32 {
            return None;
        }
        let (value, place) = (nibble(byte)?, 1 + digits / 2);
        if digits % 2 == 0 {
            lower[place] = value << 4;
            upper[place] = value << 4 | 0x0f;
        } else {
            lower[place] |= value;
            upper[place] = upper[place] & 0xf0 | value;
        }
        digits += 1;
    }
    let mut end = upper.to_vec();
    end.push(0);
    Some((lower, end))
}

/// Appends the beginning of identifiers that are no UUID and begin so.
pub(crate) fn push_open_text_id(out: &mut KeyBuf, text: &str) {
    out.push(TEXT_TAG);
    push_open_str(out, text);
}

/// The first bytes that are greater than every key with this prefix; none when there are no such.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_encoding_is_for_ever() {
        let bytes = (
            "a\0b".to_owned(),
            Id::new("0b156e3e-bb39-cc04-5170-80b70d217ba2"),
            258_u64,
        )
            .to_bytes();
        let hex = hex::encode(&bytes);
        assert_eq!(
            hex,
            "6100ff620001010b156e3ebb39cc04517080b70d217ba20000000000000102"
        );
        assert_eq!(hex::encode(Id::new("n1").to_bytes()), "026e310001");
        assert_eq!(hex::encode((-1_i64).to_bytes()), "7fffffffffffffff");
    }

    #[test]
    fn borrowed_keys_encode_as_owned_ones() {
        let mut borrowed = KeyBuf::new();
        AsKey::<(String, Id)>::encode_as(&("default", "x"), &mut borrowed);
        let owned = ("default".to_owned(), Id::new("x"));
        assert_eq!(borrowed, owned.to_bytes());
        let mut by_reference = KeyBuf::new();
        AsKey::<(String, Id)>::encode_as(&&owned, &mut by_reference);
        assert_eq!(borrowed, by_reference);
    }

    #[test]
    fn the_end_of_a_prefix_is_its_successor() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 0xff]), Some(vec![2]));
        assert_eq!(prefix_end(&[0xff]), None);
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[\\x00-\\x02a-b\u{ff}]{0,6}",
            any::<String>(),
            any::<[u8; 16]>().prop_map(|bytes| uuid_text(&bytes).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn keys_sort_and_return(a in (text(), text(), any::<u64>(), any::<i64>()),
                                b in (text(), text(), any::<u64>(), any::<i64>())) {
            let a = (a.0, Id::new(a.1), a.2, a.3);
            let b = (b.0, Id::new(b.1), b.2, b.3);
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
            prop_assert_eq!(<(String, Id, u64, i64)>::from_bytes(&a.to_bytes()), Ok(a));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(key) = <(String, Id, u64)>::from_bytes(&bytes) {
                prop_assert_eq!(&key.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
