//! A bucket of a server that speaks S3, through the crate `object_store`.
//!
//! An object is written whole, in parts where it is large, and read as a stream; that is all an
//! archive needs. Buckets are addressed by path, as every compatible server takes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Name;
use object_store::{
    ClientOptions, Error, ObjectStore as _, ObjectStoreExt as _, RetryConfig, WriteMultipart,
};
use tokio::io::AsyncReadExt as _;

use super::ArchiveError;
use super::location::ArchiveLocation;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long silence may last.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a request is tried again that failed on the way.
const TRIES: Duration = Duration::from_secs(10);
/// Bytes of a part of a large object; what fits in one is written in one request.
const PART: usize = 8 << 20;
/// Parts that are on their way at once.
const AT_ONCE: usize = 2;

#[derive(Clone)]
pub(super) struct Bucket {
    store: Arc<AmazonS3>,
    /// The server and the bucket, in messages.
    url: String,
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
    /// No server or no keys are named; an invalid address.
    pub(super) fn open(location: &ArchiveLocation, bucket: &str) -> Result<Self, ArchiveError> {
        let named = location.endpoint.clone();
        let endpoint = named.or_else(|| env("AWS_ENDPOINT_URL")).ok_or_else(|| {
            let what = "an archive in s3:// needs the address of its server: archive.endpoint, \
                        -archive-endpoint or AWS_ENDPOINT_URL";
            refused(what.to_owned())
        })?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if !["http://", "https://"]
            .iter()
            .any(|scheme| endpoint.starts_with(scheme))
        {
            return Err(refused(format!(
                "the archive's endpoint {endpoint:?} must be http://host:port or https://host"
            )));
        }
        let (id, secret) = keys(location)?;
        let options = ClientOptions::new()
            .with_allow_http(true)
            .with_connect_timeout(CONNECT)
            .with_timeout_disabled()
            .with_read_timeout(SILENCE);
        let region = location.region.clone().or_else(|| env("AWS_REGION"));
        let mut builder = AmazonS3Builder::new()
            .with_endpoint(endpoint.as_str())
            .with_region(region.unwrap_or_else(|| "us-east-1".to_owned()))
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(false)
            .with_access_key_id(id)
            .with_secret_access_key(secret)
            .with_client_options(options)
            .with_retry(RetryConfig {
                retry_timeout: TRIES,
                ..RetryConfig::default()
            });
        if let Some(token) = env("AWS_SESSION_TOKEN") {
            builder = builder.with_token(token);
        }
        let url = format!("{endpoint}/{bucket}");
        let store = builder.build().map_err(|error| failed(&url, &error))?;
        Ok(Self {
            store: Arc::new(store),
            url,
        })
    }

    fn failed(&self, name: &str, error: &Error) -> ArchiveError {
        failed(&format!("{}/{name}", self.url), error)
    }

    /// The objects whose names begin with a prefix, with their bytes. The prefix ends in a `/`, or
    /// is empty.
    ///
    /// # Errors
    /// A server that cannot be reached, or refuses.
    pub(super) async fn list(&self, prefix: &str) -> Result<BTreeMap<String, u64>, ArchiveError> {
        let within = Name::from(prefix);
        let found = self.store.list(Some(&within));
        let found = found.map_ok(|object| (object.location.to_string(), object.size));
        let found = found.try_collect().await;
        found.map_err(|error| self.failed(prefix, &error))
    }

    /// Reads an object and gives each piece of it to `to`; none if there is no such object.
    ///
    /// # Errors
    /// A server that cannot be reached, refuses, or ends too early; those of `to`.
    pub(super) async fn read(
        &self,
        name: &str,
        to: &mut (dyn FnMut(&[u8]) -> Result<(), ArchiveError> + Send),
    ) -> Result<Option<u64>, ArchiveError> {
        let got = match self.store.get(&Name::from(name)).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(|error| self.failed(name, &error))?,
        };
        let (size, mut bytes) = (got.meta.size, 0);
        let mut pieces = got.into_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| self.failed(name, &error))?;
            bytes += piece.len() as u64;
            to(&piece)?;
        }
        match bytes == size {
            true => Ok(Some(bytes)),
            false => Err(refused(format!(
                "{}/{name} was cut off: {bytes} of {size} bytes came",
                self.url
            ))),
        }
    }

    /// Writes a file as an object.
    ///
    /// # Errors
    /// A server that cannot be reached or refuses; a file that cannot be read.
    pub(super) async fn write(&self, name: &str, from: &Path) -> Result<(), ArchiveError> {
        let mut file = tokio::fs::File::open(from)
            .await
            .map_err(ArchiveError::file("read", from))?;
        let (at, mut part) = (Name::from(name), Vec::new());
        let mut next = async |part: &mut Vec<u8>| {
            part.clear();
            let read = (&mut file).take(PART as u64).read_to_end(part).await;
            read.map_err(ArchiveError::file("read", from))
        };
        if next(&mut part).await? < PART {
            let put = self.store.put(&at, part.into()).await;
            return put.map(drop).map_err(|error| self.failed(name, &error));
        }
        let upload = self.store.put_multipart(&at).await;
        let upload = upload.map_err(|error| self.failed(name, &error))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
        loop {
            upload.write(&part);
            let sent = upload.wait_for_capacity(AT_ONCE).await;
            if let Err(error) = sent {
                return Err(self.given_up(upload, name, &error).await);
            }
            match next(&mut part).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    let _ = upload.abort().await;
                    return Err(error);
                }
            }
        }
        let done = upload.finish().await;
        done.map(drop).map_err(|error| self.failed(name, &error))
    }

    async fn given_up(&self, upload: WriteMultipart, name: &str, error: &Error) -> ArchiveError {
        // The parts that came stay nowhere; a server that is gone drops them itself.
        let _ = upload.abort().await;
        self.failed(name, error)
    }
}

/// The keys of a place, or those of the environment.
fn keys(location: &ArchiveLocation) -> Result<(String, String), ArchiveError> {
    let (id, secret) = (&location.access_key_id, &location.secret_access_key);
    let keys = (
        id.clone().or_else(|| env("AWS_ACCESS_KEY_ID")),
        secret.clone().or_else(|| env("AWS_SECRET_ACCESS_KEY")),
    );
    match keys {
        (Some(id), Some(secret)) => Ok((id, secret)),
        _ => {
            let what = "an archive in s3:// needs keys: access_key_id and secret_access_key, or \
                        AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
            Err(refused(what.to_owned()))
        }
    }
}

fn failed(what: &str, error: &Error) -> ArchiveError {
    let why = crate::error::chain(error);
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            refused(format!("{what} was refused: {why}"))
        }
        _ => refused(format!("cannot reach {what}: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (endpoint, id, word) in [
            (Some("s3.example:9000"), Some("id"), "https://host"),
            (Some("https://s3.example"), None, "secret_access_key"),
        ] {
            let location = ArchiveLocation {
                endpoint: endpoint.map(str::to_owned),
                access_key_id: id.map(str::to_owned),
                ..ArchiveLocation::default()
            };
            let error = Bucket::open(&location, "b")
                .err()
                .map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|error| error.contains(word)),
                "{error:?}"
            );
        }
    }
}
