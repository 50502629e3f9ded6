//! What passes before the first call: the environment by which a program knows that it is started
//! as a plugin, and the line in which it says where it listens.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The variable by which a program knows that it is started as a plugin, and what it holds.
pub const COOKIE: (&str, &str) = (
    "NOMAD_PLUGIN_MAGIC_COOKIE",
    "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
);
/// The versions of the protocol that are understood here.
pub const VERSIONS: (&str, &str) = ("PLUGIN_PROTOCOL_VERSIONS", "1");
/// The ports from which a plugin that cannot listen on a socket takes one.
pub const PORTS: [(&str, &str); 2] = [("PLUGIN_MIN_PORT", "10000"), ("PLUGIN_MAX_PORT", "25000")];
/// The version of the handshake itself.
const CORE: &str = "1";
/// The longest text that is no certificate: some plugins say something else in its place.
const NO_CERTIFICATE: usize = 50;

/// Where a plugin listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A port.
    Tcp(SocketAddr),
}

/// Reads the line that a plugin says when it listens.
///
/// # Errors
/// It is no such line, or of a plugin that is called otherwise.
pub fn parse(line: &str) -> Result<Address, String> {
    let parts: Vec<&str> = line.trim().splitn(6, '|').collect();
    let [core, version, network, address, protocol, rest @ ..] = parts.as_slice() else {
        return Err(format!("{line:?} says not where it listens"));
    };
    if *core != CORE || *version != VERSIONS.1 {
        let wanted = (CORE, VERSIONS.1);
        return Err(format!(
            "it speaks version {core}.{version} of the protocol, not {}.{}",
            wanted.0, wanted.1
        ));
    }
    if *protocol != "grpc" {
        return Err(format!("it speaks {protocol:?}, not \"grpc\""));
    }
    if rest.iter().any(|rest| certificate(rest) > NO_CERTIFICATE) {
        return Err("it requires TLS, which was not requested".to_owned());
    }
    match *network {
        "unix" if address.starts_with('/') => Ok(Address::Unix(address.into())),
        "tcp" => match address.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Address::Tcp(address)),
            _ => Err(format!("it listens on {address:?}, which is not here")),
        },
        _ => Err(format!("it listens on {network} {address:?}")),
    }
}

fn certificate(rest: &str) -> usize {
    rest.split('|').next().unwrap_or_default().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_07_a_plugin_says_where_it_listens_in_one_line() {
        for (line, wanted) in [
            (
                "1|1|unix|/run/a b|grpc",
                Ok(Address::Unix("/run/a b".into())),
            ),
            (
                "1|1|unix|/run/p|grpc|\n",
                Ok(Address::Unix("/run/p".into())),
            ),
            (
                "1|1|unix|/run/p|grpc||true",
                Ok(Address::Unix("/run/p".into())),
            ),
            (
                "1|1|tcp|127.0.0.1:10000|grpc",
                Ok(Address::Tcp(([127, 0, 0, 1], 10_000).into())),
            ),
            ("1|1|tcp|10.0.0.1:10000|grpc", Err("which is not here")),
            ("1|1|unix|relative|grpc", Err("it listens on unix")),
            ("1|1|unix|/run/p|netrpc", Err("it speaks \"netrpc\"")),
            ("1|2|unix|/run/p|grpc", Err("it speaks version 1.2")),
            ("2|1|unix|/run/p|grpc", Err("it speaks version 2.1")),
            ("1|1|unix|/run/p", Err("says not where it listens")),
            ("usage: a program", Err("says not where it listens")),
        ] {
            match (parse(line), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{line}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{line}: {why}"),
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
        let with = |length: usize| format!("1|1|unix|/p|grpc|{}|true", "c".repeat(length));
        assert!(parse(&with(50)).is_ok());
        assert!(parse(&with(51)).expect_err("refused").contains("TLS"));
    }
}
