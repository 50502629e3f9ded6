//! `job inspect`

use super::super::conn::Past;
use super::super::out::Out;
use super::super::query::{Thing, find, job_path};
use super::super::show::{Format, list, number, pretty, text};
use anyhow::{Result, bail};
use serde_json::json;

/// Flags of `job inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover job inspect web
  drover job inspect -version 3 web
  drover job inspect -hcl web        the source it was submitted as")]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    conn: Past,
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
    let stub = find(&client, Thing::Job, &args.job).await?;
    let (id, namespace) = (text(&stub, "ID"), text(&stub, "Namespace"));
    let scope = [("namespace", namespace.as_str())];
    let mut job = client.get_json(&job_path(&id, ""), &scope).await?;
    if let Some(version) = args.version {
        let versions = client.get_json(&job_path(&id, "/versions"), &scope).await?;
        let wanted = i64::try_from(version)?;
        let found = list(&versions, "Versions")
            .iter()
            .find(|v| number(v, "Version") == wanted);
        match found {
            Some(found) => job = found.clone(),
            None => {
                bail!("job {id:?} has no version {version}; `drover job history {id}` lists them")
            }
        }
    }
    if args.hcl {
        let version = number(&job, "Version").to_string();
        let query = [
            ("namespace", namespace.as_str()),
            ("version", version.as_str()),
        ];
        let source = client.get_json(&job_path(&id, "/submission"), &query).await;
        let source = source.map_err(|err| err.context("Error querying the job's source"))?;
        if args.with_vars {
            out.raw(variables(&source).as_bytes());
        }
        out.line(&text(&source, "Source"));
        return Ok(0);
    }
    if args.format.template.is_some() {
        args.format.print(&job, out)?;
        return Ok(0);
    }
    out.line(&pretty(&json!({"Job": job})));
    Ok(0)
}

/// The variables of a source as comments, so that what is printed can be run.
fn variables(source: &serde_json::Value) -> String {
    let flags = source["VariableFlags"].as_object().into_iter().flatten();
    let flags = flags.map(|(name, value)| format!("{name} = {value}"));
    let given = text(source, "Variables");
    let lines = flags.chain(given.lines().map(str::to_owned));
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
        assert_eq!(variables(&json!({"Source": "x"})), "# No variables\n\n");
        let source = json!({"VariableFlags": {"a": "1"}, "Variables": "b = [\n  2,\n]\n"});
        let wanted = "# Variables:\n# a = \"1\"\n# b = [\n#   2,\n# ]\n\n";
        assert_eq!(variables(&source), wanted);
    }
}
