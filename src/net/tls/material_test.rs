use super::super::Loader;
use super::super::testing::{CLIENT, SERVER, Trust};
use super::*;

fn refused(settings: &Settings) -> String {
    Loader::open(settings).expect_err("refused").to_string()
}

#[test]
fn a_file_that_is_no_good_is_named_with_its_setting_and_why() {
    let trust = Trust::new();
    let good = trust.issue("good", SERVER);
    let other = trust.issue("other", SERVER);
    let at = |name: &str| trust.dir.path().join(name);
    std::fs::write(at("empty.pem"), "").expect("written");
    std::fs::write(at("words.pem"), "hello").expect("written");
    let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(at("torn.pem"), text).expect("written");
    let text = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(at("closed.pem"), text).expect("written");
    let days = |name: &str, days| trust.authority.issue_for(name, SERVER, days).expect("made");
    let (old, young) = (days("old", -20..-3), days("young", 3..20));
    let settings = trust.settings(Role::Server, &good);
    Loader::open(&settings).expect("what is good is taken");
    let cert = |path| Settings {
        cert_file: Some(path),
        ..settings.clone()
    };
    let key = |path| Settings {
        key_file: Some(path),
        ..settings.clone()
    };
    let ca = |path| Settings {
        ca_file: Some(path),
        ..settings.clone()
    };
    let both = |pair: &drover_testkit::certs::Pair| trust.settings(Role::Server, pair);
    for (settings, setting, file, why) in [
        (
            cert(at("none.pem")),
            "cert_file",
            "none.pem",
            "No such file",
        ),
        (
            cert(at("empty.pem")),
            "cert_file",
            "empty.pem",
            "no certificate in PEM",
        ),
        (
            cert(at("words.pem")),
            "cert_file",
            "words.pem",
            "no certificate in PEM",
        ),
        (
            cert(at("torn.pem")),
            "cert_file",
            "torn.pem",
            "cannot be read",
        ),
        (
            cert(good.key.clone()),
            "cert_file",
            "good-key.pem",
            "no certificate in PEM",
        ),
        (
            key(at("words.pem")),
            "key_file",
            "words.pem",
            "no private key in PEM",
        ),
        (
            key(good.cert.clone()),
            "key_file",
            "good.pem",
            "no private key in PEM",
        ),
        (
            key(at("closed.pem")),
            "key_file",
            "closed.pem",
            "passphrase",
        ),
        (
            key(other.key.clone()),
            "key_file",
            "other-key.pem",
            "not the key of the certificate",
        ),
        (
            ca(at("empty.pem")),
            "ca_file",
            "empty.pem",
            "no certificate in PEM",
        ),
        (
            ca(other.cert.clone()),
            "ca_file",
            "other.pem",
            "no authority's",
        ),
        (
            both(&old),
            "cert_file",
            "old.pem",
            "has expired: it was valid until 20",
        ),
        (both(&young), "cert_file", "young.pem", "is not valid yet"),
    ] {
        let text = refused(&settings);
        let begins = format!("tls.{setting} ");
        assert!(text.starts_with(&begins) && text.contains(file), "{text}");
        assert!(text.contains(why), "{why} missing in: {text}");
    }
}

#[test]
fn a_certificate_that_other_agents_would_not_take_is_refused_at_once() {
    let trust = Trust::new();
    let foreign = Trust::new();
    let good = trust.issue("good", SERVER);
    let mut settings = trust.settings(Role::Server, &good);
    settings.ca_file = Some(foreign.authority.file());
    let text = refused(&settings);
    assert!(
        text.contains("unknown authority") && text.contains("tls.ca_file"),
        "{text}"
    );
    // For HTTP alone, callers' authority is not the one that signed the agent's certificate.
    settings.rpc = false;
    Loader::open(&settings).expect("taken");

    let client = trust.issue("client", CLIENT);
    let mut settings = trust.settings(Role::Server, &client);
    let text = refused(&settings);
    assert!(text.contains("not for server.global.nomad"), "{text}");
    settings.verify_names = false;
    let text = refused(&settings);
    assert!(
        text.contains("not for a server"),
        "never one of a client: {text}"
    );
    Loader::open(&trust.settings(Role::Client, &client)).expect("a client's own");
    let nameless = trust.issue("nameless", &["localhost"]);
    let mut settings = trust.settings(Role::Client, &nameless);
    let text = refused(&settings);
    assert!(text.contains("demands client.global.nomad"), "{text}");
    settings.verify_names = false;
    Loader::open(&settings).expect("names are not verified");
    let mut settings = trust.settings(Role::Client, &client);
    settings.region = "eu".to_owned();
    assert!(refused(&settings).contains("demands client.eu.nomad"));
}
