//! Roles: what is refused, and what is kept.

use drover_error::Code;
use drover_events::model::{AclPolicy, AclRole, AclRolePolicyLink};
use drover_projections::query::acl::{role_by_name, shown_role};
use drover_projections::tables::acl_roles::AclRoles;
use drover_projections::{Outcome, Rejection};

use super::{DeleteAclPolicies, DeleteAclRoles, UpsertAclPolicies, UpsertAclRoles};
use crate::testing::{World, id};
use crate::{Command as _, Decision};

pub(super) fn world(policies: &[&str]) -> World {
    let mut world = World::new();
    world.raise();
    for name in policies {
        world.done(&UpsertAclPolicies {
            policies: vec![AclPolicy {
                name: (*name).into(),
                rules: "agent { policy = \"read\" }".into(),
                ..AclPolicy::default()
            }],
        });
    }
    world
}

pub(super) fn role(name: &str, policies: &[&str]) -> UpsertAclRoles {
    let link = |name: &&str| AclRolePolicyLink {
        name: (*name).into(),
    };
    let role = AclRole {
        name: name.into(),
        policies: policies.iter().map(link).collect::<Vec<_>>().into(),
        ..AclRole::default()
    };
    UpsertAclRoles {
        roles: vec![role],
        allow_missing_policies: false,
    }
}

pub(super) fn made(world: &World, name: &str) -> AclRole {
    let role = role_by_name(&world.view(), name).expect("read");
    AclRole::clone(&role.expect("made"))
}

fn links(role: &AclRole) -> Vec<&str> {
    role.policies
        .iter()
        .map(|link| link.name.as_str())
        .collect()
}

#[test]
fn acl_08_roles_are_made_changed_found_by_name_and_removed() {
    let mut world = world(&["a", "b"]);
    world.done(&role("ops", &["a", "b", "a"]));
    let first = made(&world, "ops");
    assert_eq!(links(&first), ["a", "b"]);
    assert_eq!(first.id.len(), 36);
    let mut change = role("ops-2", &["b"]);
    change.roles[0].id.clone_from(&first.id);
    world.done(&change);
    let second = made(&world, "ops-2");
    assert_eq!(
        (&second.id, second.create_index),
        (&first.id, first.create_index)
    );
    assert_ne!(second.hash, first.hash);
    assert!(role_by_name(&world.view(), "ops").expect("read").is_none());
    world.done(&change);
    assert_eq!(made(&world, "ops-2").modify_index, second.modify_index);
    world.done(&DeleteAclRoles {
        ids: vec![first.id.clone()],
    });
    assert!(world.row::<AclRoles>(first.id.as_str()).is_none());
    let (code, text) = world.refusal(&DeleteAclRoles {
        ids: vec![first.id],
    });
    assert_eq!(
        (code, text.as_str()),
        (Code::NotFound, "ACL role not found")
    );
}

#[test]
fn acl_08_a_name_has_one_role_whoever_is_first() {
    let mut world = world(&["a"]);
    world.done(&role("ops", &["a"]));
    let (code, text) = world.refusal(&role("ops", &["a"]));
    assert_eq!(code, Code::BadRequest);
    assert_eq!(text, "role with name ops already exists");
    // Two that were decided on the same view: apply takes the first.
    let event = |name| world.event(&role(name, &["a"]));
    let (one, mut two) = (event("dev"), event("dev"));
    if let drover_events::Event::AclRolesUpserted(ev) = &mut two {
        ev.roles[0].id = id(7);
    }
    assert!(matches!(world.append(one, vec![]), Outcome::Applied(_)));
    let Outcome::Rejected(Rejection::Rule { message }) = world.append(two, vec![]) else {
        panic!("two roles have one name")
    };
    assert_eq!(message, "role with name dev already exists");
}

#[test]
fn acl_09_a_missing_policy_is_refused_unless_it_is_allowed() {
    let mut world = world(&["a"]);
    let (code, text) = world.refusal(&role("ops", &["a", "gone"]));
    assert_eq!(
        (code, text.as_str()),
        (Code::BadRequest, "cannot find policy gone")
    );
    let allowed = UpsertAclRoles {
        allow_missing_policies: true,
        ..role("ops", &["a", "gone"])
    };
    world.done(&allowed);
    let stored = made(&world, "ops");
    assert_eq!(links(&stored), ["a", "gone"]);
    let shown = shown_role(&world.view(), &stored).expect("read");
    assert_eq!(links(&shown), ["a"]);
    // A policy that goes between the decision and its event.
    let event = world.event(&role("dev", &["a"]));
    world.done(&DeleteAclPolicies {
        names: vec!["a".into()],
    });
    let outcome = world.append(event, vec![]);
    let Outcome::Rejected(Rejection::Rule { message }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(message, "cannot find policy a");
}

#[test]
fn what_is_wrong_with_a_role_is_named() {
    let world = world(&["a"]);
    let mut long = role("x", &["a"]);
    long.roles[0].description = "x".repeat(257);
    for (command, expected) in [
        (
            role("a b", &["a"]),
            "role 0 invalid: 1 error occurred:\n\t* invalid name 'a b'\n\n",
        ),
        (role("x", &[]), "at least one policy should be specified"),
        (long, "description longer than 256"),
    ] {
        let (code, text) = world.refusal(&command);
        assert!(
            code == Code::BadRequest && text.contains(expected),
            "{text}"
        );
    }
    let mut unknown = role("x", &["a"]);
    unknown.roles[0].id = id(9);
    assert_eq!(
        world.refusal(&unknown).1,
        format!("cannot find role {}", id(9))
    );
    let stamp = crate::Stamp {
        id: drover_events::EventId([1; 16]),
        now: 1,
    };
    let decided = role("x", &["a"]).decide(&world.view(), &stamp);
    assert!(matches!(decided, Ok(Decision::Event { .. })));
}
