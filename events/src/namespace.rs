//! Events about namespaces.

use crate::model::Namespace;
use crate::wire;

wire! {
    /// Namespaces were created or changed.
    pub struct NamespacesUpserted {
        namespaces: Vec<Namespace> = "Namespaces",
    }

    /// Namespaces were removed; `default` never is.
    pub struct NamespacesDeleted {
        names: Vec<String> = "Names",
    }
}
