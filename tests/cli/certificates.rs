//! `drover tls`: files, names, and what a stranger says of them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::DROVER;

/// Runs a command line of drover's in a directory.
fn run(dir: &Path, line: &str) -> (i32, String) {
    let output = Command::new(DROVER)
        .args(line.split_whitespace())
        .current_dir(dir)
        .output()
        .expect("the program runs");
    reported(&output)
}

fn reported(output: &Output) -> (i32, String) {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&both).into_owned();
    (output.status.code().unwrap_or(-1), text)
}

fn good(dir: &Path, line: &str) -> String {
    let (code, text) = run(dir, line);
    assert_eq!(code, 0, "{line}: {text}");
    text
}

fn openssl(dir: &Path, line: &str) -> (i32, String) {
    let output = Command::new("openssl")
        .args(line.split_whitespace())
        .current_dir(dir)
        .output()
        .expect("openssl runs");
    reported(&output)
}

fn mode(dir: &Path, file: &str) -> u32 {
    let meta = std::fs::metadata(dir.join(file)).expect(file);
    meta.permissions().mode() & 0o777
}

#[test]
fn an_authority_and_what_it_signs_are_taken_by_a_stranger() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let text = good(dir, "tls ca create");
    assert!(text.contains("nomad-agent-ca.pem") && text.contains("nomad-agent-ca-key.pem"));
    for (kind, names) in [
        (
            "server",
            "DNS:server.global.nomad, DNS:localhost, IP Address:127.0.0.1",
        ),
        (
            "client",
            "DNS:client.global.nomad, DNS:localhost, IP Address:127.0.0.1",
        ),
        ("cli", "DNS:cli.global.nomad, DNS:localhost"),
    ] {
        let text = good(dir, &format!("tls cert create -{kind}"));
        assert_eq!(text.contains("WARNING"), kind == "server", "{text}");
        let cert = format!("global-{kind}-nomad.pem");
        let key = format!("global-{kind}-nomad-key.pem");
        assert!(text.contains(&cert) && text.contains(&key), "{text}");
        assert_eq!((mode(dir, &cert), mode(dir, &key)), (0o644, 0o600));
        for purpose in ["sslserver", "sslclient"] {
            let verify = format!("verify -purpose {purpose} -CAfile nomad-agent-ca.pem {cert}");
            let (code, reported) = openssl(dir, &verify);
            assert_eq!(code, 0, "{reported}");
        }
        let (_, shown) = openssl(dir, &format!("x509 -noout -ext subjectAltName -in {cert}"));
        let shown = shown
            .trim()
            .lines()
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned();
        assert_eq!(shown, names);
    }
    assert_eq!(mode(dir, "nomad-agent-ca-key.pem"), 0o600);
    let shown = good(dir, "tls cert info global-client-nomad.pem");
    for part in [
        "client.global.nomad, localhost",
        "127.0.0.1",
        "Expiry Date",
        "Serial Number",
    ] {
        assert!(shown.contains(part), "{part} missing in {shown}");
    }
    let shown = good(dir, "tls ca info nomad-agent-ca.pem");
    assert!(
        shown.contains("drover agent CA ") && shown.contains("<none>"),
        "{shown}"
    );
}

#[test]
fn names_days_and_places_are_as_they_are_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    good(
        dir,
        "tls ca create -days=10 -common-name=ours -domain=dc.nomad -organization=Org \
         -name-constraint -additional-domain=example.org",
    );
    let shown = good(dir, "tls ca info dc.nomad-agent-ca.pem");
    assert!(
        shown.contains("localhost, dc.nomad, example.org"),
        "{shown}"
    );
    let (_, subject) = openssl(dir, "x509 -noout -subject -in dc.nomad-agent-ca.pem");
    assert_eq!(subject.trim(), "subject=C = US, O = Org, CN = ours");
    let args = "tls cert create -server -domain=dc.nomad -cluster-region=eu -days=3 \
        -additional-dnsname=a.example.org -additional-ipaddress=10.0.0.5";
    good(dir, args);
    let cert = "eu-server-dc.nomad.pem";
    let (_, shown) = openssl(dir, &format!("x509 -noout -ext subjectAltName -in {cert}"));
    for name in [
        "DNS:server.eu.dc.nomad",
        "DNS:a.example.org",
        "IP Address:10.0.0.5",
    ] {
        assert!(shown.contains(name), "{shown}");
    }
    let verify = format!("verify -CAfile dc.nomad-agent-ca.pem {cert}");
    assert_eq!(openssl(dir, &verify).0, 0);
    // Ends in three days, no later.
    for (after, code) in [(2 * 86_400, 0), (4 * 86_400, 1)] {
        let ends = openssl(dir, &format!("x509 -noout -checkend {after} -in {cert}"));
        assert_eq!(ends.0, code, "{}", ends.1);
    }
    // A name that the authority may not sign is signed, and no stranger takes it.
    good(
        dir,
        "tls cert create -cli -domain=dc.nomad -additional-dnsname=evil.com",
    );
    let (code, reported) = openssl(
        dir,
        "verify -CAfile dc.nomad-agent-ca.pem global-cli-dc.nomad.pem",
    );
    assert!(
        code != 0 && reported.contains("permitted subtree violation"),
        "{reported}"
    );
}

#[test]
fn what_is_there_stays_and_what_is_wrong_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let (code, text) = run(dir, "tls cert create -server");
    assert!(code == 1 && text.contains("drover tls ca create"), "{text}");
    good(dir, "tls ca create");
    good(dir, "tls cert create -server");
    let read = |file: &str| std::fs::read(dir.join(file)).expect(file);
    let before = (
        read("nomad-agent-ca.pem"),
        read("global-server-nomad-key.pem"),
    );
    for line in ["tls ca create", "tls cert create -server"] {
        let (code, text) = run(dir, line);
        assert!(code == 1 && text.contains("not written over"), "{text}");
    }
    // A key alone is as worth keeping.
    std::fs::rename(dir.join("global-server-nomad.pem"), dir.join("moved.pem")).expect("moved");
    assert_eq!(run(dir, "tls cert create -server").0, 1);
    assert_eq!(before.0, read("nomad-agent-ca.pem"));
    assert_eq!(before.1, read("global-server-nomad-key.pem"));
    for (line, part) in [
        ("tls cert create", "--server|--client|--cli"),
        ("tls cert create -server -client", "cannot be used with"),
        (
            "tls cert create -client -days=0",
            "-days takes a number from 1",
        ),
        (
            "tls cert create -client -additional-dnsname=ä",
            "a name that is not valid",
        ),
        (
            "tls cert create -client -additional-ipaddress=x",
            "invalid IP address",
        ),
        ("tls cert create -client -ca=moved.pem", "is no authority's"),
        (
            "tls cert create -client -key=global-server-nomad-key.pem",
            "is not the key of nomad-agent-ca.pem",
        ),
        ("tls cert create -client -key=moved.pem", "moved.pem"),
        ("tls ca create -additional-domain=x", "-name-constraint"),
        ("tls ca info moved.pem", "is no authority's"),
        (
            "tls cert info nomad-agent-ca-key.pem",
            "no certificate in PEM",
        ),
        ("tls cert info nowhere.pem", "cannot read nowhere.pem"),
    ] {
        let (code, text) = run(dir, line);
        assert!(code == 1 && text.contains(part), "{line}: {code} {text}");
    }
    let left = std::fs::read_dir(dir).expect("a directory").count();
    assert_eq!(left, 4, "nothing is left of what failed");
}
