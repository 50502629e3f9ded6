//! `var init`

use super::super::out::Out;
use super::super::spec::write_example;
use anyhow::Result;

/// Flags of `var init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover var init
  drover var init -out json secrets.json")]
pub(in crate::cli) struct Args {
    /// The file to write; spec.nsv.hcl or spec.nsv.json by default
    file: Option<String>,
    /// The form: hcl or json
    #[arg(long = "out", value_name = "FORM", default_value = "hcl")]
    form: String,
    /// Print nothing
    #[arg(long)]
    quiet: bool,
}

/// Writes an example.
pub(super) fn run(args: &Args, out: &Out) -> Result<u8> {
    let texts = ("spec.nsv", HCL, JSON);
    let file = write_example(args.file.as_deref(), &args.form, texts)?;
    if !args.quiet {
        out.line(&format!(
            "Example variable specification written to {file}\nPut it with drover var put @{file}"
        ));
    }
    Ok(0)
}

const HCL: &str = r#"# A variable for `drover var put @FILE`.

# The path decides who may read it: tasks read nomad/jobs/JOB/GROUP/TASK and what is above it.
path = "path/to/variable"

# The namespace may be given by the -namespace flag instead.
# namespace = "default"

# The index that the variable has to have: 0, or none, where it must not be there yet.
# modify_index = 0

items {
  key1 = "value 1"
  key2 = "value 2"
}
"#;

const JSON: &str = r#"{
  "Path": "path/to/variable",
  "Items": {
    "key1": "value 1",
    "key2": "value 2"
  }
}
"#;
