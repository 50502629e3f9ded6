//! `tls cert`: certificates of agents and of their callers.

use super::{CERTIFICATE, KEY, absent, create, dated, read, show};
use crate::cli::out::Out;
use crate::net::tls::Certificate;
use anyhow::{Context, Result, anyhow, bail};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use std::net::IpAddr;

/// What can be done with certificates.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Verb {
    /// Make a certificate and its key, signed by an authority
    Create(Create),
    /// Show a certificate
    Info(Info),
}

/// Flags of `tls cert create`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("kind").required(true))]
#[command(after_help = "Examples:
  drover tls cert create -server -additional-ipaddress 10.0.0.5    for the server at 10.0.0.5
  drover tls cert create -client                                   for clients
  drover tls cert create -cli                                      for people: NOMAD_CLIENT_CERT

They are saved as <region>-<kind>-<domain>.pem and <region>-<kind>-<domain>-key.pem, here.")]
pub(in crate::cli) struct Create {
    /// For a server: who has it may read all of the cluster's state
    #[arg(long, group = "kind")]
    server: bool,
    /// For a client
    #[arg(long, group = "kind")]
    client: bool,
    /// For whoever calls the HTTP API
    #[arg(long, group = "kind")]
    cli: bool,
    /// Another name that it is for; may be repeated
    #[arg(long, value_name = "NAME")]
    additional_dnsname: Vec<String>,
    /// Another address that it is for; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    additional_ipaddress: Vec<IpAddr>,
    /// The authority's certificate; default <domain>-agent-ca.pem
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// The authority's key; default <domain>-agent-ca-key.pem
    #[arg(long, value_name = "FILE")]
    key: Option<String>,
    /// How many days it is valid
    #[arg(long, default_value = "365", value_name = "N")]
    days: u32,
    /// Another domain that it has a name in, beside that of nomad, which agents verify
    #[arg(long, default_value = "nomad")]
    domain: String,
    /// The region of the agents
    #[arg(
        long,
        visible_alias = "region",
        env = "NOMAD_REGION",
        default_value = "global"
    )]
    cluster_region: String,
}

/// Arguments of `tls cert info`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Info {
    /// The certificate's file
    #[arg(value_name = "FILE")]
    file: String,
}

/// Runs a verb.
pub(super) fn run(verb: &Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Create(args) => make(args, out),
        Verb::Info(args) => {
            show(&read(&args.file)?, out);
            Ok(0)
        }
    }
}

const WARNING: &str = "==> WARNING: who has a server's certificate may become a server and read \
    all of the\n    cluster's state, keys and tokens included. Keep it on servers, and as safe as \
    the\n    authority's key.";

fn make(args: &Create, out: &Out) -> Result<u8> {
    let kind = match (args.server, args.client) {
        (true, _) => "server",
        (_, true) => "client",
        _ => "cli",
    };
    let (region, domain) = (&args.cluster_region, &args.domain);
    let cert_file = format!("{region}-{kind}-{domain}.pem");
    let key_file = format!("{region}-{kind}-{domain}-key.pem");
    absent(&[&cert_file, &key_file])?;
    let or_usual = |given: &Option<String>, usual: &str| {
        given
            .clone()
            .unwrap_or_else(|| format!("{domain}-agent-ca{usual}.pem"))
    };
    let (ca_file, ca_key) = (or_usual(&args.ca, ""), or_usual(&args.key, "-key"));
    let (issuer, authority) = issuer(&ca_file, &ca_key)?;
    let params = params(args, kind, &authority)
        .with_context(|| format!("{ca_file} signs no certificate for a {kind}"))?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    if args.server {
        out.line(WARNING);
    }
    out.line(&format!("==> Using CA file {ca_file} and CA key {ca_key}"));
    create(&key_file, &key.serialize_pem(), KEY)?;
    create(&cert_file, &certificate.pem(), CERTIFICATE)?;
    let title = match kind {
        "server" => "Server",
        "client" => "Client",
        _ => "Cli",
    };
    out.line(&format!("==> {title} Certificate saved to: {cert_file}"));
    out.line(&format!("==> {title} Certificate key saved to: {key_file}"));
    Ok(0)
}

/// What an agent of this kind goes by in its region, whatever the domain.
fn role(args: &Create, kind: &str) -> String {
    format!("{kind}.{}.nomad", args.cluster_region)
}

/// An authority that signs, and what its certificate says.
fn issuer(ca_file: &str, ca_key: &str) -> Result<(Issuer<'static, KeyPair>, Certificate)> {
    let text = |file: &str| {
        let hint = "make an authority with drover tls ca create, or name its files with -ca and \
            -key";
        std::fs::read_to_string(file).with_context(|| format!("cannot read {file}; {hint}"))
    };
    let (pem, key_pem) = (text(ca_file)?, text(ca_key)?);
    let key = KeyPair::from_pem(&key_pem).map_err(|error| anyhow!("{ca_key}: {error}"))?;
    let authority: Certificate = read(ca_file)?;
    if !authority.is_authority {
        bail!("{ca_file} is no authority's certificate");
    }
    let all = crate::net::tls::certificates(pem.as_bytes());
    let all = all.map_err(|why| anyhow!("{ca_file} {why}"))?;
    let own = all.first().context("a certificate was read above")?;
    if !own
        .windows(key.public_key_raw().len())
        .any(|part| part == key.public_key_raw())
    {
        bail!("{ca_key} is not the key of {ca_file}");
    }
    let issuer =
        Issuer::from_ca_cert_der(own, key).map_err(|error| anyhow!("{ca_file}: {error}"))?;
    Ok((issuer, authority))
}

fn params(args: &Create, kind: &str, authority: &Certificate) -> Result<CertificateParams> {
    let name = format!("{kind}.{}.{}", args.cluster_region, args.domain);
    let role = role(args, kind);
    // Without the role's name a certificate could pass for that of a server; with it, no agent
    // would take its other names.
    if !authority.may_sign(&role) {
        bail!(
            "it may not sign {role}, by which agents know each other: make another authority with \
             drover tls ca create"
        );
    }
    let mut names = vec![role.clone()];
    if !name.eq_ignore_ascii_case(&role) {
        names.push(name.clone());
    }
    names.push("localhost".to_owned());
    if kind != "cli" {
        names.push("127.0.0.1".to_owned());
    }
    names.extend(args.additional_dnsname.iter().cloned());
    names.extend(args.additional_ipaddress.iter().map(ToString::to_string));
    let params = CertificateParams::new(names);
    let mut params = params.map_err(|error| anyhow!("a name that is not valid: {error}"))?;
    dated(&mut params, args.days)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.is_ca = rcgen::IsCa::ExplicitNoCa;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    // Agents call each other: a server's certificate is shown as a caller's as well.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::{Loader, Role, TlsSettings};
    use rcgen::{BasicConstraints, GeneralSubtree, IsCa, NameConstraints};
    use std::path::Path;

    fn wanted(domain: &str) -> Create {
        Create {
            server: false,
            client: false,
            cli: false,
            additional_dnsname: Vec::new(),
            additional_ipaddress: Vec::new(),
            ca: None,
            key: None,
            days: 9,
            domain: domain.to_owned(),
            cluster_region: "eu".to_owned(),
        }
    }

    /// An authority in this directory, bound to these domains if to any; names its files.
    fn authority(dir: &Path, bound_to: &[&str]) -> [String; 2] {
        let mut params = CertificateParams::default();
        dated(&mut params, 9).expect("days");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        if !bound_to.is_empty() {
            let domains = bound_to.iter().map(|domain| (*domain).to_owned());
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: domains.map(GeneralSubtree::DnsName).collect(),
                excluded_subtrees: Vec::new(),
            });
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let files = ["ca.pem", "ca-key.pem"].map(|name| dir.join(name));
        std::fs::write(&files[0], certificate.pem()).expect("written");
        std::fs::write(&files[1], key.serialize_pem()).expect("written");
        files.map(|file| file.to_str().expect("a name").to_owned())
    }

    /// The names of what is signed for an agent of the region `eu`, and whether such an agent takes
    /// it where names are verified.
    fn taken(bound_to: &[&str], domain: &str, role: Role) -> (Vec<String>, bool) {
        let dir = tempfile::tempdir().expect("a directory");
        let [ca_file, ca_key] = authority(dir.path(), bound_to);
        let (issuer, authority) = issuer(&ca_file, &ca_key).expect("an authority");
        let params = params(&wanted(domain), role.name(), &authority).expect("names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        let [cert_file, key_file] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
        std::fs::write(&cert_file, certificate.pem()).expect("written");
        std::fs::write(&key_file, key.serialize_pem()).expect("written");
        let reported = read(cert_file.to_str().expect("a name")).expect("a certificate");
        let loaded = Loader::open(&TlsSettings {
            rpc: true,
            ca_file: Some(ca_file.into()),
            cert_file: Some(cert_file),
            key_file: Some(key_file),
            verify_names: true,
            region: "eu".to_owned(),
            roles: vec![role],
            ..TlsSettings::default()
        });
        (reported.names, loaded.is_ok())
    }

    #[test]
    fn a_certificate_has_the_name_that_agents_know_whatever_the_domain() {
        for role in [Role::Server, Role::Client] {
            let own = role.in_region("eu");
            for domain in ["dc.nomad", "corpnomad", "example.org"] {
                let other = format!("{}.eu.{domain}", role.name());
                let (names, is_taken) = taken(&[], domain, role);
                assert_eq!(names, [own.as_str(), other.as_str(), "localhost"]);
                assert!(is_taken, "{names:?}");
            }
            for domain in ["nomad", "NOMAD"] {
                let (names, is_taken) = taken(&[], domain, role);
                assert_eq!(names, [own.as_str(), "localhost"]);
                assert!(is_taken, "{names:?}");
            }
        }
    }

    #[test]
    fn no_certificate_is_without_the_name_that_agents_know() {
        let bound_to = ["localhost", "dc.nomad", "nomad"];
        let (names, is_taken) = taken(&bound_to, "dc.nomad", Role::Server);
        assert_eq!(names[..2], ["server.eu.nomad", "server.eu.dc.nomad"]);
        assert!(is_taken);
        let dir = tempfile::tempdir().expect("a directory");
        let [ca_file, ca_key] = authority(dir.path(), &bound_to[..2]);
        let (_, authority) = issuer(&ca_file, &ca_key).expect("an authority");
        for kind in ["server", "client", "cli"] {
            let refused = params(&wanted("dc.nomad"), kind, &authority);
            let refused = refused.expect_err("it is refused").to_string();
            let part = format!("may not sign {kind}.eu.nomad");
            assert!(refused.contains(&part), "{refused}");
        }
    }
}
