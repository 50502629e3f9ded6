//! What a certificate says of the agent it is for.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What an agent may do among agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A server: it holds the state of its region.
    Server,
    /// A client: it runs tasks.
    Client,
}

impl Role {
    /// As it stands in names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// The name of one that has this role in `region`.
    #[must_use]
    pub fn in_region(self, region: &str) -> String {
        format!("{}.{region}.nomad", self.name())
    }

    /// The role and the region that a name stands for.
    fn of(name: &str) -> Option<(Self, &str)> {
        let inner = name.strip_suffix(".nomad")?;
        let (role, region) = inner.split_once('.')?;
        let role = [Self::Server, Self::Client]
            .into_iter()
            .find(|known| known.name() == role)?;
        (!region.is_empty() && !region.contains('*')).then_some((role, region))
    }
}

/// What can be read of any certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The common name of its subject.
    pub common_name: String,
    /// The common name of its issuer.
    pub issuer: String,
    /// The serial number, in hexadecimal with colons.
    pub serial: String,
    /// The names of machines it is for, in lower case.
    pub names: Vec<String>,
    /// The addresses it is for.
    pub addresses: Vec<IpAddr>,
    /// From when on it holds, Unix seconds.
    pub from: i64,
    /// Until when it holds, Unix seconds.
    pub until: i64,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// The names that what it signs is confined to; empty: any.
    pub confined_to: Vec<String>,
}

impl Certificate {
    /// Reads one; `None` where the bytes are no certificate.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, read) = X509Certificate::from_der(der).ok()?;
        let common_name = |name: &x509_parser::x509::X509Name<'_>| {
            let first = name.iter_common_name().next();
            first
                .and_then(|name| name.as_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let mut certificate = Self {
            common_name: common_name(read.subject()),
            issuer: common_name(read.issuer()),
            serial: read.raw_serial_as_string(),
            from: read.validity().not_before.timestamp(),
            until: read.validity().not_after.timestamp(),
            is_authority: read.is_ca(),
            ..Self::default()
        };
        let alternatives = read.subject_alternative_name().ok().flatten();
        for name in alternatives.iter().flat_map(|of| &of.value.general_names) {
            match name {
                GeneralName::DNSName(name) => certificate.names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => certificate.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        let constraints = read.name_constraints().ok().flatten();
        let permitted = constraints.and_then(|of| of.value.permitted_subtrees.as_ref());
        for subtree in permitted.into_iter().flatten() {
            if let GeneralName::DNSName(name) = subtree.base {
                certificate.confined_to.push(name.to_owned());
            }
        }
        Some(certificate)
    }

    /// Whether an authority with this certificate may sign one for this name of a machine.
    #[must_use]
    pub fn may_sign(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let mut domains = self.confined_to.iter().map(|d| d.to_ascii_lowercase());
        self.confined_to.is_empty()
            || domains.any(|domain| {
                let domain = domain.trim_start_matches('.');
                let rest = name.strip_suffix(domain);
                rest.is_some_and(|rest| domain.is_empty() || rest.is_empty() || rest.ends_with('.'))
            })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// The certificate that the other end of a connection has shown, and that was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name of its subject.
    pub common_name: String,
    /// The names of machines it is for, in lower case.
    pub names: Vec<String>,
    /// The role among agents that it is for; a server's where it is for both.
    pub role: Option<Role>,
    /// The region of that role.
    pub region: String,
    /// Until when it holds, Unix seconds.
    pub until: i64,
    /// SHA-256 of it, in hexadecimal: others may have its names.
    pub fingerprint: String,
}

impl PeerCertificate {
    /// Reads what was shown; `None` where it is no certificate.
    #[must_use]
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let read = Certificate::read(der)?;
        Some(Self {
            fingerprint: hex::encode(Sha256::digest(der)),
            ..Self::from(read)
        })
    }

    /// Whether an agent that looks at no names may take it for a server's: it does not name
    /// itself a client's or a person's.
    #[must_use]
    pub fn may_be_server(&self) -> bool {
        let person = |name: &String| name.starts_with("cli.") && name.ends_with(".nomad");
        self.role != Some(Role::Client) && !self.names.iter().any(person)
    }

    /// Whether it is for this role in this region.
    #[must_use]
    pub fn is(&self, role: Role, region: &str) -> bool {
        let mut roles = self.names.iter().filter_map(|name| Role::of(name));
        roles.any(|(named, of)| named == role && of.eq_ignore_ascii_case(region))
    }
}

impl From<Certificate> for PeerCertificate {
    fn from(read: Certificate) -> Self {
        let roles: Vec<_> = read
            .names
            .iter()
            .filter_map(|name| Role::of(name))
            .collect();
        let server = roles.iter().find(|(role, _)| *role == Role::Server);
        let role = server.or_else(|| roles.first()).copied();
        Self {
            role: role.map(|(role, _)| role),
            region: role.map_or_else(String::new, |(_, region)| region.to_owned()),
            common_name: read.common_name,
            until: read.until,
            names: read.names,
            fingerprint: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(names: &[&str]) -> PeerCertificate {
        PeerCertificate::from(Certificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Certificate::default()
        })
    }

    #[test]
    fn a_role_is_what_a_whole_name_says_and_nothing_else() {
        let client = peer(&["localhost", "client.eu.west.nomad"]);
        assert_eq!(client.role, Some(Role::Client));
        assert_eq!(client.region, "eu.west");
        assert!(client.is(Role::Client, "EU.west"));
        assert!(!client.is(Role::Server, "eu.west") && !client.is(Role::Client, "eu"));
        let both = peer(&["client.a.nomad", "server.b.nomad"]);
        assert_eq!((both.role, both.region.as_str()), (Some(Role::Server), "b"));
        assert!(both.is(Role::Client, "a") && !both.is(Role::Server, "a"));
        for name in [
            "server.nomad",
            "server..nomad",
            "*.global.nomad",
            "server.*.nomad",
            "xserver.global.nomad",
            "server.global.nomad.evil.org",
            "cli.global.nomad",
            "server.global.consul",
            "",
        ] {
            assert_eq!(peer(&[name]).role, None, "{name}");
            assert!(!peer(&[name]).is(Role::Server, "global"), "{name}");
        }
    }

    #[test]
    fn an_authority_signs_names_of_its_domains_label_by_label() {
        let of = |domains: &[&str]| Certificate {
            confined_to: domains.iter().map(|name| (*name).to_owned()).collect(),
            ..Certificate::default()
        };
        let name = "server.EU.nomad";
        let any: &[&str] = &[];
        for domains in [any, &["x", "Nomad"], &[".nomad"], &["eu.nomad"], &[""]] {
            assert!(of(domains).may_sign(name), "{domains:?}");
        }
        for domains in [&["mad"][..], &["dc.nomad", "localhost"], &["u.nomad"]] {
            assert!(!of(domains).may_sign(name), "{domains:?}");
        }
        assert!(!of(&["nomad"]).may_sign("server.eu.corpnomad"));
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        assert_eq!(Certificate::read(b""), None);
        assert_eq!(Certificate::read(&[0x30, 0x82, 0xff, 0xff, 0x30]), None);
    }
}
