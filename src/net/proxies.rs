//! Proxies that say for whom they forward: those that an operator trusts to, and no others.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use ipnet::IpNet;

use drover_config::trusted_proxies;

/// The header to which proxies add the address that called them, the last one last.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Proxies that are trusted to say for whom they forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// Reads addresses (`10.0.0.5`) and prefixes (`10.0.0.0/24`).
    ///
    /// # Errors
    /// The one that is neither.
    pub fn read(texts: &[String]) -> Result<Self, String> {
        trusted_proxies(texts).map(Self)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|net| net.contains(&address))
    }

    /// For whom a proxy forwards: the last address that called it, or one before it that is trusted
    /// as well. None where a trusted one says nothing that can be read, or the caller is no trusted
    /// proxy.
    #[must_use]
    pub fn client(&self, from: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
        if !self.trusts(from) {
            return None;
        }
        let all = headers.get_all(FORWARDED_FOR).into_iter();
        // Callers may write anything before what the proxy adds: each part is read by itself.
        let all: Vec<&[u8]> = all.map(|value| value.as_bytes()).collect();
        let mut last = None;
        let parts = all.iter().rev();
        for part in parts.flat_map(|value| value.rsplit(|&byte| byte == b',')) {
            let part = std::str::from_utf8(part).unwrap_or("?").trim();
            let socket = part.parse::<SocketAddr>().map(|socket| socket.ip());
            // What cannot be read may be from anywhere: the proxy that handed it on is as far as is
            // known.
            let Ok(address) = part.parse::<IpAddr>().or(socket) else {
                break;
            };
            last = Some(address.to_canonical());
            if !self.trusts(address) {
                break;
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> Proxies {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        Proxies::read(&texts).unwrap()
    }

    #[test]
    fn a_trusted_proxy_says_whom_it_asks_for_and_nobody_else_does() {
        let trusted = proxies(&["10.0.0.5", "10.1.0.0/16", "fd00::/8"]);
        for (from, forwarded_for, client) in [
            ("10.0.0.6", "192.0.2.1", None),
            ("10.0.0.5", "192.0.2.1", Some("192.0.2.1")),
            ("10.0.0.5", "192.0.2.1:4000", Some("192.0.2.1")),
            ("::ffff:10.0.0.5", "192.0.2.1", Some("192.0.2.1")),
            ("fd00::1", "2001:db8::7", Some("2001:db8::7")),
            // What callers say themselves stands before what the proxy adds.
            ("10.0.0.5", "10.0.0.1, 192.0.2.1", Some("192.0.2.1")),
            (
                "10.0.0.5",
                "192.0.2.9, 192.0.2.1, 10.1.2.3",
                Some("192.0.2.1"),
            ),
            ("10.0.0.5", "me, 10.1.2.3", Some("10.1.2.3")),
            ("10.0.0.5", "unknown", None),
            ("10.0.0.5", "", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED_FOR, forwarded_for.parse().unwrap());
            let found = trusted.client(from.parse().unwrap(), &headers);
            assert_eq!(
                found,
                client.map(|text| text.parse().unwrap()),
                "{from}: {forwarded_for}"
            );
        }
        // Whatever callers write before it.
        let mut headers = HeaderMap::new();
        let forwarded_for = hyper::header::HeaderValue::from_bytes(b"\xff, 192.0.2.1").unwrap();
        headers.insert(FORWARDED_FOR, forwarded_for);
        let found = trusted.client("10.0.0.5".parse().unwrap(), &headers);
        assert_eq!(found, Some("192.0.2.1".parse().unwrap()));
        // Of several headers the last is the nearest.
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_FOR, "192.0.2.9".parse().unwrap());
        headers.append(FORWARDED_FOR, "192.0.2.1".parse().unwrap());
        let found = trusted.client("10.0.0.5".parse().unwrap(), &headers);
        assert_eq!(found, Some("192.0.2.1".parse().unwrap()));
        let refused = Proxies::read(&["10.0.0.0/40".to_owned()]).unwrap_err();
        assert_eq!(
            refused,
            "http_trusted_proxies: \"10.0.0.0/40\" is no address or prefix"
        );
    }
}
