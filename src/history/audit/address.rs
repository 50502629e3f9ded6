//! Addresses as they are shown: without the credentials in them.
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
    let (before, rest) = address.split_at(begin_of(address));
    let (place, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    if may_begin_password(place) && tail.contains('@') {
        // A password with such a sign in it, or one behind it: its end cannot be found.
        return format!("{before}{}", hidden(rest, hide));
    }
    let mut covered = format!("{before}{}", place_of(place, hide));
    let (query, fragment) = cut(tail, '#');
    if let Some(query) = query.strip_prefix('?') {
        let parameters: Vec<String> = query.split('&').map(|one| parameter(one, hide)).collect();
        covered.push('?');
        covered.push_str(&parameters.join("&"));
    }
    if let Some(fragment) = fragment {
        covered.push('#');
        covered.push_str(&hidden(fragment, hide));
    }
    covered
}

fn cut(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Where the host begins, or the user information before it: behind the scheme and the getter,
/// where these exist.
fn begin_of(address: &str) -> usize {
    let head = address.split(['?', '#']).next().unwrap_or_default();
    let behind = |sign: &str, others: &str| {
        let at = head.find(sign)?;
        let named = |one: char| one.is_ascii_alphanumeric() || others.contains(one);
        head[..at].chars().all(named).then_some(at + sign.len())
    };
    let scheme = behind("://", "+-.:");
    scheme.or_else(|| behind("::", "+-.")).unwrap_or_default()
}

fn authority(place: &str) -> &str {
    cut(place, '/').0
}

/// Whether a password may begin in host or path: behind user information, a port, or what is
/// written like either. The colons of an IPv6 address do not count.
fn may_begin_password(place: &str) -> bool {
    let numbers = place.strip_prefix('[');
    let behind = numbers.and_then(|rest| rest.split_once(']'));
    let bare = behind.map_or(place, |(_, behind)| behind);
    authority(bare).contains('@') || bare.contains(':')
}

/// Host and path, without user information. A password may hold any sign, so what is before the
/// last one that may end it is hidden.
fn place_of(place: &str, hide: Hide<'_>) -> String {
    let (before, after) = place.split_at(place.rfind('@').unwrap_or_default());
    match authority(place).contains('@') || before.contains(':') {
        true => format!("{}{after}", hidden(before, hide)),
        false => place.to_owned(),
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
        for (address, expected) in [
            ("https://example.com/app-1.2.tgz", ""),
            ("https://example.com/@team/app@1.2", ""),
            ("https://example.com:8443/team/app", ""),
            ("http://[::1]:80/x", ""),
            ("github.com/team/app?ref=v1.2&depth=1", ""),
            ("https://h/x?archive=zip&checksum=sha256:0a1b", ""),
            ("https://h/x?checksum=file:https://h/sums", ""),
            ("local/file", ""),
            ("", ""),
            ("https://me:canary@h/x", "https://***@h/x"),
            ("https://canary@h:80/x", "https://***@h:80/x"),
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
            (
                "h/x?checksum=file:https://me:canary@h/sums",
                "h/x?checksum=***",
            ),
        ] {
            let wanted = if expected.is_empty() {
                address
            } else {
                expected
            };
            assert_eq!(covered(address, &|_| "***".to_owned()), wanted, "{address}");
        }
    }

    #[test]
    fn nothing_of_a_password_is_told_whatever_is_wrong_with_the_address() {
        for (address, expected) in [
            ("https://me:ca#nary@h", "https://***"),
            ("https://me:ca?nary@h", "https://***"),
            ("https://me:12?34@h/x", "https://***"),
            ("https://me@h:can/a?key=r@y", "https://***"),
            ("https://h:80/x?sshkey=can@ary", "https://***"),
            ("https://me:12/34@h/x", "https://***@h/x"),
            ("https://me:c@n/ary@h/x", "https://***@h/x"),
            ("https://example.com:8443/@team/app@1.2", "https://***@1.2"),
            ("https:/me:canary@h", "***@h"),
            ("me:can/ary@h", "***@h"),
            ("me:canary@h:team/x", "***@h:team/x"),
            ("h/x/https://me:canary@h", "***@h"),
        ] {
            assert_eq!(
                covered(address, &|_| "***".to_owned()),
                expected,
                "{address}"
            );
        }
    }

    #[test]
    fn no_password_is_told_of_an_address_in_an_address_or_behind_a_host_that_is_none() {
        for (address, expected) in [
            ("https://me:canary@h/x", "https://***@h/x"),
            (
                "https://h/x?url=https://me:canary@b/y",
                "https://h/x?url=***",
            ),
            (
                "git::https://h/x?checksum=file:https://me:canary@h/sums",
                "git::https://h/x?checksum=***",
            ),
            ("https://a/x;https://me:canary@b", "https://***@b"),
            ("https://a/x&https://me:canary@b", "https://***@b"),
            ("https://a/x;https://me:ca#nary@b", "https://***"),
            ("https://ci.bot:/canary@h/x", "https://***@h/x"),
            ("https://john.doe:12/canary@h/x", "https://***@h/x"),
            ("https://me:12/canary@h", "https://***@h"),
            ("https://me:/canary@h", "https://***@h"),
            ("https://me:./canary@h", "https://***@h"),
            ("https://me:),canary@h", "https://***@h"),
            ("https:///me:canary@h", "https://***@h"),
            ("https:///me:ca?nary@h", "https://***"),
            ("kafka://a:9092,me:canary@b", "kafka://***@b"),
            // It might be a user and a password with such a sign.
            ("https://h:8080/x@y", "https://***@y"),
            ("kafka://a:9092,b:9092", "kafka://a:9092,b:9092"),
            ("sha256:0a1b2c3d", "sha256:0a1b2c3d"),
            ("md5:0a1b2c3d", "md5:0a1b2c3d"),
            ("sha1:0a1b2c3d", "sha1:0a1b2c3d"),
            ("sha512:0a1b2c3d", "sha512:0a1b2c3d"),
            // Any parameter may be a key, but for those that are known.
            (
                "https://example.com/a/b?c=d",
                "https://example.com/a/b?c=***",
            ),
            ("http://[::1]/x?sshkey=can@ary", "http://[::1]/x?sshkey=***"),
        ] {
            let shown = covered(address, &|_| "***".to_owned());
            assert_eq!(shown, expected, "{address}");
        }
    }

    /// Each sign is looked at a few times, however many of them there are.
    #[test]
    fn a_long_address_of_nothing_but_such_signs_is_gone_through_once() {
        for part in ["://", "@", ":", "?&", "[", "#", "=&"] {
            let long = part.repeat((1 << 20) / part.len());
            let shown = covered(&long, &|_| String::new());
            assert!(shown.len() <= long.len());
        }
    }
}
