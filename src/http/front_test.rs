//! In which form an answer is sent: as it is, indented, compressed; and what of a request says
//! nothing.

use std::io::Read as _;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::Settings;
use super::answer::{Answer, JSON};
use super::body::Body;
use super::front::{self, Outline};
use super::gate::Access;
use super::gzip::Gzip;
use super::harness::Harness;
use super::request::Request;

/// The document as it is there, or as it flows.
async fn answer(document: &str, flows: bool) -> Answer {
    let document = Bytes::from(document.to_owned());
    if !flows {
        return Answer::of(JSON, document);
    }
    let (sender, receiver) = mpsc::channel(2);
    for piece in [Some(document), None] {
        sender.send(piece).await.expect("there is room");
    }
    Answer {
        flows: true,
        ..Answer::of(JSON, Body::whole(receiver))
    }
}

fn unpacked(sent: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut packed = flate2::read::GzDecoder::new(sent);
    packed.read_to_end(&mut out).expect("it is compressed");
    out
}

#[tokio::test]
async fn an_answer_is_indented_and_compressed_as_it_was_asked_for() {
    let settings = Settings {
        gzip: Gzip::Always,
        ..Settings::default()
    };
    let long = "x".repeat(2_000);
    let plain = format!("{{\"a\":\"{long}\"}}");
    let indented = format!("{{\n    \"a\": \"{long}\"\n}}\n");
    for case in 0..8 {
        let [flows, pretty, packed] = [1, 2, 4].map(|bit| case & bit != 0);
        let what = format!("flows: {flows}, pretty: {pretty}, packed: {packed}");
        let mut request = hyper::Request::get(if pretty { "/?pretty" } else { "/" });
        if packed {
            request = request.header("accept-encoding", "gzip");
        }
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let outline = Outline::of(&mut parts);
        let response = front::finish(&settings, None, outline, answer(&plain, flows).await);
        let encoding = response.headers().get("content-encoding");
        assert_eq!(
            encoding.is_some_and(|value| value == "gzip"),
            packed,
            "{what}"
        );
        let sent = response.into_body().collect().await.expect("all of it");
        let sent = sent.to_bytes();
        let sent = if packed { unpacked(&sent) } else { sent.into() };
        let wanted = if pretty { &indented } else { &plain };
        assert!(sent == wanted.as_bytes(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_named_as_ignored_where_tokens_say_nothing() {
    let h = Harness::start().await;
    let guarded = h.guarded(Settings::default());
    for (api, ignored) in [(&*h.api, true), (&guarded, false)] {
        let request = hyper::Request::get("/v1/jobs").header("x-nomad-token", "t");
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let mut request = Request::head(parts).expect("it is one");
        let admitted = front::admit(api, &mut request, Access::Anyone).await;
        assert_eq!(admitted.is_ok(), ignored, "it is no token");
        let named = request.query.ignored();
        let wanted: &[&str] = match ignored {
            true => &["header X-Nomad-Token"],
            false => &[],
        };
        assert_eq!(named, wanted, "guarded: {}", !ignored);
    }
    h.stop().await;
}
