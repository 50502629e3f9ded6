//! Addresses as they are told: all of them but the credentials in them.
//!
//! The address of an artifact may name a user with a password before the host, and keys behind the
//! question mark. Those are hidden part by part, so that the rest of a change can be read.

/// Parameters of getters, in a query or beside it, that are no credentials.
pub(super) const PLAIN: [&str; 6] = ["archive", "depth", "filename", "ref", "region", "version"];
/// A parameter that is no credential either: a sum, or the address of a file of sums.
pub(super) const CHECKSUM: &str = "checksum";

/// What shows a part that may be a credential.
type Hide<'h> = &'h dyn Fn(&str) -> String;

/// An address, with what may be a credential as `hide` shows it.
pub(super) fn covered(address: &str, hide: Hide<'_>) -> String {
    let (address, fragment) = cut(address, '#');
    let (place, query) = cut(address, '?');
    let mut told = place_of(place, hide);
    if let Some(query) = query {
        let parameters: Vec<String> = query.split('&').map(|one| parameter(one, hide)).collect();
        told.push('?');
        told.push_str(&parameters.join("&"));
    }
    if let Some(fragment) = fragment {
        told.push('#');
        told.push_str(&hidden(fragment, hide));
    }
    told
}

fn cut(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Host and path, behind the scheme where there is one, without whoever asks there.
fn place_of(text: &str, hide: Hide<'_>) -> String {
    let scheme = text.find("://").map(|at| at + 3);
    let begin = scheme.or_else(|| text.find("::").map(|at| at + 2));
    let (before, rest) = text.split_at(begin.unwrap_or_default());
    let authority = cut(rest, '/').0;
    let no_port = |text: &str| !text.bytes().all(|byte| byte.is_ascii_digit());
    let end = match authority.rfind('@') {
        Some(end) => Some(end),
        // A password with a slash in it leaves its beginning where the port would be.
        None if scheme.is_some() && cut(authority, ':').1.is_some_and(no_port) => rest.rfind('@'),
        None => None,
    };
    match end {
        Some(end) => format!("{before}{}{}", hidden(&rest[..end], hide), &rest[end..]),
        None => text.to_owned(),
    }
}

fn parameter(text: &str, hide: Hide<'_>) -> String {
    match text.split_once('=') {
        Some((name, value)) if is_plain(name, value) => text.to_owned(),
        Some((name, value)) => format!("{name}={}", hidden(value, hide)),
        None => hidden(text, hide),
    }
}

/// Whether a parameter is no credential, nor holds one: as an address does, or what is written in
/// such a way that it may be one.
fn is_plain(name: &str, value: &str) -> bool {
    let bare = !value.contains(['%', ';', '?', '@']);
    bare && (name == CHECKSUM || PLAIN.contains(&name))
}

fn hidden(part: &str, hide: Hide<'_>) -> String {
    match part {
        "" => String::new(),
        part => hide(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_but_for_the_credentials_in_it() {
        for (address, told) in [
            ("https://example.com/app-1.2.tgz", ""),
            ("https://example.com:8443/@team/app@1.2", ""),
            ("http://[::1]:80/x", ""),
            ("github.com/team/app?ref=v1.2&depth=1", ""),
            ("https://h/x?archive=zip&checksum=sha256:0a1b", ""),
            ("https://h/x?checksum=file:https://h/sums", ""),
            ("local/file", ""),
            ("", ""),
            ("https://me:canary@h/x", "https://***@h/x"),
            ("https://canary@h:80/x@1", "https://***@h:80/x@1"),
            ("https://me:can/ary@h/x", "https://***@h/x"),
            ("git::ssh://canary@h/x", "git::ssh://***@h/x"),
            ("git::canary@h:team/x", "git::***@h:team/x"),
            ("canary@h:team/x", "***@h:team/x"),
            ("https://@h/x", ""),
            (
                "https://h/x?sshkey=canary&ref=v1",
                "https://h/x?sshkey=***&ref=v1",
            ),
            ("https://h/x?canary", "https://h/x?***"),
            ("https://h/x?sshkey=&", ""),
            ("https://h/x?ref=v1;key=canary", "https://h/x?ref=***"),
            ("https://h/x?ref=%63anary", "https://h/x?ref=***"),
            (
                "https://h/x?checksum=file:https://me:canary@h/sums",
                "https://h/x?checksum=***",
            ),
            (
                "https://h/x?checksum=file:https://h/sums?key=canary",
                "https://h/x?checksum=***",
            ),
            ("https://h/x?a=canary#canary", "https://h/x?a=***#***"),
            ("file:https://me:canary@h/sums", "file:https://***@h/sums"),
        ] {
            let wanted = if told.is_empty() { address } else { told };
            assert_eq!(covered(address, &|_| "***".to_owned()), wanted, "{address}");
        }
    }
}
