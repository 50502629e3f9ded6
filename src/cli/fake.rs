//! A stand-in for an agent: answers what a test says, and keeps what was asked.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

/// One call: `METHOD path?query` and the body.
pub(super) type Call = (String, String);

/// Answers a call: status and body.
pub(super) type Answer = fn(&str, &str) -> (u16, String);

/// A running stand-in.
pub(super) struct Fake {
    /// Its address.
    pub(super) address: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Fake {
    /// Starts one that answers with `answer`, given `METHOD path?query` and the body.
    pub(super) async fn start(answer: Answer) -> Fake {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("binds");
        let address = format!("http://{}", listener.local_addr().expect("has an address"));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&calls);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let service =
                        service_fn(move |request| serve(request, Arc::clone(&kept), answer));
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Fake { address, calls }
    }

    /// What was asked, in order.
    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("not poisoned").clone()
    }
}

async fn serve(
    request: Request<Incoming>,
    calls: Arc<Mutex<Vec<Call>>>,
    answer: Answer,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let line = format!("{} {}", request.method(), request.uri());
    let body = request
        .into_body()
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let (status, text) = answer(&line, &body);
    calls.lock().expect("not poisoned").push((line, body));
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = hyper::StatusCode::from_u16(status).expect("a status");
    Ok(response)
}
