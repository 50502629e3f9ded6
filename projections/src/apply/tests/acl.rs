//! Tokens and the key their secrets are encrypted with; what goes with a token; what an unchanged
//! role leaves.

use drover_events::acl::*;
use drover_events::gojson::Time;
use drover_events::keyring::*;
use drover_events::model::{AclRole, AclToken, OneTimeToken, RootKeyMeta};

use super::*;
use crate::apply::EXPIRED_PAGE;
use crate::engine::scan::Scan;
use crate::tables::acl_roles::AclRoles;
use crate::tables::one_time_tokens::OneTimeTokens;

fn token(number: u32, key: u32) -> SealedToken {
    SealedToken {
        token: AclToken {
            accessor_id: id(number),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: format!("hash-{number}"),
            ciphertext: "AAEC".into(),
            key_id: id(key),
        },
    }
}

fn upserted(tokens: Vec<SealedToken>) -> AclTokensUpserted {
    AclTokensUpserted { tokens }
}

fn key(number: u32, state: &str) -> RootKeyUpserted {
    RootKeyUpserted {
        key: RootKeyMeta {
            key_id: id(number),
            state: state.into(),
            ..RootKeyMeta::default()
        },
        ..RootKeyUpserted::default()
    }
}

#[test]
fn kr_04_a_key_is_in_use_while_a_token_s_secret_is_encrypted_with_it() {
    let mut world = World::new();
    world.given(key(3, "active"));
    world.given(upserted(vec![token(1, 3)]));
    world.given(key(4, "active"));
    let delete = || RootKeyDeleted {
        key_id: id(3),
        force: false,
    };
    assert_eq!(world.refused(delete()), "root key in use, cannot delete");
    let accessor_ids = vec![id(1)];
    world.given(AclTokensDeleted { accessor_ids });
    world.given(delete());
}

#[test]
fn one_time_tokens_run_out_a_page_at_a_time_the_oldest_first() {
    let mut world = World::new();
    let all = EXPIRED_PAGE as u32 + 5;
    world.given(upserted((0..all).map(|n| token(n, 3)).collect()));
    for number in 0..all {
        world.given(OneTimeTokensUpserted {
            token: OneTimeToken {
                accessor_id: id(number),
                expires_at: Time(i64::from(all - number)),
                ..OneTimeToken::default()
            },
            secret: SealedSecret::default(),
        });
    }
    let expire = |timestamp| OneTimeTokensExpired { timestamp };
    assert_eq!(world.given(expire(0)), Reply::Count(0));
    let timestamp = i64::from(all) - 1;
    assert_eq!(
        world.given(expire(timestamp)),
        Reply::Count(EXPIRED_PAGE as u64)
    );
    let left = |world: &World| -> Vec<String> {
        let view = world.view();
        let rows = view.scan::<OneTimeTokens>(Scan::all());
        rows.map(|row| row.unwrap().accessor_id).collect()
    };
    assert_eq!(left(&world), [0, 1, 2, 3, 4].map(id));
    assert_eq!(world.given(expire(timestamp)), Reply::Count(4));
    assert_eq!(left(&world), [id(0)]);
}

#[test]
fn acl_08_a_role_that_is_unchanged_is_not_written() {
    let mut world = World::new();
    let role = AclRole {
        id: id(1),
        name: "ops".into(),
        ..AclRole::default()
    };
    let event = AclRolesUpserted {
        roles: vec![role],
        allow_missing_policies: false,
    };
    world.given(event.clone());
    let index = world.view().table_index::<AclRoles>();
    world.given(event);
    assert_eq!(world.view().table_index::<AclRoles>(), index);
}
