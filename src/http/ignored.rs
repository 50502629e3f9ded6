//! What of a request has no effect: parameters that no handler read, fields that are none of its
//! body's, headers for what is not built. All of it is named in the answer, in the header
//! `X-Drover-Ignored` and in the warnings of a job, so that no caller takes silence for consent.

use hyper::HeaderMap;

/// The header that names what was ignored.
pub(crate) const HEADER: &str = "x-drover-ignored";

/// Parameters that clients send with every request, whether or not it concerns the route.
pub(super) const EVERYWHERE: [&str; 4] = ["namespace", "pretty", "region", "stale"];

/// Headers of others' clients that say something, and that nothing here acts on.
const HEADERS: [&str; 2] = ["X-Consul-Token", "X-Vault-Token"];

/// The headers of a request that nothing acts on.
pub(super) fn headers(headers: &HeaderMap) -> impl Iterator<Item = String> + '_ {
    let is_set = |name: &&str| headers.get(*name).is_some_and(|value| !value.is_empty());
    HEADERS.into_iter().filter(is_set).map(header)
}

/// How a header is named among what was ignored.
pub(super) fn header(name: &str) -> String {
    format!("header {name}")
}

/// The longest value of the header, bytes: clients and proxies end a connection over longer ones.
const LONGEST: usize = 4 << 10;

/// The names as one header's value: what is no visible ASCII, or parts names, is escaped. Where
/// they are too many, the value ends with how many more there are.
pub(super) fn joined(names: &[String]) -> String {
    let mut out = String::new();
    for (at, name) in names.iter().enumerate() {
        if out.len() + 3 * name.len() > LONGEST {
            let more = format!("and {} more", names.len() - at);
            return if out.is_empty() {
                more
            } else {
                out + ", " + &more
            };
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        for byte in name.bytes() {
            match byte {
                b',' | b'%' => out += &format!("%{byte:02X}"),
                b' '..=b'~' => out.push(char::from(byte)),
                _ => out += &format!("%{byte:02X}"),
            }
        }
    }
    out
}

/// How a field is named among what was ignored.
pub(super) fn field(path: &str) -> String {
    format!("field {path}")
}

/// What the warnings of an answer state of each.
pub(crate) const MEANS_NOTHING: &str = "means nothing here and was ignored";

/// The same as a warning for each.
pub(super) fn warnings(names: Vec<String>) -> impl Iterator<Item = String> {
    names
        .into_iter()
        .map(|name| format!("{name:?} {MEANS_NOTHING}"))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn headers_are_named_that_say_something() {
        let mut sent = HeaderMap::new();
        sent.insert("x-consul-token", HeaderValue::from_static(""));
        sent.insert("x-vault-token", HeaderValue::from_static("v"));
        let named: Vec<String> = headers(&sent).collect();
        assert_eq!(named, ["header X-Vault-Token"]);
    }

    #[test]
    fn names_fit_into_a_header() {
        let names = ["a b", "x,y", "\n\u{e9}"].map(str::to_owned);
        assert_eq!(joined(&names), "a b, x%2Cy, %0A%C3%A9");
        let many = vec!["field \u{e9}".repeat(20); 300];
        let reported = joined(&many);
        assert!(reported.len() < 5_000, "{}", reported.len());
        assert!(reported.ends_with(" more"), "{reported}");
        assert_eq!(joined(&["x".repeat(5_000)]), "and 1 more");
    }
}
