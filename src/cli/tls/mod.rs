//! `tls`: an authority for agents, and certificates that it signs.
//!
//! Names are as agents verify them: `server.<region>.nomad` and `client.<region>.nomad`. Keys are
//! files of their owner alone, and nothing is ever written over.

mod ca;
mod cert;

use super::columns::pairs;
use super::out::Out;
use crate::net::tls::Certificate;
use anyhow::{Context, Result, anyhow, bail};
use rcgen::{CertificateParams, SerialNumber, date_time_ymd};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// What can be done with certificates.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Make an authority, and show one
    #[command(subcommand)]
    Ca(ca::Verb),
    /// Make certificates that an authority signs, and show one
    #[command(subcommand)]
    Cert(cert::Verb),
}

/// Runs a verb.
pub(super) fn run(verb: &Verb, out: &Out) -> Result<u8> {
    match verb {
        Verb::Ca(verb) => ca::run(verb, out),
        Verb::Cert(verb) => cert::run(verb, out),
    }
}

/// The most days that a certificate may hold: a thousand years.
const MOST_DAYS: u32 = 365_000;

/// How far clocks of other machines may be behind.
const BEHIND: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sets from when and until when a certificate holds, and its number.
fn dated(params: &mut CertificateParams, days: u32) -> Result<()> {
    if days == 0 || days > MOST_DAYS {
        bail!("-days takes a number from 1 to {MOST_DAYS}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Duration::from_secs(now.context("the clock stands before 1970")?.as_secs());
    let begin = date_time_ymd(1970, 1, 1);
    params.not_before = begin + now.saturating_sub(BEHIND);
    params.not_after = begin + now + DAY * days;
    let number = uuid::Uuid::new_v4().into_bytes();
    params.serial_number = Some(SerialNumber::from_slice(&number));
    Ok(())
}

/// Refuses where one of these is there: what an agent may use is not written over.
fn absent(files: &[&str]) -> Result<()> {
    for file in files {
        if Path::new(file).symlink_metadata().is_ok() {
            bail!("{file} exists and is not written over; move it away first");
        }
    }
    Ok(())
}

/// Writes a new file.
fn create(file: &str, text: &str, mode: u32) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(file);
    let mut opened = opened.with_context(|| format!("cannot write {file}"))?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    Ok(())
}

/// The mode of a key's file, and of a certificate's.
const KEY: u32 = 0o600;
const CERTIFICATE: u32 = 0o644;

/// The first certificate of a file.
fn read(file: &str) -> Result<Certificate> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let all = crate::net::tls::certificates(&bytes).map_err(|why| anyhow!("{file} {why}"))?;
    let first = all.first().and_then(|der| Certificate::read(der));
    first.with_context(|| format!("{file} holds no certificate"))
}

/// Prints what a certificate says.
fn show(certificate: &Certificate, out: &Out) {
    let none_or = |list: Vec<String>| match list.is_empty() {
        true => "<none>".to_owned(),
        false => list.join(", "),
    };
    let addresses = certificate.addresses.iter().map(ToString::to_string);
    let moment = |at| {
        let at = jiff::Timestamp::from_second(at);
        at.map_or_else(|_| "<none>".to_owned(), |at| at.to_string())
    };
    let mut rows = vec![
        ("Serial Number", certificate.serial.clone()),
        ("Common Name", certificate.common_name.clone()),
        ("Issuer", certificate.issuer.clone()),
        ("Valid From", moment(certificate.from)),
        ("Expiry Date", moment(certificate.until)),
        ("Authority", certificate.is_authority.to_string()),
    ];
    if certificate.is_authority {
        rows.push((
            "Permitted DNS Domains",
            none_or(certificate.confined_to.clone()),
        ));
    } else {
        rows.push(("DNS Names", none_or(certificate.names.clone())));
        rows.push(("IP Addresses", none_or(addresses.collect())));
    }
    out.line(&pairs(&rows));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nothing_is_written_over_and_keys_are_their_owners_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("key.pem");
        let file = file.to_str().expect("a name");
        absent(&[file]).expect("nothing there");
        create(file, "one", KEY).expect("written");
        let mode = std::fs::metadata(file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(absent(&[file]).is_err() && create(file, "two", KEY).is_err());
        assert_eq!(std::fs::read_to_string(file).expect("there"), "one");
    }
}
