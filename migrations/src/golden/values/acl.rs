//! Samples about access control.

use drover_events::acl::*;
use drover_events::gojson::Time;
use drover_events::model::*;
use drover_events::{Event, EventKind};

use super::super::samples::TIME;
use super::id;

fn secret() -> SealedSecret {
    SealedSecret {
        hash: "00ff".into(),
        ciphertext: "AAEC".into(),
        key_id: id(3),
    }
}

pub(super) fn event(kind: EventKind) -> Option<Event> {
    policies_and_tokens(kind).or_else(|| roles_and_sign_in(kind))
}

fn policies_and_tokens(kind: EventKind) -> Option<Event> {
    let ids = || vec![id(60), id(61)];
    let token = SealedToken {
        token: AclToken {
            accessor_id: id(60),
            name: "ci".into(),
            r#type: "client".into(),
            policies: vec!["read".to_owned()].into(),
            ..Default::default()
        },
        secret: secret(),
    };
    Some(match kind {
        EventKind::AclPoliciesUpserted => {
            let policy = AclPolicy {
                name: "read".into(),
                rules: "namespace \"*\" { policy = \"read\" }".into(),
                ..Default::default()
            };
            AclPoliciesUpserted {
                policies: vec![policy],
            }
            .into()
        }
        EventKind::AclPoliciesDeleted => AclPoliciesDeleted {
            names: vec!["read".into()],
        }
        .into(),
        EventKind::AclTokensUpserted => AclTokensUpserted {
            tokens: vec![token],
        }
        .into(),
        EventKind::AclTokensDeleted => AclTokensDeleted {
            accessor_ids: ids(),
        }
        .into(),
        EventKind::AclBootstrapped => AclBootstrapped {
            token,
            reset_index: 9,
        }
        .into(),
        _ => return None,
    })
}

fn roles_and_sign_in(kind: EventKind) -> Option<Event> {
    let ids = || vec![id(60), id(61)];
    Some(match kind {
        EventKind::AclRolesUpserted => {
            let role = AclRole {
                id: id(62),
                name: "deployers".into(),
                ..Default::default()
            };
            AclRolesUpserted {
                roles: vec![role],
                allow_missing_policies: true,
            }
            .into()
        }
        EventKind::AclRolesDeleted => AclRolesDeleted { ids: ids() }.into(),
        EventKind::AclAuthMethodsUpserted => {
            let method = AclAuthMethod {
                name: "sso".into(),
                r#type: "OIDC".into(),
                ..Default::default()
            };
            AclAuthMethodsUpserted {
                auth_methods: vec![method],
            }
            .into()
        }
        EventKind::AclAuthMethodsDeleted => AclAuthMethodsDeleted {
            names: vec!["sso".into()],
        }
        .into(),
        EventKind::AclBindingRulesUpserted => {
            let rule = AclBindingRule {
                id: id(63),
                auth_method: "sso".into(),
                bind_type: "role".into(),
                ..Default::default()
            };
            AclBindingRulesUpserted {
                binding_rules: vec![rule],
                allow_missing_auth_methods: true,
            }
            .into()
        }
        EventKind::AclBindingRulesDeleted => AclBindingRulesDeleted { ids: ids() }.into(),
        EventKind::OneTimeTokensUpserted => {
            let token = OneTimeToken {
                accessor_id: id(60),
                expires_at: Time(TIME),
                ..Default::default()
            };
            OneTimeTokensUpserted {
                token,
                secret: secret(),
            }
            .into()
        }
        EventKind::OneTimeTokensDeleted => OneTimeTokensDeleted {
            accessor_ids: ids(),
        }
        .into(),
        EventKind::OneTimeTokensExpired => OneTimeTokensExpired { timestamp: TIME }.into(),
        _ => return None,
    })
}
