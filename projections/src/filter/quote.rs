//! Go's quoted strings, as the grammar reads them.

/// Reads a literal with its quotes; `None` where Go would refuse it.
///
/// A backquoted literal is taken as it stands, without carriage returns. In a double-quoted one
/// the escapes of Go's specification hold; since the grammar ends it at the first double quote,
/// `\"` never occurs inside.
pub(super) fn unquote(literal: &str) -> Option<String> {
    let quote = literal.chars().next()?;
    let inner = literal.get(1..literal.len().checked_sub(1)?)?;
    if quote == '`' {
        return Some(inner.replace('\r', ""));
    }
    if inner.contains(['\n', '"']) {
        return None;
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = escape(&rest[at + 1..], &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).ok()
}

/// Reads what follows a backslash, appends its meaning, and returns what is left.
fn escape<'a>(text: &'a str, out: &mut Vec<u8>) -> Option<&'a str> {
    let first = text.chars().next()?;
    let rest = &text[first.len_utf8()..];
    let byte = match first {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        'x' => {
            out.push(u8::try_from(digits(rest, 2, 16)?).ok()?);
            return rest.get(2..);
        }
        '0'..='7' => {
            out.push(u8::try_from(digits(text, 3, 8)?).ok()?);
            return text.get(3..);
        }
        'u' => return code_point(rest, 4, out),
        'U' => return code_point(rest, 8, out),
        _ => return None,
    };
    out.push(byte);
    Some(rest)
}

fn code_point<'a>(text: &'a str, count: usize, out: &mut Vec<u8>) -> Option<&'a str> {
    let found = char::from_u32(digits(text, count, 16)?)?;
    out.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
    text.get(count..)
}

fn digits(text: &str, count: usize, radix: u32) -> Option<u32> {
    let digits = text.get(..count)?;
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(digits, radix).ok()
}
