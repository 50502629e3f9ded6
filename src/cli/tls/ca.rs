//! `tls ca`: the authority that agents trust.

use super::{CERTIFICATE, KEY, absent, create, dated, read, show};
use crate::cli::out::Out;
use anyhow::{Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose,
    NameConstraints,
};

/// What can be done with an authority.
#[derive(Debug, clap::Subcommand)]
pub(in crate::cli) enum Verb {
    /// Make an authority: its certificate and its key
    Create(Box<Create>),
    /// Show an authority's certificate
    Info(Info),
}

/// Flags of `tls ca create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover tls ca create                    nomad-agent-ca.pem and nomad-agent-ca-key.pem, here
  drover tls ca create -name-constraint   one that signs names of this domain and nothing else

Agents get the certificate (tls.ca_file). The key signs new members of the cluster: keep it away
from them.")]
pub(in crate::cli) struct Create {
    /// Another domain that it may sign names of, with -name-constraint; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    additional_domain: Vec<String>,
    /// How many days it is valid
    #[arg(long, default_value = "1825", value_name = "N")]
    days: u32,
    /// Let it sign names of the domain, of additional ones, of nomad and localhost only
    #[arg(long)]
    name_constraint: bool,
    /// Another domain of names, beside nomad, whose names agents verify
    #[arg(long, default_value = "nomad")]
    domain: String,
    /// Its name
    #[arg(long, value_name = "NAME")]
    common_name: Option<String>,
    /// Its country
    #[arg(long, default_value = "US")]
    country: String,
    /// Its postal code
    #[arg(long, default_value = "", hide_default_value = true)]
    postal_code: String,
    /// Its province
    #[arg(long, default_value = "", hide_default_value = true)]
    province: String,
    /// Its town
    #[arg(long, default_value = "", hide_default_value = true)]
    locality: String,
    /// Its street
    #[arg(long, default_value = "", hide_default_value = true)]
    street_address: String,
    /// Its organization
    #[arg(long, default_value = "", hide_default_value = true)]
    organization: String,
    /// Its organizational unit
    #[arg(long, default_value = "", hide_default_value = true)]
    organizational_unit: String,
}

/// Arguments of `tls ca info`.
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
            let certificate = read(&args.file)?;
            if !certificate.is_authority {
                bail!(
                    "{} is no authority's certificate: see tls cert info",
                    args.file
                );
            }
            show(&certificate, out);
            Ok(0)
        }
    }
}

/// Attributes of names that have no constant: street address and postal code (X.520).
const STREET: [u64; 4] = [2, 5, 4, 9];
const POSTAL_CODE: [u64; 4] = [2, 5, 4, 17];

fn make(args: &Create, out: &Out) -> Result<u8> {
    if !args.additional_domain.is_empty() && !args.name_constraint {
        bail!("-additional-domain is for -name-constraint: without it any name can be signed");
    }
    let cert_file = format!("{}-agent-ca.pem", args.domain);
    let key_file = format!("{}-agent-ca-key.pem", args.domain);
    absent(&[&cert_file, &key_file])?;
    let params = params(args)?;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    create(&key_file, &key.serialize_pem(), KEY)?;
    create(&cert_file, &certificate.pem(), CERTIFICATE)?;
    out.line(&format!("==> CA certificate saved to: {cert_file}"));
    out.line(&format!("==> CA certificate key saved to: {key_file}"));
    Ok(0)
}

fn params(args: &Create) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    dated(&mut params, args.days)?;
    let usual = || {
        let number = params.serial_number.as_ref().map(ToString::to_string);
        format!(
            "drover agent CA {}",
            number.unwrap_or_default().replace(':', "")
        )
    };
    // Authorities of one name would be taken for each other.
    let name = args.common_name.clone().unwrap_or_else(usual);
    let mut subject = rcgen::DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, &args.country),
        (
            DnType::CustomDnType(POSTAL_CODE.to_vec()),
            &args.postal_code,
        ),
        (DnType::StateOrProvinceName, &args.province),
        (DnType::LocalityName, &args.locality),
        (DnType::CustomDnType(STREET.to_vec()), &args.street_address),
        (DnType::OrganizationName, &args.organization),
        (DnType::OrganizationalUnitName, &args.organizational_unit),
        (DnType::CommonName, &name),
    ] {
        if !value.is_empty() {
            subject.push(kind, value.as_str());
        }
    }
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    if args.name_constraint {
        let mut domains = vec!["localhost".to_owned(), args.domain.clone()];
        domains.extend(args.additional_domain.iter().cloned());
        // What agents go by is below it, whatever the domain.
        if !domains.iter().any(|domain| domain == "nomad") {
            domains.push("nomad".to_owned());
        }
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: domains.into_iter().map(GeneralSubtree::DnsName).collect(),
            excluded_subtrees: Vec::new(),
        });
    }
    Ok(params)
}
