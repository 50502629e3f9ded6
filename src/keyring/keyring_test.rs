//! Keys in files, variables, tokens.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_events::gojson::Base64;
use drover_events::model::VariableDecrypted;
use proptest::prelude::*;

use super::{Jwks, Keyring, KeyringError, Keystore, RootKey, Verified, WorkloadIdentity};

const CANARY: &str = "canary-7f3a1c";
const NOW: i64 = 1_795_252_066_071_717_144;

fn ready(dir: &Path) -> Keyring {
    let (keyring, problems) = Keyring::open(dir).expect("a keystore");
    assert!(problems.is_empty());
    let key = keyring.generate("key-1".to_owned(), NOW).expect("a key");
    keyring.activate(key.id()).expect("its material is here");
    keyring
}

fn variable(path: &str) -> VariableDecrypted {
    VariableDecrypted {
        namespace: "default".into(),
        path: path.into(),
        items: BTreeMap::from([("pass".to_owned(), CANARY.to_owned())]).into(),
        ..VariableDecrypted::default()
    }
}

fn identity() -> WorkloadIdentity {
    WorkloadIdentity {
        region: "global".into(),
        namespace: "default".into(),
        job_id: "cache".into(),
        group: "redis".into(),
        task: "redis".into(),
        alloc_id: "0b156e3e-bb39-cc04-5170-80b70d217ba2".into(),
        name: "default".into(),
        ttl_ns: 60_000_000_000,
        ..WorkloadIdentity::default()
    }
}

/// Every byte of every file below a directory.
fn all_bytes(dir: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        found.extend(std::fs::read(entry.expect("an entry").path()).expect("a file"));
    }
    found
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test]
async fn kr_03_users_are_told_to_wait_until_a_key_is_active() {
    let dir = tempfile::tempdir().expect("a directory");
    let (keyring, _) = Keyring::open(dir.path()).expect("a keystore");
    let keyring = Arc::new(keyring);
    assert!(matches!(
        keyring.encrypt(&variable("a")),
        Err(KeyringError::NotReady)
    ));
    let waiter = tokio::spawn({
        let keyring = Arc::clone(&keyring);
        async move { keyring.wait_active().await.id().to_owned() }
    });
    keyring.generate("key-1".to_owned(), NOW).expect("a key");
    // The file is there; the event is not, so the key may not be used.
    assert!(matches!(keyring.active(), Err(KeyringError::NotReady)));
    keyring.activate("key-1").expect("its material is here");
    let waited = tokio::time::timeout(Duration::from_secs(10), waiter).await;
    assert_eq!(waited.expect("in time").expect("no panic"), "key-1");
}

#[test]
fn var_07_no_clear_value_in_what_is_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let sealed = keyring
        .encrypt(&variable("app/db"))
        .expect("a key is active");
    assert_eq!(sealed.key_id, "key-1");
    let stored = rmp_serde::to_vec_named(&sealed).expect("it encodes");
    let shown = serde_json::to_vec(&sealed).expect("it encodes");
    for bytes in [stored, shown, all_bytes(dir.path())] {
        assert!(!holds(&bytes, CANARY.as_bytes()));
    }
    let opened = keyring.decrypt(&sealed).expect("the same place");
    assert_eq!(opened.items, variable("app/db").items);
}

#[test]
fn ciphertext_opens_in_its_own_place_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let sealed = keyring
        .encrypt(&variable("app/db"))
        .expect("a key is active");
    let mut moved = sealed.clone();
    moved.path = "app/other".into();
    assert!(matches!(
        keyring.decrypt(&moved),
        Err(KeyringError::Sealed(_))
    ));
    let mut elsewhere = sealed.clone();
    elsewhere.namespace = "prod".into();
    assert!(matches!(
        keyring.decrypt(&elsewhere),
        Err(KeyringError::Sealed(_))
    ));
    let mut unknown = sealed;
    unknown.key_id = "key-2".into();
    assert!(matches!(
        keyring.decrypt(&unknown),
        Err(KeyringError::MissingKey(_))
    ));
}

#[test]
fn var_07_nothing_that_is_sealed_twice_looks_the_same() {
    let (dir, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (dir, other) = (dir.expect("a directory"), other.expect("a directory"));
    let (keyring, others) = (ready(dir.path()), ready(other.path()));
    let seal = || keyring.encrypt(&variable("app/db")).expect("a key").data;
    assert_ne!(seal(), seal(), "a nonce is used once");
    let bytes = |keyring: &Keyring| *keyring.key("key-1").expect("it is here").bytes();
    assert_ne!(bytes(&keyring), bytes(&others), "keys are random");
    let wrap = |dir: &Path| std::fs::read(dir.join("wrap.key")).expect("a file");
    assert_ne!(wrap(dir.path()), wrap(other.path()), "what wraps them too");
}

#[test]
fn variables_of_any_length_come_back_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    for length in [0, 1, 200, 255, 256, 257, 5_000, 70_000] {
        let mut long = variable("app/db");
        let value = (0..length).map(|at| char::from(b'a' + (at % 23) as u8));
        let items = BTreeMap::from([
            ("first".to_owned(), "x".to_owned()),
            ("second".to_owned(), value.collect()),
        ]);
        long.items = items.into();
        let sealed = keyring.encrypt(&long).expect("a key is active");
        let opened = keyring.decrypt(&sealed).expect("the same place");
        assert_eq!(opened.items, long.items, "{length}");
    }
}

/// What was encrypted or signed before must open and verify with every later release: the
/// derivation is HKDF with SHA-256 as RFC 5869 has it, worked out here by another implementation.
#[test]
fn keys_for_each_purpose_follow_from_the_root_key_and_differ() {
    let key = RootKey::from_bytes("key-1".to_owned(), NOW, [7; 32].into());
    let hex = |bytes: &[u8]| {
        let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.concat()
    };
    let expected = [
        "4f72d1affcad7a626859c553c2b5b3d10a90528519bd33ed529cd5e80754f0eb",
        "4b42f98a9c997e63619219c0372daacde911a3449c94435e685e101108bdedb2",
        "6cd5b054cff9956cffbb3c556238a4d4847bff45bdcf62d66b28514ccbf3c58e",
        "526a2a313b60fdb8fd1a4cf4a6f0fc037c5b82131e00b0770de39e79e6f1ecad",
    ];
    let derived = [
        hex(key.data_key()),
        hex(key.identity_key().as_bytes()),
        hex(key.checkpoint_key().as_bytes()),
        hex(key.export_hmac_key().as_slice()),
    ];
    assert_eq!(derived, expected);
    let meta = key.meta("active");
    let fields = (meta.key_id, meta.algorithm, meta.create_time, meta.state);
    let text = |text: &str| text.to_owned();
    assert_eq!(
        fields,
        (text("key-1"), text("aes256-gcm"), NOW, text("active"))
    );
}

#[test]
fn keys_come_in_order_and_know_when_they_were_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    for (at, id) in [(1, "key-9"), (2, "key-0"), (3, "key-5")] {
        let made = keyring.generate(id.to_owned(), NOW + at).expect("a key");
        assert_eq!(made.create_time(), NOW + at);
    }
    let store = Keystore::open(dir.path()).expect("a keystore");
    let ids = store.ids().expect("a directory");
    assert_eq!(ids, ["key-0", "key-1", "key-5", "key-9"]);
    assert_eq!(store.load("key-5").expect("a key").create_time(), NOW + 3);
}

#[test]
fn a_wrapped_key_opens_under_its_own_id_only() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(ready(dir.path()));
    let file = |id: &str| dir.path().join(format!("{id}.json"));
    let text = std::fs::read_to_string(file("key-1")).expect("a file");
    std::fs::write(file("key-2"), &text).expect("written");
    std::fs::write(file("key-3"), text.replace("key-1", "key-3")).expect("written");
    let store = Keystore::open(dir.path()).expect("a keystore");
    for id in ["key-2", "key-3"] {
        let loaded = store.load(id).map(|_| ());
        assert!(matches!(loaded, Err(KeyringError::Damaged { .. })), "{id}");
    }
}

/// A key made anew in its place would leave every key unreadable for ever.
#[test]
fn a_wrapping_key_that_cannot_be_read_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(ready(dir.path()));
    let path = dir.path().join("wrap.key");
    for length in [0, 31, 33] {
        std::fs::write(&path, vec![1; length]).expect("written");
        let opened = Keystore::open(dir.path()).map(|_| ());
        let damaged = matches!(opened, Err(KeyringError::Damaged { .. }));
        assert!(damaged, "{length}: {opened:?}");
        assert_eq!(std::fs::read(&path).expect("a file").len(), length);
    }
    std::fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(&path, &path).expect("made");
    let opened = Keystore::open(dir.path()).map(|_| ());
    assert!(matches!(opened, Err(KeyringError::Io { .. })), "{opened:?}");
}

#[test]
fn keys_survive_a_restart_and_their_files_are_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let sealed = keyring
        .encrypt(&variable("app/db"))
        .expect("a key is active");
    let material = *keyring.key("key-1").expect("it is here").bytes();
    assert!(
        !holds(&all_bytes(dir.path()), &material),
        "material lies on the disk unwrapped"
    );
    drop(keyring);
    let (keyring, problems) = Keyring::open(dir.path()).expect("a keystore");
    assert!(problems.is_empty());
    assert!(keyring.decrypt(&sealed).is_ok());
    for entry in std::fs::read_dir(dir.path()).expect("a directory") {
        let meta = entry.expect("an entry").metadata().expect("metadata");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_damaged_key_does_not_stop_the_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    keyring.generate("key-0".to_owned(), NOW).expect("a key");
    drop(keyring);
    let path = dir.path().join("key-0.json");
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(&path, text.replace("\"wrapped\": \"A", "\"wrapped\": \"B")).expect("written");
    let (keyring, problems) = Keyring::open(dir.path()).expect("a keystore");
    assert!(
        matches!(problems.as_slice(), [KeyringError::Damaged { .. }]),
        "{problems:?}"
    );
    assert_eq!(keyring.ids(), ["key-1"]);
}

#[test]
fn a_removed_key_is_gone_from_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let sealed = keyring
        .encrypt(&variable("app/db"))
        .expect("a key is active");
    keyring.remove("key-1").expect("it can be removed");
    keyring.remove("key-1").expect("twice is no error");
    assert!(matches!(
        keyring.decrypt(&sealed),
        Err(KeyringError::MissingKey(_))
    ));
    assert!(matches!(keyring.active(), Err(KeyringError::NotReady)));
    assert!(!dir.path().join("key-1.json").exists());
}

#[test]
fn tokens_are_deterministic_and_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let claims = identity().claims(NOW);
    let token = keyring.sign("key-1", &claims).expect("the key is here");
    assert_eq!(
        token,
        keyring
            .sign("key-1", &identity().claims(NOW))
            .expect("again")
    );
    assert_eq!(keyring.verify(&token, NOW).expect("valid"), claims);
    assert_eq!(claims.sub, "global:default:cache:redis:redis:default");
    let late = NOW + 61_000_000_000;
    assert!(matches!(
        keyring.verify(&token, late),
        Err(KeyringError::Token("token is expired"))
    ));
    let (signed, _) = token.rsplit_once('.').expect("three parts");
    let forged = format!("{signed}.{}", "A".repeat(86));
    assert!(keyring.verify(&forged, NOW).is_err());
}

#[test]
fn what_was_verified_once_holds_while_its_key_is_here_and_its_times_allow() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let claims = identity().claims(NOW);
    let token = keyring.sign("key-1", &claims).expect("the key is here");
    let (verified, late) = (Verified::default(), NOW + 61_000_000_000);
    for _ in 0..3 {
        assert_eq!(
            verified.claims(&keyring, &token, NOW).expect("valid"),
            claims
        );
        assert_eq!(verified.signatures(), 1);
    }
    assert!(matches!(
        verified.claims(&keyring, &token, late),
        Err(KeyringError::Token("token is expired"))
    ));
    // Another token has a result of its own, also when it is checked here.
    let (signed, _) = token.rsplit_once('.').expect("three parts");
    let forged = format!("{signed}.{}", "A".repeat(86));
    assert!(verified.claims(&keyring, &forged, NOW).is_err());
    assert_eq!(verified.signatures(), 2);
    // An invalid token is checked only once as well.
    let none = Verified::default();
    for _ in 0..3 {
        assert!(matches!(
            none.claims(&keyring, &forged, NOW),
            Err(KeyringError::Token("wrong signature"))
        ));
        assert_eq!(none.signatures(), 1);
    }
    keyring.remove("key-1").expect("it goes");
    assert!(matches!(
        verified.claims(&keyring, &token, NOW),
        Err(KeyringError::MissingKey(_))
    ));
}

#[test]
fn tokens_are_what_other_libraries_accept() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let mut identity = identity();
    identity.audience = vec!["vault".into()];
    identity.ttl_ns = i64::from(u32::MAX) * 1_000_000_000;
    let token = keyring
        .sign("key-1", &identity.claims(NOW))
        .expect("the key is here");
    let public = keyring.key("key-1").expect("it is here").public_identity();
    let jwks = Jwks::new([("key-1", public.as_bytes().as_slice())]);
    let json = serde_json::to_value(&jwks).expect("it encodes");
    assert_eq!(json["keys"][0]["kid"], "key-1");
    assert_eq!(json["keys"][0]["use"], "sig");
    let set: jsonwebtoken::jwk::JwkSet = serde_json::from_value(json).expect("a key set");
    let key = jsonwebtoken::DecodingKey::from_jwk(&set.keys[0]).expect("a key");
    let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::EdDSA);
    rules.set_audience(&["vault"]);
    let read = jsonwebtoken::decode::<super::Claims>(&token, &key, &rules).expect("valid");
    assert_eq!(read.claims.nomad_job_id, "cache");
    assert_eq!(read.header.kid.as_deref(), Some("key-1"));
}

#[test]
fn debug_output_shows_no_material() {
    let dir = tempfile::tempdir().expect("a directory");
    let keyring = ready(dir.path());
    let key = keyring.active().expect("active");
    assert_eq!(format!("{key:?}"), "RootKey { id: \"key-1\", .. }");
}

proptest! {
    #[test]
    fn no_bytes_make_the_keyring_panic(
        data in prop::collection::vec(any::<u8>(), 0..80),
        token in "[A-Za-z0-9_.-]{0,80}",
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let keyring = ready(dir.path());
        let mut sealed = keyring.encrypt(&variable("a")).expect("a key is active");
        sealed.data = Base64::from(data);
        prop_assert!(keyring.decrypt(&sealed).is_err());
        prop_assert!(keyring.verify(&token, NOW).is_err());
    }
}

#[test]
fn keys_outlive_a_power_cut_whichever_operation_failed_before() {
    use drover_fake_disk::{FakeDisk, Op};
    let dir = Path::new("/data/server/keystore");
    for op in [Op::Create, Op::Write, Op::Sync, Op::Rename, Op::SyncDir] {
        for (at, seed) in (0..8).flat_map(|at| (0..8).map(move |seed| (at, seed))) {
            let disk = FakeDisk::default();
            let open = |disk: &FakeDisk| Keystore::open_on(std::sync::Arc::new(disk.clone()), dir);
            disk.fail(op, at, 1);
            let mut saved = Vec::new();
            if let Ok(store) = open(&disk) {
                for id in ["one", "two"] {
                    let key = RootKey::generate(id.to_owned(), 5).unwrap();
                    if store.save(&key).is_ok() {
                        saved.push((id, *key.bytes()));
                    }
                }
            }
            let cut = disk.power_cut(seed);
            let store = open(&cut).unwrap();
            for (id, bytes) in saved {
                let found = store.load(id);
                let found = found.unwrap_or_else(|e| panic!("{op:?} {at}, seed {seed}: {e}"));
                assert!(*found.bytes() == bytes, "{op:?} {at}, seed {seed}: {id}");
            }
        }
    }
}
