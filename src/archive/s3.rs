//! S3: objects of a bucket over plain HTTP, signed with Signature Version 4.
//!
//! Whole objects are written in one request and read as a stream; that is all an archive needs.
//! Buckets are addressed by path, as every compatible server takes it. TLS comes with that of the
//! agent: until then an `https` endpoint is refused by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::hmac;
use bytes::Bytes;
use drover_projections::hex;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use super::ArchiveError;
use super::store::{Place, Sum};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long silence may last.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of a file that are sent at once.
const CHUNK: usize = 256 << 10;
/// Bytes of an answer that is no object.
const ANSWER: usize = 8 << 20;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Who asks.
#[derive(Clone)]
struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

/// A bucket.
#[derive(Clone)]
pub(super) struct Bucket {
    client: Client<HttpConnector, Body>,
    /// Scheme and host of the server.
    endpoint: String,
    host: String,
    bucket: String,
    region: String,
    keys: Keys,
}

/// A request before it is signed.
struct Asked<'a> {
    method: Method,
    /// The path, not encoded.
    path: String,
    query: Vec<(&'a str, String)>,
    payload: [u8; 32],
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn refused(text: String) -> ArchiveError {
    ArchiveError::Refused(text)
}

impl Bucket {
    /// The bucket of a name, at the place's server.
    ///
    /// # Errors
    /// No server or no keys are named; a server that wants TLS.
    pub(super) fn open(place: &Place, bucket: &str) -> Result<Self, ArchiveError> {
        let named = place.endpoint.clone();
        let endpoint = named.or_else(|| env("AWS_ENDPOINT_URL"));
        let endpoint = endpoint.ok_or_else(|| {
            let what = "an archive in s3:// needs the address of its server: archive.endpoint, \
                        -archive-endpoint or AWS_ENDPOINT_URL";
            refused(what.to_owned())
        })?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let Some(host) = endpoint
            .strip_prefix("http://")
            .filter(|h| !h.contains('/'))
        else {
            return Err(refused(format!(
                "the archive's endpoint {endpoint:?} must be http://host:port: TLS is not spoken \
                 here yet, a proxy on this machine can"
            )));
        };
        let region = place.region.clone().or_else(|| env("AWS_REGION"));
        let id = place.access_key_id.clone();
        let secret = place.secret_access_key.clone();
        let keys = (
            id.or_else(|| env("AWS_ACCESS_KEY_ID")),
            secret.or_else(|| env("AWS_SECRET_ACCESS_KEY")),
        );
        let (Some(id), Some(secret)) = keys else {
            let what = "an archive in s3:// needs keys: access_key_id and secret_access_key, or \
                        AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
            return Err(refused(what.to_owned()));
        };
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            host: host.to_owned(),
            endpoint,
            bucket: bucket.to_owned(),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            keys: Keys {
                id,
                secret,
                token: env("AWS_SESSION_TOKEN"),
            },
        })
    }

    async fn ask(
        &self,
        asked: &Asked<'_>,
        body: Body,
        length: u64,
    ) -> Result<Response<Incoming>, ArchiveError> {
        let what = format!("{}{}", self.endpoint, asked.path);
        let now = jiff::Timestamp::now()
            .strftime("%Y%m%dT%H%M%SZ")
            .to_string();
        let signed = self.sign(asked, &now);
        let query = query(&asked.query);
        let mark = if query.is_empty() { "" } else { "?" };
        let uri = format!(
            "{}{}{mark}{query}",
            self.endpoint,
            encode(&asked.path, true)
        );
        let mut request = Request::builder()
            .method(asked.method.clone())
            .uri(uri)
            .header("host", &self.host)
            .header("x-amz-content-sha256", hex(&asked.payload))
            .header("x-amz-date", &now)
            .header("authorization", signed);
        if let Some(token) = &self.keys.token {
            request = request.header("x-amz-security-token", token);
        }
        if asked.method == Method::PUT {
            request = request.header("content-length", length);
        }
        let request = request
            .body(body)
            .map_err(|error| refused(format!("{what}: {error}")))?;
        let failed = |why: String| refused(format!("cannot reach {what}: {why}"));
        let wait = SILENCE + Duration::from_secs(length >> 20);
        match tokio::time::timeout(wait, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(crate::error::chain(&error))),
            Err(_) => Err(failed("no answer in time".to_owned())),
        }
    }

    /// The value of the `authorization` header.
    fn sign(&self, asked: &Asked<'_>, now: &str) -> String {
        let payload = hex(&asked.payload);
        let mut headers = vec![
            ("host", self.host.as_str()),
            ("x-amz-content-sha256", payload.as_str()),
            ("x-amz-date", now),
        ];
        if let Some(token) = &self.keys.token {
            headers.push(("x-amz-security-token", token));
        }
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{payload}",
            asked.method,
            encode(&asked.path, true),
            query(&asked.query),
        );
        let day = now.get(..8).unwrap_or(now);
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest: [u8; 32] = Sha256::digest(canonical).into();
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&digest));
        let mut key = format!("AWS4{}", self.keys.secret).into_bytes();
        for part in [day, &self.region, "s3", "aws4_request", &text] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
            key = tag.as_ref().to_vec();
        }
        let id = &self.keys.id;
        let signature = hex(&key);
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}"
        )
    }

    fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.bucket)
    }

    /// The objects whose names begin so, with their bytes.
    ///
    /// # Errors
    /// A server that cannot be asked, or refuses.
    pub(super) async fn list(&self, prefix: &str) -> Result<BTreeMap<String, u64>, ArchiveError> {
        let (mut found, mut next) = (BTreeMap::new(), None);
        loop {
            let mut query = vec![("list-type", "2".to_owned()), ("prefix", prefix.to_owned())];
            if let Some(token) = next {
                query.insert(0, ("continuation-token", token));
            }
            let asked = Asked {
                method: Method::GET,
                path: self.path("").trim_end_matches('/').to_owned(),
                query,
                payload: Sha256::digest([]).into(),
            };
            let answer = self.ask(&asked, empty(), 0).await?;
            let text = self.whole(answer, &asked).await?;
            for object in elements(&text, "Contents") {
                let name = elements(object, "Key").next().map(unescape);
                let size = elements(object, "Size")
                    .next()
                    .and_then(|size| size.parse().ok());
                if let (Some(name), Some(size)) = (name, size) {
                    found.insert(name, size);
                }
            }
            next = elements(&text, "NextContinuationToken")
                .next()
                .map(unescape);
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// An answer that is no object, or the reason of a refusal.
    async fn whole(
        &self,
        answer: Response<Incoming>,
        asked: &Asked<'_>,
    ) -> Result<String, ArchiveError> {
        let status = answer.status();
        let read = http_body_util::Limited::new(answer.into_body(), ANSWER).collect();
        let body = match tokio::time::timeout(SILENCE, read).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => return Err(refused(format!("{}: {error}", asked.path))),
            Err(_) => return Err(refused(format!("{}: no answer in time", asked.path))),
        };
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let said = |name| {
            elements(&text, name)
                .next()
                .map(unescape)
                .unwrap_or_default()
        };
        let (code, message) = (said("Code"), said("Message"));
        let (endpoint, path) = (&self.endpoint, &asked.path);
        Err(refused(format!(
            "{endpoint}{path} was refused: {status} {code} {message}"
        )))
    }

    /// Reads an object and gives each piece of it to `to`; none if there is no such object.
    ///
    /// # Errors
    /// A server that cannot be asked, refuses, or ends too early; those of `to`.
    pub(super) async fn read(
        &self,
        name: &str,
        to: &mut (dyn FnMut(&[u8]) -> Result<(), ArchiveError> + Send),
    ) -> Result<Option<u64>, ArchiveError> {
        let asked = Asked {
            method: Method::GET,
            path: self.path(name),
            query: Vec::new(),
            payload: Sha256::digest([]).into(),
        };
        let answer = self.ask(&asked, empty(), 0).await?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                let text = self.whole(answer, &asked).await;
                return match text {
                    Err(error) if error.to_string().contains("NoSuchKey") => Ok(None),
                    other => other.map(|_| None),
                };
            }
            _ => return self.whole(answer, &asked).await.map(|_| None),
        }
        let (mut body, mut bytes) = (answer.into_body(), 0);
        loop {
            let failed = |why: String| refused(format!("{} was cut off: {why}", asked.path));
            let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
                Err(_) => return Err(failed("silence".to_owned())),
                Ok(None) => return Ok(Some(bytes)),
                Ok(Some(frame)) => frame.map_err(|error| failed(crate::error::chain(&error)))?,
            };
            if let Ok(piece) = frame.into_data() {
                bytes += piece.len() as u64;
                to(&piece)?;
            }
        }
    }

    /// Writes a file as an object.
    ///
    /// # Errors
    /// A server that cannot be asked or refuses; a file that cannot be read.
    pub(super) async fn write(
        &self,
        name: &str,
        from: &Path,
        sum: &Sum,
    ) -> Result<(), ArchiveError> {
        let asked = Asked {
            method: Method::PUT,
            path: self.path(name),
            query: Vec::new(),
            payload: sum.1,
        };
        let file = tokio::fs::File::open(from).await;
        let file = file.map_err(ArchiveError::file("read", from))?;
        let pieces = stream::try_unfold(file, |mut file| async move {
            let mut piece = vec![0; CHUNK];
            let got = file.read(&mut piece).await?;
            piece.truncate(got);
            Ok::<_, std::io::Error>((got > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
        });
        let body = StreamBody::new(Box::pin(pieces)).boxed_unsync();
        let answer = self.ask(&asked, body, sum.0).await?;
        self.whole(answer, &asked).await.map(drop)
    }
}

fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Percent-encodes what RFC 3986 does not leave as it is.
fn encode(text: &str, path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            b'/' if path => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A query as it is signed and sent; its names are in order.
fn query(pairs: &[(&str, String)]) -> String {
    let pair = |(name, value): &(&str, String)| format!("{name}={}", encode(value, false));
    pairs.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// The contents of every element of a name, in order; elements of one name are never nested here.
fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&open)?;
        let (inside, after) = behind.split_once(&close)?;
        rest = after;
        Some(inside)
    })
}

fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&#39;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket() -> Bucket {
        let place = Place {
            url: String::new(),
            endpoint: Some("http://examplebucket.s3.amazonaws.com".to_owned()),
            region: Some("us-east-1".to_owned()),
            access_key_id: Some("AKIAIOSFODNN7EXAMPLE".to_owned()),
            secret_access_key: Some("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
        };
        let mut bucket = Bucket::open(&place, "examplebucket").unwrap();
        bucket.keys.token = None;
        bucket
    }

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let asked = Asked {
            method: Method::GET,
            path: "/".to_owned(),
            query: vec![("max-keys", "2".to_owned()), ("prefix", "J".to_owned())],
            payload: Sha256::digest([]).into(),
        };
        let signed = bucket().sign(&asked, "20130524T000000Z");
        let wanted = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert!(signed.ends_with(wanted), "{signed}");
        assert!(signed.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date,"));
    }

    #[test]
    fn lists_are_read_and_names_are_encoded() {
        let text = "<A><Contents><Key>a&amp;b</Key><Size>3</Size></Contents>\
                    <Contents><Key>c</Key><Size>4</Size></Contents></A>";
        let names: Vec<_> = elements(text, "Contents")
            .filter_map(|one| elements(one, "Key").next().map(unescape))
            .collect();
        assert_eq!(names, ["a&b", "c"]);
        assert_eq!(encode("a b/ü", true), "a%20b/%C3%BC");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }

    #[test]
    fn what_is_missing_is_named() {
        let place = Place {
            endpoint: Some("https://s3.example".to_owned()),
            ..Place::default()
        };
        let said = Bucket::open(&place, "b").err().unwrap().to_string();
        assert!(said.contains("http://host:port"), "{said}");
    }
}
