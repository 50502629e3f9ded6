//! Smaller points of the contract that clients met, each by the sentence it is reported in.

use serde_json::{Value, json};

use super::harness::{Harness, Reply, job};

async fn put(h: &Harness, target: &str, body: Value) -> (u16, String) {
    let reply: Reply = h.put(target, &body).await;
    (reply.status, reply.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_names_the_evaluations_it_would_create_and_what_changed_only() {
    let h = Harness::start().await;
    h.register("web").await;
    let mut changed = job("web");
    changed["Job"]["TaskGroups"][0]["Count"] = json!(3);
    changed["Job"]["TaskGroups"][0]["Tasks"][0]["Resources"]["CPU"] = json!(30);
    changed["Diff"] = json!(true);
    let plan = h.put("/v1/job/web/plan", &changed).await.json();
    // There is no node: what cannot be placed waits in a blocked evaluation.
    let created = plan["CreatedEvals"].as_array().expect("evaluations");
    assert_eq!(created[0]["Status"], "blocked", "{plan}");
    assert_eq!(created[0]["JobID"], "web");
    let diff = &plan["Diff"];
    assert_eq!(diff["Fields"], Value::Null, "nothing of the job itself");
    let group = &diff["TaskGroups"][0];
    assert_eq!(group["Fields"].as_array().expect("fields").len(), 1);
    assert_eq!(group["Fields"][0]["Name"], "Count");
    assert_eq!(group["Tasks"][0]["Fields"], Value::Null);
    let resources = &group["Tasks"][0]["Objects"][0];
    assert_eq!(resources["Name"], "Resources");
    h.put("/v1/jobs", &changed).await;
    let versions = h.get("/v1/job/web/versions?diffs=true").await.json();
    let reported = &versions["Diffs"][0];
    assert_eq!(reported["Fields"], Value::Null, "{reported}");
    assert_eq!(reported["TaskGroups"][0]["Fields"][0]["New"], "3");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_tables_nobody_wrote_have_index_0() {
    let h = Harness::start().await;
    for target in [
        "/v1/deployments",
        "/v1/allocations",
        "/v1/nodes",
        "/v1/services",
        "/v1/jobs",
        "/v1/vars",
        "/v1/volumes",
    ] {
        let reply = h.get(target).await;
        assert_eq!(
            (reply.text().as_str(), reply.index()),
            ("[]", 0),
            "{target}"
        );
    }
    assert!(h.get("/v1/scaling/policies").await.index() >= 1);
    assert!(h.get("/v1/namespaces").await.index() > 0);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_says_what_it_lacks_and_answers_its_meta() {
    let h = Harness::start().await;
    // Without a deployment, which would hold a scaling up.
    let mut batch = job("web");
    batch["Job"]["Type"] = json!("batch");
    assert_eq!(h.put("/v1/jobs", &batch).await.status, 200);
    let target = "/v1/job/web/scale";
    for (body, text) in [
        (
            json!({"Count": 1, "Target": {}}),
            "missing task group name for scaling action",
        ),
        (
            json!({"Count": 1, "Target": {"Group": "g", "Job": "other"}}),
            "job ID in payload did not match URL",
        ),
        (
            json!({"Count": 1, "Target": {"Group": "g", "Namespace": "other"}}),
            "namespace in payload did not match header",
        ),
        (
            json!({"Count": -1, "Target": {"Group": "g"}}),
            "scaling action count can't be negative",
        ),
        (
            json!({"Count": 1, "Error": true, "Target": {"Group": "g"}}),
            "scaling action should not contain count if error is true",
        ),
    ] {
        assert_eq!(put(&h, target, body).await, (400, text.to_owned()));
    }
    let none = put(&h, "/v1/job//scale", json!({"Target": {"Group": "g"}})).await;
    assert_eq!(none, (400, "missing job ID for scaling action".to_owned()));
    let body = json!({"Count": 2, "Target": {"Group": "g"}});
    let done = h.put(target, &body).await.json();
    assert_eq!(done["KnownLeader"], true, "{done}");
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validation_answers_with_all_its_errors_and_knows_the_cluster() {
    let h = Harness::start().await;
    let mut bad = job("web");
    bad["Job"]["ID"] = json!("");
    bad["Job"]["Name"] = json!("");
    bad["Job"]["Namespace"] = json!("nowhere");
    bad["Job"]["NodePool"] = json!("dry");
    bad["Job"]["TaskGroups"][0]["Tasks"][0]["Vault"] = json!({"Policies": ["p"]});
    let reply = h.put("/v1/validate/job", &bad).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let errors = reply.json()["ValidationErrors"].to_string();
    for text in [
        "Missing job ID",
        "is in nonexistent namespace \\\"nowhere\\\"",
        "is in nonexistent node pool \\\"dry\\\"",
        "Vault \\\"default\\\" not enabled but used in the job",
    ] {
        assert!(errors.contains(text), "{text}: {errors}");
    }
    let refused = put(&h, "/v1/jobs", bad).await;
    assert_eq!(refused, (400, "Job ID hasn't been provided".to_owned()));

    let mut fine = job("web");
    let group = &mut fine["Job"]["TaskGroups"][0];
    group["Networks"] = json!([{"Mode": "bridge", "DynamicPorts": [{"Label": "api"}]}]);
    group["Services"] = json!([
        {"Name": "api", "Provider": "consul", "PortLabel": "api", "Connect": {"Native": true}},
    ]);
    group["Tasks"][0]["Resources"]["DiskMB"] = json!(300);
    group["Tasks"][0]["Artifacts"] = json!([
        {"GetterSource": "https://x/y", "RelativeDest": "../alloc/data", "GetterMode": "any"},
    ]);
    let gateway = json!({"Name": "edge", "Networks": [{"Mode": "bridge"}], "Services": [
        {"Name": "edge", "Provider": "consul", "PortLabel": "8080",
         "Connect": {"Gateway": {"Proxy": {}, "Ingress": {"Listeners": [
            {"Port": 8080, "Protocol": "tcp", "Services": [{"Name": "api"}]}]}}}},
    ]});
    fine["Job"]["TaskGroups"]
        .as_array_mut()
        .expect("groups")
        .push(gateway);
    let found = h.put("/v1/validate/job", &fine).await.json();
    assert_eq!(found["ValidationErrors"], Value::Null, "{found}");
    let warned = found["Warnings"].as_str().expect("a text");
    for text in [
        "asks for disk, which is ignored",
        "not supported by this version of drover: a registration will be refused",
    ] {
        assert!(warned.contains(text), "{warned}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_shapes_are_what_clients_look_for() {
    let h = Harness::start().await;
    h.register("web").await;
    let one = h.get("/v1/namespace/default").await.json();
    let listed = h.get("/v1/namespaces").await.json();
    assert_eq!(one["Hash"], listed[0]["Hash"]);
    assert_eq!(one["Hash"].as_str().expect("base64").len(), 44);
    put(
        &h,
        "/v1/namespace/default",
        json!({"Name": "default", "Description": "ours"}),
    )
    .await;
    let changed = h.get("/v1/namespace/default").await.json();
    assert_ne!(one["Hash"], changed["Hash"], "it says something else");

    let unknown = h.get("/v1/jobs?filter=Nope==1").await;
    assert_eq!(unknown.status, 400);
    let text = unknown.text();
    assert!(
        text.contains("/Nope at part 0: couldn't find key"),
        "{text}"
    );
    let deep = h.get("/v1/jobs?filter=Status.Deep==1").await.text();
    assert!(deep.contains("/Status/Deep at part 1: "), "{deep}");

    for target in ["/v1/allocations", "/v1/evaluations", "/v1/deployments"] {
        let reply = h.get(&format!("{target}?prefix=nope")).await;
        let text = "index error: Invalid UUID: encoding/hex: invalid byte: U+006E 'n'";
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (500, text),
            "{target}"
        );
    }
    let members = h.get("/v1/agent/members").await.json();
    let member = &members["Members"][0];
    assert_eq!(member["Port"], h.server.config.ports.serf);
    assert_ne!(member["Port"].to_string(), member["Tags"]["port"]);
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ignored_is_named_in_the_answer() {
    let h = Harness::start().await;
    let done = h.put("/v1/jobs?policy_override=true", &job("web")).await;
    assert_eq!(done.header("x-drover-ignored"), "policy_override");
    let warned = done.json()["Warnings"].to_string();
    assert!(warned.contains("policy_override"), "{warned}");
    let gone = h
        .ask("DELETE", "/v1/job/web?global=true&purge=true", "")
        .await;
    assert_eq!(gone.header("x-drover-ignored"), "global");
    for (target, wanted) in [
        ("/v1/jobs?meta=true&prefix=w&per_page=3&reverse=true", ""),
        ("/v1/jobs?pretty&region=global&namespace=*&stale", ""),
        ("/v1/jobs?status=running&job=zz", "status, job"),
        ("/v1/nodes?task=foo&cas=3&purge=true", "task, cas, purge"),
        ("/v1/nodes?resources=true&os=true&filter=ID==x", ""),
        ("/v1/agent/self?index=3&wait=1s", "index, wait"),
        ("/v1/evaluations?x%20y=1&consistent", "x y, consistent"),
        (
            "/v1/job/web/allocations?all=true&filter=ID==x&per_page=2&reverse=true",
            "per_page, reverse",
        ),
        ("/v1/job/web/evaluations?index=1&wait=1ms", ""),
        (
            "/v1/job/web/versions?diffs=true&diff_tag=&filter=x",
            "filter",
        ),
        ("/v1/jobs/statuses?per_page=1&include_children=true", ""),
        ("/v1/audit?type=job&id=web&reverse=true&per_page=1", ""),
        ("/v1/state/diff?from=1&to=2&table=jobs&actor=me", "actor"),
        ("/v1/metrics?format=prometheus&as_of=", ""),
    ] {
        let reply = h.get(target).await;
        let named = reply.header("x-drover-ignored");
        assert!(reply.status < 400 || named.is_empty(), "{target}");
        if reply.status < 400 {
            assert_eq!(named, wanted, "{target}");
        }
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_a_job_that_nobody_reads_are_named() {
    let h = Harness::start().await;
    let mut far = job("web");
    far["Job"]["ConsulNamespace"] = json!("team");
    far["Job"]["VaultNamespace"] = json!("");
    let check = |advertise: &str| {
        json!({"Name": "up", "Type": "tcp", "Interval": 1_000_000_000_u64,
            "Timeout": 1_000_000_000_u64, "Advertise": advertise})
    };
    far["Job"]["TaskGroups"][0]["Services"] = json!([{"Name": "web", "Provider": "nomad",
        "PortLabel": "80", "Checks": [check(""), check("10.0.0.1")]}]);
    far["Job"]["TaskGroups"][0]["Services"][0]["Checks"][0]["Name"] = json!("first");
    let done = h.put("/v1/job/web/plan", &far).await;
    let dropped = "field Job.TaskGroups[0].Services[0].Checks[1].Advertise";
    let kept = "field Job.ConsulNamespace";
    let named = done.header("x-drover-ignored");
    assert_eq!(named, format!("{dropped}, {kept}"), "{}", done.text());
    let warned = done.json()["Warnings"].to_string();
    for part in [dropped, kept] {
        assert!(warned.contains(part), "{warned}");
    }
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_and_headers_that_nothing_acts_on_are_named() {
    let h = Harness::start().await;
    let mut body = job("web");
    body["Job"]["VaultToken"] = json!("v");
    body["Job"]["ConsulToken"] = json!("");
    body["Job"]["TaskGroups"][0]["Tasks"][0]["Colour"] = json!("red");
    body["ConsulToken"] = json!("c");
    body["Diff"] = json!(false);
    let wanted = "field ConsulToken, field Job.TaskGroups[0].Tasks[0].Colour, field Job.VaultToken";
    let request = |method: &str, target: &str, body: &Value| {
        let request = hyper::Request::builder().method(method).uri(target);
        let request = request.header("x-vault-token", "v");
        let request = request.header("x-consul-token", "c");
        let request = request.header("x-nomad-token", "t");
        request.body(body.to_string().into()).unwrap()
    };
    let heads = "header X-Consul-Token, header X-Vault-Token, header X-Nomad-Token, ";
    for target in ["/v1/jobs", "/v1/job/web/plan", "/v1/validate/job"] {
        let done = h.send(request("PUT", target, &body)).await;
        assert_eq!(done.status, 200, "{target}: {}", done.text());
        let named = done.header("x-drover-ignored");
        assert_eq!(named, format!("{heads}{wanted}"), "{target}");
        let warned = done.json()["Warnings"].as_str().unwrap().to_owned();
        for part in [
            "X-Consul-Token",
            "X-Vault-Token",
            "Job.VaultToken",
            "Tasks[0].Colour",
            "field ConsulToken",
        ] {
            assert!(warned.contains(part), "{target}: {warned}");
        }
    }
    // A plan has fewer fields than a registration.
    let mut plan = job("web");
    plan["EnforceIndex"] = json!(true);
    plan["PolicyOverride"] = json!(true);
    let done = h.put("/v1/job/web/plan", &plan).await;
    let named = done.header("x-drover-ignored");
    assert_eq!(named, "field EnforceIndex, field PolicyOverride");
    h.put("/v1/jobs", &{
        let mut other = job("web");
        other["Job"]["Priority"] = json!(51);
        other
    })
    .await;
    let revert = json!({"JobID": "web", "JobVersion": 0, "VaultToken": "v", "ConsulToken": ""});
    let done = h.put("/v1/job/web/revert", &revert).await;
    assert_eq!(done.header("x-drover-ignored"), "field VaultToken");
    let warned = done.json()["Warnings"].to_string();
    assert!(warned.contains("VaultToken"), "{warned}");
    let scale = json!({"Target": {"Group": "g"}, "Message": "x", "PolicyOverride": true});
    let done = h.put("/v1/job/web/scale", &scale).await;
    assert_eq!(
        done.header("x-drover-ignored"),
        "field PolicyOverride",
        "{}",
        done.text()
    );
    // What the server answers may be sent back as it is.
    let shown = h.get("/v1/job/web").await.json();
    let done = h.put("/v1/jobs", &json!({ "Job": shown })).await;
    assert_eq!((done.status, done.header("x-drover-ignored")), (200, ""));
    h.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_nothing_acts_on_are_named_at_any_depth_whatever_the_body_is_of() {
    let h = Harness::start().await;
    let pool = json!({
        "Name": "gpu",
        "Colour": "red",
        "Meta": {"any": "key"},
        "SchedulerConfiguration": {"SchedulerAlgorithm": "spread", "Shade": "dark", "Off": false},
    });
    let done = h.put("/v1/node/pools", &pool).await;
    assert_eq!(
        (done.status, done.header("x-drover-ignored")),
        (200, "field Colour, field SchedulerConfiguration.Shade"),
        "{}",
        done.text()
    );
    let requested =
        json!({"Jobs": [{"ID": "web", "Namespace": "default"}, {"ID": "x", "Tint": 1}]});
    let reported = h
        .ask("POST", "/v1/jobs/statuses", requested.to_string())
        .await;
    assert_eq!(reported.header("x-drover-ignored"), "field Jobs[1].Tint");
    let mut sourced = job("web");
    sourced["Submission"] = json!({"Source": "x", "Format": "hcl2", "Hue": {"a": 1}});
    let done = h.put("/v1/jobs", &sourced).await;
    assert_eq!(done.header("x-drover-ignored"), "field Submission.Hue");
    let warned = done.json()["Warnings"].to_string();
    assert!(warned.contains("Submission.Hue"), "{warned}");
    h.stop().await;
}

/// What `nomad operator snapshot save` writes begins so.
fn backup_of_nomad(first: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut tar = first.as_bytes().to_vec();
    tar.resize(512, 0);
    // Nothing that gets short when it is compressed.
    let noise = (0..4_096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8);
    tar.extend(noise);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&tar).unwrap();
    packed.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_nomad_is_refused_as_one() {
    let h = Harness::start().await;
    h.register("web").await;
    for (first, text) in [
        ("meta.json", "this is a backup of Nomad"),
        ("other", "this is compressed with gzip"),
    ] {
        let body = backup_of_nomad(first);
        let reply = h.ask("PUT", "/v1/operator/snapshot", body).await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains(text), "{}", reply.text());
        assert!(
            reply
                .text()
                .contains("drover restores its own backups only")
        );
    }
    assert_eq!(h.get("/v1/job/web").await.status, 200, "nothing happened");
    h.stop().await;
}
