//! In the place of a bucket, in a program that is built without S3.

use std::collections::BTreeMap;
use std::path::Path;

use super::ArchiveError;
use super::location::ArchiveLocation;

/// A bucket in a program without S3.
#[derive(Clone)]
pub(super) enum Bucket {}

impl Bucket {
    /// Refuses: S3 is not built in.
    ///
    /// # Errors
    /// Always.
    pub(super) fn open(_: &ArchiveLocation, bucket: &str) -> Result<Self, ArchiveError> {
        Err(ArchiveError::Refused(format!(
            "s3://{bucket}: this drover is built without S3 (feature s3)"
        )))
    }

    pub(super) async fn list(&self, _: &str) -> Result<BTreeMap<String, u64>, ArchiveError> {
        match *self {}
    }

    pub(super) async fn read(
        &self,
        _: &str,
        _: &mut (dyn FnMut(&[u8]) -> Result<(), ArchiveError> + Send),
    ) -> Result<Option<u64>, ArchiveError> {
        match *self {}
    }

    pub(super) async fn write(&self, _: &str, _: &Path) -> Result<(), ArchiveError> {
        match *self {}
    }
}
