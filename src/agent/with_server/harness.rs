//! A real server, and clients of it in the same process.

use std::sync::Arc;
use std::time::Duration;

use drover_events::model::{
    Allocation, EphemeralDisk, Job, Resources, RestartPolicy, Task, TaskGroup,
};
use drover_projections::tables::allocs::{self, AllocsByJob};
use drover_projections::{ReadRows, Scan};

use crate::client::agent::Client;
use crate::client::config::ClientSettings;
use crate::client::start;
use crate::commands::job::RegisterJob;
use crate::config::Config;
use crate::endpoints;
use crate::endpoints::testing::Marking;
use crate::proposer::Origin;
use crate::rpc::caller::{Caller, Servers};
use crate::rpc::client::Pool;
use crate::rpc::server::{CallerLimits, RpcServer, serve};
use crate::rpc::service::Dispatch;
use crate::server::Server;
use crate::server::testing::Stopping;

pub(crate) struct World {
    pub(crate) server: Stopping,
    pub(crate) rpc: RpcServer,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_behind(|service| service).await
    }

    /// The same, its methods behind something.
    pub(crate) async fn start_behind(
        front: impl FnOnce(Arc<dyn Dispatch>) -> Arc<dyn Dispatch>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = crate::telemetry::install(Duration::from_secs(10));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::dev();
        // What servers say of themselves replaces what clients were configured with.
        config.ports.rpc = listener.local_addr().unwrap().port();
        let config = Arc::new(config);
        let server = Server::start(config, dir.path(), telemetry).await.unwrap();
        server.wait_ready().await;
        let beat = Box::new(|_: &str| Duration::from_millis(500));
        let service = endpoints::service(server.clone(), beat);
        let service = Arc::new(Marking(Arc::new(service)));
        Self {
            server: Stopping(server),
            rpc: serve(listener, front(service), CallerLimits::default()).unwrap(),
            dir,
        }
    }

    pub(crate) fn client(&self) -> Arc<Client> {
        self.client_of(self.servers())
    }

    /// Where its server is.
    pub(super) fn servers(&self) -> Servers {
        Servers::new(vec![self.rpc.addr().to_string()])
    }

    /// A client that knows these servers.
    pub(super) fn client_of(&self, servers: Servers) -> Arc<Client> {
        self.client_with(servers, |_| ())
    }

    /// The same with other settings.
    pub(super) fn client_with(
        &self,
        servers: Servers,
        change: impl FnOnce(&mut ClientSettings),
    ) -> Arc<Client> {
        let mut settings = ClientSettings {
            alloc_dir: self.dir.path().join("alloc"),
            state_dir: self.dir.path().join("client"),
            datacenter: "dc1".into(),
            name: "node".into(),
            region: "global".into(),
            dev: true,
            ..ClientSettings::default()
        };
        change(&mut settings);
        start::open(settings, |secret| {
            Caller::network(Pool::new(1), servers, secret)
        })
        .unwrap()
    }

    pub(crate) async fn register(
        &self,
        id: &str,
        kind: &str,
        count: i64,
        config: serde_json::Value,
    ) {
        self.register_group(id, kind, group(count, config)).await;
    }

    pub(crate) async fn register_group(&self, id: &str, kind: &str, group: TaskGroup) {
        let job = Job {
            id: id.into(),
            name: id.into(),
            namespace: "default".into(),
            region: "global".into(),
            node_pool: "default".into(),
            priority: 50,
            datacenters: vec!["*".to_owned()].into(),
            r#type: kind.into(),
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let command = RegisterJob {
            job,
            submission: None,
            enforce_index: None,
            preserve_counts: false,
            preserve_resources: false,
            eval_id: uuid::Uuid::new_v4().to_string(),
            eval_priority: 0,
            max_priority: 0,
            names_deployment: false,
            tracked_versions: 0,
            is_long: false,
            override_rejection: false,
        };
        self.server
            .submit(command, Origin::default())
            .await
            .unwrap();
    }
    pub(crate) fn allocs(&self, job: &str) -> Vec<Allocation> {
        let view = self.server.projections.view();
        view.rows_by::<AllocsByJob>(Scan::with_key_prefix::<(String, String)>(("default", job)))
            .map(|row| allocs::get(&view, &row.unwrap().id).unwrap().unwrap())
            .collect()
    }
}

pub(crate) fn group(count: i64, config: serde_json::Value) -> TaskGroup {
    let serde_json::Value::Object(config) = config else {
        panic!("a block")
    };
    let task = Task {
        name: "web".into(),
        driver: "mock_driver".into(),
        config: config.into_iter().collect(),
        kill_timeout: 1_000_000_000,
        ..Task::default()
    };
    let mut task = task;
    task.resources = Some(Resources {
        cpu: 10,
        memory_mb: 10,
        ..Default::default()
    });
    TaskGroup {
        name: "g".into(),
        count,
        tasks: vec![task].into(),
        restart_policy: Some(RestartPolicy {
            mode: "fail".into(),
            ..RestartPolicy::default()
        }),
        ephemeral_disk: Some(EphemeralDisk {
            size_mb: 10,
            ..Default::default()
        }),
        ..TaskGroup::default()
    }
}
