//! The flags of every command that talks to an agent.

use super::client::Client;
use anyhow::Result;

/// Which agent to talk to, and as whom.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Conn {
    /// The agent's address, http://host:port or unix:///path
    #[arg(
        long,
        env = "NOMAD_ADDR",
        default_value = "http://127.0.0.1:4646",
        value_name = "ADDR"
    )]
    pub(super) address: String,
    /// Forward the request to this region
    #[arg(
        long,
        env = "NOMAD_REGION",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) region: String,
    /// The namespace, or * where a list may span all
    #[arg(
        long,
        env = "NOMAD_NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) namespace: String,
    /// Show the state as of an index, an RFC 3339 time, or so long ago (-5m)
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true,
        value_name = "MOMENT"
    )]
    pub(super) at: String,
    /// The token to act with
    #[arg(
        long,
        env = "NOMAD_TOKEN",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    pub(super) token: String,
    /// No colours
    #[arg(long)]
    pub(super) no_color: bool,
    /// Colours even where no terminal is seen
    #[arg(long)]
    pub(super) force_color: bool,
    /// User and password for a proxy, user:password
    #[arg(
        long,
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
    /// An address that is none.
    pub(super) fn client(&self) -> Result<Client> {
        Client::new(&self.address, self)
    }
}
