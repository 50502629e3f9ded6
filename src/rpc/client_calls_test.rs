use std::sync::Arc;
use std::time::Duration;

use drover_testkit::LONG;
use tokio::time::timeout;

use super::client_calls::{Head, METHOD, Unanswered, answer, call};
use super::csi::{
    ControllerAttachVolume, ControllerAttachVolumeRequest, ControllerAttachVolumeResponse,
    NodeDetachVolume, NodeDetachVolumeRequest, Secrets,
};
use super::duplex::{Duplex, Keepalive};
use super::service::{Access, Call, Dispatch, Service};
use super::sessions::{Dial, SessionRequest, Sessions};
use drover_error::{Code, Refusal};

/// A client that answers every session by these handlers.
fn client(sessions: &Arc<Sessions>, handlers: Option<Arc<dyn Dispatch>>) {
    let (near, far) = Duplex::pair(Keepalive::STANDING);
    sessions.hold("n1", far);
    let sessions = Arc::clone(sessions);
    tokio::spawn(async move {
        let Duplex {
            mut inflow,
            outflow: _open,
        } = near;
        while let Ok(dial) = inflow.message::<Dial>().await {
            let (mut here, there) = Duplex::pair(Keepalive::SESSION);
            let request = SessionRequest {
                node_id: "n1".to_owned(),
                session: dial.session,
            };
            sessions.join(&request, there).unwrap();
            let handlers = handlers.clone();
            tokio::spawn(async move {
                let head: Head = here.inflow.message().await.unwrap();
                assert_eq!(head.method, METHOD);
                let _ = answer(handlers, &head.target, (here.inflow, here.outflow)).await;
            });
        }
    });
}

fn handlers() -> Arc<dyn Dispatch> {
    let service = Service::new(Arc::new(()))
        .method::<ControllerAttachVolume, _, _>(
            Access::Server,
            async |_, _: Call, request: ControllerAttachVolumeRequest| {
                assert_eq!(request.secrets.0["password"], "canary");
                Ok(ControllerAttachVolumeResponse {
                    publish_context: [("device", request.volume_id)].into(),
                })
            },
        )
        .method::<NodeDetachVolume, _, _>(
            Access::Server,
            async |_, _: Call, request: NodeDetachVolumeRequest| match request.volume_id.as_str() {
                "slow" => std::future::pending().await,
                "busy" => Err(Refusal::new(Code::Unavailable, "NodeUnpublishVolume: busy")),
                _ => Err(Refusal::by_rule("NodeUnpublishVolume: never")),
            },
        );
    Arc::new(service)
}

async fn detach(sessions: &Arc<Sessions>, volume: &str, limit: Duration) -> Unanswered {
    let request = NodeDetachVolumeRequest {
        volume_id: volume.to_owned(),
        ..NodeDetachVolumeRequest::default()
    };
    let answered = call::<NodeDetachVolume>(sessions, "n1", &request, limit);
    let answered = timeout(LONG, answered).await.expect("it ends");
    answered.unwrap_err()
}

#[tokio::test]
async fn plg_09_a_client_answers_what_a_server_asks_it_in_a_session() {
    let sessions = Arc::new(Sessions::default());
    client(&sessions, Some(handlers()));
    let request = ControllerAttachVolumeRequest {
        volume_id: "vol".to_owned(),
        secrets: Secrets([("password".to_owned(), "canary".to_owned())].into()),
        ..ControllerAttachVolumeRequest::default()
    };
    assert!(!format!("{request:?}").contains("canary"));
    let answered = call::<ControllerAttachVolume>(&sessions, "n1", &request, LONG);
    let answered = timeout(LONG, answered).await.unwrap().unwrap();
    assert_eq!(answered.publish_context["device"], "vol");
}

#[tokio::test]
async fn plg_10_what_a_client_refuses_keeps_its_text_and_says_whether_to_try_again() {
    let sessions = Arc::new(Sessions::default());
    client(&sessions, Some(handlers()));
    let busy = detach(&sessions, "busy", LONG).await;
    assert_eq!(busy.to_string(), "NodeUnpublishVolume: busy");
    assert!(busy.is_recoverable());
    let never = detach(&sessions, "x", LONG).await;
    assert_eq!(never.to_string(), "NodeUnpublishVolume: never");
    assert!(!never.is_recoverable());
    let slow = detach(&sessions, "slow", Duration::from_millis(10)).await;
    assert!(matches!(slow, Unanswered::Unsure(_)), "{slow}");
    assert!(slow.to_string().contains("CSI.NodeDetachVolume"), "{slow}");
}

#[tokio::test]
async fn a_node_without_plugins_and_a_node_that_is_not_there_are_told_apart() {
    let sessions = Arc::new(Sessions::default());
    let gone = detach(&sessions, "v", LONG).await;
    assert_eq!(gone, Unanswered::Unreached("No path to node".to_owned()));
    client(&sessions, None);
    let none = detach(&sessions, "v", LONG).await;
    assert_eq!(none.to_string(), "this node runs no CSI plugins");
    assert!(none.is_recoverable());
}
