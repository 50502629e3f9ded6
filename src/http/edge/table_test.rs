//! Who is let in where by an agent without a server.

use std::sync::Arc;

use hyper::Method;

use super::table::{AccessRule, Does, ROWS, RouteRow, found};
use super::{AccessDemand, Request};
use crate::acl::{Acl, NamespaceCapability as Ns};
use crate::endpoints::testing::listed;
use crate::http::client::{rights_in_files, rights_of_allocation};
use crate::http::gate::Access;
use crate::http::methods::Methods;
use crate::http::router::{self, RouteLine};
use crate::identity::{Identity, Rejection};

/// What servers require otherwise, and why.
const OTHERWISE: [(&str, Methods, &str); 1] = [(
    "/v1/agent/servers",
    Methods::Put,
    "a client has servers that it can be told of; a server has none, and refuses",
)];

/// What gives the right to something with an allocation, by verb.
type Rights = fn(&str) -> Option<&'static [Ns]>;

/// Routes of servers of which the path says what is required: one function says what, for servers
/// too.
const BY_VERB: [(&str, &str, Rights); 2] = [
    (
        "/v1/client/allocation/{id}/",
        "/v1/client/allocation/{id}/{verb}",
        rights_of_allocation,
    ),
    ("/v1/client/fs/", "/v1/client/fs/{*rest}", rights_in_files),
];

fn lines() -> Vec<RouteLine> {
    let lines = ROWS.iter().map(|row| RouteLine {
        path: row.path.to_owned(),
        methods: row.methods.name(),
        access: row.access().to_string(),
        of_object: false,
    });
    let mut lines: Vec<RouteLine> = lines.collect();
    lines.sort();
    lines
}

/// A path with its parameters filled in.
fn filled(path: &str) -> String {
    path.replace("{id}", "00000000-0000-0000-0000-000000000000")
        .replace("{profile}", "goroutine")
}

fn methods(row: &RouteRow) -> Vec<Method> {
    let mut all = vec![
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::POST,
        Method::DELETE,
    ];
    all.retain(|method| row.methods.takes(method));
    all
}

fn request(method: &Method, path: &str) -> Request {
    let request = hyper::Request::builder().method(method).uri(path);
    let (parts, ()) = request.body(()).unwrap().into_parts();
    Request::head(parts).unwrap()
}

/// What a row requires where its allocation, if it is about one, is in the default namespace.
fn demand_of(row: &RouteRow) -> AccessDemand {
    match row.asks {
        AccessRule::Agent(access) | AccessRule::Here(access) => AccessDemand::Agent(access),
        AccessRule::Allocation(any_of) => AccessDemand::Allocation {
            namespace: "default".to_owned(),
            any_of,
        },
    }
}

#[test]
fn the_page_of_routes_has_what_an_agent_without_a_server_answers() {
    let columns = "| Path at a client's agent | Methods | Access |";
    listed(columns, &router::shown(lines()));
}

#[test]
fn auth_12_no_route_of_a_client_agent_lets_in_who_may_do_nothing() {
    let nobody = Identity::anonymous("10.0.0.7", Arc::new(Acl::denied()));
    let forged = Identity::refused("10.0.0.7", Rejection::Unknown);
    let (mut tried, mut public) = (0, Vec::new());
    for row in ROWS {
        let demand = demand_of(row);
        for method in methods(row) {
            let request = request(&method, &filled(row.path));
            tried += 1;
            for who in [&nobody, &forged] {
                let reported = demand.admit(&request, who);
                let status = reported.map_err(|error| crate::net::status(error.code));
                let expected = match demand.is_public() {
                    true => Ok(()),
                    false => Err(403),
                };
                assert_eq!(status, expected, "{method} {}", row.path);
            }
            let manager = Identity::open("10.0.0.7");
            assert!(demand.admit(&request, &manager).is_ok(), "{}", row.path);
        }
        if demand.is_public() {
            public.push(row.path);
        }
    }
    assert!(tried > 50, "{tried}");
    assert_eq!(public, ["/v1/agent/health"]);
}

#[test]
fn auth_12_a_client_agent_asks_for_each_route_what_servers_ask() {
    let lines = router::lines();
    let there = |path: &str, methods: &str| {
        let mut lines = lines.iter();
        let line = lines.find(|line| line.path == path && line.methods == methods);
        line.map(|line| line.access.clone())
    };
    for row in ROWS {
        let access = row.access().to_string();
        let by_verb = BY_VERB.iter().find(|(below, ..)| {
            let rest = row.path.strip_prefix(*below);
            rest.is_some_and(|rest| !rest.is_empty())
        });
        if let Some((below, route, rights)) = by_verb {
            let listed = lines.iter().any(|line| line.path == *route);
            assert!(listed, "{route}");
            let verb = row.path[below.len()..].trim_end_matches("/{id}");
            let rights = rights(verb).expect("servers know it");
            assert_eq!(access, Access::Namespace(rights).to_string(), "{row:?}");
            continue;
        }
        let there = there(row.path, row.methods.name()).expect("servers have it");
        let mut otherwise = OTHERWISE.iter();
        match otherwise.find(|(path, methods, _)| (*path, *methods) == (row.path, row.methods)) {
            Some((_, _, why)) => assert_ne!(access, there, "no longer so: {why}"),
            None => assert_eq!(access, there, "{row:?}"),
        }
    }
}

#[test]
fn a_request_finds_its_row_and_no_other() {
    for row in ROWS {
        for method in methods(row) {
            let one = found(&method, &filled(row.path)).expect("a row");
            assert_eq!((one.path, one.methods), (row.path, row.methods), "{method}");
        }
    }
    for (method, path) in [
        (Method::PUT, "/v1/agent/health"),
        (Method::DELETE, "/v1/agent/servers"),
        (Method::GET, "/v1/agent/self/"),
        (Method::GET, "/v1/agent/pprof"),
        (Method::GET, "/v1/agent/pprof/a/b"),
        (Method::PUT, "/v1/client/metadata"),
        (Method::OPTIONS, "/v1/client/gc"),
        (Method::GET, "/v1/client/allocation//restart"),
        (Method::GET, "/v1/client/allocation/x/exec"),
        (Method::PUT, "/v1/client/allocation/x/pause"),
        (Method::PUT, "/v1/client/allocation/x/stats"),
        (Method::GET, "/v1/client/fs/rm/x"),
        (Method::GET, "/v1/jobs"),
    ] {
        assert!(found(&method, path).is_none(), "{method} {path}");
    }
    let row = found(&Method::GET, "/v1/client/fs/logs/x").expect("a row");
    assert_eq!(
        (row.id("/v1/client/fs/logs/x"), row.does),
        (Some("x"), Does::Near)
    );
}
