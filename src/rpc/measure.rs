//! What is counted of calls: how many, by endpoint and kind, and how long they took.

use std::future::Future;
use std::time::Instant;

use crate::telemetry::{labels, milliseconds};

/// Counts a call that is answered here, by its method's name, and measures how long it takes.
/// The label says who calls; it is asked once the call was answered, for that proves it.
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
    labels::count(format!("nomad.nomad.rpc.{endpoint}.{kind}"), label());
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
        "get_client_allocs" | "get_allocs" | "get_policies" | "get_roles_by_id" => "list",
        "ping" | "leader" | "get_node" | "resolve_token" | "who_am_i" => "read",
        _ => "write",
    }
}

/// `UpdateStatus` as `update_status`; letters of abbreviations stay together.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && lower {
            out.push('_');
        }
        lower = letter.is_ascii_lowercase();
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
        ] {
            assert_eq!(snake(name), expected);
        }
        assert_eq!(kind("get_client_allocs"), "list");
        assert_eq!(kind("update_status"), "write");
    }
}
