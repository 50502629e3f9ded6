//! `agent`: builds the configuration from defaults, files, environment and flags, and hands it on.

pub(super) mod info;
pub(super) mod log;

use super::out::Out;
use crate::base::version::VERSION;
use crate::config::{self, ClientConfig, Config};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of the agent. They win over files.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  drover agent -dev                                  try it out; nothing is kept
  drover agent -dev -data-dir /var/lib/drover        the same, kept
  drover agent -config /etc/drover.d -config me.hcl  as configured, later files win

Every event into Kafka, exactly once, in a configuration file (shown with its defaults):
  event_publisher {
    kafka {
      brokers           = [\"kafka:9092\"]    # the only one without a default
      topic             = \"drover.events\"   # key: the job or object; headers: index, actor, …
      topic_per_stream  = false             # a topic for each of the event stream's: <topic>.Job
      split             = true              # an event of many objects is a message for each
      format            = \"json\"            # or cloudevents, cloudevents-binary
      numbers           = \"plain\"           # or strings: integers beyond 2^53 as texts
      public_fields     = []                # in clear, e.g. [\"Job.Meta\", \"Task.Config.image\"]
      create_topics     = true
      retention         = \"0s\"              # of created topics; 0: for ever
      partitions        = 1                 # of created topics; with 1 all is in the log's order
      cursor_topic      = \"\"                # compacted; default <topic>.cursor
      transactional_id  = \"\"                # default drover-<cluster id>
      exactly_once      = true              # read with isolation.level=read_committed
      start             = \"beginning\"       # or \"now\", where there is no position yet
      kinds             = []                # only these, e.g. [\"JobRegistered\"]
      namespaces        = []
      topics            = []                # of the event stream, e.g. [\"Job\"]
      rejected          = \"omit\"            # refused events; or \"mark\"
      oversized         = \"mark\"            # events too large; or \"stop\"
      missed            = \"stop\"            # events dropped before they were sent; or \"mark\"
      max_message_bytes = 1000000           # at most the topic's max.message.bytes
      batch_events      = 10000             # events of one transaction
      linger            = \"100ms\"           # how long they are gathered
      timeout           = \"30s\"
      lag_warning       = \"10s\"           # an event says so, another when it has caught up
      lag_warning_events = 0                # the same after so many events
      security_protocol = \"plaintext\"       # or ssl, sasl_plaintext, sasl_ssl
      ca_file           = \"\"                # with TLS: who signs the brokers' certificates
      cert_file         = \"\"                # this server's, with its key_file
      key_file          = \"\"
      verify_hostname   = true
      properties { \"sasl.username\" = \"…\" }  # any of librdkafka's; values are never shown
    }
  }
How far it is: drover status")]
pub(super) struct Args {
    /// A server and a client in one process on the loopback interface
    #[arg(long)]
    dev: bool,
    /// A file or a directory of *.hcl and *.json files; may be repeated
    #[arg(long, value_name = "PATH")]
    config: Vec<PathBuf>,
    /// Run a server
    #[arg(long)]
    server: bool,
    /// Run a client
    #[arg(long)]
    client: bool,
    /// How many servers form a new cluster
    #[arg(long, value_name = "N")]
    bootstrap_expect: Option<u32>,
    /// Where everything is kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where plugins of devices are
    #[arg(long, value_name = "DIR")]
    plugin_dir: Option<PathBuf>,
    /// Where the client keeps its journal
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where allocations live
    #[arg(long, value_name = "DIR")]
    alloc_dir: Option<PathBuf>,
    /// Where plugins make host volumes
    #[arg(long, value_name = "DIR")]
    host_volumes_dir: Option<PathBuf>,
    /// Where plugins of host volumes are
    #[arg(long, value_name = "DIR")]
    host_volume_plugin_dir: Option<PathBuf>,
    /// The address to listen on
    #[arg(long, value_name = "ADDR")]
    bind: Option<String>,
    /// The region
    #[arg(long)]
    region: Option<String>,
    /// The datacenter
    #[arg(long)]
    dc: Option<String>,
    /// The agent's name
    #[arg(long)]
    node: Option<String>,
    /// The node's class
    #[arg(long)]
    node_class: Option<String>,
    /// The node's pool
    #[arg(long)]
    node_pool: Option<String>,
    /// Meta of the node, key=value; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
    /// Servers to register with, comma separated
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Not supported: there is one server (clients: -servers)
    #[arg(long, value_name = "ADDR")]
    join: Vec<String>,
    /// Not supported: there is one server (clients: -servers)
    #[arg(long, value_name = "ADDR")]
    retry_join: Vec<String>,
    /// Not supported: there is one server
    #[arg(long, value_name = "N")]
    retry_max: Option<u32>,
    /// Not supported: there is one server
    #[arg(long, value_name = "DURATION")]
    retry_interval: Option<String>,
    /// Not supported: there is one server
    #[arg(long)]
    rejoin: bool,
    /// The version of Raft's protocol: always 3
    #[arg(long, value_name = "N")]
    raft_protocol: Option<u32>,
    /// Not supported: there is no gossip to encrypt
    #[arg(long, value_name = "KEY")]
    encrypt: Option<String>,
    /// The interface whose addresses are used
    #[arg(long, value_name = "NAME")]
    network_interface: Option<String>,
    /// Which of its addresses goes first: ipv4 or ipv6
    #[arg(long, value_name = "FAMILY")]
    preferred_address_family: Option<String>,
    /// The speed of the network, in Mbit/s
    #[arg(long, value_name = "N")]
    network_speed: Option<u64>,
    /// TRACE, DEBUG, INFO, WARN, ERROR or OFF
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log as JSON
    #[arg(long)]
    log_json: bool,
    /// Log the source's place too
    #[arg(long)]
    log_include_location: bool,
    /// Require tokens, as acl { enabled = true } in a file does
    #[arg(long)]
    acl_enabled: bool,
    /// Not supported: there is one region
    #[arg(long, value_name = "TOKEN")]
    acl_replication_token: Option<String>,
}

/// Reads the configuration and runs the agent.
pub(super) fn run(args: &Args, out: &Out) -> ExitCode {
    match configure(args) {
        Ok(config) => {
            announce(&config, out);
            let args = args.clone();
            let again = move || configure(&args).map_err(|err| err.to_string());
            crate::agent::run(config, Box::new(again))
        }
        Err(err) => {
            // Its text names the cause already.
            out.error(&err.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The configuration that these arguments describe, checked.
pub(super) fn configure(args: &Args) -> Result<Config> {
    let mut config = if args.dev {
        Config::dev()
    } else {
        Config::default()
    };
    config::load(&mut config, &args.config)?;
    flags(&mut config, args)?;
    config::check(&config)?;
    Ok(config)
}

fn set<T: Clone>(to: &mut T, from: Option<&T>) {
    if let Some(value) = from {
        to.clone_from(value);
    }
}

/// Refuses flags for settings that a file may not change either, in the same words.
fn refuse(args: &Args) -> Result<()> {
    let requested = [
        (
            "-acl-replication-token",
            "acl.replication_token",
            args.acl_replication_token.is_some(),
        ),
        ("-encrypt", "server.encrypt", args.encrypt.is_some()),
        ("-join", "server.start_join", !args.join.is_empty()),
        ("-rejoin", "server.rejoin_after_leave", args.rejoin),
        (
            "-retry-interval",
            "server.server_join",
            args.retry_interval.is_some(),
        ),
        (
            "-retry-join",
            "server.retry_join",
            !args.retry_join.is_empty(),
        ),
        ("-retry-max", "server.server_join", args.retry_max.is_some()),
    ];
    for (flag, path, _) in requested.into_iter().filter(|(_, _, requested)| *requested) {
        if let Some(advice) = config::advice(path) {
            bail!("{flag} is not supported by this version: {advice}");
        }
    }
    Ok(())
}

fn flags(config: &mut Config, args: &Args) -> Result<()> {
    refuse(args)?;
    config.server.enabled |= args.server;
    config.client.enabled |= args.client;
    config.acl.enabled |= args.acl_enabled;
    set(
        &mut config.server.bootstrap_expect,
        args.bootstrap_expect.as_ref(),
    );
    set(
        &mut config.server.raft_protocol,
        args.raft_protocol.as_ref(),
    );
    if let Some(dir) = &args.data_dir {
        config.data_dir = Some(std::path::absolute(dir)?);
    }
    for (to, from) in [
        (&mut config.plugin_dir, &args.plugin_dir),
        (&mut config.client.state_dir, &args.state_dir),
        (&mut config.client.alloc_dir, &args.alloc_dir),
        (&mut config.client.host_volumes_dir, &args.host_volumes_dir),
        (
            &mut config.client.host_volume_plugin_dir,
            &args.host_volume_plugin_dir,
        ),
    ] {
        if from.is_some() {
            to.clone_from(from);
        }
    }
    set(&mut config.bind_addr, args.bind.as_ref());
    set(&mut config.region, args.region.as_ref());
    set(&mut config.datacenter, args.dc.as_ref());
    set(&mut config.name, args.node.as_ref());
    set(&mut config.client.node_class, args.node_class.as_ref());
    set(&mut config.client.node_pool, args.node_pool.as_ref());
    for pair in &args.meta {
        let Some((key, value)) = pair.split_once('=') else {
            bail!("Error parsing Client.Meta value: {pair:?}; write -meta key=value");
        };
        config.client.meta.insert(key.to_owned(), value.to_owned());
    }
    config.client.servers.extend(args.servers.iter().cloned());
    network(&mut config.client, args);
    set(&mut config.log.level, args.log_level.as_ref());
    config.log.json |= args.log_json;
    config.log.include_location |= args.log_include_location;
    Ok(())
}

fn network(client: &mut ClientConfig, args: &Args) {
    set(
        &mut client.network_interface,
        args.network_interface.as_ref(),
    );
    set(
        &mut client.preferred_address_family,
        args.preferred_address_family.as_ref(),
    );
    set(&mut client.network_speed, args.network_speed.as_ref());
}

/// The lines every start begins with.
fn announce(config: &Config, out: &Out) {
    match config.files.as_slice() {
        [] => out.line("==> No configuration files loaded"),
        files => {
            let names: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
            out.line(&format!(
                "==> Loaded configuration from {}",
                names.join(", ")
            ));
        }
    }
    if config.server.bootstrap_expect == 1 && !config.dev {
        out.line("==> WARNING: Bootstrap mode enabled! Potentially unsafe operation.");
    }
    let clear = config.clear_text();
    if !clear.is_empty() {
        out.line(&format!(
            "==> WARNING: {} in clear text: others on the network can read tokens and change \
             requests; set tls {{ http = true, rpc = true }} (drover tls ca create), or bind to \
             this machine",
            clear.join(", ")
        ));
    }
    for setting in config::without_effect(config) {
        out.line(&format!("==> WARNING: {setting}"));
    }
    out.line("==> Starting drover agent...");
    out.line("==> drover agent configuration:\n");
    let unknown = || "<none>".to_owned();
    let listen = config.http_listen().map(|a| {
        a.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let rpc = config.rpc_listen().map(|a| a.to_string());
    let advertise = [config.http_advertise(), config.rpc_advertise()];
    let [http_adv, rpc_adv] = advertise.map(|a| a.unwrap_or_else(|_| unknown()));
    let rows = [
        (
            "Advertise Addrs",
            format!("HTTP: {http_adv}; RPC: {rpc_adv}"),
        ),
        (
            "Bind Addrs",
            format!(
                "HTTP: {}; RPC: {}",
                listen.unwrap_or_else(|_| unknown()),
                rpc.unwrap_or_else(|_| unknown())
            ),
        ),
        ("Client", config.client.enabled.to_string()),
        ("Log Level", config.log.level.clone()),
        ("Node Name", config.node_name()),
        (
            "Region",
            format!("{} (DC: {})", config.region, config.datacenter),
        ),
        ("Server", config.server.enabled.to_string()),
        ("Version", VERSION.to_owned()),
    ];
    let width = rows.iter().map(|(k, _)| k.len()).max().unwrap_or(0) + 7;
    for (key, value) in rows {
        out.line(&format!("{key:>width$}: {value}"));
    }
    out.line("\n==> drover agent started! Log data will stream in below:\n");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ConfigLine {
        #[command(flatten)]
        args: Args,
    }

    /// The example is a file like any other: what it names there is, at its default.
    #[test]
    fn the_help_names_every_setting_of_kafka_with_its_default() {
        let command = <Args as clap::Args>::augment_args(clap::Command::new("agent"));
        let help = command.get_after_help().expect("examples").to_string();
        let (_, example) = help.split_once("\n  event_publisher {\n").expect("one");
        let (inside, _) = example.split_once("\nHow far it is").expect("its end");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("agent.hcl");
        std::fs::write(&path, format!("event_publisher {{\n{inside}\n")).expect("written");
        let mut config = Config::default();
        config::load(&mut config, &[path]).expect("settings that there are");
        let shown = config.event_publisher.kafka.expect("a block");
        let usual = config::KafkaConfig {
            brokers: vec!["kafka:9092".to_owned()],
            properties: shown.properties.clone(),
            // What it means where nothing is set.
            security_protocol: "plaintext".to_owned(),
            ..config::KafkaConfig::default()
        };
        assert_eq!(shown, usual);
        let stated = config::all_settings().into_iter();
        let names = stated.filter_map(|one| {
            let name = one.path.strip_prefix("event_publisher.kafka.")?;
            Some(name.to_owned())
        });
        for name in names {
            let mut lines = inside.lines();
            let is_named = lines.any(|line| line.split_whitespace().next() == Some(name.as_str()));
            assert!(is_named, "{name}");
        }
    }

    #[test]
    fn a_flag_says_the_same_as_its_setting() {
        let configured = |flags: &[&str]| {
            let words = ["agent", "--dev"].into_iter();
            let words = words.chain(flags.iter().copied());
            configure(&ConfigLine::try_parse_from(words).expect("parsed").args)
        };
        let config = configured(&[
            "--host-volumes-dir=/v",
            "--host-volume-plugin-dir=/p",
            "--preferred-address-family=ipv6",
            "--network-interface=eth1",
            "--network-speed=7",
            "--raft-protocol=3",
        ]);
        let config = config.expect("taken");
        let client = &config.client;
        assert_eq!(client.host_volumes_dir, Some("/v".into()));
        assert_eq!(client.host_volume_plugin_dir, Some("/p".into()));
        let network = (
            client.network_interface.as_str(),
            client.preferred_address_family.as_str(),
            client.network_speed,
        );
        assert_eq!(network, ("eth1", "ipv6", 7));
        for (flag, why) in [
            ("--raft-protocol=2", "raft_protocol must be 3"),
            (
                "--preferred-address-family=ipv5",
                "Invalid preferred-address-family value: ipv5",
            ),
            (
                "--host-volumes-dir=v",
                "host-volumes-dir must be given as an absolute path",
            ),
        ] {
            let refused = configured(&[flag]).expect_err("refused").to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn no_agent_starts_open_that_was_told_to_be_closed_nor_ignores_a_flag() {
        for (flags, advice) in [
            (vec!["--acl-replication-token", "x"], "region"),
            (vec!["--encrypt", "x"], "no gossip"),
            (vec!["--join", "a"], "one server"),
            (vec!["--rejoin"], "one server"),
            (vec!["--retry-interval", "5s"], "one server"),
            (vec!["--retry-join", "a"], "one server"),
            (vec!["--retry-max", "4"], "one server"),
        ] {
            let words = ["agent", "--dev"].into_iter().chain(flags.clone());
            let line = ConfigLine::try_parse_from(words).expect("parsed");
            let refused = configure(&line.args).expect_err("refused").to_string();
            let flag = flags[0].trim_start_matches('-');
            assert!(
                refused.contains(flag) && refused.contains(advice),
                "{refused}"
            );
        }
        let line = ConfigLine::try_parse_from(["agent", "--dev"]).expect("parsed");
        assert!(!configure(&line.args).expect("taken").acl.enabled);
        let line = ConfigLine::try_parse_from(["agent", "--dev", "--acl-enabled"]).expect("parsed");
        assert!(configure(&line.args).expect("taken").acl.enabled);
    }
}
