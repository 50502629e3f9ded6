//! Flags of Nomad's: each is taken, or refused in words that say what to do without it.

use std::thread;

use crate::support::{Session, service};

/// The commands that drover has of Nomad's, and the flags of each there but for the connection's.
const FLAGS: [(&str, &str); 111] = [
    ("acl bootstrap", "json t"),
    ("acl policy apply", "description group job task"),
    ("acl policy delete", ""),
    ("acl policy info", ""),
    ("acl policy list", "json t"),
    ("acl policy self", "json t"),
    ("acl role create", "description json name policy t"),
    ("acl role delete", ""),
    ("acl role info", "by-name json t"),
    ("acl role list", "json t"),
    ("acl role update", "description json name no-merge policy t"),
    (
        "acl token create",
        "accessor global json name policy role-id role-name t ttl type",
    ),
    ("acl token delete", ""),
    ("acl token info", ""),
    ("acl token list", "json t"),
    ("acl token self", ""),
    ("acl token update", "name policy role-id role-name type"),
    ("alloc exec", "e group i job t task"),
    ("alloc signal", "s task verbose"),
    ("alloc stop", "detach no-shutdown-delay verbose"),
    ("alloc fs", "c f group H job n stat tail verbose"),
    (
        "alloc logs",
        "c f group job n stderr stdout tail task verbose",
    ),
    ("alloc restart", "all-tasks task verbose"),
    ("alloc checks", "json t verbose"),
    ("alloc status", "json short stats t ui verbose"),
    (
        "agent",
        "acl-enabled acl-replication-token alloc-dir alloc-mounts-dir bind bootstrap-expect client \
         client-intro-token config consul-address consul-auth consul-auto-advertise consul-ca-file \
         consul-cert-file consul-checks-use-advertise consul-client-auto-join \
         consul-client-failures-before-critical consul-client-failures-before-warning \
         consul-client-http-check-name consul-client-service-name consul-key-file \
         consul-server-auto-join consul-server-failures-before-critical \
         consul-server-failures-before-warning consul-server-http-check-name \
         consul-server-rpc-check-name consul-server-serf-check-name consul-server-service-name \
         consul-ssl consul-token consul-verify-ssl data-dir dc dev dev-connect dev-consul \
         dev-vault encrypt eventlog eventlog-level host-volume-plugin-dir host-volumes-dir join \
         log-include-location log-json log-level meta network-interface network-speed node \
         node-class node-pool plugin-dir preferred-address-family raft-protocol region rejoin \
         retry-interval retry-join retry-max server servers state-dir vault-address vault-ca-file \
         vault-ca-path vault-cert-file vault-create-from-role vault-enabled vault-key-file \
         vault-namespace vault-tls-server-name vault-tls-skip-verify",
    ),
    ("agent-info", "json t"),
    ("deployment fail", "detach verbose"),
    ("deployment list", "filter json t verbose"),
    ("deployment pause", "verbose"),
    ("deployment promote", "detach group verbose"),
    ("deployment resume", "detach verbose"),
    ("deployment status", "json monitor t ui verbose wait"),
    ("deployment unblock", "detach verbose"),
    ("eval delete", "filter yes"),
    (
        "eval list",
        "filter job json page-token per-page status t ui verbose",
    ),
    ("eval status", "json monitor t ui verbose"),
    ("job allocs", "all json t verbose"),
    ("job deployments", "all json latest t verbose"),
    (
        "job dispatch",
        "detach id-prefix-template idempotency-token meta priority ui verbose wait",
    ),
    ("job eval", "detach force-reschedule verbose"),
    ("job history", "diff-tag diff-version full json p t version"),
    ("job inspect", "hcl json t version with-vars"),
    ("job periodic force", "detach verbose"),
    (
        "job plan",
        "diff hcl2-strict json json-output policy-override t var var-file vault-namespace \
         verbose",
    ),
    ("job promote", "detach group verbose"),
    ("job revert", "detach verbose"),
    (
        "job run",
        "check-index consul-namespace detach eval-priority hcl2-strict json output \
         policy-override preserve-counts preserve-resources ui var var-file vault-namespace \
         verbose",
    ),
    ("job scale", "check-index detach verbose"),
    ("job scaling-events", "verbose"),
    ("job status", "all-allocs evals json short t ui verbose"),
    (
        "job stop",
        "detach eval-priority global no-shutdown-delay purge verbose yes",
    ),
    ("job tag apply", "description name version"),
    ("job tag unset", "name"),
    (
        "job validate",
        "hcl2-strict json var var-file vault-namespace",
    ),
    (
        "monitor",
        "json log-include-location log-level node-id server-id",
    ),
    ("monitor export", "follow node-id server-id"),
    ("namespace apply", "description json quota"),
    ("namespace inspect", "t"),
    ("namespace list", "json t"),
    ("namespace status", "json t"),
    (
        "node drain",
        "deadline detach disable enable force ignore-system keep-ineligible m meta monitor \
         no-deadline self yes",
    ),
    ("node eligibility", "disable enable self"),
    (
        "node status",
        "allocs filter json os page-token per-page quiet self short stats t ui verbose",
    ),
    ("node meta apply", "node-id unset"),
    ("node meta read", "json node-id t"),
    ("node pool apply", "json"),
    ("node pool info", "json t"),
    ("node pool init", "out quiet"),
    ("node pool jobs", "filter json page-token per-page t"),
    ("node pool list", "filter json page-token per-page t"),
    (
        "node pool nodes",
        "filter json page-token per-page t verbose",
    ),
    ("operator api", "dryrun filter H verbose X"),
    ("operator autopilot get-config", "json t"),
    (
        "operator autopilot set-config",
        "cleanup-dead-servers disable-upgrade-migration enable-custom-upgrades \
         enable-redundancy-zones last-contact-threshold max-trailing-logs min-quorum \
         server-stabilization-time",
    ),
    ("operator autopilot health", "json"),
    (
        "operator debug",
        "consul-auth consul-ca-cert consul-ca-path consul-client-cert consul-client-key \
         consul-http-addr consul-token consul-token-file duration event-index event-topic interval \
         log-file-export log-include-location log-level log-lookback max-nodes node-class node-id \
         output pprof-duration pprof-interval server-id stale vault-address vault-ca-cert \
         vault-ca-path vault-client-cert vault-client-key vault-token verbose",
    ),
    ("operator metrics", "format json pretty t"),
    ("operator raft list-peers", "stale"),
    ("operator scheduler get-config", "json t"),
    (
        "operator scheduler set-config",
        "check-index memory-oversubscription node-limit-for-feasibility-checks \
         pause-eval-broker preempt-batch-scheduler preempt-service-scheduler \
         preempt-sysbatch-scheduler preempt-system-scheduler reject-job-registration \
         scheduler-algorithm",
    ),
    ("operator snapshot save", "redact stale"),
    ("operator snapshot inspect", "json"),
    ("plugin status", "json short t type verbose"),
    ("scaling policy info", "json t verbose"),
    ("scaling policy list", "job json t type verbose"),
    ("server members", "detailed json t ui verbose"),
    ("service list", "json name t"),
    ("service info", "filter json page-token per-page t verbose"),
    ("status", "ui verbose"),
    ("var purge", "check-index"),
    (
        "tls ca create",
        "additional-domain common-name country days domain locality name-constraint organization \
         organizational-unit postal-code province street-address",
    ),
    ("tls ca info", ""),
    (
        "tls cert create",
        "additional-dnsname additional-ipaddress ca cli client cluster-region days domain key \
         server",
    ),
    ("tls cert info", ""),
    ("var init", "out quiet"),
    ("var list", "filter out page-token per-page template ui"),
    ("var put", "check-index force in out template ui verbose"),
    ("var get", "item out template ui"),
    ("volume claim delete", "y"),
    ("volume claim list", "group job json t verbose volume-name"),
    ("volume create", "detach id policy-override verbose"),
    ("volume delete", "force secret type"),
    ("volume deregister", "force"),
    ("volume detach", ""),
    ("volume init", "json type"),
    ("volume register", "id policy-override"),
    ("volume snapshot create", "parameter secret verbose"),
    ("volume snapshot delete", "secret"),
    (
        "volume snapshot list",
        "page-token per-page plugin secret verbose",
    ),
    ("volume status", "json node node-pool short t type verbose"),
];

/// The flags that drover refuses, whichever command they are of.
const REFUSED: [&str; 55] = [
    "alloc-mounts-dir",
    "client-intro-token",
    "consul-address",
    "consul-auth",
    "consul-auto-advertise",
    "consul-ca-cert",
    "consul-ca-file",
    "consul-ca-path",
    "consul-cert-file",
    "consul-checks-use-advertise",
    "consul-client-auto-join",
    "consul-client-cert",
    "consul-client-failures-before-critical",
    "consul-client-failures-before-warning",
    "consul-client-http-check-name",
    "consul-client-key",
    "consul-client-service-name",
    "consul-http-addr",
    "consul-key-file",
    "consul-namespace",
    "consul-server-auto-join",
    "consul-server-failures-before-critical",
    "consul-server-failures-before-warning",
    "consul-server-http-check-name",
    "consul-server-rpc-check-name",
    "consul-server-serf-check-name",
    "consul-server-service-name",
    "consul-ssl",
    "consul-token",
    "consul-token-file",
    "consul-verify-ssl",
    "dev-connect",
    "dev-consul",
    "dev-vault",
    "disable-upgrade-migration",
    "enable-custom-upgrades",
    "enable-redundancy-zones",
    "eventlog",
    "eventlog-level",
    "redact",
    "ui",
    "vault-address",
    "vault-ca-cert",
    "vault-ca-file",
    "vault-ca-path",
    "vault-cert-file",
    "vault-client-cert",
    "vault-client-key",
    "vault-create-from-role",
    "vault-enabled",
    "vault-key-file",
    "vault-namespace",
    "vault-tls-server-name",
    "vault-tls-skip-verify",
    "vault-token",
];

/// Commands that call no agent.
const OFFLINE: [&str; 9] = [
    "agent",
    "node pool init",
    "operator snapshot inspect",
    "tls ca create",
    "tls ca info",
    "tls cert create",
    "tls cert info",
    "var init",
    "volume init",
];

/// Flags of the connection that are taken.
const TAKEN: &str = "-address=http://x:1 -region=a -namespace=b -token=c -no-color -force-color \
    -ca-cert=d -ca-path=e -client-cert=f -client-key=g -tls-server-name=h -tls-skip-verify \
    -insecure=false";

/// What is wrong with how a command takes a flag, or refuses it.
fn fault(session: &Session, (command, flag): (&str, &str), refused: bool) -> Option<String> {
    let line = format!("{command} -{flag}=true -help");
    let ran = session.quiet(&line);
    let printed = ran.all();
    let why = printed.strip_prefix(&format!("`drover {command}` has no -{flag}: "));
    let good = match refused {
        true => ran.code == 1 && why.is_some_and(|why| !why.trim().is_empty()),
        false => why.is_none() && !printed.contains("unexpected argument"),
    };
    (!good).then(|| format!("{line}: {}: {printed}", ran.code))
}

fn faults(session: &Session, commands: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    for (command, flags) in commands {
        for flag in flags.split_whitespace() {
            found.extend(fault(session, (command, flag), REFUSED.contains(&flag)));
        }
        if OFFLINE.contains(command) {
            continue;
        }
        let line = format!("{command} {TAKEN} -help");
        let ran = session.quiet(&line);
        if ran.code != 0 {
            found.push(format!("{line}: {}: {}", ran.code, ran.all()));
        }
    }
    found
}

#[test]
fn every_flag_of_nomads_is_taken_or_refused_in_words() {
    let session = Session::new("flags");
    let session = &session;
    let found: Vec<String> = thread::scope(|scope| {
        let parts = FLAGS.chunks(FLAGS.len().div_ceil(4));
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || faults(session, part)))
            .collect();
        let done = parts.into_iter().map(|part| part.join().expect("no panic"));
        done.flatten().collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_flag_that_is_taken_does_what_it_says() {
    let session = Session::new("acting");
    session.file("web.hcl", &service("acting-web", "1", ""));
    let planned = session.quiet("job plan -t '{{.JobModifyIndex}}' web.hcl");
    assert_eq!(
        (planned.code, planned.stdout.trim()),
        (1, "0"),
        "{}",
        planned.all()
    );
    let both = session.quiet("job plan -json-output -t '{{.JobModifyIndex}}' web.hcl");
    assert_eq!(both.code, 255, "{}", both.all());
    session.done("job run -detach web.hcl");
    let id = session.wait_allocs("acting-web", "running", 1).remove(0);
    let shown = session.done("node status -self -stats");
    for part in [
        "Uptime ",
        "Allocation Resource Utilization",
        "Host Resource Utilization",
        "CPU Stats",
        "Memory Stats",
        "Disk Stats",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let plain = session.done("node status -self");
    assert!(plain.contains("Host Resource Utilization") && !plain.contains("Disk Stats"));
    let plain = session.done(&format!("alloc status {id}"));
    let shown = session.done(&format!("alloc status -stats {id}"));
    for part in ["Memory Stats", "RSS", "User Mode"] {
        assert!(
            shown.contains(part) && !plain.contains(part),
            "{part}: {shown}"
        );
    }
    // The same on its own, in words and by name.
    let alone = session.done(&format!("alloc stats {}", &id[..8]));
    for part in ["Task \"main\"", "Memory Stats", "RSS", "User Mode"] {
        assert!(alone.contains(part), "{part}: {alone}");
    }
    let measured = session.done(&format!("alloc stats -json {id}"));
    let measured: serde_json::Value = serde_json::from_str(&measured).expect("it is JSON");
    let resident = &measured["Tasks"]["main"]["ResourceUsage"]["MemoryStats"]["RSS"];
    assert!(
        resident.as_u64().is_some_and(|bytes| bytes > 0),
        "{measured}"
    );
    let none = session.quiet("alloc stats nope");
    assert!(
        none.code == 1 && none.stderr.contains("nope"),
        "{}",
        none.all()
    );
    session.wait("/v1/job/acting-web/deployment", |one| {
        one["Status"] == "successful"
    });
    let deployment = session.json("/v1/job/acting-web/deployment").expect("one");
    let deployment = deployment["ID"].as_str().expect("an id").to_owned();
    session.done(&format!("deployment status -monitor -wait 1h {deployment}"));
    for (flags, why) in [("-wait 5s", "--monitor"), ("-monitor -wait soon", "-wait")] {
        let ran = session.quiet(&format!("deployment status {flags} {deployment}"));
        assert!(
            ran.code == 1 && ran.stderr.contains(why),
            "{flags}: {}",
            ran.all()
        );
    }
    session.done("job stop -purge -detach acting-web");
}

#[test]
fn numbers_and_times_below_zero_are_values() {
    let session = Session::new("below");
    for (line, expected) in [
        (
            "job run -check-index -3 x.hcl",
            "it takes a number from 0 on",
        ),
        ("audit -limit -1", "it takes a number from 0 on"),
        (
            "job scale below-web app -3",
            "Failed to read the count \"-3\": it takes a number from 0 on",
        ),
        ("job status -at -0s below-web", "No job(s)"),
        ("event stream -since 1h", "did you mean -1h?"),
        ("event stream -since zzz", "neither an index"),
        (
            "state at -1m -data-dir none -out x",
            "Error reading the log in none",
        ),
        ("state at -zz -data-dir none -out x", "neither an index"),
        (
            "log events -from -1m -data-dir none",
            "Error reading the log in none",
        ),
        (
            "log export -from -1m -data-dir none",
            "Error reading the log in none",
        ),
    ] {
        let ran = session.quiet(line);
        assert_eq!(ran.code, 1, "{line}: {}", ran.all());
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
    }
}
