//! Where a log is to be read: a data directory, an archive, or an archive with the data directory
//! whose log continues it.

use crate::cli::log::{Scratch, log_dir};
use crate::cli::out::Out;
use crate::cli::progress::Bar;
use crate::history::store::archived_and_live::Join;
use crate::history::store::{ArchiveLocation, Store};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Flags that say where a log is.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct LogPlace {
    /// The agent's data directory, or a copy of it
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) data_dir: Option<PathBuf>,
    /// An archive: file:///directory or s3://bucket/prefix; with -data-dir, what was dropped there
    /// is read from it
    #[arg(long, value_name = "URL")]
    pub(in crate::cli) archive: Option<String>,
    /// The address of the S3-compatible server (AWS_ENDPOINT_URL); keys come from
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "URL", requires = "archive")]
    archive_endpoint: Option<String>,
    /// The region of the bucket (AWS_REGION)
    #[arg(long, value_name = "NAME", requires = "archive")]
    archive_region: Option<String>,
}

/// A log that can be read.
pub(in crate::cli) struct OpenedLog {
    /// The directory of its segments.
    pub(in crate::cli) log: PathBuf,
    /// The server's directory: checkpoints, bases, keys.
    pub(in crate::cli) server: PathBuf,
    _scratch: Option<Scratch>,
}

impl OpenedLog {
    /// What lies in a directory that has the form of a server's.
    pub(in crate::cli) fn of(scratch: Scratch) -> Self {
        Self {
            log: scratch.0.join("log"),
            server: scratch.0.clone(),
            _scratch: Some(scratch),
        }
    }
}

impl LogPlace {
    /// Finds the log; what lies in a bucket is fetched.
    pub(in crate::cli) async fn find(&self, out: &Out) -> Result<OpenedLog> {
        let own = self.data_dir.as_deref().map(log_dir);
        let beside = |log: &Path| log.parent().unwrap_or(Path::new(".")).to_owned();
        let Some(url) = &self.archive else {
            let log = own.context("Name the log: -data-dir DIR, or -archive URL")?;
            return Ok(OpenedLog {
                server: beside(&log),
                log,
                _scratch: None,
            });
        };
        let place = ArchiveLocation {
            url: url.clone(),
            endpoint: self.archive_endpoint.clone(),
            region: self.archive_region.clone(),
            ..ArchiveLocation::default()
        };
        let store = Store::find(&place).with_context(|| format!("Error opening {url}"))?;
        let scratch = Scratch::new()?;
        let server = own.as_deref().map(beside);
        let join = Join {
            store: &store,
            server: server.as_deref(),
            to: &scratch.0,
        };
        let bar = Bar::new(out, "bytes fetched");
        let joined = join.run(&mut |at, all| bar.set(at, all)).await;
        bar.clear();
        let joined = joined.with_context(|| format!("Error reading the archive {url}"))?;
        for (copy, what) in &joined.wrong {
            out.error(&format!("The copy {copy} is wrong: {what}"));
        }
        if !joined.wrong.is_empty() {
            out.error(&format!("The copy {} is read", joined.url));
        }
        Ok(OpenedLog::of(scratch))
    }

    /// Where keys are looked for.
    pub(in crate::cli) fn keys_below(&self, found: &OpenedLog) -> PathBuf {
        self.data_dir.clone().unwrap_or(found.server.clone())
    }
}
