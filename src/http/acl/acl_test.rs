//! What only a server in one process shows: a secret whose key is gone.

use std::sync::Arc;

use crate::commands::acl::{CreateAclToken, TtlBounds};
use crate::http::acl::shown;
use crate::http::harness::Harness;
use crate::keyring::Keyring;
use drover_events::model::AclToken;
use drover_projections::tables::acl_tokens::{AclTokens, secret_hash};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_whose_key_is_gone_is_shown_without_its_secret() {
    let server = Harness::start().await;
    let ring = Arc::clone(&server.api.keyring);
    ring.wait_active().await;
    let accessor = "00000000-0000-4000-8000-000000000001";
    let secret = ring
        .seal_secret(accessor, "canary", secret_hash("canary"))
        .unwrap();
    let token = AclToken {
        accessor_id: accessor.into(),
        name: "ci".into(),
        r#type: "management".into(),
        ..AclToken::default()
    };
    let ttl = TtlBounds {
        min: std::time::Duration::ZERO,
        max: std::time::Duration::MAX,
    };
    server.submit(CreateAclToken { token, secret, ttl }).await;
    let view = server.api.projections.view();
    let sealed = view.get::<AclTokens>(accessor).unwrap().unwrap();
    assert_eq!(shown(&view, &ring, &sealed).unwrap().secret_id, "canary");
    let dir = tempfile::tempdir().unwrap();
    let (empty, _) = Keyring::open(dir.path()).unwrap();
    let token = shown(&view, &empty, &sealed).unwrap();
    assert_eq!((token.name.as_str(), token.secret_id.as_str()), ("ci", ""));
    drop(view);
    server.stop().await;
}
