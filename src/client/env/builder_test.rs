use drover_events::model::{AllocatedPortMapping, AllocatedResources, Port, TaskGroup};

use super::*;

struct World {
    node: Node,
    alloc: Allocation,
    job: Job,
    host: BTreeMap<String, String>,
    hooks: BTreeMap<String, String>,
    paths: TaskPaths,
}

impl World {
    fn new() -> Self {
        let task = Task {
            name: "web".into(),
            env: [
                ("GREETING", "hi ${NOMAD_TASK_NAME} on ${node.unique.name}"),
                ("HOME", "/own"),
            ]
            .map(|(k, v)| (k, v.to_owned()))
            .into(),
            meta: [("who-am-i", "${attr.cpu.arch}".to_owned())].into(),
            ..Task::default()
        };
        let group = TaskGroup {
            name: "front".into(),
            tasks: vec![task].into(),
            ..TaskGroup::default()
        };
        let mut given = AllocatedTaskResources::default();
        given.cpu.cpu_shares = 250;
        given.cpu.reserved_cores = vec![0, 1, 3].into();
        given.memory.memory_mb = 64;
        let mut db = AllocatedTaskResources::default();
        db.networks.push(NetworkResource {
            ip: "10.0.0.9".into(),
            dynamic_ports: vec![Port {
                label: "sql".into(),
                value: 5432,
                ..Port::default()
            }]
            .into(),
            ..NetworkResource::default()
        });
        let mut all = AllocatedResources::default();
        all.tasks.insert("web", given);
        all.tasks.insert("db", db);
        all.shared.ports.push(AllocatedPortMapping {
            label: "http-main".into(),
            value: 23456,
            to: 80,
            host_ip: "192.0.2.7".into(),
            ..AllocatedPortMapping::default()
        });
        Self {
            node: Node {
                id: "n-1".into(),
                name: "box".into(),
                datacenter: "dc1".into(),
                attributes: [("cpu.arch", "amd64".to_owned())].into(),
                ..Node::default()
            },
            alloc: Allocation {
                id: "0b156e3e-bb39-cc04".into(),
                namespace: "default".into(),
                name: "shop.front[3]".into(),
                allocated_resources: Some(all),
                ..Allocation::default()
            },
            job: Job {
                id: "shop".into(),
                name: "Shop".into(),
                task_groups: vec![group].into(),
                ..Job::default()
            },
            host: [("HOME", "/home"), ("PATH", "/bin")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            hooks: [("DEVICE".to_owned(), "gpu0".to_owned())].into(),
            paths: TaskPaths {
                alloc: "/a/alloc".into(),
                local: "/a/web/local".into(),
                secrets: "/a/web/secrets".into(),
                root: "/a/web".into(),
            },
        }
    }

    fn env(&self) -> TaskEnv {
        let group = self.job.task_group("front").unwrap();
        TaskEnv::build(&TaskEnvInput {
            node: &self.node,
            region: "global",
            alloc: &self.alloc,
            job: &self.job,
            group,
            task: group.task("web").unwrap(),
            paths: &self.paths,
            host: &self.host,
            hooks: &self.hooks,
        })
    }
}

#[test]
fn mod_19_every_variable_has_its_value() {
    let env = World::new().env();
    let expected = [
        ("DEVICE", "gpu0"),
        ("GREETING", "hi web on box"),
        ("HOME", "/own"),
        ("NOMAD_ADDR_db_sql", "10.0.0.9:5432"),
        ("NOMAD_ADDR_http_main", "192.0.2.7:23456"),
        ("NOMAD_ALLOC_DIR", "/a/alloc"),
        ("NOMAD_ALLOC_ID", "0b156e3e-bb39-cc04"),
        ("NOMAD_ALLOC_INDEX", "3"),
        ("NOMAD_ALLOC_NAME", "shop.front[3]"),
        ("NOMAD_ALLOC_PORT_http_main", "80"),
        ("NOMAD_CPU_CORES", "0-1,3"),
        ("NOMAD_CPU_LIMIT", "250"),
        ("NOMAD_DC", "dc1"),
        ("NOMAD_GROUP_NAME", "front"),
        ("NOMAD_HOST_ADDR_http_main", "192.0.2.7:23456"),
        ("NOMAD_HOST_IP_http_main", "192.0.2.7"),
        ("NOMAD_HOST_PORT_http_main", "23456"),
        ("NOMAD_IP_db_sql", "10.0.0.9"),
        ("NOMAD_IP_http_main", "192.0.2.7"),
        ("NOMAD_JOB_ID", "shop"),
        ("NOMAD_JOB_NAME", "Shop"),
        ("NOMAD_MEMORY_LIMIT", "64"),
        ("NOMAD_META_WHO_AM_I", "amd64"),
        ("NOMAD_META_who_am_i", "amd64"),
        ("NOMAD_NAMESPACE", "default"),
        ("NOMAD_PORT_db_sql", "5432"),
        ("NOMAD_PORT_http_main", "80"),
        ("NOMAD_REGION", "global"),
        ("NOMAD_SECRETS_DIR", "/a/web/secrets"),
        ("NOMAD_SHORT_ALLOC_ID", "0b156e3e"),
        ("NOMAD_TASK_DIR", "/a/web/local"),
        ("NOMAD_TASK_NAME", "web"),
        ("PATH", "/bin"),
    ];
    let expected: BTreeMap<String, String> = expected
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    assert_eq!(env.vars(), &expected);
    let mut child = World::new();
    child.job.parent_id = "cron".into();
    assert_eq!(child.env().vars()["NOMAD_JOB_PARENT_ID"], "cron");
    let mut bounded = World::new();
    let given = bounded.alloc.allocated_resources.as_mut().unwrap();
    given.tasks.get_mut("web").unwrap().memory.memory_max_mb = 128;
    assert_eq!(bounded.env().vars()["NOMAD_MEMORY_MAX_LIMIT"], "128");
    let mut grouped = World::new();
    grouped.node.cgroup_parent = "site.slice".into();
    assert_eq!(grouped.env().vars()["NOMAD_PARENT_CGROUP"], "site.slice");
}

#[test]
fn env_05_driver_configurations_are_interpolated_at_every_depth() {
    let env = World::new().env();
    let value =
        serde_json::json!({"args": ["-p", "${NOMAD_PORT_http_main}", {"x": "${meta.no}"}], "n": 1});
    let expected = serde_json::json!({"args": ["-p", "80", {"x": "${meta.no}"}], "n": 1});
    assert_eq!(env.replace_value(&value), expected);
}

/// What a directory of the client says in its sources, tests left out, by file.
fn sources(dir: &str) -> BTreeMap<String, String> {
    let dir = format!("{}/{dir}", env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.is_file(), "what is in {path:?} is not looked at");
        let name = path.display().to_string();
        if !name.ends_with("_test.rs") {
            all.insert(name, std::fs::read_to_string(path).unwrap());
        }
    }
    all
}

#[test]
fn env_05_the_library_knows_nothing_of_drivers_and_drivers_nothing_of_how_it_is_done() {
    for (file, text) in sources("env") {
        let mut lines = text.lines().map(str::trim_start);
        let found = lines.find(|line| line.starts_with("use ") && line.contains("crate::"));
        assert_eq!(found, None, "{file}");
    }
    // A driver is given a finished environment, and uses the library for nothing but names.
    let drivers = sources("drivers");
    for (file, text) in &drivers {
        assert!(
            !text.contains("NOMAD_"),
            "{file} makes variables of its own"
        );
        for line in text.lines().filter(|line| line.contains("client::env")) {
            let names = line.contains("env::TaskPaths") || line.contains("env::matches");
            assert!(names, "{file}: {line}");
        }
    }
    let is_there = |name: &str| drivers.keys().any(|file| file.ends_with(name));
    assert!(
        ["/mock.rs", "/raw_exec.rs", "/exec.rs"]
            .into_iter()
            .all(is_there)
    );
}
