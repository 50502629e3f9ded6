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
use crate::error::ApiError;

/// Namespaces are created or changed.
#[derive(Clone, Debug)]
pub struct UpsertNamespaces {
    /// The namespaces.
    pub namespaces: Vec<Namespace>,
}

impl Command for UpsertNamespaces {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, ApiError> {
        if self.namespaces.is_empty() {
            return Err(ApiError::bad_request("must specify at least one namespace"));
        }
        let mut namespaces = self.namespaces.clone();
        for namespace in &mut namespaces {
            if !is_name(&namespace.name, &[]) {
                return Err(invalid(
                    &namespace.name,
                    &format!(
                        "invalid name \"{}\". Must match regex ^[a-zA-Z0-9-]{{1,128}}$",
                        namespace.name
                    ),
                ));
            }
            if namespace.description.len() > 256 {
                return Err(invalid(&namespace.name, "description longer than 256"));
            }
            namespace.create_index = 0;
            namespace.modify_index = 0;
            namespace.hash = Base64::default();
            let text = serde_json::to_vec(namespace)
                .map_err(|error| ApiError::internal(error.to_string()))?;
            namespace.hash = Base64::from(Sha256::digest(text).to_vec());
        }
        Ok(Decision::free(NamespacesUpserted { namespaces }))
    }
}

fn invalid(name: &str, why: &str) -> ApiError {
    ApiError::refused(format!(
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
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, ApiError> {
        if self.names.is_empty() {
            return Err(ApiError::bad_request(
                "must specify at least one namespace to delete",
            ));
        }
        for name in &self.names {
            if name == DEFAULT_NAMESPACE {
                return Err(ApiError::refused("can not delete default namespace"));
            }
            if view.modified::<Namespaces>(name.as_str())?.is_none() {
                return Err(ApiError::refused("namespace not found"));
            }
        }
        Ok(Decision::free(NamespacesDeleted {
            names: self.names.clone(),
        }))
    }
}
