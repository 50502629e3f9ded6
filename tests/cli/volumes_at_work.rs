//! Commands about volumes that are there: the plugin of this project runs as a job on an agent of
//! its own, and jobs use what it makes.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use drover_testkit::{Agent, Http, LONG, Setup, skip, wait_for};
use serde_json::{Value, json};

use crate::support::{DROVER, Session};

/// An agent with the plugin `hp`, and what runs commands against it.
struct Work {
    session: Session,
    dir: tempfile::TempDir,
    agent: Option<Agent>,
}

impl Work {
    /// None where the plugin is not built, or nothing can be mounted.
    fn start(golden: &str) -> Option<Work> {
        let what = "commands about volumes";
        let plugin = Path::new(DROVER).with_file_name("drover-hostpath");
        if !plugin.exists() {
            let why = "drover-hostpath is not built: cargo build --workspace";
            skip(what, why);
            return None;
        }
        if !nix::unistd::geteuid().is_root() {
            skip(what, "only root can mount volumes into tasks");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let mut setup = Setup::dev(DROVER, &dir.path().join("data")).expect("free ports");
        setup.config = "telemetry {\n  prometheus_metrics = true\n}\n".to_owned();
        let agent = setup.start().expect("the agent starts");
        let session = Session::at(golden, &agent).within("default");
        let work = Work {
            session,
            dir,
            agent: Some(agent),
        };
        work.run_plugin(&plugin);
        Some(work)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run_plugin(&self, plugin: &Path) {
        let (plugin, at) = (plugin.display(), self.dir.path().display());
        let job = format!(
            r#"job "plugin" {{
  group "g" {{
    task "t" {{
      driver = "raw_exec"
      config {{
        command = "{plugin}"
        args    = ["--state-dir", "{at}/state", "--faults", "{at}/faults"]
      }}
      csi_plugin {{
        id   = "hp"
        type = "monolith"
      }}
      resources {{
        cpu    = 20
        memory = 20
      }}
    }}
  }}
}}
"#
        );
        self.session.file("plugin.hcl", &job);
        self.session.done("job run -detach plugin.hcl");
        let healthy = wait_for("the plugin", LONG, || {
            let plugin = self.session.json("/v1/plugin/csi/hp")?;
            let whole = plugin["NodesHealthy"] == 1 && plugin["ControllersHealthy"] == 1;
            anyhow::ensure!(whole, "{plugin}");
            Ok::<_, anyhow::Error>(())
        });
        healthy.expect("it is healthy");
    }

    /// A job that has the volume `data` mounted, once for each of these blocks of options.
    fn run_user(&self, options: &[(&str, &str)]) -> String {
        let volume = |(name, options): &(&str, &str)| {
            format!(
                r#"    volume "{name}" {{
      type            = "csi"
      source          = "data"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      {options}
    }}
"#
            )
        };
        let mount = |(name, _): &(&str, &str)| {
            format!(
                "      volume_mount {{\n        volume      = \"{name}\"\n        destination = \
                 \"/srv/{name}\"\n      }}\n"
            )
        };
        let volumes: String = options.iter().map(volume).collect();
        let mounts: String = options.iter().map(mount).collect();
        let job = format!(
            r#"job "user" {{
  group "g" {{
{volumes}    task "t" {{
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {{
        command = "/bin/sleep"
        args    = ["1000"]
      }}
{mounts}      resources {{
        cpu    = 20
        memory = 20
      }}
    }}
  }}
}}
"#
        );
        self.session.file("user.hcl", &job);
        self.session.done("job run -detach user.hcl");
        self.session.wait_allocs("user", "running", 1).remove(0)
    }

    /// Waits until what is said of the volume is so.
    fn wait_explained(&self, wanted: impl Fn(&Value) -> bool) {
        self.session.wait("/v1/volume/csi/data/explain", wanted);
    }

    fn stop_user(&self) {
        self.session.done("job stop -detach user");
        self.wait_explained(|reported| reported["Says"] == "nobody holds it");
    }
}

impl Drop for Work {
    /// Ends what runs here, and what is mounted for it.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path("faults"));
        for job in ["user", "plugin"] {
            self.session.quiet(&format!("job stop -detach {job}"));
            let path = format!("/v1/job/{job}/allocations");
            let _ = wait_for("the end", LONG, || {
                let list = self.session.json(&path)?;
                let rows = list.as_array().cloned().unwrap_or_default();
                let live = rows.iter().any(|row| row["ClientStatus"] == "running");
                anyhow::ensure!(!live, "it runs");
                Ok::<_, anyhow::Error>(())
            });
        }
        drop(self.agent.take());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = self.dir.path().to_string_lossy().into_owned();
        let paths = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        for path in paths.filter(|path| path.starts_with(&below)) {
            let umount = std::process::Command::new("umount")
                .arg("-l")
                .arg(path)
                .status();
            assert!(umount.is_ok(), "umount runs");
        }
    }
}

const VOLUME: &str = r#"id           = "data"
name         = "database"
type         = "csi"
plugin_id    = "hp"
capacity_min = "10MiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  mount_flags = ["noexec"]
}

secrets {
  secret = "correct-horse"
}

parameters {
  secret = "correct-horse"
}
"#;

/// The value beside a key of what is shown as `Key = value`.
fn field(text: &str, key: &str) -> String {
    let line = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    });
    line.unwrap_or_else(|| panic!("no {key} in\n{text}"))
}

/// The columns of the first row below a head, by the words of the head.
fn row(text: &str, title: &str) -> Vec<(String, String)> {
    let below = text.lines().skip_while(|line| *line != title).skip(1);
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split("  ").map(str::trim);
        cells
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let lines: Vec<_> = below.take(2).map(cells).collect();
    assert_eq!(lines.len(), 2, "no {title} in\n{text}");
    assert_eq!(lines[0].len(), lines[1].len(), "{title} in\n{text}");
    lines[0]
        .iter()
        .cloned()
        .zip(lines[1].iter().cloned())
        .collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

const PROVIDER: &str = "hostpath.csi.drover";

#[test]
fn job_12_volumes_are_made_shown_detached_and_deleted() {
    let Some(mut work) = Work::start("volumes") else {
        return;
    };
    work.session.file("data.hcl", VOLUME);
    work.session.run("volume create data.hcl");
    work.session.run("volume status");
    let shown = work.session.done("volume status data");
    for (key, value) in [
        ("ID", "data"),
        ("Name", "database"),
        ("Namespace", "default"),
        ("External ID", "vol-000001"),
        ("Plugin ID", "hp"),
        ("Provider", PROVIDER),
        ("Version", env!("CARGO_PKG_VERSION")),
        ("Capacity", "10 MiB"),
        ("Schedulable", "true"),
        ("Controllers Healthy", "1"),
        ("Controllers Expected", "1"),
        ("Nodes Healthy", "1"),
        ("Nodes Expected", "1"),
        ("Mount Options", "flags: [REDACTED]"),
    ] {
        assert_eq!(field(&shown, key), value, "{key} in\n{shown}");
    }
    work.session.run("volume status -short data");
    let shown = work.session.done("volume status -json data");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    // Its parameters are no secret, whatever this plugin takes by them.
    assert_eq!(shown["Secrets"], Value::Null, "{shown}");
    plugin_is_shown(&work.session);
    used(&mut work);
    kept_and_removed(&mut work);
    work.session.run("volume status");
    // What ends it continues with a session of its own.
    let other = Session::at("volumes", work.agent.as_ref().expect("it runs"));
    let reported = std::mem::replace(&mut work.session, other.within("default"));
    reported.check();
}

fn plugin_is_shown(session: &Session) {
    let listed = session.done("plugin status");
    let wanted = [
        ("ID", "hp"),
        ("Provider", PROVIDER),
        ("Controllers Healthy/Expected", "1/1"),
        ("Nodes Healthy/Expected", "1/1"),
    ];
    assert_eq!(row(&listed, "Container Storage Interface"), pairs(&wanted));
    let shown = session.done("plugin status hp");
    for (key, value) in [
        ("ID", "hp"),
        ("Provider", PROVIDER),
        ("Version", env!("CARGO_PKG_VERSION")),
        ("Controllers Healthy", "1"),
        ("Nodes Expected", "1"),
    ] {
        assert_eq!(field(&shown, key), value, "{key} in\n{shown}");
    }
    let instance = row(&shown, "Instances");
    assert_eq!(
        instance[1..3],
        pairs(&[("Part", "controller"), ("Healthy", "true")])
    );
    let alloc = row(&shown, "Allocations");
    let wanted = [
        ("Job ID", "plugin"),
        ("Desired", "run"),
        ("Status", "running"),
    ];
    assert_eq!(alloc[2..], pairs(&wanted));
    let short = session.done("plugin status -short hp");
    assert!(!short.contains("Allocations"), "{short}");
}

/// A job has it and gives it back, and an operator waits for that.
fn used(work: &mut Work) {
    let alloc = work.run_user(&[("data", "")]);
    let session = &mut work.session;
    let node = session.json("/v1/nodes").expect("nodes")[0]["ID"].clone();
    let node = node.as_str().expect("an id").to_owned();
    let shown = session.done("volume status data");
    let wanted = [
        ("ID", &alloc[..8]),
        ("Node ID", &node[..8]),
        ("Job ID", "user"),
        ("Access", "write"),
        ("Desired", "run"),
        ("Status", "running"),
    ];
    assert_eq!(row(&shown, "Allocations"), pairs(&wanted), "{shown}");
    assert_eq!(field(&shown, "Access Mode"), "single-node-writer");
    let shown = session.done(&format!("node status -verbose {node}"));
    let wanted = [
        ("ID", "data"),
        ("Name", "database"),
        ("Namespace", "default"),
        ("Plugin ID", "hp"),
        ("Provider", PROVIDER),
        ("Schedulable", "true"),
        ("Access Mode", "single-node-writer"),
        ("Mount Options", "flags: [REDACTED]"),
    ];
    assert_eq!(row(&shown, "CSI Volumes"), pairs(&wanted), "{shown}");
    session.run("volume explain data");
    for line in [
        "volume deregister data".to_owned(),
        "volume deregister -force data".to_owned(),
        "volume delete data".to_owned(),
        format!("volume detach data {}", &node[..8]),
    ] {
        assert_eq!(session.run(&line).code, 1, "{line}");
    }
    given_back(work, &node);
    history(&work.session);
}

/// Its node does not unmount it until an operator waits for that.
fn given_back(work: &mut Work, node: &str) {
    let gate = work.path("gate");
    let held =
        json!([{"call": "NodeUnpublishVolume", "times": 1, "do": {"hold": {"until": gate}}}]);
    std::fs::write(work.path("faults"), held.to_string()).expect("written");
    work.session.done("job stop -detach user");
    work.wait_explained(|reported| {
        let claim = &reported["Claims"][0];
        claim["State"] == "unpublishing" && claim["ClientStatus"] == "complete"
    });
    work.session.run("volume explain data");
    let mut http = work.session.http();
    let before = detaches(&mut http).expect("one was refused");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = wait_for("the operator's request", LONG, || {
                let now = detaches(&mut http)?;
                anyhow::ensure!(now > before, "{now}");
                Ok(())
            });
            // Also where it did not come: then no command waits for ever.
            std::fs::write(&gate, "").expect("written");
            begun.expect("it is let in");
        });
        work.session
            .run(&format!("volume detach data {}", &node[..8]));
    });
    work.session.run("volume explain data");
    assert_eq!(
        work.session.run(&format!("volume detach data {node}")).code,
        1
    );
}

/// How many requests to detach a volume were let in; they are counted before they are answered.
fn detaches(http: &mut Http) -> anyhow::Result<u64> {
    let reported = http.get("/v1/metrics?format=prometheus")?.text();
    let served = |line: &&str| {
        line.starts_with("drover_requests_served_total{") && line.contains("/detach\"")
    };
    let line = reported.lines().find(served);
    let (_, count) = line
        .and_then(|line| line.rsplit_once(' '))
        .context("none")?;
    Ok(count.parse()?)
}

/// All that happened to it, the oldest first.
fn history(session: &Session) {
    let reported = session.done("volume history -oldest -limit 0 -json data");
    let reported: Value = serde_json::from_str(&reported).expect("JSON");
    let kinds: Vec<_> = reported
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["Kind"].clone())
        .collect();
    let claimed = vec![Value::from("CsiVolumeClaimed"); kinds.len() - 1];
    assert_eq!(kinds[0], "CsiVolumesRegistered", "{kinds:?}");
    assert_eq!(kinds[1..], claimed, "{kinds:?}");
    // Taken, attached, and each step back.
    assert!(kinds.len() >= 6, "{kinds:?}");
    let shown = session.done("volume history -oldest -limit 0 data");
    assert!(shown.contains("CsiVolumesRegistered"), "{shown}");
    assert!(!shown.contains("correct-horse"), "{shown}");
}

/// Snapshots of it; it is forgotten, registered again and deleted.
fn kept_and_removed(work: &mut Work) {
    let session = &mut work.session;
    session.run("volume snapshot list -plugin hp");
    session.run("volume snapshot create data one");
    session.run("volume snapshot list -plugin hp");
    session.run("volume snapshot delete hp snap-000002");
    session.run("volume snapshot list -plugin hp");
    session.run("volume deregister data");
    let again = VOLUME.replace("plugin_id ", "external_id = \"vol-000001\"\nplugin_id ");
    session.file("again.hcl", &again);
    session.file("wrong.hcl", &again.replace("vol-000001", "vol-4711"));
    assert_eq!(session.run("volume register wrong.hcl").code, 1);
    session.run("volume status");
    session.run("volume register again.hcl");
    assert_eq!(
        session.run("volume delete -secret secret=wrong data").code,
        1
    );
    session.run("volume delete data");
    session.run("volume delete data");
}

#[test]
fn csi_16_job_07_a_volume_with_two_sets_of_options_is_shown_with_both() {
    let Some(work) = Work::start("volumes-twice") else {
        return;
    };
    work.session.file("data.hcl", VOLUME);
    work.session.done("volume create data.hcl");
    let options = "mount_options {\n        fs_type     = \"ext4\"\n        mount_flags = \
                   [\"nosuid\"]\n      }";
    let alloc = work.run_user(&[("own", options), ("plain", "")]);
    let job = work.session.json("/v1/job/user").expect("the job");
    let requested = &job["TaskGroups"][0]["Volumes"];
    let own = &requested["own"]["MountOptions"];
    assert_eq!(own["MountFlags"][0], "nosuid", "{requested}");
    assert_eq!(own["FSType"], "ext4", "{requested}");
    assert_eq!(
        requested["plain"]["MountOptions"],
        Value::Null,
        "{requested}"
    );
    let shown = work.session.done(&format!("alloc status {}", &alloc[..8]));
    let table: Vec<_> = shown
        .lines()
        .skip_while(|line| *line != "CSI Volumes")
        .collect();
    let line = |name: &str| {
        let found = table.iter().find(|line| line.starts_with(name));
        let found = found.unwrap_or_else(|| panic!("no {name} in\n{shown}"));
        let words: Vec<_> = found.split("  ").filter(|word| !word.is_empty()).collect();
        words
            .iter()
            .map(|word| word.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let row = |name: &str, flags: &str| {
        ["NAME", "data", "hp", PROVIDER, "true", "false", flags]
            .map(|cell| cell.replace("NAME", name))
            .to_vec()
    };
    assert_eq!(line("own"), row("own", "fs_type: ext4 flags: nosuid"));
    assert_eq!(line("plain"), row("plain", "flags: [REDACTED]"));
    // And so it is mounted, twice.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let below = work.path("data/client").to_string_lossy().into_owned();
    let ours = |flag: &str| {
        let of_alloc = |line: &&str| line.contains(&below) && line.contains(&alloc);
        mounts
            .lines()
            .filter(of_alloc)
            .filter(|line| line.contains(flag))
            .count()
    };
    assert_eq!((ours("nosuid"), ours("noexec")), (1, 1), "{mounts}");
    work.stop_user();
}

#[test]
fn the_history_of_a_volume_tells_each_step_who_took_it_and_why() {
    let Some(work) = Work::start("volume-history") else {
        return;
    };
    let session = &work.session;
    session.file("data.hcl", VOLUME);
    session.done("volume create data.hcl");
    let alloc = work.run_user(&[("data", "")]);
    let placed = session.json(&format!("/v1/allocation/{alloc}"));
    let placed = placed.expect("the allocation");
    let created = placed["CreateIndex"].as_u64().expect("an index");
    work.stop_user();
    let reported = session.done("volume history -oldest -limit 0 -verbose -json data");
    assert!(!reported.contains("correct-horse"), "{reported}");
    let reported: Vec<Value> = serde_json::from_str(&reported).expect("JSON");
    let (made, steps) = reported.split_first().expect("it was made");
    assert_eq!(made["Kind"], "CsiVolumesRegistered", "{made:#}");
    assert_eq!(made["Actor"]["kind"], "anonymous", "{made:#}");
    assert_eq!(made["Cause"], Value::Null, "{made:#}");
    // Taken, attached, given back, off its node, off its controller, free.
    let state = |step: &Value| step["Payload"]["State"].as_u64();
    let states: Vec<_> = steps.iter().map(state).collect();
    assert_eq!(states, [0_u64, 0, 4, 1, 2, 3].map(Some), "{reported:#?}");
    let number = |one: &Value, key: &str| one[key].as_u64().expect("an index");
    for pair in reported.windows(2) {
        let (before, after) = (number(&pair[0], "Index"), number(&pair[1], "Index"));
        assert!(before < after, "{pair:#?}");
    }
    for step in &steps[..2] {
        assert_eq!(step["Actor"]["kind"], "node", "{step:#}");
        assert_eq!(step["Actor"]["id"], placed["NodeID"], "{step:#}");
    }
    assert_eq!(steps[0]["Cause"], created, "{:#}", steps[0]);
    assert_eq!(steps[1]["Cause"], steps[0]["Index"], "{:#}", steps[1]);
    // Its node gives it back, or the watcher, whichever comes first.
    for step in &steps[2..] {
        let kind = step["Actor"]["kind"].as_str().unwrap_or_default();
        assert!(["node", "server"].contains(&kind), "{step:#}");
        let cause = number(step, "Cause");
        let follows = created < cause && cause < number(step, "Index");
        assert!(follows, "{step:#}");
    }
    is_shown_so(session, &reported);
}

/// The same is printed for people, one line for each event, in the same order.
fn is_shown_so(session: &Session, reported: &[Value]) {
    let shown = session.done("volume history -oldest -limit 0 data");
    let mut lines = shown.lines();
    for one in reported {
        let actor = &one["Actor"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let short: String = text(&actor["id"]).chars().take(8).collect();
        let details = [text(&actor["name"]), short, text(&actor["addr"])];
        let detail = details.into_iter().find(|detail| !detail.is_empty());
        let detail = detail.expect("somebody did it");
        let (kind, who) = (text(&one["Kind"]), text(&actor["kind"]));
        let why = match one["Cause"].as_u64() {
            Some(cause) => format!("  because of {cause}"),
            None => String::new(),
        };
        let begins = format!("{:>8}  ", one["Index"].as_u64().expect("an index"));
        let ends = format!("  {kind}  by {who} {detail}{why}");
        let found = lines.any(|line| line.starts_with(&begins) && line.ends_with(&ends));
        assert!(found, "no {begins}...{ends} in this order in\n{shown}");
    }
    assert!(!shown.contains("correct-horse"), "{shown}");
}
