//! Rules of Vault access, identities, secrets and task scaling.

use super::when;
use drover_events::model::{Task, WorkloadIdentity};
use std::collections::BTreeSet;

pub(super) fn check(t: &Task, errors: &mut Vec<String>) {
    if let Some(vault) = &t.vault {
        match vault.change_mode.as_str() {
            "signal" => when(errors, vault.change_signal.is_empty(), || {
                "Signal must be specified when using change mode \"signal\"".into()
            }),
            "noop" | "restart" => {}
            other => errors.push(format!("Unknown change mode {other:?}")),
        }
    }
    if let Some(identity) = &t.identity {
        identity_rules(identity, true, errors);
    }
    for identity in t.identities.iter() {
        when(
            errors,
            matches!(identity.name.as_str(), "" | "default"),
            || "Duplicate default identities found".into(),
        );
        identity_rules(identity, false, errors);
    }
    secrets(t, errors);
    // The kinds that the parser knows; an autoscaler reads them from the job.
    for policy in t.scaling_policies.iter() {
        let known = matches!(policy.r#type.as_str(), "vertical_cpu" | "vertical_mem");
        when(errors, !known, || {
            format!("scaling policy type {:?} is not valid", policy.r#type)
        });
    }
}

fn identity_rules(i: &WorkloadIdentity, default: bool, errors: &mut Vec<String>) {
    let mut inner = Vec::new();
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    when(
        &mut inner,
        i.name.is_empty() || i.name.len() > 128 || !i.name.chars().all(word),
        || {
            format!(
                "invalid name {:?}. Must match regex ^[a-zA-Z0-9-_]{{1,128}}$",
                i.name
            )
        },
    );
    for (n, audience) in i.audience.iter().enumerate() {
        when(&mut inner, audience.is_empty(), || {
            format!("an empty string is an invalid audience ({})", n + 1)
        });
    }
    match i.change_mode.as_str() {
        "signal" => when(&mut inner, i.change_signal.is_empty(), || {
            "change_signal must be specified when using change_mode=\"signal\"".into()
        }),
        "" | "noop" | "restart" => when(&mut inner, !i.change_signal.is_empty(), || {
            format!(
                "can only use change_signal={:?} with change_mode=\"signal\"",
                i.change_signal
            )
        }),
        other => inner.push(format!("invalid change_mode: {other}")),
    }
    when(&mut inner, default && i.ttl > 0, || {
        "ttl for default identity not yet supported".into()
    });
    when(&mut inner, i.ttl < 0, || "ttl must be >= 0".into());
    when(&mut inner, !i.filepath.is_empty() && !i.file, || {
        "file parameter must be true in order to specify filepath".into()
    });
    for text in inner {
        errors.push(format!("Identity {:?} is invalid: {text}", i.name));
    }
}

fn secrets(t: &Task, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for secret in t.secrets.iter() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if secret.name.is_empty() {
            errors.push("secret name cannot be empty".into());
        } else if secret.name.len() > 128 || !secret.name.chars().all(word) {
            errors.push("secret name must match regex ^[a-zA-Z0-9_]{1,128}$".into());
        }
        when(errors, !seen.insert(&secret.name), || {
            format!("Duplicate secret {:?} found", secret.name)
        });
        when(errors, secret.path.is_empty(), || {
            "secret path cannot be empty".into()
        });
        match secret.provider.as_str() {
            "" => errors.push("secret provider cannot be empty".into()),
            builtin @ ("nomad" | "vault") => {
                when(errors, !secret.env.is_empty(), || {
                    format!("{builtin} provider cannot use the env block")
                });
                when(errors, builtin == "vault" && t.vault.is_none(), || {
                    format!(
                        "Secret {:?} has provider \"vault\" but no vault block",
                        secret.name
                    )
                });
            }
            custom => when(errors, !secret.config.is_empty(), || {
                format!("custom plugin provider {custom} cannot use the config block")
            }),
        }
    }
}
