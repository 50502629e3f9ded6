use super::{ApiJob, Input, parse};
use serde_json::{Value as Json, json};

fn job(text: &str) -> Json {
    match parse(&Input::server(text)) {
        Ok(job) => job.to_json(),
        Err(problems) => panic!("{problems}"),
    }
}

fn problems(text: &str) -> String {
    parse(&Input::server(text))
        .expect_err("refused")
        .to_string()
}

/// A recorded answer: the body that was sent, and what came back.
fn recorded(text: &str) -> (Json, Json) {
    let mut lines = text.lines();
    lines.next();
    let sent = lines
        .next()
        .and_then(|l| l.strip_prefix("// body: "))
        .expect("a body");
    let answer: String = lines.collect();
    (
        serde_json::from_str(sent).expect("json"),
        serde_json::from_str(&answer).expect("json"),
    )
}

#[test]
fn a_parsed_job_is_what_was_recorded() {
    let (sent, answer) = recorded(include_str!("testdata/parse.json"));
    let mut parsed = parse(&Input::server(sent["JobHCL"].as_str().expect("text"))).expect("parses");
    parsed.canonicalise();
    let got = parsed.to_json();
    assert_eq!(
        got,
        answer,
        "{}",
        serde_json::to_string_pretty(&got).expect("json")
    );
}

#[test]
fn a_registered_job_is_stored_as_was_recorded() {
    let (sent, _) = recorded(include_str!("testdata/job-register.json"));
    let stored: String = include_str!("testdata/job.json").lines().skip(1).collect();
    let mut stored: Json = serde_json::from_str(&stored).expect("json");
    let model = ApiJob::from_json(sent["Job"].clone())
        .expect("reads")
        .into_model()
        .expect("model");
    let bytes = drover_events::gojson::to_vec(&model).expect("json");
    let got: Json = serde_json::from_slice(&bytes).expect("json");
    for key in [
        "SubmitTime",
        "CreateIndex",
        "ModifyIndex",
        "JobModifyIndex",
        "Status",
        "NodePool",
    ] {
        stored[key] = got[key].clone();
    }
    assert_eq!(
        got,
        stored,
        "{}",
        serde_json::to_string_pretty(&got).expect("json")
    );
}

/// What the official client's types have, and no more; the rest is the server's to fill in.
#[test]
fn a_parsed_job_has_the_fields_that_clients_have() {
    let text = r#"
job "web" {
  group "g" {
    network {
      port "http" {}
      port "other" { host_network = "lan" }
    }
    service {
      provider = "nomad"
      port     = "http"
      check {
        type     = "tcp"
        interval = "10s"
        timeout  = "2s"
      }
    }
    task "t" { driver = "raw_exec" }
  }
}"#;
    let mut job = parse(&Input::server(text)).expect("parses");
    job.canonicalise();
    let shown = job.to_json();
    let group = &shown["TaskGroups"][0];
    let service = group["Services"][0].as_object().expect("a service");
    assert_eq!(service["Name"], "web-g");
    assert!(!service.contains_key("Id") && !service.contains_key("Namespace"));
    let check = service["Checks"][0].as_object().expect("a check");
    assert!(!check.contains_key("Id"));
    let hosts = |group: &Json| {
        let ports = group["Networks"][0]["DynamicPorts"].as_array().cloned();
        let ports = ports.expect("ports").into_iter();
        ports
            .map(|port| port["HostNetwork"].clone())
            .collect::<Json>()
    };
    assert_eq!(hosts(group), serde_json::json!(["", "lan"]));
    let model = ApiJob::from_json(shown).expect("reads");
    assert!(model.unknown().is_empty(), "{:?}", model.unknown());
    let bytes = drover_events::gojson::to_vec(&model.into_model().expect("model"));
    let stored: Json = serde_json::from_slice(&bytes.expect("json")).expect("json");
    let group = &stored["TaskGroups"][0];
    assert_eq!(group["Services"][0]["Namespace"], "default");
    assert_eq!(hosts(group), serde_json::json!(["default", "lan"]));
    // And what a server shows is read again without a word.
    let again = ApiJob::from_json(stored).expect("reads");
    assert!(again.unknown().is_empty(), "{:?}", again.unknown());
}

#[test]
fn a_field_that_no_job_keeps_is_named_where_it_says_something() {
    let text = "job \"x\" {\n group \"g\" {\n service {\n check {\n advertise = \"a\"\n }\n \
                check {\n advertise = \"\"\n }\n }\n }\n}\n";
    let shown = parse(&Input::server(text)).expect("parses").to_json();
    let sent = ApiJob::from_json(shown).expect("reads");
    let path = "Job.TaskGroups[0].Services[0].Checks[0].Advertise";
    assert_eq!(sent.unknown(), [path]);
}

const SAMPLE: &str = r#"
variable "image" { default = "redis:7" }
variable "count" {
  type    = number
  default = 2
  validation {
    condition     = var.count > 0
    error_message = "The count must be positive."
  }
}
variables { ports = ["db", "admin"] }
locals {
  full = "${local.base}-x"
  base = upper("a")
}
job "web" {
  datacenters = ["dc1"]
  meta { owner = 7, }
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint { distinct_hosts = true }
  constraint { distinct_hosts = false }
  group "g" {
    count = var.count
    network {
      mode = "bridge"
      port "http" { static = 80 }
      dynamic "port" {
        for_each = var.ports
        labels   = [port.value]
        content { to = port.key }
      }
    }
    volume "data" {
      type   = "host"
      source = "d"
    }
    task "t" {
      driver = "docker"
      config {
        image = var.image
        ports = ["http"]
        mount {
          type = "bind"
          n    = 1.5
        }
      }
      env = { A = 1, B = true, C = "${NOMAD_TASK_DIR}/x", D = local.full }
      template {
        destination = "local/x"
        data        = <<-EOH
          hello {{ env "X" }} ${node.unique.id}
            deeper
          EOH
      }
      identity { env = true }
      identity {
        name = "vault"
        aud  = ["v"]
        ttl  = "1h"
      }
      resources {
        cpu = 500
        device "nvidia/gpu" {}
      }
      kill_timeout = "20s"
      affinity {
        attribute = "${meta.x}"
        regexp    = "a.*"
        weight    = -20
      }
    }
  }
}
"#;

#[test]
fn a_specification_with_everything() {
    let text = SAMPLE.replace("meta { owner = 7, }", "meta { owner = 7 }");
    let job = job(&text);
    assert_eq!(job["Meta"], json!({"owner": "7"}));
    assert_eq!(
        job["Constraints"],
        json!([
            {"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="},
            {"LTarget": "", "RTarget": "true", "Operand": "distinct_hosts"},
        ])
    );
    let group = &job["TaskGroups"][0];
    assert_eq!(group["Count"], 2);
    assert_eq!(group["Networks"][0]["ReservedPorts"][0]["Value"], 80);
    let labels: Vec<_> = group["Networks"][0]["DynamicPorts"]
        .as_array()
        .expect("list")
        .iter()
        .map(|p| (p["Label"].clone(), p["To"].clone()))
        .collect();
    assert_eq!(
        labels,
        [(json!("db"), json!(0)), (json!("admin"), json!(1))]
    );
    assert_eq!(group["Volumes"]["data"]["Name"], "data");
    let task = &group["Tasks"][0];
    assert_eq!(
        task["Config"],
        json!({"image": "redis:7", "ports": ["http"], "mount": [{"type": "bind", "n": 1.5}]})
    );
    assert_eq!(
        task["Env"],
        json!({"A": "1", "B": "true", "C": "${NOMAD_TASK_DIR}/x", "D": "A-x"})
    );
    assert_eq!(
        task["Templates"][0]["EmbeddedTmpl"],
        "hello {{ env \"X\" }} ${node.unique.id}\n  deeper\n"
    );
    assert_eq!(task["Identity"]["Env"], true);
    assert_eq!(task["Identities"][0]["TTL"], 3_600_000_000_000_i64);
    assert_eq!(task["Resources"]["Devices"][0]["Name"], "nvidia/gpu");
    assert_eq!(task["KillTimeout"], 20_000_000_000_i64);
    assert_eq!(task["Affinities"][0]["Operand"], "regexp");
    assert_eq!(task["Affinities"][0]["Weight"], -20);
}

#[test]
fn job_07_mount_options_of_a_volume_are_read_as_they_stand_there() {
    let text = r#"
job "x" {
  group "g" {
    volume "v" {
      type   = "csi"
      source = "d"
      mount_options {
        fs_type     = "xfs"
        mount_flags = ["nosuid", "noatime"]
      }
    }
    task "t" { driver = "raw_exec" }
  }
}"#;
    let wanted = json!({"FSType": "xfs", "MountFlags": ["nosuid", "noatime"]});
    let shown = job(text);
    let group = &shown["TaskGroups"][0];
    assert_eq!(group["Volumes"]["v"]["MountOptions"], wanted);
    // And so it is stored.
    let model = ApiJob::from_json(shown).expect("reads").into_model();
    let bytes = drover_events::gojson::to_vec(&model.expect("model")).expect("json");
    let stored: Json = serde_json::from_slice(&bytes).expect("json");
    let group = &stored["TaskGroups"][0];
    assert_eq!(group["Volumes"]["v"]["MountOptions"], wanted);
}

#[test]
fn every_problem_is_reported_with_its_place() {
    let text = "job \"x\" \
        {\n  regoin = \"a\"\n  priority = \"high\"\n  grup \"g\" {}\n  group \"g\" \
            {\n    shutdown_delay = \"1x\"\n    \
                count = 1 / 0\n    restart {}\n    restart {}\n    scaling {}\n  }\n}\n";
    let found = problems(text);
    for part in [
        "input.hcl:2,3-9: Unsupported argument; An argument named \"regoin\" is not expected \
            here. Did you mean \"region\"?",
        "input.hcl:3,14-20: Incorrect attribute value type; Inappropriate value for attribute \
            \"priority\": a number is required.",
        "input.hcl:4,3-11: Unsupported block type; Blocks of type \"grup\" are not expected here. \
            Did you mean \"group\"?",
        "input.hcl:6,22-26: Unsuitable duration value; time: unknown unit \"x\" in duration \"1x\"",
        "Division by zero; Cannot divide by zero.",
        "input.hcl:9,5-12: Duplicate restart block; Only one restart block is allowed.",
        "Missing required argument; The argument \"max\" is required",
    ] {
        assert!(found.contains(part), "{part}\nis missing in\n{found}");
    }
    assert_eq!(found.lines().count(), 7, "{found}");
}

/// A job whose task has these blocks.
fn of_task(blocks: &str) -> String {
    format!(
        "job \"web\" {{\n  group \"g\" {{\n    task \"t\" {{\n driver = \"raw_exec\"\n{blocks}\n\
         }}\n  }}\n}}\n"
    )
}

#[test]
fn what_scales_a_task_has_the_type_that_its_label_says() {
    let good = "scaling \"cpu\" {\n min = 100\n max = 900\n policy {\n cooldown = \"1m\"\n }\n }\n\
                scaling \"mem\" {\n enabled = false\n max = 64\n type = \"vertical_mem\"\n }";
    let (shown, one) = (job(&of_task(good)), "scaling \"cpu\" {\n max = 1\n }\n");
    let task = &shown["TaskGroups"][0]["Tasks"][0];
    let [cpu, memory] = &task["ScalingPolicies"].as_array().expect("policies")[..] else {
        panic!("two of them: {task}");
    };
    for (policy, name, wanted) in [
        (cpu, "Type", json!("vertical_cpu")),
        (cpu, "Min", json!(100)),
        (cpu, "Max", json!(900)),
        (cpu, "Policy", json!({"cooldown": "1m"})),
        (memory, "Type", json!("vertical_mem")),
        (memory, "Max", json!(64)),
        (memory, "Enabled", json!(false)),
    ] {
        assert_eq!(policy[name], wanted, "{name}: {task}");
        assert!(policy.get("@Label").is_none(), "{task}");
    }
    for (blocks, wanted) in [
        (
            "scaling \"disk\" {\n max = 1\n }".to_owned(),
            "Invalid scaling policy name; scaling policy name must be \"cpu\" or \"mem\"",
        ),
        (
            one.repeat(2),
            "Duplicate scaling \"cpu\" block; Only one scaling \"cpu\" block is allowed.",
        ),
        (
            "scaling \"mem\" {\n max = 1\n type = \"vertical_cpu\"\n }".to_owned(),
            "Invalid scaling policy type; Invalid policy type, expected \"vertical_mem\" but found \
             \"vertical_cpu\"",
        ),
    ] {
        let found = problems(&of_task(&blocks));
        assert!(found.trim_end().ends_with(wanted), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}

fn with_variables(
    flags: &[(&str, &str)],
    files: &[(&str, &str)],
    env: &[(&str, &str)],
) -> Result<Json, String> {
    let own = |list: &[(&str, &str)]| {
        list.iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect::<Vec<_>>()
    };
    let text = "variable \"a\" { default = \"d\" }\nvariable \"n\" \
        {\n type = list(number)\n default = []\n \
                validation {\n condition = length(var.n) < 3\n error_message = \"Too many.\"\n \
                    }\n}\n\
                job \"x\" {\n meta {\n a = var.a\n n = jsonencode(var.n)\n }\n}\n";
    let input = Input {
        flags: own(flags),
        files: own(files),
        env: own(env),
        ..Input::server(text)
    };
    parse(&input)
        .map(|j| j.to_json()["Meta"].clone())
        .map_err(|e| e.to_string())
}

#[test]
fn variables_come_from_many_places() {
    let value = |f, v, e| with_variables(f, v, e).expect("parses")["a"].clone();
    assert_eq!(value(&[], &[], &[]), "d");
    assert_eq!(value(&[], &[], &[("a", "env"), ("other", "x")]), "env");
    assert_eq!(
        value(&[], &[("f.hcl", "a = \"file\"\n")], &[("a", "env")]),
        "file"
    );
    assert_eq!(
        value(&[], &[("f.json", "{\"a\": \"json\"}")], &[("a", "env")]),
        "json"
    );
    assert_eq!(
        value(
            &[("a", "1"), ("a", "flag")],
            &[("f.hcl", "a = \"file\"\n")],
            &[]
        ),
        "flag"
    );
    assert_eq!(
        with_variables(&[("n", "[1, 2]")], &[], &[]).expect("parses")["n"],
        "[1,2]"
    );
    for (flags, files, part) in [
        (
            &[("n", "[1,2,3]")][..],
            &[][..],
            "Invalid value for -var variable; Too many.",
        ),
        (
            &[("n", "x y")],
            &[],
            "Invalid argument value for -var variable",
        ),
        (&[("q", "1")], &[], "Undefined -var variable"),
        (
            &[],
            &[("f.hcl", "q = 1\n")][..],
            "f.hcl:1,1-2: Undefined variable",
        ),
        (
            &[],
            &[("f.hcl", "variable \"q\" {}\n")],
            "Variable declaration in a .var file",
        ),
        (
            &[],
            &[("f.hcl", "n = [\"x\"]\n")],
            "Invalid value for variable",
        ),
    ] {
        let found = with_variables(flags, files, &[]).expect_err("refused");
        assert!(found.contains(part), "{part}\nis missing in\n{found}");
    }
}

#[test]
fn the_json_form_gives_the_same_job() {
    let native = job("variable \"n\" { default = 3 }\njob \"x\" \
            {\n type = \"batch\"\n meta { k = \"v${var.n}\" }\n group \"g\" {\n count = 2\n \
                      network {\n port \"p\" {}\n }\n task \"t\" {\n driver = \"raw_exec\"\n \
                          config { command = \"c\" }\n }\n }\n}\n");
    let json = job(
        r#"{"variable": {"n": {"default": 3}}, "job": {"x": {"type": "batch",
        "meta": {"k": "v${var.n}"},
        "group": [{"g": {"count": 2, "network": {"port": {"p": {}}},
        "task": {"t": {"driver": "raw_exec", "config": {"command": "c"}}}}}]}}}"#,
    );
    assert_eq!(native, json);
}

#[test]
fn job_level_parts_are_handed_down() {
    let job = job(
        "job \"x\" {\n vault { role = \"r\" }\n task \"one\" { driver = \"exec\" }\n\
             group \"g\" {\n task \"two\" {\n driver = \"exec\"\n vault {}\n }\n }\n}\n",
    );
    assert_eq!(job["TaskGroups"][0]["Name"], "one");
    assert_eq!(job["TaskGroups"][0]["Tasks"][0]["Vault"]["Role"], "r");
    assert_eq!(job["TaskGroups"][1]["Tasks"][0]["Vault"]["Role"], "");
}

#[test]
fn hostile_texts_end_soon_and_clearly() {
    let start = std::time::Instant::now();
    let deep = format!(
        "job \"x\" {{\n meta {{ a = {}1{} }}\n}}\n",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let blocks = "a {\n".repeat(20_000);
    let parens = format!("x = {}", "(".repeat(100_000));
    let chain = format!("x = 1{}\n", " + 1".repeat(100_000));
    let interpolations = format!("x = \"{}\"\n", "${\"".repeat(50_000));
    let conditions = format!("x = {}1\n", "true ? 1 : ".repeat(50_000));
    let many: String = (0..30_000)
        .map(|n| format!(" l{n} = local.l{}\n", n + 1))
        .collect();
    let doubling: String = (1..64)
        .map(|n| format!(" l{n} = \"${{local.l{}}}${{local.l{}}}\"\n", n - 1, n - 1))
        .collect();
    let nested = "locals \
        {\n a = [for a in range(1000): [for b in range(1000): [for c in range(1000): a]]]\n}\n";
    for text in [
        deep,
        blocks,
        parens,
        chain,
        interpolations,
        conditions,
        format!("locals {{\n{many} l30000 = local.l0\n}}\njob \"x\" {{}}\n"),
        format!("locals {{\n l0 = \"aaaaaaaa\"\n{doubling}}}\njob \"x\" {{}}\n"),
        format!("{nested}job \"x\" {{}}\n"),
        format!("job \"x\" {{ priority = 1{} }}\n", "[*]".repeat(50_000)),
        format!("locals {{ a = [1] }}\nx = local.a{}\n", ".*".repeat(50_000)),
        "job \"x\" {\n dynamic \"group\" {\n for_each = range(1024)\n \
         labels = [\"g${group.key}\"]\n\
         content {\n dynamic \"task\" {\n for_each = range(1024)\n labels = [\"t${task.key}\"]\n\
         content {\n driver = \"raw_exec\"\n }\n }\n }\n }\n}\n"
            .to_owned(),
        "\u{0}\u{1}".repeat(1000),
        format!("job \"x\" {{\n priority = {}\n}}\n", "9".repeat(400)),
        "job \"x\" {\n priority = 9223372036854775808\n}\n".to_owned(),
        "x".repeat(10 << 20),
        format!("{{\"job\": {}", "[".repeat(100_000)),
    ] {
        let found = problems(&text);
        assert!(
            !found.is_empty() && found.len() < 20_000,
            "{}",
            &found[..found.len().min(200)]
        );
    }
    assert!(start.elapsed() < drover_testkit::LONG, "it takes long");
}

#[test]
fn an_indented_heredoc_is_cut_within_directives_too() {
    let text = [
        "job \"a\" {\n  meta {\n    x = <<-EOT",
        "      a",
        "        %{ for d in [1, 2] ~}",
        "        d=${d}",
        "        %{ endfor ~}",
        "      b",
        "    EOT\n  }\n}\n",
    ];
    let text = &text.join("\n");
    assert_eq!(job(text)["Meta"]["x"], "a\n    d=1\n    d=2\n  b\n");
}

#[test]
fn one_budget_holds_for_all_of_a_specification() {
    let big = "x".repeat(1 << 20);
    // Each template gives little and builds much on the way.
    let meta: String = (0..50)
        .map(|n| format!("\"k{n}\": \"${{length(split(\\\"\\\", var.big))}}\","))
        .collect();
    let json = format!(
        "{{\"variable\": {{\"big\": {{\"default\": \"{big}\"}}}}, \
          \"job\": {{\"a\": {{\"meta\": {{{meta} \"z\": \"\"}}}}}}}}"
    );
    let hcl = |value: &str| {
        format!("variable \"big\" {{ default = \"{big}\" }}\njob \"a\" {{\n{value}\n}}\n")
    };
    let splits: String = (0..50)
        .map(|n| format!("k{n} = length(split(\"\", var.big))\n"))
        .collect();
    let doubled: String = (1..40)
        .map(|n| format!("l{n} = [local.l{}, local.l{}]\n", n - 1, n - 1))
        .collect();
    for (what, text) in [
        ("templates of the JSON form", json),
        ("calls", hcl(&format!("meta {{\n{splits}}}"))),
        (
            "a call that is tried",
            hcl("meta { a = try([for n in range(100) : split(\"\", var.big)], \"b\") }"),
        ),
        (
            "a product of long texts",
            hcl("meta { a = length(setproduct([for n in range(200) : var.big], range(200))) }"),
        ),
        (
            "locals of locals",
            format!(
                "locals {{\n l0 = \"x\"\n{doubled}}}\njob \"a\" {{ name = length(local.l39) }}\n"
            ),
        ),
        (
            "a template in rounds",
            hcl(
                "meta { a = \"%{ for a in range(1000) }%{ for b in range(1000) }${var.big}\
                 %{ endfor }%{ endfor }\" }",
            ),
        ),
        (
            "rounds that do nothing",
            hcl(
                "meta { a = length([for a in range(1000) : [for b in range(1000) : \
                 [for c in range(1000) : c if false]]]) }",
            ),
        ),
    ] {
        let refused = parse(&Input::server(&text)).expect_err(what).to_string();
        assert!(
            refused.contains("Evaluating this "),
            "{what}: {refused:.300}"
        );
    }
}
