//! `config`: checks files without starting an agent.

use super::columns::Table;
use super::out::Out;
use crate::config::{self, Config, ConfigError};
use std::path::{Path, PathBuf};

/// Why what is said of Serf does nothing.
pub(super) const NO_GOSSIP: &str = "there is no gossip between servers, nothing listens there; \
    the port is shown as a server's, as Nomad's clients expect";

/// What can be done with configuration files.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Check configuration files as an agent would, without starting one
    Validate(Args),
}

/// Flags of `config validate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover config validate /etc/drover.d
  drover config validate base.hcl server.hcl     later files win
  drover config validate -unsupported            the settings of Nomad's that have no effect here

Exit code 0 if an agent would start with them, 1 if not.")]
pub(super) struct Args {
    /// Files, or directories of *.hcl and *.json files
    #[arg(value_name = "PATH", required_unless_present = "unsupported")]
    paths: Vec<PathBuf>,
    /// Print the settings that are refused because this version does not act on them
    #[arg(long)]
    unsupported: bool,
}

/// Runs a verb.
pub(super) fn run(verb: &Verb, out: &Out) -> anyhow::Result<u8> {
    let Verb::Validate(args) = verb;
    if args.unsupported {
        list(out);
    }
    if args.paths.is_empty() {
        return Ok(0);
    }
    match checked(&args.paths) {
        Ok(config) => {
            out.line("Configuration is valid!");
            for path in config::without_effect(&config) {
                out.line(&format!("{path} has no effect: {NO_GOSSIP}"));
            }
            Ok(0)
        }
        Err(error) => {
            out.error(&error.to_string());
            if error.to_string().contains("not supported by this version") {
                out.error("All such settings: drover config validate -unsupported");
            }
            Ok(1)
        }
    }
}

/// Reads and checks files. A file of a part (only `server`, only `client`) is as good as a whole.
fn checked(paths: &[PathBuf]) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    config::load(&mut config, paths)?;
    if config.data_dir.is_none() {
        // It may come from a flag.
        config.data_dir = Some(Path::new("/").to_owned());
    }
    config::check(&config)?;
    Ok(config)
}

fn list(out: &Out) {
    let mut table = Table::new(["Setting", "Why, and what to do"]);
    for one in config::UNSUPPORTED {
        table.row([one.path.to_owned(), one.advice.to_owned()]);
    }
    out.line(&table.to_string());
    out.line(
        "\nA value that changes nothing (Nomad's default, false, an empty block) is no fault.",
    );
}
