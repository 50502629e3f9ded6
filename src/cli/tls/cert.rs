//! `tls cert`: certificates of agents and of those who call them.

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
    /// How long it holds
    #[arg(long, default_value = "365", value_name = "N")]
    days: u32,
    /// The domain of the agents' names; agents verify those of nomad
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
    let issuer = issuer(&ca_file, &ca_key)?;
    let params = params(args, kind)?;
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

fn issuer(ca_file: &str, ca_key: &str) -> Result<Issuer<'static, KeyPair>> {
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
    Issuer::from_ca_cert_der(own, key).map_err(|error| anyhow!("{ca_file}: {error}"))
}

fn params(args: &Create, kind: &str) -> Result<CertificateParams> {
    let name = format!("{kind}.{}.{}", args.cluster_region, args.domain);
    // What the agents of a region go by, whatever the domain.
    let role = format!("{kind}.{}.nomad", args.cluster_region);
    let mut names = vec![name.clone(), "localhost".to_owned()];
    // Below nomad the domain says it already, and the authority may be bound to that.
    if !args.domain.ends_with("nomad") {
        names.push(role);
    }
    if kind != "cli" {
        names.push("127.0.0.1".to_owned());
    }
    names.extend(args.additional_dnsname.iter().cloned());
    names.extend(args.additional_ipaddress.iter().map(ToString::to_string));
    let params = CertificateParams::new(names);
    let mut params = params.map_err(|error| anyhow!("a name that is none: {error}"))?;
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
