//! Who calls, as handlers of every kind are given it.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use drover_events::ActorKind;
use drover_events::model::AclToken;
use hyper::Response;
use serde_json::{Value, json};

use super::answer::Answer;
use super::front::{self, Incoming, Read, Watched};
use super::gate::{Access, Late, Write};
use super::harness::Harness;
use crate::acl::Acl;
use crate::error::Refusal;
use crate::gate::Gate;
use crate::identity::{Identity, Rejection};

fn shown(who: &Identity) -> Result<Answer, Refusal> {
    let kind = match who.actor.kind {
        ActorKind::Token => "token",
        _ => "nobody",
    };
    Answer::json(&json!([kind, who.actor.id, who.acl.is_management()]))
}

fn read(read: &Read<'_>) -> Result<Answer, Refusal> {
    shown(&read.identity)
}

fn near(read: &Read<'_>) -> Option<Answer> {
    shown(&read.identity).ok()
}

fn far(_: &Read<'_>) -> Result<Answer, Refusal> {
    Err(Refusal::internal("it was near"))
}

async fn write(write: Write) -> Result<Answer, Refusal> {
    assert_eq!(write.origin().actor, write.request.identity.actor);
    shown(&write.request.identity)
}

async fn late(late: Late) -> Result<Answer, Refusal> {
    let write = late.authorize(true)?;
    assert_eq!(write.origin().actor, write.request.identity.actor);
    shown(&write.request.identity)
}

async fn upload(write: Write, _: Body) -> Result<Answer, Refusal> {
    shown(&write.request.identity)
}

fn incoming(token: &str) -> Incoming {
    let mut request = hyper::Request::builder().method("PUT").uri("/v1/jobs");
    if !token.is_empty() {
        request = request.header("x-nomad-token", token);
    }
    request.body(Body::from("{}")).unwrap()
}

async fn status_and_text(response: Response<Body>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// A handler takes a request that has its identity in it, or none at all: whatever its kind, it has
/// the caller without looking it up, and what it writes is written in the caller's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auth_03_handlers_of_every_kind_are_given_who_asks() {
    let h = Harness::asking(Gate::fixed(|token, addr| match token {
        None => Identity::anonymous(addr, Arc::new(Acl::denied())),
        Some(name @ ("one" | "two")) => {
            let token = AclToken {
                accessor_id: name.to_owned(),
                ..AclToken::default()
            };
            Identity::bearer(Arc::new(token), addr, Arc::new(Acl::management()))
        }
        Some(_) => Identity::refused(addr, Rejection::Unknown),
    }))
    .await;
    let (anyone, nothing) = (Access::Anyone, Watched::NeverBlocks);
    let api = || Arc::clone(&h.api);
    for (token, wanted) in [
        ("one", json!(["token", "one", true])),
        ("two", json!(["token", "two", true])),
        ("", json!(["nobody", "", false])),
        ("forged", Value::Null),
    ] {
        let request = || incoming(token);
        let answers = [
            front::read(api(), request(), anyone, nothing, read).await,
            front::read_near(api(), request(), anyone, (nothing, near), far).await,
            front::query(api(), request(), anyone, nothing, read).await,
            front::write(api(), request(), anyone, write).await,
            front::late(api(), request(), anyone, late).await,
            front::upload(api(), request(), anyone, upload).await,
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            let (status, text) = status_and_text(answer).await;
            if wanted.is_null() {
                // A token that is none never gets as far.
                assert_eq!((status, text.as_str()), (403, "Permission denied"));
                continue;
            }
            let reported: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((status, &reported), (200, &wanted), "{number} {token:?}");
        }
    }
    h.stop().await;
}
