//! `audit`: who changed what, when, why, and from what to what.

pub(super) mod requests;

use super::changes::{AuditEntry, Who, row, who};
use super::client::Client;
use super::conn::PastConnection;
use super::out::{Out, one_line};
use super::show::{Format, counted, refused, time};
use super::trail::{Span, TrailPage, given};
use anyhow::{Context, Result};
use serde_json::json;

/// Entries requested at a time.
const PAGE: usize = 200;

/// Flags of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  drover audit                              the newest events of the cluster
  drover audit job web                      all that ever happened to a job, also one long gone
  drover audit -related job web             and its evaluations, allocations and deployments
  drover audit alloc 8ba85cef               the beginning of an id will do
  drover audit -actor 10.0.0.7 -since -1h   what somebody did in the last hour
  drover audit -kind JobRegistered,JobDeregistered -oldest
  drover audit -value hunter2               events that held this value in an environment, in
                                            meta, a template or the like; - reads it from stdin;
                                            variables are encrypted and not searched
  drover audit -outcome refused             events that changed nothing, because a guard or rule no
                                            longer held
  drover audit requests                     reads of secrets, sign-ins, denials: what changes
                                            nothing but matters, as the called server saw it

Types: job, eval, alloc, deployment, node, node-pool, namespace, variable, service, root-key,
acl-token, acl-policy, acl-role, acl-auth-method, acl-binding-rule, host-volume, csi-volume,
csi-plugin, scaling-policy, scheduler, autopilot. What followed from an event: drover trace.")]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    conn: PastConnection,
    #[command(flatten)]
    format: Format,
    /// The type of a thing: job, alloc, node, ...
    #[arg(value_name = "TYPE")]
    object_type: Option<String>,
    /// Its name, its id, or the beginning of its id
    id: Option<String>,
    /// Only what this actor did: its kind, name, address, or the beginning of its id
    #[arg(long, default_value = "", hide_default_value = true)]
    actor: String,
    /// Only events of these kinds, with commas between
    #[arg(
        long = "kind",
        value_name = "NAMES",
        default_value = "",
        hide_default_value = true
    )]
    event_kinds: String,
    /// Only events of this request
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    request: String,
    /// Only events of which a confidential field held exactly this value, or the value with this
    /// hash (hmac:...); - reads it from stdin
    #[arg(
        long,
        value_name = "VALUE",
        default_value = "",
        hide_default_value = true
    )]
    value: String,
    /// applied, refused, or all
    #[arg(long, default_value = "", hide_default_value = true)]
    outcome: String,
    #[command(flatten)]
    span: Span,
    /// Of a job: its evaluations, allocations and deployments as well
    #[arg(long)]
    related: bool,
    /// Leave out what changed
    #[arg(long)]
    brief: bool,
    /// Everything: ids in full, long values, fields that always change, payloads
    #[arg(long)]
    verbose: bool,
}

/// What else is kept.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show requests that change nothing but matter: reads of secrets, sign-ins, denials
    Requests(Box<requests::Args>),
}

/// The trail of one thing, as another command requests it.
pub(super) struct Of {
    /// Where the agent is.
    pub(super) conn: PastConnection,
    /// How it is printed.
    pub(super) format: Format,
    /// The type of the thing.
    pub(super) object_type: String,
    /// Its name or id.
    pub(super) id: String,
    /// Which part is shown.
    pub(super) span: Span,
    /// Everything.
    pub(super) verbose: bool,
}

/// Prints everything that happened to one thing.
pub(super) async fn of(of: Of, out: &Out) -> Result<u8> {
    let args = Args {
        verb: None,
        conn: of.conn,
        format: of.format,
        object_type: Some(of.object_type),
        id: Some(of.id),
        actor: String::new(),
        event_kinds: String::new(),
        request: String::new(),
        value: String::new(),
        outcome: String::new(),
        span: of.span,
        related: false,
        brief: false,
        verbose: of.verbose,
    };
    run(args, out).await
}

/// Prints the audit trail.
pub(super) async fn run(mut args: Args, out: &Out) -> Result<u8> {
    if let Some(Verb::Requests(args)) = args.verb.take() {
        return requests::run(*args, out).await;
    }
    let client = args.conn.client()?;
    if args.value == "-" {
        args.value = std::io::read_to_string(std::io::stdin())?;
        args.value
            .truncate(args.value.trim_end_matches(['\r', '\n']).len());
    }
    let page = async |rows, token: &str| page(&args, &client, rows, token).await;
    let entry = |entry: AuditEntry| show(&entry, &args, out);
    let form = (&args.format, out);
    args.span.print(PAGE, form, page, entry).await?;
    if !args.value.is_empty() && !args.format.is_given() {
        out.line(
            "\nVariables are encrypted in the log: their values are not searched. Who changed \
             which one: drover audit -kind VariableApplied",
        );
    }
    Ok(0)
}

async fn page(args: &Args, client: &Client, rows: usize, token: &str) -> Result<TrailPage> {
    let yes = |flag: bool| if flag { "true" } else { "" };
    let rows = rows.to_string();
    let given = given([
        ("type", args.object_type.as_deref().unwrap_or_default()),
        ("id", args.id.as_deref().unwrap_or_default()),
        ("actor", args.actor.as_str()),
        ("kind", args.event_kinds.as_str()),
        ("request_id", args.request.as_str()),
        ("outcome", args.outcome.as_str()),
        ("since", args.span.since.as_str()),
        ("until", args.span.until.as_str()),
        ("reverse", args.span.reverse()),
        ("related", yes(args.related)),
        ("diff", if args.brief { "false" } else { "" }),
        ("payload", yes(args.verbose)),
        ("per_page", rows.as_str()),
        ("next_token", token),
    ]);
    let reply = match args.value.as_str() {
        "" => client.get("/v1/audit", &given).await,
        // In the body: queries are kept in the logs of proxies.
        value => {
            client
                .read("/v1/audit", &given, &json!({ "Value": value }))
                .await
        }
    };
    TrailPage::of(reply.context("Error reading the audit trail")?)
}

fn show(entry: &AuditEntry, args: &Args, out: &Out) {
    out.line(&headline(entry, args.verbose));
    if args.brief {
        return;
    }
    for change in &entry.changes {
        for line in row(change, args.verbose, "    ") {
            out.line(&line);
        }
    }
    let more = entry.more_changes;
    if more > 0 {
        out.line(&format!("    and {}", counted(more, "more row")));
    }
}

/// An event on one line: index, time, kind, who, why, and that it changed nothing.
fn headline(entry: &AuditEntry, verbose: bool) -> String {
    let by = match entry.actor.is_none() && !entry.unreadable.is_empty() {
        true => who(Some(&Who::unknown())),
        false => who(entry.actor.as_ref()),
    };
    let mut line = format!(
        "{:>8}  {}  {}  by {by}",
        entry.index,
        time(entry.time),
        entry.kind,
    );
    if let Some(cause) = entry.cause {
        line += &format!("  because of {cause}");
    }
    let request = &entry.request_id;
    if verbose && !request.is_empty() {
        line += &format!("  request {request}");
    }
    if entry.outcome == "refused" {
        line += &format!("  {}", refused(&entry.reason));
    }
    if !entry.unreadable.is_empty() {
        line += &format!("  cannot be read: {}", entry.unreadable);
    }
    one_line(&line)
}

#[cfg(test)]
mod tests {
    use super::super::answer;
    use super::*;

    #[test]
    fn of_an_event_that_cannot_be_read_it_is_shown_which_one_and_why() {
        let entry = answer::of(json!({
            "Index": 7, "Kind": "JobRegistered", "Unreadable": "a stored change is damaged",
        }));
        let line = headline(&entry.unwrap(), false);
        assert!(line.contains("  JobRegistered  by ?  "), "{line}");
        assert!(
            line.ends_with("cannot be read: a stored change is damaged"),
            "{line}"
        );
    }
}
