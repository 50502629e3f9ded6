//! Runs checks of services: is a port open, does a page answer.

use std::time::Duration;

use bytes::Bytes;
use drover_events::model::CheckQueryResult;
use drover_events::model::status::check as status;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::describe::Probe;
use super::secure;
use crate::clock::nanos;

/// The longest output that is kept, bytes.
const MAX_OUTPUT: usize = 3 << 10;
/// The least time between two looks; validation requires a second.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Counts failures in a row, for `check_restart` (CHK-08).
#[derive(Clone, Debug)]
pub struct Strikes {
    limit: i64,
    grace: i64,
    since: i64,
    failures: i64,
}

impl Strikes {
    /// Counts for a check that is watched since `now` (unix nanoseconds); never enough without a
    /// limit.
    pub fn new(probe: &Probe, now: i64) -> Self {
        let rule = probe.check.check_restart.clone().unwrap_or_default();
        Self {
            limit: rule.limit,
            grace: rule.grace.max(0),
            since: now,
            failures: 0,
        }
    }

    /// Whether this result is one failure too many. If so the count and the grace begin anew.
    pub fn add(&mut self, good: bool, now: i64) -> bool {
        if good || now < self.since.saturating_add(self.grace) {
            self.failures = 0;
            return false;
        }
        self.failures += 1;
        let enough = self.limit > 0 && self.failures >= self.limit;
        if enough {
            self.failures = 0;
            self.since = now;
        }
        enough
    }
}

/// The result of a check before the first look.
pub fn pending(probe: &Probe) -> CheckQueryResult {
    result(probe, status::PENDING, 0, "nomad: waiting to run".into(), 0)
}

/// Looks again and again until the task is aborted; every result goes to `report`.
pub async fn watch(probe: Probe, now: impl Fn() -> i64, mut report: impl FnMut(CheckQueryResult)) {
    let interval = nanos(probe.check.interval).max(MIN_INTERVAL);
    loop {
        report(look(&probe, now()).await);
        tokio::time::sleep(interval).await;
    }
}

/// One look at `now` (unix nanoseconds).
pub async fn look(probe: &Probe, now: i64) -> CheckQueryResult {
    let limit = nanos(probe.check.timeout).max(MIN_INTERVAL);
    let found = async {
        match probe.check.r#type.as_str() {
            "http" => page(probe).await,
            _ => open(probe).await,
        }
    };
    let (status, code, output) = match tokio::time::timeout(limit, found).await {
        Ok(Ok((code, output))) => (status::SUCCESS, code, output),
        Ok(Err((code, output))) => (status::FAILURE, code, output),
        Err(_) => (status::FAILURE, 0, "nomad: no answer in time".to_owned()),
    };
    result(probe, status, code, output, now / 1_000_000_000)
}

/// Code and output, good or bad.
type ProbeResult = Result<(i64, String), (i64, String)>;

async fn connect(probe: &Probe) -> Result<TcpStream, (i64, String)> {
    let port = u16::try_from(probe.port).unwrap_or(0);
    TcpStream::connect((probe.host.trim_matches(['[', ']']), port))
        .await
        .map_err(|e| (0, format!("dial tcp {}:{port}: {e}", probe.host)))
}

async fn open(probe: &Probe) -> ProbeResult {
    connect(probe).await?;
    Ok((0, "nomad: tcp ok".to_owned()))
}

async fn page(probe: &Probe) -> ProbeResult {
    let failed = |why: String| (0_i64, format!("nomad: {why}"));
    let request = request(probe).map_err(failed)?;
    let stream = connect(probe).await?;
    let answer = match probe.check.protocol.eq_ignore_ascii_case("https") {
        true => {
            let host = probe.host.trim_matches(['[', ']']);
            let shaken = secure::shake(stream, host, probe.check.tls_skip_verify).await;
            ask(shaken.map_err(failed)?, request).await
        }
        false => ask(stream, request).await,
    };
    let (code, text) = answer.map_err(failed)?;
    match code {
        200 => Ok((200, "nomad: http ok".to_owned())),
        201..400 => Ok((code.into(), text)),
        _ => Err((code.into(), text)),
    }
}

fn request(probe: &Probe) -> Result<Request<Full<Bytes>>, String> {
    let path = match probe.check.path.as_str() {
        "" => "/",
        path => path,
    };
    let method = match probe.check.method.as_str() {
        "" => "GET",
        method => method,
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", format!("{}:{}", probe.host, probe.port))
        .header("user-agent", "drover");
    for (name, values) in probe.check.header.iter() {
        for value in values.iter() {
            request = request.header(name, value);
        }
    }
    let body = Full::new(Bytes::from(probe.check.body.clone()));
    request.body(body).map_err(|e| e.to_string())
}

/// The code and the text of an answer. The connection is a part of this work and no task beside it:
/// it is closed once this is over, also where no caller waits for the answer any more.
async fn ask<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(u16, String), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|e| e.to_string())?;
        let code = answer.status().as_u16();
        Ok::<_, String>((code, text_of(answer.into_body()).await))
    };
    let driven = Box::pin(async {
        // An error of the connection reaches the caller through the answer.
        let _ = connection.await;
        std::future::pending().await
    });
    tokio::select! {
        answer = answer => answer,
        never = driven => never,
    }
}

/// The beginning of a page, as far as it came: where its end is missing, as of a service that does
/// not end TLS, the rest of the page is there all the same.
async fn text_of(mut body: Incoming) -> String {
    let mut text = Vec::new();
    while text.len() < MAX_OUTPUT
        && let Some(Ok(frame)) = body.frame().await
    {
        if let Some(data) = frame.data_ref() {
            text.extend_from_slice(data);
        }
    }
    text.truncate(MAX_OUTPUT);
    String::from_utf8_lossy(&text).into_owned()
}

fn result(probe: &Probe, status: &str, code: i64, output: String, at: i64) -> CheckQueryResult {
    let mode = match probe.check.on_update.as_str() {
        "ignore" => "readiness",
        _ => "healthiness",
    };
    CheckQueryResult {
        id: probe.id.clone(),
        mode: mode.to_owned(),
        status: status.to_owned(),
        status_code: code,
        output,
        timestamp: at,
        group: probe.group.clone(),
        task: probe.task.clone(),
        service: probe.service.clone(),
        check: probe.check.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use drover_events::model::ServiceCheck;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn probe(kind: &str, port: u16) -> Probe {
        Probe {
            id: "c".into(),
            service: "web".into(),
            task: String::new(),
            group: "j.g[0]".into(),
            host: "127.0.0.1".into(),
            port: port.into(),
            check: ServiceCheck {
                name: "alive".into(),
                r#type: kind.into(),
                path: "/health".into(),
                timeout: 5_000_000_000,
                ..ServiceCheck::default()
            },
        }
    }

    /// Answers one request with `code`, and says what was requested.
    async fn answer(listener: TcpListener, code: &'static str) -> String {
        let (mut stream, _) = listener.accept().await.expect("a caller");
        let mut requested = vec![0; 1024];
        let n = stream.read(&mut requested).await.expect("a request");
        let text = format!("HTTP/1.1 {code}\r\ncontent-length: 4\r\n\r\nbusy");
        stream.write_all(text.as_bytes()).await.expect("writes");
        String::from_utf8_lossy(&requested[..n]).into_owned()
    }

    #[tokio::test]
    async fn chk_05_a_port_and_a_page_are_looked_at() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("bound").port();
        let open = look(&probe("tcp", port), 7_000_000_000).await;
        assert_eq!((open.status.as_str(), open.timestamp), (status::SUCCESS, 7));
        drop(listener.accept().await);

        let served = tokio::spawn(answer(listener, "200 OK"));
        let good = look(&probe("http", port), 0).await;
        assert_eq!(
            (good.status.as_str(), good.status_code),
            (status::SUCCESS, 200)
        );
        assert!(served.await.expect("served").starts_with("GET /health "));

        let closed = look(&probe("tcp", port), 0).await;
        assert_eq!(closed.status, status::FAILURE);
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("binds");
        let served = tokio::spawn(answer(listener, "503 No"));
        let bad = look(&probe("http", port), 0).await;
        assert_eq!(
            (bad.status.as_str(), bad.status_code),
            (status::FAILURE, 503)
        );
        assert_eq!(bad.output, "busy");
        served.await.expect("served");
    }

    #[tokio::test]
    async fn chk_05_a_page_is_good_up_to_399_and_what_it_says_is_kept() {
        for (code, good) in [
            ("201 Made", true),
            ("204 None", true),
            ("302 There", true),
            ("399 Last", true),
            ("400 No", false),
            ("404 No", false),
            ("500 No", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let port = listener.local_addr().expect("bound").port();
            let served = tokio::spawn(answer(listener, code));
            let found = look(&probe("http", port), 0).await;
            assert_eq!(found.status == status::SUCCESS, good, "{code}");
            assert_eq!(found.status_code.to_string(), code[..3]);
            if code != "204 None" {
                assert_eq!(found.output, "busy");
            }
            served.await.expect("served");
        }
    }

    #[test]
    fn chk_08_failures_in_a_row_restart_and_more_than_once() {
        let mut probe = probe("tcp", 1);
        let mut never = Strikes::new(&probe, 0);
        assert!((0..20).all(|at| !never.add(false, at)));
        probe.check.check_restart = Some(drover_events::model::CheckRestart {
            limit: 2,
            grace: 10,
            ignore_warnings: false,
        });
        let mut strikes = Strikes::new(&probe, 0);
        let reported: Vec<bool> = [
            (false, 5),
            (false, 10),
            (true, 11),
            (false, 12),
            (false, 13),
        ]
        .map(|(good, at)| strikes.add(good, at))
        .into();
        assert_eq!(reported, [false, false, false, false, true]);
        assert!(!strikes.add(false, 22), "within the grace of the new start");
        assert!(!strikes.add(false, 23));
        assert!(strikes.add(false, 24));
    }
}
