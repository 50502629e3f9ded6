use super::super::Loader;
use super::super::testing::{CLIENT, Material as _, SERVER, Trust};
use super::*;
use drover_testkit::certs::Pair;

fn refused(settings: &TlsSettings) -> String {
    Loader::open(settings).expect_err("refused").to_string()
}

/// Files that are no good, beside a good pair.
struct Files {
    trust: Trust,
    good: Pair,
    settings: TlsSettings,
}

impl Files {
    fn new() -> Self {
        let trust = Trust::new();
        let good = trust.issue("good", SERVER);
        let settings = trust.settings(Role::Server, &good);
        Loader::open(&settings).expect("what is good is taken");
        let files = Self {
            trust,
            good,
            settings,
        };
        let sealed = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n\
            -----END ENCRYPTED PRIVATE KEY-----\n";
        let torn = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (name, text) in [
            ("empty.pem", ""),
            ("words.pem", "hello"),
            ("torn.pem", torn),
            ("closed.pem", sealed),
        ] {
            std::fs::write(files.at(name), text).expect("written");
        }
        files
    }

    fn at(&self, name: &str) -> PathBuf {
        self.trust.dir.path().join(name)
    }

    /// The good settings with another file in one place are refused, and say which and why.
    fn refuses(&self, setting: &str, path: PathBuf, why: &str) {
        let mut settings = self.settings.clone();
        let file = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        match setting {
            "cert_file" => settings.cert_file = Some(path),
            "key_file" => settings.key_file = Some(path),
            _ => settings.ca_file = Some(path),
        }
        reported(&refused(&settings), setting, &file, why);
    }
}

fn reported(text: &str, setting: &str, file: &str, why: &str) {
    let begins = format!("tls.{setting} ");
    assert!(text.starts_with(&begins) && text.contains(file), "{text}");
    assert!(text.contains(why), "{why} missing in: {text}");
}

#[test]
fn a_file_that_is_no_good_is_named_with_its_setting_and_why() {
    let files = Files::new();
    let other = files.trust.issue("other", SERVER);
    for (name, why) in [
        ("none.pem", "No such file"),
        ("empty.pem", "no certificate in PEM"),
        ("words.pem", "no certificate in PEM"),
        ("torn.pem", "cannot be read"),
        ("good-key.pem", "no certificate in PEM"),
    ] {
        files.refuses("cert_file", files.at(name), why);
    }
    for (name, why) in [
        ("words.pem", "no private key in PEM"),
        ("good.pem", "no private key in PEM"),
        ("closed.pem", "passphrase"),
        ("other-key.pem", "not the key of the certificate"),
    ] {
        files.refuses("key_file", files.at(name), why);
    }
    files.refuses("ca_file", files.at("empty.pem"), "no certificate in PEM");
    files.refuses("ca_file", other.cert, "no authority's");
    files.refuses("key_file", files.good.cert.clone(), "no private key");
}

#[test]
fn a_certificate_is_used_in_its_time_only() {
    let trust = Trust::new();
    for (name, days, why) in [
        ("old", -20..-3, "has expired: it was valid until 20"),
        ("young", 3..20, "is not valid yet"),
    ] {
        let pair = trust.authority.issue_for(name, SERVER, days).expect("made");
        let text = refused(&trust.settings(Role::Server, &pair));
        reported(&text, "cert_file", &format!("{name}.pem"), why);
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
