//! A job's file, its variables, and what comes of them.

use super::super::conn::Conn;
use crate::jobspec::{self, ApiJob, Functions, Input};
use anyhow::{Context, Result, bail};
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The flags that say how to read a job's file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct JobSource {
    /// The job's file, HCL or JSON; - reads standard input
    pub(super) path: String,
    /// The file holds a job in the API's JSON form
    #[arg(long)]
    pub(super) json: bool,
    /// A variable's value, name=value; may be repeated, the last wins
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// A file of variables; may be repeated
    #[arg(long = "var-file", value_name = "PATH")]
    var_files: Vec<PathBuf>,
    /// Refuse values for variables that the file does not declare
    #[arg(long, default_value = "true", action = clap::ArgAction::Set, value_name = "BOOL")]
    hcl2_strict: bool,
}

/// A job and what it was read from.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The job as the API takes it.
    pub(super) job: ApiJob,
    /// The source to keep beside the job.
    pub(super) submission: Json,
}

impl JobSource {
    /// Reads and parses the job.
    ///
    /// # Errors
    /// What cannot be read, or every problem of the specification.
    pub(super) fn load(&self, conn: &Conn) -> Result<Loaded> {
        let text = self.text()?;
        let api = self.json || is_api_form(&text);
        let mut job = if api {
            api_form(&text)?
        } else {
            self.parse(&text)?
        };
        if !conn.namespace.is_empty() && conn.namespace != "*" {
            job.default_text("Namespace", &conn.namespace);
        }
        if !conn.region.is_empty() {
            job.default_text("Region", &conn.region);
        }
        let format = if text.trim_start().starts_with('{') {
            "json"
        } else {
            "hcl2"
        };
        let flags: serde_json::Map<String, Json> = self
            .flags()?
            .into_iter()
            .map(|(k, v)| (k, Json::String(v)))
            .collect();
        let submission = json!({
            "Source": text,
            "Format": format,
            "VariableFlags": flags,
            "Variables": self.variable_text()?,
        });
        Ok(Loaded { job, submission })
    }

    fn text(&self) -> Result<String> {
        let bytes = if self.path == "-" {
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut bytes)
                .context("Error reading standard input")?;
            bytes
        } else {
            std::fs::read(&self.path).with_context(|| {
                format!("Error getting job struct: Error opening {:?}", self.path)
            })?
        };
        String::from_utf8(bytes).context("Error getting job struct: the file is not UTF-8 text")
    }

    fn parse(&self, text: &str) -> Result<ApiJob> {
        let path = Path::new(&self.path);
        let base = path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let env = std::env::vars()
            .filter_map(|(k, v)| Some((k.strip_prefix("NOMAD_VAR_")?.to_owned(), v)))
            .collect();
        let name = if self.path == "-" {
            "stdin"
        } else {
            &self.path
        };
        let mut files = Vec::new();
        for path in &self.var_files {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("Error reading variables file {}", path.display()))?;
            files.push((path.display().to_string(), text));
        }
        let input = Input {
            name,
            text,
            env,
            files,
            flags: self.flags()?,
            strict: self.hcl2_strict,
            functions: Functions::Local(base.to_owned()),
        };
        jobspec::parse(&input).map_err(|err| {
            anyhow::anyhow!(
                "Error getting job struct: Error parsing job file from {}:\n{err}",
                self.path
            )
        })
    }

    fn flags(&self) -> Result<Vec<(String, String)>> {
        let mut out = Vec::new();
        for pair in &self.vars {
            let Some((name, value)) = pair.split_once('=') else {
                bail!("Error parsing -var {pair:?}: write it as -var name=value");
            };
            out.push((name.trim().to_owned(), value.to_owned()));
        }
        Ok(out)
    }

    fn variable_text(&self) -> Result<String> {
        let mut out = String::new();
        for path in &self.var_files {
            out += &std::fs::read_to_string(path)?;
            if !out.ends_with('\n') {
                out.push('\n');
            }
        }
        Ok(out)
    }
}

/// The fields by which the API's form is known; the specification's JSON form begins with `job`.
const API_FIELDS: [&str; 3] = ["Job", "ID", "TaskGroups"];

fn is_api_form(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && serde_json::from_str::<BTreeMap<String, IgnoredAny>>(text)
            .is_ok_and(|fields| API_FIELDS.iter().any(|name| fields.contains_key(*name)))
}

fn api_form(text: &str) -> Result<ApiJob> {
    let json: Json =
        serde_json::from_str(text).context("Error getting job struct: Error parsing JSON")?;
    let job = match json {
        Json::Object(mut fields) => fields.remove("Job").unwrap_or(Json::Object(fields)),
        other => other,
    };
    ApiJob::from_json(job).context("Error getting job struct")
}
