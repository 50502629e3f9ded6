//! What is counted of calls: how many, by endpoint and kind, and how long they took.

use std::future::Future;
use std::time::Instant;

use drover_telemetry::{labels, milliseconds};

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

/// Counts a call that is answered here, by its method's name, and measures how long it takes.
/// `label` names the caller; it is called once there is an answer, for only then is the caller
/// known for certain.
pub(super) async fn timed<T>(
    name: &'static str,
    call: impl Future<Output = T>,
    label: impl FnOnce() -> Option<String>,
) -> T {
    let Some((endpoint, method)) = name.split_once('.') else {
        return call.await;
    };
    let (endpoint, method) = (snake(endpoint), snake(method));
    let kind = kind(&method);
    metrics::counter!("nomad.nomad.rpc.request").increment(1);
    let began = Instant::now();
    let answer = call.await;
    let label = label();
    let served = labels::served(name, label.as_deref());
    if !BLOCKING_METHODS.contains(&name) {
        served.took(began.elapsed());
    }
    labels::count(
        &format!("nomad.nomad.rpc.{endpoint}.{kind}"),
        label.as_deref(),
    );
    // Nomad's name for the endpoint of nodes in timings.
    let resource = if endpoint == "node" {
        "client"
    } else {
        &endpoint
    };
    let took = milliseconds(began.elapsed());
    metrics::histogram!(format!("nomad.nomad.{resource}.{method}")).record(took);
    answer
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
