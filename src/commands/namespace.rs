//! Commands about namespaces.

use drover_events::gojson::Base64;
use drover_events::model::Namespace;
use drover_events::model::status::DEFAULT_NAMESPACE;
use drover_events::namespace::*;
use drover_projections::View;
use drover_projections::tables::namespaces::Namespaces;
use sha2::{Digest as _, Sha256};

use super::support::is_name;
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// Namespaces are created or changed.
#[derive(Clone, Debug)]
pub struct UpsertNamespaces {
    pub namespaces: Vec<Namespace>,
}

impl Command for UpsertNamespaces {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.namespaces.is_empty() {
            return Err(Refusal::bad_request("must specify at least one namespace"));
        }
        let mut namespaces = self.namespaces.clone();
        for namespace in &mut namespaces {
            if !is_name(&namespace.name, &[]) {
                return Err(invalid_namespace_error(
                    &namespace.name,
                    &format!(
                        "invalid name \"{}\". Must match regex ^[a-zA-Z0-9-]{{1,128}}$",
                        namespace.name
                    ),
                ));
            }
            if namespace.description.len() > 256 {
                return Err(invalid_namespace_error(
                    &namespace.name,
                    "description longer than 256",
                ));
            }
            if let Some(what) = unsupported_setting(namespace) {
                let why = format!("{what} are not supported by this version of drover");
                return Err(invalid_namespace_error(&namespace.name, &why));
            }
            namespace.create_index = 0;
            namespace.modify_index = 0;
            namespace.hash = Base64::default();
            let text = serde_json::to_vec(namespace)
                .map_err(|error| Refusal::internal(error.to_string()))?;
            namespace.hash = Base64::from(Sha256::digest(text).to_vec());
        }
        Ok(Decision::unguarded(NamespacesUpserted { namespaces }))
    }
}

/// A setting of a namespace that would have no effect: it is refused, because a user who sets a
/// limit relies on it.
fn unsupported_setting(namespace: &Namespace) -> Option<&'static str> {
    let can = namespace.capabilities.as_ref();
    let drivers = can.is_some_and(|can| {
        !can.enabled_task_drivers.is_empty() || !can.disabled_task_drivers.is_empty()
    });
    let networks = can.is_some_and(|can| {
        !can.enabled_network_modes.is_empty() || !can.disabled_network_modes.is_empty()
    });
    let pools = namespace.node_pool_configuration.as_ref();
    let vault = namespace.vault_configuration.as_ref();
    let consul = namespace.consul_configuration.as_ref();
    let claims = [
        &namespace.required_extra_claims,
        &namespace.optional_extra_claims,
    ];
    [
        ("quotas", !namespace.quota.is_empty()),
        ("limits on task drivers", drivers),
        ("limits on network modes", networks),
        (
            "limits on node pools",
            pools.is_some_and(|set| *set != Default::default()),
        ),
        (
            "limits on Vault clusters",
            vault.is_some_and(|set| *set != Default::default()),
        ),
        (
            "limits on Consul clusters",
            consul.is_some_and(|set| *set != Default::default()),
        ),
        (
            "extra claims of identities",
            claims.iter().any(|set| !set.is_empty()),
        ),
    ]
    .into_iter()
    .find_map(|(what, set)| set.then_some(what))
}

fn invalid_namespace_error(name: &str, why: &str) -> Refusal {
    Refusal::by_rule(format!(
        "Invalid namespace \"{name}\": 1 error occurred:\n\t* {why}\n\n"
    ))
}

/// Namespaces are removed; apply refuses one that is not empty.
#[derive(Clone, Debug)]
pub struct DeleteNamespaces {
    /// Their names.
    pub names: Vec<String>,
}

impl Command for DeleteNamespaces {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.names.is_empty() {
            return Err(Refusal::bad_request(
                "must specify at least one namespace to delete",
            ));
        }
        for name in &self.names {
            if name == DEFAULT_NAMESPACE {
                return Err(Refusal::by_rule("can not delete default namespace"));
            }
            if !view.contains::<Namespaces>(name.as_str())? {
                return Err(Refusal::by_rule("namespace not found"));
            }
        }
        Ok(Decision::unguarded(NamespacesDeleted {
            names: self.names.clone(),
        }))
    }
}
