//! The command line: Nomad's nouns and verbs, flags with one dash or two, and the verbs of the log.
//!
//! - `argv` makes `-config=x` what the parser understands; `Cli` is the table of commands; one
//!   file per verb does the rest, against a `client::Client` and an `out::Out`. Its tests run the
//!   program against a real agent: `tests/cli`.
//! - It must not know a server's inside: everything but `agent`, `log`, `projection` and `state at`
//!   goes over HTTP.
//! - An answer is read as what it was written from (`answer`): a row of the model, a shape of
//!   `http::answers`, or a small structure beside the command. JSON stays what is passed on as it
//!   came, and what is sent where no type fits.
//! - Exit codes are Nomad's: 0 done, 1 failed, 2 done but not everything could be placed; `plan`
//!   has its own.
//! - Monitors follow the event stream; nothing here polls.

mod absent;
mod absent_flags;
mod acl;
mod agent;
mod alloc;
mod answer;
mod argv;
mod audit;
mod changes;
mod client;
mod columns;
mod complete;
mod completion;
mod config;
mod conn;
mod debug;
mod deployment;
mod deployment_text;
mod digests;
mod eval;
mod event;
mod interruptible;
mod job;
mod log;
mod manual;
mod merge;
mod monitor;
mod namespace;
mod node;
mod nodesim;
mod operator;
mod out;
mod paged;
mod placement;
mod plugin;
mod progress;
mod projection;
mod query;
mod reactors;
mod scaling;
mod secure;
mod server;
mod service;
mod show;
mod snapshot;
mod socket;
mod spec;
mod state;
mod stats;
mod status;
mod stream;
mod system;
mod template;
mod terminal;
mod tls;
mod trace;
mod trail;
mod var;
mod volume;

use crate::base::version::VERSION;
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use out::Out;
use std::ffi::OsString;
use std::process::ExitCode;

/// A workload orchestrator whose state is its history.
#[derive(Debug, Parser)]
#[command(
    name = "drover",
    version,
    disable_version_flag = true,
    max_term_width = 100
)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_help = "Examples:
  drover agent -dev                     a server and a client on this machine
  drover job run web.nomad.hcl          run a job and watch it start
  drover status                         what runs, and whether events reach Kafka
  drover job status web                 what runs, and where
  drover audit job web                  who changed it, when, and what
  drover log inspect -data-dir DIR      what a server's log holds

Flags take one dash or two. NOMAD_ADDR, NOMAD_TOKEN and NOMAD_NAMESPACE are read as usual.")]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Work with policies, tokens and roles
    #[command(subcommand)]
    Acl(acl::Verb),
    /// Run an agent: a server, a client, or both
    Agent(Box<agent::Args>),
    /// Show the state and the figures of an agent
    AgentInfo(agent::info::Args),
    /// Work with allocations
    #[command(subcommand)]
    Alloc(alloc::Verb),
    /// Show who changed what, when, why, and from what to what
    Audit(Box<audit::Args>),
    /// Offer words for a command line that is being typed, to the completion scripts
    #[command(hide = true, name = "__complete")]
    Complete(complete::Args),
    /// Check configuration files
    #[command(subcommand)]
    Config(config::Verb),
    /// Write a shell's completion script
    Completions(completion::Args),
    /// Work with deployments
    #[command(subcommand)]
    Deployment(deployment::Verb),
    /// Work with evaluations
    #[command(subcommand)]
    Eval(eval::Verb),
    /// Follow the event stream
    #[command(subcommand)]
    Event(event::Verb),
    /// Run a command beside a task (short for `alloc exec`)
    Exec(alloc::exec::Args),
    /// Work with jobs
    #[command(subcommand)]
    Job(job::Verb),
    /// Inspect, verify and replay a server's log
    #[command(subcommand)]
    Log(log::Verb),
    /// Write manual pages
    Manual(manual::Args),
    /// Follow the log of an agent
    Monitor(Box<agent::log::Args>),
    /// Work with namespaces
    #[command(subcommand)]
    Namespace(namespace::Verb),
    /// Simulate nodes that register with servers and run what is placed on them
    Nodesim(nodesim::Args),
    /// Work with nodes
    #[command(subcommand)]
    Node(node::Verb),
    /// Tools for cluster operators
    #[command(subcommand)]
    Operator(operator::Verb),
    /// Work with plugins of volumes
    #[command(subcommand)]
    Plugin(plugin::Verb),
    /// Show, verify and rebuild the tables that are built from the log
    #[command(subcommand)]
    Projection(projection::Verb),
    /// Work with scaling
    #[command(subcommand)]
    Scaling(scaling::Verb),
    /// Work with servers
    #[command(subcommand)]
    Server(server::Verb),
    /// Work with services
    #[command(subcommand)]
    Service(service::Verb),
    /// Work with the state of the cluster as a whole
    #[command(subcommand)]
    State(state::Verb),
    /// Show what runs and what lags, or whatever an id begins with
    Status(status::Args),
    /// Work with the system as a whole
    #[command(subcommand)]
    System(system::Verb),
    /// Make and show the certificates that agents use
    #[command(subcommand)]
    Tls(tls::Verb),
    /// Show what something came from and what followed, as a tree
    Trace(trace::Args),
    /// Work with variables
    #[command(subcommand)]
    Var(var::Verb),
    /// Work with volumes
    #[command(subcommand)]
    Volume(volume::Verb),
    /// Print the version
    Version,
    /// Plan a job (short for `job plan`)
    #[command(hide = true)]
    Plan(job::plan::Args),
    /// Validate a job (short for `job validate`)
    #[command(hide = true)]
    Validate(job::validate::Args),
    /// Inspect a job (short for `job inspect`)
    #[command(hide = true)]
    Inspect(job::inspect::Args),
    /// Capture logs, profiles and state of a cluster (short for `operator debug`)
    #[command(hide = true)]
    Debug(Box<debug::Args>),
    /// Show logs (short for `alloc logs`)
    #[command(hide = true)]
    Logs(alloc::logs::Args),
}

/// The commands and their flags. The word behind a flag that takes a value is its value, also with
/// a dash before it, as Go's parser has it; a number below zero is no flag.
fn table() -> Command {
    fn with_values(command: Command) -> Command {
        let command = command.mut_args(|arg| match arg.is_positional() {
            true => arg.allow_negative_numbers(true),
            false if arg.get_action().takes_values() => arg.allow_hyphen_values(true),
            false => arg,
        });
        command.mut_subcommands(with_values)
    }
    with_values(Cli::command())
}

/// Runs one command.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut root = table();
    root.build();
    let args = argv::prepare(args, &root);
    let bare = args.len() < 2;
    let words: Vec<String> = args
        .iter()
        .skip(1)
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let matches = table().try_get_matches_from(args);
    let is_given = |flag| {
        matches
            .as_ref()
            .is_ok_and(|matches| is_flag_given(matches, flag))
    };
    let out = Out::wished(is_given("no_color"), is_given("force_color"));
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(err) => {
            let command = absent::explain(&err, &words).map(|text| (text, 127));
            let flag = || Some((absent_flags::explain(&err, &root, &words)?, 1));
            if let Some((text, code)) = command.or_else(flag) {
                Out::terminal().error(&text);
                return ExitCode::from(code);
            }
            return usage(&err, bare);
        }
    };
    if let Noun::Agent(args) = cli.noun {
        return agent::run(&args, &out);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(err) => {
            out.error(&format!("Error starting: {err}"));
            return ExitCode::from(1);
        }
    };
    ExitCode::from(runtime.block_on(dispatch(cli.noun, &out)))
}

/// Whether the command that is run was given a flag.
fn is_flag_given(matches: &clap::ArgMatches, flag: &str) -> bool {
    let here = matches.try_get_one::<bool>(flag);
    let below = || {
        let next = matches.subcommand();
        next.is_some_and(|(_, next)| is_flag_given(next, flag))
    };
    here.is_ok_and(|given| given.copied().unwrap_or(false)) || below()
}

/// Nomad answers 127 where no command is named, 0 to `-help`, 1 to wrong flags and to a noun alone.
fn usage(err: &clap::Error, bare: bool) -> ExitCode {
    use clap::error::ErrorKind as Kind;
    if matches!(err.kind(), Kind::MissingRequiredArgument) {
        // What the environment says counts as given, and does not belong into the usage.
        let mut text = err.render().to_string();
        for flag in [
            "address <ADDR>",
            "region <REGION>",
            "namespace <NAMESPACE>",
            "token <TOKEN>",
        ] {
            text = text.replace(&format!("--{flag} "), "");
        }
        Out::terminal().error(text.trim_end());
    } else if matches!(err.kind(), Kind::ValueValidation) {
        let text = err.render().to_string();
        let text = text.replace(
            "invalid digit found in string",
            "it takes a number from 0 on",
        );
        Out::terminal().error(text.trim_end());
    } else {
        let _ = err.print();
    }
    match err.kind() {
        Kind::DisplayHelp | Kind::DisplayVersion => ExitCode::SUCCESS,
        Kind::DisplayHelpOnMissingArgumentOrSubcommand | Kind::MissingSubcommand if !bare => {
            ExitCode::from(1)
        }
        Kind::DisplayHelpOnMissingArgumentOrSubcommand
        | Kind::InvalidSubcommand
        | Kind::MissingSubcommand => ExitCode::from(127),
        _ => ExitCode::from(1),
    }
}

async fn dispatch(noun: Noun, out: &Out) -> u8 {
    let done = match noun {
        // Handled before a runtime exists.
        Noun::Agent(_) => Ok(1),
        Noun::Acl(verb) => acl::run(verb, out).await,
        Noun::AgentInfo(args) => agent::info::run(args, out).await,
        Noun::Alloc(verb) => alloc::run(verb, out).await,
        Noun::Audit(args) => audit::run(*args, out).await,
        Noun::Complete(args) => complete::run(&args, out).await,
        Noun::Completions(args) => completion::run(&args, &mut table(), out),
        Noun::Deployment(verb) => deployment::run(verb, out).await,
        Noun::Config(verb) => config::run(&verb, out),
        Noun::Eval(verb) => eval::run(verb, out).await,
        Noun::Event(verb) => event::run(verb, out).await,
        Noun::Exec(args) => alloc::exec::run(args).await,
        Noun::Job(verb) => job::run(verb, out).await,
        Noun::Log(verb) => log::run(verb, out).await,
        Noun::Manual(args) => manual::run(&args, table(), out),
        Noun::Monitor(args) => agent::log::run(*args, out).await,
        Noun::Namespace(verb) => namespace::run(verb, out).await,
        Noun::Node(verb) => node::run(verb, out).await,
        Noun::Nodesim(args) => nodesim::run(args, out).await,
        Noun::Operator(verb) => operator::run(verb, out).await,
        Noun::Plugin(verb) => plugin::run(verb, out).await,
        Noun::Projection(verb) => projection::run(verb, out).await,
        Noun::Scaling(verb) => scaling::run(verb, out).await,
        Noun::Server(verb) => server::run(verb, out).await,
        Noun::Service(verb) => service::run(verb, out).await,
        Noun::State(verb) => state::run(verb, out).await,
        Noun::Status(args) => status::run(args, out).await,
        Noun::System(verb) => system::run(verb, out).await,
        Noun::Tls(verb) => tls::run(&verb, out),
        Noun::Trace(args) => trace::run(args, out).await,
        Noun::Var(verb) => var::run(verb, out).await,
        Noun::Version => version(out),
        Noun::Volume(verb) => volume::run(verb, out).await,
        Noun::Plan(args) => job::plan::run(args, out).await,
        Noun::Validate(args) => job::validate::run(args, out).await,
        Noun::Inspect(args) => job::inspect::run(args, out).await,
        Noun::Debug(args) => Box::pin(debug::run(*args, out)).await,
        Noun::Logs(args) => alloc::logs::run(args, out).await,
    };
    match done {
        Ok(code) => code,
        Err(err) => {
            out.error(&format!("{err:#}"));
            1
        }
    }
}

fn version(out: &Out) -> anyhow::Result<u8> {
    out.line(&format!("drover v{VERSION}"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_commands_is_sound() {
        table().debug_assert();
    }

    /// Help does not name them: none changes what runs.
    #[test]
    fn what_is_not_in_the_help_is_for_shells_or_only_looks() {
        fn hidden(command: &Command, above: &str) -> Vec<String> {
            let below = command.get_subcommands().flat_map(|verb| {
                let name = format!("{above}{}", verb.get_name());
                let mut found = hidden(verb, &format!("{name} "));
                found.extend(verb.is_hide_set().then_some(name));
                found
            });
            below.collect()
        }
        let mut found = hidden(&table(), "");
        found.sort_unstable();
        let wanted = ["__complete", "debug", "inspect", "logs", "plan", "validate"];
        assert_eq!(found, wanted);
    }
}
