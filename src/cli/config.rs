//! `config`: checks files without starting an agent.

use super::columns::ColumnTable;
use super::out::Out;
use crate::client::fingerprint::network;
use crate::config::{self, Config, ConfigError};
use std::path::{Path, PathBuf};

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
  drover config validate -unsupported            the settings of Nomad's that are refused here

Exit code 0 if an agent would start with them, beside -dev, -server or -client where they name no
role, and beside -data-dir where they name no directory; 1 if not.")]
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
        Ok((config, has_role)) => {
            out.line("Configuration is valid!");
            if !has_role {
                out.line(NO_ROLE);
            }
            for setting in config::without_effect(&config) {
                out.line(&setting.to_string());
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

/// The error for files that leave open what the agent is.
const NO_ROLE: &str = "No role is enabled: an agent starts with this beside -dev, -server, \
    -client, or a file that says server { enabled = true } or client { enabled = true }.";

/// Reads and checks files, and says whether they enable a role. Partial files (only `server`, only
/// `ports`) are as good as whole ones: the rest comes from flags or other files.
fn checked(paths: &[PathBuf]) -> Result<(Config, bool), ConfigError> {
    let mut config = Config::default();
    config::load(&mut config, paths)?;
    let has_role = config.server.enabled || config.client.enabled;
    let mut whole = config.clone();
    // As with -dev: what the files set of either is checked.
    whole.server.enabled |= !has_role;
    whole.client.enabled |= !has_role;
    if whole.data_dir.is_none() {
        // It may come from a flag.
        whole.data_dir = Some(Path::new("/").to_owned());
    }
    config::check(&whole)?;
    if whole.client.enabled {
        network::check(&whole.client).map_err(|why| ConfigError::Invalid(vec![why]))?;
    }
    Ok((config, has_role))
}

fn list(out: &Out) {
    let mut table = ColumnTable::new(["Setting", "Why, and what to do"]);
    for one in config::UNSUPPORTED.iter() {
        table.row([one.path.clone(), one.advice.to_owned()]);
    }
    out.line(&table.to_string());
    out.line(
        "\nA value that changes nothing (Nomad's default, false, an empty block) is no fault.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_files_are_valid_and_what_is_wrong_in_them_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let check_text = |text: &str| {
            let path = dir.path().join("agent.hcl");
            std::fs::write(&path, text).expect("written");
            let checked = checked(&[path]).map(|(_, has_role)| has_role);
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(check_text("ports { http = 14646 }"), Ok(false));
        assert_eq!(check_text("server { bootstrap_expect = 1 }"), Ok(false));
        assert_eq!(check_text("client { enabled = true }"), Ok(true));
        let interface = |name: &str| format!("client {{ network_interface = \"{name}\" }}");
        assert_eq!(check_text(&interface("lo")), Ok(false));
        let elsewhere = format!("server {{ enabled = true }}\n{}", interface("no-such-0"));
        assert_eq!(check_text(&elsewhere), Ok(true), "no client looks at it");
        let refused = check_text(&interface("no-such-0")).expect_err("it is not there");
        assert!(refused.contains("there is no interface"), "{refused}");
        assert_eq!(check_text("server { enabled = true }"), Ok(true));
        for (text, wrong) in [
            ("ports { http = 14646 }\nregion = \"a/b\"", "Region"),
            ("client { node_pool = \"all\" }", "Invalid node pool"),
            ("server { raft_multiplier = 11 }", "raft_multiplier"),
        ] {
            let refused = check_text(text).expect_err(text);
            assert!(refused.contains(wrong), "{text}: {refused}");
            assert!(!refused.contains("Must specify"), "{text}: {refused}");
        }
    }
}
