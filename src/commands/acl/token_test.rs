//! Tokens: links to roles, what stays as it is, what ends.

use std::time::Duration;

use drover_error::Code;
use drover_events::acl::{AclTokensUpserted, SealedSecret, SealedToken};
use drover_events::gojson::{DurationTextOrEmpty, GoTime, List};
use drover_events::model::{AclToken, AclTokenRoleLink};
use drover_projections::query::acl::{
    one_time_token_by_hash, policy_names_of_token, sealed_token_by_hash, shown_token,
};
use drover_projections::tables::acl_tokens::AclTokens;
use drover_projections::tables::one_time_tokens::OneTimeTokens;
use drover_projections::{Outcome, Rejection, Reply};

use super::role_test::{made, role, world};
use super::*;
use crate::testing::{START, World, id};
use crate::{Command as _, Decision};

const HOUR: i64 = 3600 * 1_000_000_000;

fn sealed(text: &str) -> SealedSecret {
    SealedSecret {
        hash: format!("hash-{text}"),
        ciphertext: "AAEC".into(),
        key_id: id(3),
    }
}

fn client(number: u32, policies: &[&str], roles: &[(&str, &str)]) -> CreateAclToken {
    let link = |(id, name): &(&str, &str)| AclTokenRoleLink {
        id: (*id).into(),
        name: (*name).into(),
    };
    CreateAclToken {
        token: AclToken {
            accessor_id: id(number),
            name: "ci".into(),
            r#type: "client".into(),
            policies: policies
                .iter()
                .map(|p| (*p).to_owned())
                .collect::<Vec<_>>()
                .into(),
            roles: roles.iter().map(link).collect::<Vec<_>>().into(),
            ..AclToken::default()
        },
        secret: sealed(&number.to_string()),
        ttl: TtlBounds {
            min: Duration::from_secs(60),
            max: Duration::from_secs(24 * 3600),
        },
    }
}

fn stored(world: &World, number: u32) -> SealedToken {
    world.row::<AclTokens>(id(number).as_str()).expect("stored")
}

fn shown(world: &World, number: u32) -> AclToken {
    shown_token(&world.view(), &stored(world, number).token).expect("read")
}

fn names(world: &World, number: u32) -> Vec<String> {
    let names = policy_names_of_token(&world.view(), &stored(world, number).token);
    names.expect("read").into_iter().collect()
}

fn role_names(token: &AclToken) -> Vec<&str> {
    token.roles.iter().map(|link| link.name.as_str()).collect()
}

#[test]
fn acl_01_a_token_holds_its_own_policies_and_those_of_its_roles() {
    let mut world = world(&["a", "b", "c"]);
    world.done(&role("one", &["b"]));
    world.done(&role("two", &["b", "c"]));
    world.done(&client(1, &["a"], &[]));
    world.done(&client(2, &[], &[("", "one")]));
    world.done(&client(3, &["a", "missing"], &[("", "one"), ("", "two")]));
    assert_eq!(names(&world, 1), ["a"]);
    assert_eq!(names(&world, 2), ["b"]);
    assert_eq!(names(&world, 3), ["a", "b", "c", "missing"]);
    let hash = |number| stored(&world, number).token.hash;
    assert_ne!(hash(1), hash(2), "of what it holds");
}

#[test]
fn acl_02_a_role_given_by_name_is_stored_by_id_and_survives_a_new_name() {
    let mut world = world(&["a", "b"]);
    world.done(&role("ops", &["a"]));
    world.done(&client(1, &[], &[("", "ops")]));
    let id_of_role = made(&world, "ops").id;
    let links = stored(&world, 1).token.roles;
    assert_eq!(
        (links[0].id.as_str(), links[0].name.as_str()),
        (id_of_role.as_str(), "")
    );
    let mut renamed = role("crew", &["b"]);
    renamed.roles[0].id = id_of_role;
    world.done(&renamed);
    assert_eq!(names(&world, 1), ["b"]);
}

#[test]
fn acl_03_links_and_policies_are_kept_once() {
    let mut world = world(&["a"]);
    world.done(&role("ops", &["a"]));
    let ops = made(&world, "ops").id;
    let links = [
        ("", "ops"),
        (ops.as_str(), ""),
        (ops.as_str(), "other"),
        ("", "ops"),
    ];
    world.done(&client(1, &["a", "a"], &links));
    let token = stored(&world, 1).token;
    assert_eq!((token.roles.len(), token.policies.len()), (1, 1));
}

#[test]
fn acl_04_a_link_to_no_role_is_refused_and_nothing_is_written() {
    let mut world = world(&["a"]);
    world.done(&role("ops", &["a"]));
    let ops = made(&world, "ops").id;
    for link in [("", "crew"), (id(9).as_str(), ""), (id(9).as_str(), "ops")] {
        let (code, text) = world.refusal(&client(1, &["a"], &[link]));
        let name = if link.0.is_empty() { link.1 } else { link.0 };
        assert_eq!(
            (code, text),
            (Code::BadRequest, format!("cannot find role {name}"))
        );
    }
    // The role goes between the decision and its event.
    let event = world.event(&client(1, &["a"], &[("", "ops")]));
    world.done(&DeleteAclRoles {
        ids: vec![ops.clone()],
    });
    let outcome = world.append(event, vec![]);
    let Outcome::Rejected(Rejection::Rule { message }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(message, format!("cannot find role {ops}"));
    assert!(world.row::<AclTokens>(id(1).as_str()).is_none());
}

#[test]
fn acl_05_reading_a_token_shows_the_roles_as_they_are_now() {
    let mut world = world(&["a"]);
    world.done(&role("ops", &["a"]));
    world.done(&role("dev", &["a"]));
    world.done(&client(1, &[], &[("", "ops"), ("", "dev")]));
    assert_eq!(role_names(&shown(&world, 1)), ["ops", "dev"]);
    let mut renamed = role("crew", &["a"]);
    renamed.roles[0].id = made(&world, "ops").id;
    world.done(&renamed);
    assert_eq!(role_names(&shown(&world, 1)), ["crew", "dev"]);
    let dev = made(&world, "dev").id;
    world.done(&DeleteAclRoles { ids: vec![dev] });
    assert_eq!(role_names(&shown(&world, 1)), ["crew"]);
    assert_eq!(
        stored(&world, 1).token.roles.len(),
        2,
        "the row still holds it"
    );
}

#[test]
fn acl_06_a_token_whose_roles_are_gone_keeps_its_policies_and_gains_nothing() {
    let mut world = world(&["a", "b"]);
    world.done(&role("ops", &["b"]));
    world.done(&client(1, &["a"], &[("", "ops")]));
    let ops = made(&world, "ops").id;
    world.done(&DeleteAclRoles { ids: vec![ops] });
    assert_eq!(names(&world, 1), ["a"]);
    // A role made anew under the same name is another one.
    world.done(&role("ops", &["b"]));
    assert_eq!(names(&world, 1), ["a"]);
}

fn update(token: AclToken) -> UpdateAclToken {
    UpdateAclToken {
        token,
        secret_hash: String::new(),
    }
}

#[test]
fn a_token_is_changed_but_never_its_secret_its_life_or_its_region() {
    let mut world = world(&["a", "b"]);
    let mut create = client(1, &["a"], &[]);
    create.token.expiration_ttl = DurationTextOrEmpty(HOUR);
    world.done(&create);
    let first = stored(&world, 1);
    let expires = first.token.expiration_time.expect("it expires");
    assert_eq!(expires.0, first.token.create_time.0 + HOUR);
    let mut token = shown(&world, 1);
    token.policies = vec!["b".to_owned()].into();
    world.done(&update(token.clone()));
    let second = stored(&world, 1);
    assert_eq!(second.secret, first.secret);
    assert_eq!(second.token.create_index, first.token.create_index);
    assert_eq!(second.token.expiration_time, first.token.expiration_time);
    assert_eq!(names(&world, 1), ["b"]);
    assert_ne!(second.token.hash, first.token.hash);
    // What is not said stays.
    world.done(&update(AclToken {
        accessor_id: id(1),
        r#type: "management".into(),
        ..AclToken::default()
    }));
    let third = stored(&world, 1).token;
    assert_eq!(
        (third.r#type.as_str(), third.expiration_time),
        ("management", Some(expires))
    );
}

#[test]
fn what_stays_as_it_is_is_named_where_a_token_is_changed() {
    let mut world = world(&["a"]);
    let mut create = client(1, &["a"], &[]);
    create.token.expiration_ttl = DurationTextOrEmpty(HOUR);
    world.done(&create);
    let token = shown(&world, 1);
    let with = |change: fn(&mut AclToken)| {
        let mut token = token.clone();
        change(&mut token);
        update(token)
    };
    for (command, expected) in [
        (with(|t| t.global = true), "cannot toggle global mode"),
        (
            with(|t| t.expiration_ttl.0 = 7),
            "cannot update expiration TTL",
        ),
        (
            with(|t| t.expiration_time = Some(GoTime(7))),
            "cannot update expiration time",
        ),
        (
            with(|t| t.create_time = GoTime(7)),
            "cannot update create time",
        ),
        (
            with(|t| t.r#type = "root".into()),
            "token type must be client or management",
        ),
    ] {
        let (code, text) = world.refusal(&command);
        assert!(
            code == Code::BadRequest && text.contains(expected),
            "{text}"
        );
    }
    let other_secret = UpdateAclToken {
        token: token.clone(),
        secret_hash: "hash-2".into(),
    };
    assert!(
        world
            .refusal(&other_secret)
            .1
            .contains("cannot update secret ID")
    );
    let same_secret = UpdateAclToken {
        token,
        secret_hash: "hash-1".into(),
    };
    world.done(&same_secret);
    let missing = update(AclToken {
        accessor_id: id(2),
        ..AclToken::default()
    });
    let (code, text) = world.refusal(&missing);
    assert_eq!(
        (code, text),
        (Code::NotFound, format!("cannot find token {}", id(2)))
    );
}

#[test]
fn what_is_wrong_with_a_new_token_is_named() {
    let world = world(&[]);
    let with = |change: fn(&mut AclToken)| {
        let mut create = client(1, &["a"], &[]);
        change(&mut create.token);
        create
    };
    for (command, expected) in [
        (
            with(|t| t.policies = List::nil()),
            "token 0 invalid: 1 error occurred:\n\t* client token missing policies or roles\n\n",
        ),
        (
            with(|t| t.r#type = "management".into()),
            "management token cannot be associated with policies or roles",
        ),
        (
            with(|t| t.r#type.clear()),
            "token type must be client or management",
        ),
        (with(|t| t.name = "x".repeat(257)), "token name too long"),
        (
            with(|t| t.expiration_ttl.0 = -HOUR),
            "TTL '-1h0m0s' should not be negative",
        ),
        (
            with(|t| t.expiration_ttl.0 = 1),
            "expiration time cannot be less than 1m0s in the future (was 1ns)",
        ),
        (
            with(|t| t.expiration_ttl.0 = 25 * HOUR),
            "expiration time cannot be more than 24h0m0s in the future (was 25h0m0s)",
        ),
        (
            with(|t| t.expiration_time = Some(GoTime(START - HOUR))),
            "expiration time cannot be before create time",
        ),
    ] {
        let (code, text) = world.refusal(&command);
        assert!(
            code == Code::BadRequest && text.contains(expected),
            "{text}"
        );
    }
}

#[test]
fn tokens_are_found_by_the_hash_of_their_secret_and_are_gone_when_deleted() {
    let mut world = world(&["a"]);
    world.done(&client(1, &["a"], &[]));
    let mut global = client(2, &["a"], &[]);
    global.token.global = true;
    world.done(&global);
    let by = |world: &World, hash: &str| {
        let found = sealed_token_by_hash(&world.view(), hash).expect("read");
        found.map(|found| found.token.accessor_id.clone())
    };
    assert_eq!(by(&world, "hash-1"), Some(id(1)));
    assert_eq!((by(&world, ""), by(&world, "hash-3")), (None, None));
    assert_eq!(world.refusal(&client(1, &["a"], &[])).0, Code::Conflict);
    let mut same = client(4, &["a"], &[]);
    let event = world.event(&same);
    same.secret = sealed("1");
    let (_, text) = world.refusal(&same);
    assert_eq!(text, "a token with this secret exists already");
    let drover_events::Event::AclTokensUpserted(mut event) = event else {
        panic!("{event:?}")
    };
    event.tokens[0].secret = sealed("1");
    let outcome = world.append((*event).into(), vec![]);
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    let delete = |ids: &[u32]| DeleteAclTokens {
        accessor_ids: ids.iter().map(|n| id(*n)).collect(),
        expired_by: 0,
    };
    let (_, text) = world.refusal(&delete(&[]));
    assert_eq!(text, "must specify as least one token");
    let (_, text) = world.refusal(&delete(&[1, 8, 9]));
    assert_eq!(
        text,
        format!("Cannot delete nonexistent tokens: {}, {}", id(8), id(9))
    );
    let mixed = "Cannot delete mixed global and non-global tokens";
    assert_eq!(world.refusal(&delete(&[1, 2])).1, mixed);
    world.done(&IssueOneTimeToken {
        accessor_id: id(1),
        secret_hash: "once".into(),
    });
    world.done(&delete(&[1]));
    assert_eq!(by(&world, "hash-1"), None);
    assert!(world.row::<OneTimeTokens>(id(1).as_str()).is_none());
}

#[test]
fn only_what_has_expired_is_reaped() {
    let mut world = world(&["a"]);
    let mut short = client(1, &["a"], &[]);
    short.token.expiration_ttl = DurationTextOrEmpty(HOUR);
    world.done(&short);
    world.done(&client(2, &["a"], &[]));
    let reap = |expired_by| DeleteAclTokens {
        accessor_ids: vec![id(1), id(2), id(3)],
        expired_by,
    };
    assert_eq!(world.done(&reap(START)), Reply::Count(0));
    world.done(&reap(START + 2 * HOUR));
    assert!(world.row::<AclTokens>(id(1).as_str()).is_none());
    assert!(world.row::<AclTokens>(id(2).as_str()).is_some());
}

fn bootstrap(number: u32, reset_index: u64) -> BootstrapAcl {
    BootstrapAcl {
        accessor_id: id(number),
        secret: sealed(&number.to_string()),
        reset_index,
    }
}

#[test]
fn acls_are_bootstrapped_once_and_again_by_the_index_of_the_last_time() {
    let mut world = world(&[]);
    world.done(&bootstrap(1, 77));
    let first = world.index;
    let token = stored(&world, 1).token;
    assert_eq!(
        (token.name.as_str(), token.r#type.as_str(), token.global),
        ("Bootstrap Token", "management", true)
    );
    let (code, text) = world.refusal(&bootstrap(2, 0));
    assert_eq!(code, Code::BadRequest);
    assert_eq!(
        text,
        format!("ACL bootstrap already done (reset index: {first})")
    );
    let (_, text) = world.refusal(&bootstrap(2, 7));
    let expected = format!("Invalid bootstrap reset index (specified 7, reset index: {first})");
    assert_eq!(text, expected);
    world.done(&bootstrap(2, first));
    let (_, text) = world.refusal(&bootstrap(3, first));
    assert!(
        text.starts_with("Invalid bootstrap reset index"),
        "a file is good for once: {text}"
    );
    assert!(
        world.row::<AclTokens>(id(1).as_str()).is_some(),
        "the first one stays"
    );
}

#[test]
fn of_two_first_bootstraps_one_is_taken() {
    let mut world = world(&[]);
    let (one, two) = (world.event(&bootstrap(1, 0)), world.event(&bootstrap(2, 0)));
    assert!(matches!(world.append(one, vec![]), Outcome::Applied(_)));
    let outcome = world.append(two, vec![]);
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    assert!(world.row::<AclTokens>(id(2).as_str()).is_none());
}

#[test]
fn a_one_time_token_is_used_once_and_not_after_ten_minutes() {
    let mut world = world(&["a"]);
    world.done(&client(1, &["a"], &[]));
    let issue = |hash: &str| IssueOneTimeToken {
        accessor_id: id(1),
        secret_hash: hash.into(),
    };
    let exchange = |hash: &str| ExchangeOneTimeToken {
        secret_hash: hash.into(),
    };
    world.done(&issue("old"));
    world.done(&issue("new"));
    assert_eq!(world.refusal(&exchange("old")).0, Code::PermissionDenied);
    assert_eq!(world.refusal(&exchange("")).0, Code::PermissionDenied);
    let again = world.event(&exchange("new"));
    world.done(&exchange("new"));
    assert_eq!(world.refusal(&exchange("new")).0, Code::PermissionDenied);
    let outcome = world.append(again, vec![]);
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    world.done(&issue("late"));
    let expired_by = world.now();
    let expire = DeleteExpiredOneTimeTokens { expired_by };
    assert_eq!(world.done(&expire), Reply::Count(0));
    let late = crate::Stamp {
        id: drover_events::EventId([9; 16]),
        now: world.now() + 601 * 1_000_000_000,
    };
    let refused = exchange("late").decide(&world.view(), &late).unwrap_err();
    assert_eq!(refused.code, Code::PermissionDenied);
    let expired_by = late.now;
    let expired = DeleteExpiredOneTimeTokens { expired_by }.decide(&world.view(), &late);
    let Ok(Decision::Event { event, .. }) = expired else {
        panic!("{expired:?}")
    };
    world.given(event);
    assert!(
        one_time_token_by_hash(&world.view(), "late")
            .expect("read")
            .is_none()
    );
    let unknown = IssueOneTimeToken {
        accessor_id: id(9),
        secret_hash: "x".into(),
    };
    assert_eq!(world.refusal(&unknown).0, Code::PermissionDenied);
}

#[test]
fn a_secret_is_found_by_a_hash_of_its_kind() {
    use drover_projections::tables::{acl_tokens, one_time_tokens};
    let hash = acl_tokens::secret_hash("x");
    assert_eq!((hash.len(), &hash), (64, &acl_tokens::secret_hash("x")));
    assert_ne!(hash, acl_tokens::secret_hash("y"));
    assert_ne!(hash, one_time_tokens::secret_hash("x"));
}

#[test]
fn a_secret_in_clear_is_never_stored() {
    let mut world = world(&["a"]);
    let mut create = client(1, &["a"], &[]);
    create.token.secret_id = "canary".into();
    let event = world.event(&create);
    assert!(!format!("{event:?}").contains("canary"));
    world.done(&create);
    // Not even where an event had it.
    let mut token = stored(&world, 1);
    token.token.secret_id = "canary".into();
    world.given(AclTokensUpserted {
        tokens: vec![token],
    });
    assert_eq!(stored(&world, 1).token.secret_id, "");
}
