//! `completions`

use super::out::Out;
use anyhow::Result;
use clap_complete::Shell;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover completions bash > /etc/bash_completion.d/drover
  drover completions zsh > ~/.zfunc/_drover
  drover completions fish > ~/.config/fish/completions/drover.fish

In bash and zsh jobs, allocations, nodes and what else has an id are completed too: they are
read from the agent at NOMAD_ADDR or -address.")]
pub(super) struct Args {
    /// Which shell
    pub(super) shell: Shell,
}

/// Writes a completion script.
pub(super) fn run(args: &Args, command: &mut clap::Command, out: &Out) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "drover", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match args.shell {
        Shell::Bash => script + BASH,
        // An autoloaded file ends with a call of its own function: what is put before it is called.
        Shell::Zsh => script
            .replace(
                "    _drover \"$@\"\n",
                "    compdef _drover_ids drover\n    _drover_ids \"$@\"\n",
            )
            .replace(
                "    compdef _drover drover\n",
                "    compdef _drover_ids drover\n",
            )
            .replace(
                "\nif [ \"$funcstack[1]\" = \"_drover\" ]",
                &format!("{ZSH}\nif [ \"$funcstack[1]\" = \"_drover\" ]"),
            ),
        _ => script,
    };
    out.raw(script.as_bytes());
    Ok(0)
}

/// Queries the agent first, and completes commands and flags where it has nothing to offer.
const BASH: &str = r#"
_drover_ids() {
    local IFS=$'\n'
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=($("${COMP_WORDS[0]}" __complete -- "${words[@]}" 2>/dev/null))
    # A file: the shell knows better.
    [[ $? -eq 3 ]] && return
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        IFS=$' \t\n'
        _drover "$@"
    fi
}
complete -F _drover_ids -o bashdefault -o default drover
"#;

/// The same.
const ZSH: &str = r#"
_drover_ids() {
    local -a offered
    offered=(${(f)"$(${words[1]} __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $? == 3 )); then
        _files
    elif (( ${#offered} )); then
        compadd -Q -a offered
    else
        _drover "$@"
    fi
}
"#;
