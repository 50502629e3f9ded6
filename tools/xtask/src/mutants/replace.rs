//! What a function could return instead of what it works out, by the type it says it returns.

use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// At most so many answers for one function: pairs of pairs of flags would be endless.
const MOST: usize = 4;

/// Expressions that stand for the result of a function; none where no value is easily made.
pub(crate) fn results(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, kind) => values(kind),
    }
}

fn values(kind: &Type) -> Vec<String> {
    let mut found = match kind {
        Type::Path(path) => path.path.segments.last().map_or_else(Vec::new, |last| {
            named(&last.ident.to_string(), &last.arguments)
        }),
        Type::Reference(reference) => referenced(&reference.elem, reference.mutability.is_some()),
        Type::Tuple(tuple) => tuples(&tuple.elems.iter().collect::<Vec<_>>()),
        Type::Paren(inner) => values(&inner.elem),
        Type::Group(inner) => values(&inner.elem),
        _ => Vec::new(),
    };
    found.truncate(MOST);
    found
}

fn named(name: &str, arguments: &PathArguments) -> Vec<String> {
    let inner = || first_type(arguments).map_or_else(Vec::new, values);
    match name {
        "bool" => owned(&["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => owned(&["0", "1"]),
        "f32" | "f64" => owned(&["0.0", "1.0"]),
        "Option" => {
            let some = inner().into_iter().map(|value| format!("Some({value})"));
            std::iter::once("None".to_owned()).chain(some).collect()
        }
        // An alias of one crate or another: `fmt::Result` has no argument and holds nothing.
        "Result" if first_type(arguments).is_none() => owned(&["Ok(())"]),
        "Result" => wrapped("Ok", inner()),
        "Box" | "Arc" | "Rc" if inner().is_empty() => Vec::new(),
        "Box" | "Arc" | "Rc" => owned(&["Default::default()"]),
        "Ordering" => owned(&["std::cmp::Ordering::Equal", "std::cmp::Ordering::Less"]),
        _ => owned(&["Default::default()"]),
    }
}

fn referenced(kind: &Type, mutable: bool) -> Vec<String> {
    match kind {
        _ if mutable => Vec::new(),
        Type::Path(path) if path.path.is_ident("str") => owned(&["\"\""]),
        Type::Slice(_) => owned(&["&[]"]),
        _ => Vec::new(),
    }
}

/// One element at a time is another than its first value, so that each is seen.
fn tuples(kinds: &[&Type]) -> Vec<String> {
    let each: Vec<Vec<String>> = kinds.iter().map(|kind| values(kind)).collect();
    if each.iter().any(Vec::is_empty) {
        return Vec::new();
    }
    if each.is_empty() {
        return owned(&["()"]);
    }
    let most = each.iter().map(Vec::len).max().unwrap_or(1);
    let row = |at: usize| {
        let parts: Vec<&str> = each
            .iter()
            .map(|some| some[at % some.len()].as_str())
            .collect();
        let comma = if parts.len() == 1 { "," } else { "" };
        format!("({}{comma})", parts.join(", "))
    };
    (0..most).map(row).collect()
}

fn wrapped(name: &str, inner: Vec<String>) -> Vec<String> {
    inner
        .into_iter()
        .map(|value| format!("{name}({value})"))
        .collect()
}

fn first_type(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else {
        return None;
    };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    })
}

fn owned(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str) -> Vec<String> {
        results(&syn::parse_str(output).expect("a return type"))
    }

    #[test]
    fn results_follow_from_their_type() {
        assert_eq!(of(""), ["()"]);
        assert_eq!(of("-> bool"), ["true", "false"]);
        assert_eq!(of("-> u64"), ["0", "1"]);
        assert_eq!(of("-> Option<bool>"), ["None", "Some(true)", "Some(false)"]);
        assert_eq!(of("-> Result<(), Error>"), ["Ok(())"]);
        assert_eq!(of("-> fmt::Result"), ["Ok(())"]);
        assert_eq!(
            of("-> io::Result<(bool, u8)>"),
            ["Ok((true, 0))", "Ok((false, 1))"]
        );
        assert_eq!(of("-> &'a str"), ["\"\""]);
        assert_eq!(of("-> Vec<u8>"), ["Default::default()"]);
        assert_eq!(of("-> Option<&Row>"), ["None"]);
    }

    #[test]
    fn what_cannot_be_made_is_left_alone() {
        for output in [
            "-> !",
            "-> impl Iterator",
            "-> &mut u8",
            "-> &Row",
            "-> Box<dyn Fn()>",
        ] {
            assert_eq!(of(output), [""; 0], "{output}");
        }
    }
}
