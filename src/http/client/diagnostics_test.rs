use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::diagnostics::monitor;
use crate::gate::Gate;
use crate::http::Settings;
use crate::http::gate_test::who;
use crate::http::harness::{Harness, Reply};
use crate::identity::Identity;
use drover_testkit::until;

async fn debugged() -> Harness {
    let settings = Settings {
        enable_debug: true,
        ..Settings::default()
    };
    Harness::with(settings, None).await
}

fn status_and_text(reply: &Reply) -> (u16, String) {
    (reply.status, reply.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_bad_wishes_are_answered_in_nomads_words() {
    let h = debugged().await;
    let node = h.register_node().await;
    let parse = "strconv.ParseBool: parsing \"x\": invalid syntax";
    for (target, status, text) in [
        (
            "monitor?log_level=loud",
            400,
            "Unknown log level: loud".to_owned(),
        ),
        (
            "monitor?plain=x",
            400,
            format!("Unknown option for plain: {parse}"),
        ),
        (
            "monitor?log_json=x",
            400,
            format!("Unknown option for log_json: {parse}"),
        ),
        (
            "monitor?node_id=a&server_id=b",
            400,
            "Cannot target node and server simultaneously".to_owned(),
        ),
        ("monitor?node_id=a", 404, "Unknown node \"a\"".to_owned()),
        (
            &format!("monitor?node_id={node}"),
            404,
            "No path to node".to_owned(),
        ),
        (
            "monitor?server_id=b",
            400,
            "unknown Nomad server b".to_owned(),
        ),
    ] {
        let reply = h.get(&format!("/v1/agent/{target}")).await;
        assert_eq!(status_and_text(&reply), (status, text), "{target}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_bad_wishes_for_what_was_logged_for_machines_and_for_profiles() {
    let h = debugged().await;
    for (target, status, text) in [
        (
            "monitor/export",
            400,
            "Either -service-name or -on-disk must be set".to_owned(),
        ),
        (
            "monitor/export?on_disk=true&service_name=nomad",
            400,
            "Cannot target journald and nomad log file simultaneously".to_owned(),
        ),
        (
            "monitor/export?on_disk=true&follow=true",
            400,
            "Cannot follow log file".to_owned(),
        ),
        (
            "monitor/export?service_name=ssh",
            400,
            "service name must include nomad or drover".to_owned(),
        ),
        (
            "host?node_id=a&server_id=b",
            400,
            "Can only forward to either client node or server".to_owned(),
        ),
        ("pprof/", 404, "Invalid method".to_owned()),
        ("pprof/nope", 404, "Unknown profile: nope".to_owned()),
        (
            "pprof/profile?seconds=x",
            400,
            "failed to parse seconds: \"x\" is not a number".to_owned(),
        ),
        (
            "pprof/profile?seconds=301",
            400,
            "seconds must be 1 to 300".to_owned(),
        ),
    ] {
        let reply = h.get(&format!("/v1/agent/{target}")).await;
        assert_eq!(status_and_text(&reply), (status, text), "{target}");
    }
    for (method, target) in [
        ("PUT", "monitor"),
        ("POST", "host"),
        ("DELETE", "pprof/heap"),
    ] {
        let reply = h.ask(method, &format!("/v1/agent/{target}"), "").await;
        assert_eq!(reply.status, 405, "{target}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_the_machine_and_profiles_come_as_nomads_clients_take_them() {
    let h = debugged().await;
    let me = h.server.me.clone();
    for target in [
        "host",
        &format!("host?server_id={}", me.name),
        "host?server_id=leader",
    ] {
        let reply = h.get(&format!("/v1/agent/{target}")).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        let host = reply.json();
        assert_eq!(host["AgentID"], me.id.as_str());
        assert!(
            host["HostData"]["OS"]
                .as_str()
                .unwrap()
                .starts_with("Linux")
        );
    }
    let reply = h.get("/v1/agent/pprof/").await;
    assert_eq!((reply.status, &*reply.text()), (404, "Invalid method"));
    let reply = h.get("/v1/agent/pprof/goroutine?debug=1").await;
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert!(reply.text().starts_with("goroutine profile: total "));
    let reply = h.get("/v1/agent/pprof/goroutine").await;
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    let disposition = "attachment; filename=\"goroutine\"";
    assert_eq!(reply.header("content-disposition"), disposition);
    let reply = h.get("/v1/agent/pprof/trace").await;
    assert_eq!(reply.status, 501, "{}", reply.text());
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_into_an_agent_and_which_servers_a_client_is_given_is_recorded() {
    let h = debugged().await;
    assert_eq!(h.get("/v1/agent/pprof/cmdline").await.status, 200);
    let named = "/v1/agent/servers?address=10.0.0.1:4647&address=b:4647";
    // A server refuses it.
    assert_eq!(h.ask("PUT", named, "").await.status, 501);
    let reported = h.get("/v1/audit/requests").await.json();
    let [secret, control] = [&reported[0], &reported[1]];
    assert_eq!(secret["Class"], "secret", "{reported}");
    assert_eq!(secret["Path"], "/v1/agent/pprof/cmdline");
    assert_eq!(control["Class"], "control", "{reported}");
    assert_eq!(control["Path"], "/v1/agent/servers");
    let servers = serde_json::json!(["10.0.0.1:4647", "b:4647"]);
    assert_eq!(control["Servers"], servers);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_without_tokens_only_a_configuration_opens_what_tells_of_the_process() {
    let h = Harness::start().await;
    for target in ["host", "pprof/cmdline", "pprof/profile"] {
        let (status, text) = status_and_text(&h.get(&format!("/v1/agent/{target}")).await);
        assert_eq!(status, 403, "{target}");
        assert!(text.ends_with("Permission denied"), "{text}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_whoever_may_not_is_refused_and_no_listener_stays_behind() {
    let h = Harness::asking(Gate::fixed(who)).await;
    for target in [
        "monitor",
        "monitor/export?on_disk=true",
        "host",
        "pprof/cmdline",
    ] {
        let target = format!("/v1/agent/{target}");
        for token in ["operator", "red", ""] {
            let reply = h.seen(token, &target).await;
            assert_eq!(reply.status, 403, "{token} {target}: {}", reply.text());
        }
    }
    // Rights say it all where there are tokens.
    for target in ["host", "pprof/cmdline"] {
        let reply = h.seen("nodes", &format!("/v1/agent/{target}")).await;
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    }
    h.stop().await;
    let h = debugged().await;
    let _turn = monitor::tests::turn().await;
    // A plain stream in which nothing comes ends with its reader all the same.
    let request = hyper::Request::get("/v1/agent/monitor?plain=true&log_level=off");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let mut reply = h.router().oneshot(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["content-type"], "text/plain; charset=utf-8");
    until("it listens", || monitor::listeners() > 0).await;
    let first = tokio::time::timeout(std::time::Duration::from_millis(10), reply.frame()).await;
    assert!(first.is_err(), "nothing is logged at this level");
    drop(reply);
    until("it is gone", || monitor::listeners() == 0).await;
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mod_23_a_log_ends_with_the_right_to_it() {
    static LOST: AtomicBool = AtomicBool::new(false);
    let h = Harness::asking(Gate::fixed(|_, addr| match LOST.load(Ordering::Relaxed) {
        false => Identity::open(addr),
        true => who(None, addr),
    }))
    .await;
    let _turn = monitor::tests::turn().await;
    let request = hyper::Request::get("/v1/agent/monitor?log_level=off");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let mut reply = h.router().oneshot(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    let alive = reply.frame().await.expect("it lives").unwrap();
    assert_eq!(alive.into_data().unwrap(), "{}");
    LOST.store(true, Ordering::Relaxed);
    let rest = tokio::time::timeout(drover_testkit::LONG, reply.into_body().collect());
    // How it ends is the stream's; that it does is what counts.
    let _ = rest.await.expect("it ends");
    until("nobody listens", || monitor::listeners() == 0).await;
    h.stop().await;
}
