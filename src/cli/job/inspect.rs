//! `job inspect`

use super::super::conn::PastConnection;
use super::super::out::Out;
use super::super::query::{find, job_path};
use super::super::show::{Format, pretty};
use super::history::{Numbered, Versions};
use crate::http::answers::JobListStub;
use anyhow::{Result, bail};
use drover_events::model::JobSubmission;
use serde_json::{Value as Json, json};

/// Flags of `job inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job inspect web
  drover job inspect -version 3 web
  drover job inspect -hcl web        the source it was submitted as")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// The job's ID or a prefix of it
    job: String,
    /// A version other than the last
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Print the source the job was submitted as
    #[arg(long)]
    hcl: bool,
    /// With -hcl: the variables it was submitted with as well
    #[arg(long, requires = "hcl")]
    with_vars: bool,
}

/// Prints a job.
pub(in crate::cli) async fn run(args: Args, out: &Out) -> Result<u8> {
    let client = args.conn.client()?;
    let JobListStub { id, namespace, .. } = find(&client, &args.job).await?;
    let scope = [("namespace", namespace.as_str())];
    let mut job: Json = client.fetch(&job_path(&id, ""), &scope).await?;
    if let Some(version) = args.version {
        let path = job_path(&id, "/versions");
        let all: Versions<Json> = client.fetch(&path, &scope).await?;
        let mut all = all.versions.into_iter();
        match all.find(|one| Numbered::of(one).is_ok_and(|own| own.version == version)) {
            Some(found) => job = found,
            None => {
                bail!("job {id:?} has no version {version}; `drover job history {id}` lists them")
            }
        }
    }
    if args.hcl {
        let version = Numbered::of(&job)?.version.to_string();
        let query = [
            ("namespace", namespace.as_str()),
            ("version", version.as_str()),
        ];
        let source = client.fetch(&job_path(&id, "/submission"), &query).await;
        let source: JobSubmission =
            source.map_err(|err| err.context("Error querying the job's source"))?;
        if args.with_vars {
            out.raw(variables(&source).as_bytes());
        }
        out.exact(&source.source);
        return Ok(0);
    }
    if args.format.template.is_some() {
        args.format.print(&job, out)?;
        return Ok(0);
    }
    out.exact(&pretty(&json!({"Job": job})));
    Ok(0)
}

/// The variables of a source as comments, so that what is printed can be run.
fn variables(source: &JobSubmission) -> String {
    let flags = source.variable_flags.iter();
    let flags = flags.map(|(name, value)| format!("{name} = {}", json!(value)));
    let lines = flags.chain(source.variables.lines().map(str::to_owned));
    let lines: Vec<String> = lines.map(|line| format!("# {line}\n")).collect();
    match lines.is_empty() {
        true => "# No variables\n\n".to_owned(),
        false => format!("# Variables:\n{}\n", lines.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_comments_before_the_source() {
        let mut source = JobSubmission::default();
        assert_eq!(variables(&source), "# No variables\n\n");
        source.variable_flags.insert("a", "1".to_owned());
        "b = [\n  2,\n]\n".clone_into(&mut source.variables);
        let wanted = "# Variables:\n# a = \"1\"\n# b = [\n#   2,\n# ]\n\n";
        assert_eq!(variables(&source), wanted);
    }
}
