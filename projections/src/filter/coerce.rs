//! Reading the value of an expression as the type of the field it is compared with.
//!
//! The forms accepted are those of Go's `strconv` with base 0: `0x1f`, `0b1`, `0o7`, `1_000`.

/// Why a text is not a value of the wanted type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoerceError {
    /// It does not look like one.
    Syntax,
    /// It looks like one and does not fit.
    Range,
}

pub(super) fn boolean(text: &str) -> Result<bool, CoerceError> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(CoerceError::Syntax),
    }
}

pub(super) fn signed(text: &str) -> Result<i64, CoerceError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let size = i128::from(unsigned(digits)?);
    i64::try_from(if negative { -size } else { size }).map_err(|_| CoerceError::Range)
}

pub(super) fn unsigned(text: &str) -> Result<u64, CoerceError> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix, prefixed) = if let Some(digits) = lower.strip_prefix("0x") {
        (digits, 16, true)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (digits, 2, true)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (digits, 8, true)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (&lower[1..], 8, true)
    } else {
        (lower.as_str(), 10, false)
    };
    let plain = without_underscores(digits, prefixed).ok_or(CoerceError::Syntax)?;
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return Err(CoerceError::Syntax);
    }
    u64::from_str_radix(&plain, radix).map_err(|_| CoerceError::Range)
}

/// Underscores may stand between digits and between a base's prefix and a digit.
fn without_underscores(digits: &str, prefixed: bool) -> Option<String> {
    let misplaced =
        digits.contains("__") || digits.ends_with('_') || (!prefixed && digits.starts_with('_'));
    (!misplaced).then(|| digits.replace('_', ""))
}

pub(super) fn double(text: &str) -> Result<f64, CoerceError> {
    let number: f64 = float_text(text)?.parse().map_err(|_| CoerceError::Syntax)?;
    if number.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) {
        return Err(CoerceError::Range);
    }
    Ok(number)
}

pub(super) fn single(text: &str) -> Result<f32, CoerceError> {
    let number: f32 = float_text(text)?.parse().map_err(|_| CoerceError::Syntax)?;
    if number.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) {
        return Err(CoerceError::Range);
    }
    Ok(number)
}

/// Decimal forms only; Rust's parser takes the same names for infinity and "not a number".
fn float_text(text: &str) -> Result<&str, CoerceError> {
    if text.contains(['x', 'X', '_']) {
        return Err(CoerceError::Syntax);
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.eq_ignore_ascii_case("nan") && unsigned.len() != text.len() {
        return Err(CoerceError::Syntax);
    }
    Ok(text)
}

/// An index into a list, written as a part of a selector; an empty one means the first.
pub(super) fn index(text: &str) -> Result<i64, CoerceError> {
    if text.is_empty() { Ok(0) } else { signed(text) }
}
