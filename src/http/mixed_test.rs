//! One event about several namespaces, as the stream shows it.

use drover_events::model::Evaluation;
use drover_testkit::LONG;

use super::gate_test::two_namespaces;
use super::harness::Harness;
use crate::commands::eval::UpsertEvals;

/// A stream of evaluations that stands, and what it sent so far.
struct Following {
    body: axum::body::Body,
    reported: String,
}

impl Following {
    async fn begin(server: &Harness, token: &str, form: &str) -> Self {
        let target = format!("/v1/event/stream?topic=Evaluation&namespace=*&index=1{form}");
        let request = hyper::Request::builder().uri(target);
        let request = request.header("x-nomad-token", token);
        let request = request.body(axum::body::Body::empty()).unwrap();
        let reply = tower::ServiceExt::oneshot(server.router(), request);
        let reply = reply.await.unwrap();
        assert_eq!(reply.status().as_u16(), 200, "{token} {form}");
        Self {
            body: reply.into_body(),
            reported: String::new(),
        }
    }

    /// Follows it until this was sent.
    async fn until(&mut self, word: &str) {
        let (body, reported) = (&mut self.body, &mut self.reported);
        let followed = async {
            while !reported.contains(word) {
                let frame = http_body_util::BodyExt::frame(body).await.unwrap();
                *reported += std::str::from_utf8(frame.unwrap().data_ref().unwrap()).unwrap();
            }
        };
        let in_time = tokio::time::timeout(LONG, followed).await;
        in_time.unwrap_or_else(|_| panic!("no {word} in {}", self.reported));
    }
}

/// One event that says something of an evaluation of each of these namespaces.
async fn says(server: &Harness, what: &str, namespaces: &[&str]) {
    let mut evals = Vec::new();
    for namespace in namespaces {
        let target = format!("/v1/evaluations?namespace={namespace}");
        let reported = server.seen("root", &target).await.json();
        let mut eval: Evaluation = serde_json::from_value(reported[0].clone()).unwrap();
        eval.status_description = format!("{what} in {namespace}");
        evals.push(eval);
    }
    let decision = None;
    server.submit(UpsertEvals { evals, decision }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_event_about_two_namespaces_each_reader_gets_its_own() {
    let server = two_namespaces().await;
    says(&server, "before", &["red", "blue"]).await;
    says(&server, "before, alone", &["red"]).await;
    let publisher = server.publish(tokio_util::sync::CancellationToken::new());
    for (form, whole) in [("", false), ("&format=cloudevents", true)] {
        let mut red = Following::begin(&server, "all:red", form).await;
        let mut all = Following::begin(&server, "root", form).await;
        red.until("before, alone in red").await;
        all.until("before, alone in red").await;
        // Both stand by now: what follows comes as it is written.
        let live = if whole { "whole" } else { "each" };
        says(&server, live, &["red", "blue"]).await;
        says(&server, &format!("{live}, alone"), &["red"]).await;
        for stream in [&mut red, &mut all] {
            stream.until(&format!("{live}, alone in red")).await;
        }
        for what in ["before", live] {
            let [own, other] = ["red", "blue"].map(|name| format!("{what} in {name}"));
            assert!(all.reported.contains(&own) && all.reported.contains(&other));
            // A CloudEvent is the whole event, or nothing.
            assert_eq!(
                red.reported.contains(&own),
                !whole,
                "{what}: {}",
                red.reported
            );
        }
        assert!(!red.reported.contains("blue"), "{form}: {}", red.reported);
    }
    publisher.abort();
    server.stop().await;
}
