//! The flags of every command that talks to an agent.

use super::client::Client;
use anyhow::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use std::ops::Deref;
use std::path::PathBuf;

/// The part of a help that these flags are in; a command's own are in another.
const CONNECTION: &str = "Connection";

/// Which certificates are taken and shown where an address begins with https://.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Trust {
    /// The certificates of the authorities to trust, PEM; default: those of this machine
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_CACERT",
        value_name = "FILE",
        value_parser = path
    )]
    pub(super) ca_cert: Option<PathBuf>,
    /// A directory of such files
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_CAPATH",
        value_name = "DIR",
        value_parser = path
    )]
    pub(super) ca_path: Option<PathBuf>,
    /// The certificate to show, where the agent asks for one
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_CLIENT_CERT",
        value_name = "FILE",
        value_parser = path
    )]
    pub(super) client_cert: Option<PathBuf>,
    /// Its key
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_CLIENT_KEY",
        value_name = "FILE",
        value_parser = path
    )]
    pub(super) client_key: Option<PathBuf>,
    /// The name that the agent's certificate must have, where it is not the address's
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_TLS_SERVER_NAME",
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub(super) tls_server_name: String,
    /// Accept any certificate: others on the network can then read and change everything
    #[arg(
        long,
        alias = "insecure",
        help_heading = CONNECTION,
        env = "NOMAD_SKIP_VERIFY",
        value_parser = switch
    )]
    pub(super) tls_skip_verify: bool,
}

impl Trust {
    /// The files that are named; an empty name counts as unset, as in an empty variable.
    #[must_use]
    pub(super) fn named(&self) -> Self {
        let some = |path: &Option<PathBuf>| path.clone().filter(|p| !p.as_os_str().is_empty());
        Self {
            ca_cert: some(&self.ca_cert),
            ca_path: some(&self.ca_path),
            client_cert: some(&self.client_cert),
            client_key: some(&self.client_key),
            ..self.clone()
        }
    }
}

/// A path, which may be empty.
fn path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

/// A switch in the words that Nomad takes; other words switch nothing.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "" | "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err("it is true or false".to_owned()),
    }
}

/// Which agent to talk to, and as whom.
#[derive(Clone, clap::Args)]
pub(super) struct Conn {
    /// The agent's address, https://host:port, http://host:port or unix:///path
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_ADDR",
        default_value = "http://127.0.0.1:4646",
        value_name = "ADDR"
    )]
    pub(super) address: String,
    /// Forward the request to this region
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_REGION",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) region: String,
    /// The namespace, or * where a list may span all
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) namespace: String,
    /// The moment that is shown in place of now; empty for now. A flag of what reads
    /// ([`PastConnection`]).
    #[arg(skip)]
    pub(super) at: String,
    /// The token to act with
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_TOKEN",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(super) token: String,
    #[command(flatten)]
    pub(super) trust: Trust,
    /// No colours
    #[arg(long, help_heading = CONNECTION)]
    pub(super) no_color: bool,
    /// Colours even where no terminal is seen
    #[arg(long, help_heading = CONNECTION)]
    pub(super) force_color: bool,
    /// User and password for a proxy, user:password
    #[arg(
        long,
        help_heading = CONNECTION,
        env = "NOMAD_HTTP_AUTH",
        default_value = "",
        hide = true,
        hide_env_values = true
    )]
    pub(super) http_auth: String,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").finish_non_exhaustive()
    }
}

impl Conn {
    /// A client with these settings.
    ///
    /// # Errors
    /// An invalid address.
    pub(super) fn client(&self) -> Result<Client> {
        Client::new(&self.address, self)
    }
}

/// A connection for what reads the state, which can be that of an earlier moment.
#[derive(Clone, Debug)]
pub(super) struct PastConnection(Conn);

impl Deref for PastConnection {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl Args for PastConnection {
    fn augment_args(command: Command) -> Command {
        let at = Arg::new("at")
            .long("at")
            .value_name("MOMENT")
            .help("Show the state as of an index, an RFC 3339 time, or so long ago (-5m)");
        Conn::augment_args(command).arg(at)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PastConnection {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut conn = Conn::from_arg_matches(matches)?;
        conn.at = matches.get_one("at").cloned().unwrap_or_default();
        Ok(Self(conn))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
