//! What is counted of calls: how many, by endpoint and kind, and how long they took.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use drover_telemetry::{labels, milliseconds};
use metrics::Key;

/// Methods that may hold a blocking query. How long one takes says nothing of the work for its
/// caller, so it is left out of the time spent on callers; Nomad's histograms have it.
const BLOCKING_METHODS: [&str; 9] = [
    "Alloc.GetAllocs",
    "CSIPlugin.Get",
    "CSIPlugin.List",
    "CSIVolume.Get",
    "CSIVolume.List",
    "HostVolume.Get",
    "HostVolume.List",
    "Node.GetClientAllocs",
    "TaskGroupHostVolumeClaim.List",
];

/// What a method's calls are counted as: made once, when it is added.
pub(super) struct MethodMetrics {
    name: &'static str,
    /// How many came, by endpoint and what they do.
    calls: String,
    /// How long they took.
    took: Key,
    may_block: bool,
}

impl MethodMetrics {
    pub(super) fn new(name: &'static str) -> Self {
        let (endpoint, method) = name.split_once('.').unwrap_or((name, ""));
        let (endpoint, method) = (snake(endpoint), snake(method));
        // Nomad's name for the endpoint of nodes in timings.
        let resource = match &*endpoint {
            "node" => "client",
            other => other,
        };
        Self {
            name,
            calls: format!("nomad.nomad.rpc.{endpoint}.{}", kind(&method)),
            took: labels::lasting(format!("nomad.nomad.{resource}.{method}"), Vec::new()),
            may_block: BLOCKING_METHODS.contains(&name),
        }
    }

    /// Counts a call that is answered here, and measures how long it takes. `label` names the
    /// caller; it is called once there is an answer, for only then is the caller known for certain.
    pub(super) async fn timed<T>(
        self: Arc<Self>,
        call: impl Future<Output = T>,
        label: impl FnOnce() -> Option<String>,
    ) -> T {
        metrics::counter!("nomad.nomad.rpc.request").increment(1);
        let began = Instant::now();
        let answer = call.await;
        let label = label();
        let served = labels::served(self.name, label.as_deref());
        if !self.may_block {
            served.took(began.elapsed());
        }
        labels::count(&self.calls, label.as_deref());
        labels::record(&self.took, milliseconds(began.elapsed()));
        answer
    }
}

/// What a method does: `read`, `list` or `write`.
fn kind(method: &str) -> &'static str {
    match method {
        "get_client_allocs" | "get_allocs" | "get_policies" | "get_claim_policies"
        | "get_roles_by_id" | "list" | "list_external" | "list_snapshots" => "list",
        "ping" | "leader" | "get" | "get_node" | "resolve_token" | "who_am_i" => "read",
        _ => "write",
    }
}

/// `UpdateStatus` as `update_status`, `CSIVolume` as `csi_volume`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut before = None;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins = match before {
            // The last letter of an abbreviation begins the word behind it.
            Some(true) => letters.peek().is_some_and(char::is_ascii_lowercase),
            Some(false) => true,
            None => false,
        };
        if letter.is_ascii_uppercase() && begins {
            out.push('_');
        }
        before = Some(letter.is_ascii_uppercase());
        out.push(letter.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_nomads_metrics() {
        for (name, expected) in [
            ("UpdateStatus", "update_status"),
            ("GetClientAllocs", "get_client_allocs"),
            ("ServiceRegistration", "service_registration"),
            ("DeleteByID", "delete_by_id"),
            ("GetRolesByID", "get_roles_by_id"),
            ("ACL", "acl"),
            ("CSIVolume", "csi_volume"),
        ] {
            assert_eq!(snake(name), expected);
        }
        for method in ["get_client_allocs", "get_claim_policies"] {
            assert_eq!(kind(method), "list");
        }
        assert_eq!(kind("update_status"), "write");
        assert_eq!((kind("list_external"), kind("get")), ("list", "read"));
    }
}
