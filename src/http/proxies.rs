//! Routes for requests that proxies hand on.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use super::request::Remote;
use crate::net::{Peer, Proxies};

/// The same routes for requests that come by way of these proxies.
pub fn through(routes: Router, proxies: Proxies) -> Router {
    match proxies.is_empty() {
        true => routes,
        false => routes.layer(from_fn_with_state(Arc::new(proxies), set_client_address)),
    }
}

async fn set_client_address(
    State(proxies): State<Arc<Proxies>>,
    mut request: Request,
    next: Next,
) -> Response {
    let from = request.extensions().get::<Remote>().map(|from| from.0.ip());
    let client = from.and_then(|from| proxies.client(from, request.headers()));
    if let Some(client) = client {
        let client = SocketAddr::new(client, 0);
        let extensions = request.extensions_mut();
        extensions.insert(Remote(client));
        if let Some(peer) = extensions.get_mut::<Peer>() {
            peer.address = Some(client);
            // The proxy's certificate is not that of the caller it forwards for.
            peer.certificate = None;
        }
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn auth_02_routes_behind_a_trusted_proxy_see_whom_it_asks_for() {
        async fn reported(request: Request) -> String {
            let remote = request.extensions().get::<Remote>().unwrap().0;
            let peer = request.extensions().get::<Peer>().unwrap();
            format!("{} {}", remote.ip(), peer.ip())
        }
        let reported = |trusted: &[&str]| {
            let trusted: Vec<String> = trusted.iter().map(|&text| text.to_owned()).collect();
            let routes = Router::new().fallback(reported);
            let from: SocketAddr = "10.0.0.5:1".parse().unwrap();
            let peer = Peer {
                address: Some(from),
                ..Peer::default()
            };
            let request = Request::get("/").extension(Remote(from)).extension(peer);
            let request = request.header("x-forwarded-for", "192.0.2.1");
            let request = request.body(axum::body::Body::empty()).unwrap();
            through(routes, Proxies::read(&trusted).unwrap()).oneshot(request)
        };
        for (trusted, address) in [
            (&["10.0.0.5"][..], "192.0.2.1 192.0.2.1"),
            (&["10.0.0.6"], "10.0.0.5 10.0.0.5"),
            (&[], "10.0.0.5 10.0.0.5"),
        ] {
            let body = reported(trusted).await.unwrap().into_body();
            let bytes = axum::body::to_bytes(body, 100).await.unwrap();
            assert_eq!(bytes, address);
        }
    }
}
