//! Which registrations and checks follow from an allocation.

use std::collections::{BTreeMap, BTreeSet};

use drover_events::gojson::List;
use drover_events::model::{
    AllocatedPortMapping, Allocation, Job, Node, Service, ServiceCheck, ServiceRegistration, Task,
    TaskGroup,
};
use sha2::{Digest, Sha256};

use crate::env::{TaskEnv, TaskEnvInput, TaskPaths};

/// The provider whose registry is the cluster itself.
const PROVIDER: &str = "nomad";
/// Checks that say nothing about health.
const IGNORE: &str = "ignore";

/// A service that should be registered, with its checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered {
    /// As it is reported to the servers.
    pub registration: ServiceRegistration,
    /// What is looked at on this machine.
    pub checks: Vec<Probe>,
}

/// One check of one service, ready to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The same over restarts of the agent.
    pub id: String,
    pub service: String,
    /// The task it belongs to; empty for those of groups.
    pub task: String,
    /// `job.group[index]`, as results are shown.
    pub group: String,
    /// The host to connect to.
    pub host: String,
    /// And on which port.
    pub port: i64,
    /// Texts replaced.
    pub check: ServiceCheck,
}

impl Probe {
    /// Whether the allocation's health depends on it.
    pub fn counts(&self) -> bool {
        self.check.on_update != IGNORE
    }
}

/// What the description is made from.
pub struct DescriptionSource<'a> {
    /// The allocation, with its job.
    pub alloc: &'a Allocation,
    pub node: &'a Node,
    /// The agent's region.
    pub region: &'a str,
}

/// How many checks the health of a group depends on.
pub fn expected_checks(group: &TaskGroup) -> usize {
    let own = group
        .services
        .iter()
        .chain(group.tasks.iter().flat_map(|task| task.services.iter()));
    own.filter(|service| service.provider == PROVIDER)
        .flat_map(|service| service.checks.iter())
        .filter(|check| check.on_update != IGNORE)
        .count()
}

/// The services to be registered while the tasks `up` run: those of the group, and theirs.
pub fn offered(source: &DescriptionSource<'_>, up: &BTreeSet<String>) -> Vec<Offered> {
    let (Some(job), Some(group)) = (source.alloc.job.as_deref(), source.alloc.group()) else {
        return Vec::new();
    };
    let nobody = Task::default();
    let of_group = group.services.iter().map(|s| (s, &nobody));
    let of_tasks = group
        .tasks
        .iter()
        .filter(|task| up.contains(&task.name))
        .flat_map(|task| task.services.iter().map(move |s| (s, task)));
    let all = of_group.chain(of_tasks);
    all.filter(|(service, _)| service.provider == PROVIDER)
        .map(|(service, task)| one(source, job, group, task, service))
        .collect()
}

fn one(
    source: &DescriptionSource<'_>,
    job: &Job,
    group: &TaskGroup,
    task: &Task,
    service: &Service,
) -> Offered {
    let alloc = source.alloc;
    let env = env(source, job, group, task);
    let name = env.replace(&service.name);
    let label = env.replace(&service.port_label);
    let owner = match task.name.as_str() {
        "" => format!("group-{}", group.name),
        task => task.to_owned(),
    };
    let (mut host, port) = place(source, &label, &service.address_mode);
    if !service.address.is_empty() {
        host = env.replace(&service.address);
    }
    let tags = match alloc.is_canary() && !service.canary_tags.is_empty() {
        true => &service.canary_tags,
        false => &service.tags,
    };
    let registration = ServiceRegistration {
        id: format!("_nomad-task-{}-{owner}-{name}-{label}", alloc.id),
        service_name: name.clone(),
        namespace: alloc.namespace.clone(),
        node_id: source.node.id.clone(),
        datacenter: source.node.datacenter.clone(),
        job_id: alloc.job_id.clone(),
        alloc_id: alloc.id.clone(),
        tags: tags
            .iter()
            .map(|t| env.replace(t))
            .collect::<Vec<_>>()
            .into(),
        address: host.clone(),
        port,
        ..ServiceRegistration::default()
    };
    let probe = |check: &ServiceCheck| {
        let check = replaced(&env, check);
        let (at, on) = match check.port_label.is_empty() {
            true => (host.clone(), port),
            false => place(source, &check.port_label, &check.address_mode),
        };
        Probe {
            id: check_id(&[&alloc.id, &owner, &name, &check.name]),
            service: name.clone(),
            task: task.name.clone(),
            group: alloc.name.clone(),
            host: at,
            port: on,
            check,
        }
    };
    Offered {
        checks: service.checks.iter().map(probe).collect(),
        registration,
    }
}

/// What `${…}` in a service's texts is replaced with.
fn env(source: &DescriptionSource<'_>, job: &Job, group: &TaskGroup, task: &Task) -> TaskEnv {
    let nothing = BTreeMap::new();
    TaskEnv::build(&TaskEnvInput {
        node: source.node,
        region: source.region,
        alloc: source.alloc,
        job,
        group,
        task,
        paths: &TaskPaths::default(),
        host: &nothing,
        hooks: &nothing,
    })
}

fn replaced(env: &TaskEnv, check: &ServiceCheck) -> ServiceCheck {
    let mut check = check.clone();
    for text in [
        &mut check.name,
        &mut check.path,
        &mut check.protocol,
        &mut check.port_label,
        &mut check.method,
        &mut check.body,
    ] {
        *text = env.replace(text);
    }
    check.header = check
        .header
        .iter()
        .map(|(name, values)| {
            let new: List<String> = values.iter().map(|v| env.replace(v)).collect();
            (name.clone(), new)
        })
        .collect();
    check
}

fn check_id(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(&hash.finalize()[..16])
}

/// Host and port for a label, a number, or nothing.
fn place(source: &DescriptionSource<'_>, label: &str, mode: &str) -> (String, i64) {
    let inner = matches!(mode, "alloc" | "driver");
    if let Some(port) = ports(source.alloc).into_iter().find(|p| p.label == label) {
        let number = if inner && port.to > 0 {
            port.to
        } else {
            port.value
        };
        return (port.host_ip, number);
    }
    (any_address(source), label.parse().unwrap_or(0))
}

/// The ports of the allocation, those of old task networks included.
fn ports(alloc: &Allocation) -> Vec<AllocatedPortMapping> {
    let Some(all) = &alloc.allocated_resources else {
        return Vec::new();
    };
    let mut out: Vec<AllocatedPortMapping> = all.shared.ports.iter().cloned().collect();
    let networks = all
        .tasks
        .values()
        .flat_map(|t| t.networks.iter())
        .chain(all.shared.networks.iter());
    for network in networks {
        let both = network
            .reserved_ports
            .iter()
            .chain(network.dynamic_ports.iter());
        out.extend(both.map(|port| AllocatedPortMapping {
            label: port.label.clone(),
            value: port.value,
            to: port.to,
            host_ip: network.ip.clone(),
            ..AllocatedPortMapping::default()
        }));
    }
    out
}

fn any_address(source: &DescriptionSource<'_>) -> String {
    let given = ports(source.alloc).into_iter().next().map(|p| p.host_ip);
    given
        .or_else(|| {
            source
                .node
                .attributes
                .get("unique.network.ip-address")
                .cloned()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_events::model::{AllocatedResources, AllocatedSharedResources};

    use super::*;

    fn service(name: &str, label: &str) -> Service {
        Service {
            name: name.into(),
            port_label: label.into(),
            provider: PROVIDER.into(),
            tags: vec!["v-${node.class}".to_owned()].into(),
            canary_tags: vec!["canary".to_owned()].into(),
            checks: vec![ServiceCheck {
                name: "alive".into(),
                r#type: "tcp".into(),
                ..ServiceCheck::default()
            }]
            .into(),
            ..Service::default()
        }
    }

    fn alloc() -> Allocation {
        let mut by_consul = service("other", "http");
        by_consul.provider = "consul".into();
        let group = TaskGroup {
            name: "g".into(),
            services: vec![service("${NOMAD_JOB_ID}-web", "http"), by_consul].into(),
            tasks: vec![Task {
                name: "t".into(),
                services: vec![service("adm", "9000")].into(),
                ..Task::default()
            }]
            .into(),
            ..TaskGroup::default()
        };
        let job = Job {
            id: "j".into(),
            task_groups: vec![group].into(),
            ..Job::default()
        };
        let port = AllocatedPortMapping {
            label: "http".into(),
            value: 20_000,
            to: 80,
            host_ip: "10.0.0.1".into(),
            ..AllocatedPortMapping::default()
        };
        Allocation {
            id: "a".into(),
            namespace: "default".into(),
            job_id: "j".into(),
            task_group: "g".into(),
            job: Some(Arc::new(job)),
            allocated_resources: Some(AllocatedResources {
                shared: AllocatedSharedResources {
                    ports: vec![port].into(),
                    ..AllocatedSharedResources::default()
                },
                ..AllocatedResources::default()
            }),
            ..Allocation::default()
        }
    }

    fn given(up: &[&str]) -> Vec<Offered> {
        given_by(&alloc(), up)
    }

    fn given_by(alloc: &Allocation, up: &[&str]) -> Vec<Offered> {
        let node = Node {
            id: "n".into(),
            node_class: "big".into(),
            ..Node::default()
        };
        let source = DescriptionSource {
            alloc,
            node: &node,
            region: "global",
        };
        offered(&source, &up.iter().map(|t| (*t).to_owned()).collect())
    }

    #[test]
    fn a_canary_has_tags_of_its_own_where_there_are_any() {
        let tags = |canary: bool, own: &[&str]| {
            let mut alloc = alloc();
            alloc.deployment_status = Some(drover_events::model::AllocDeploymentStatus {
                canary,
                ..Default::default()
            });
            let job = Arc::get_mut(alloc.job.as_mut().expect("a job")).expect("its own");
            let own: Vec<String> = own.iter().map(|tag| (*tag).to_owned()).collect();
            job.task_groups[0].services[0].canary_tags = own.into();
            given_by(&alloc, &[])[0].registration.tags.to_vec()
        };
        assert_eq!(tags(true, &["canary"]), ["canary"]);
        assert_eq!(tags(true, &[]), ["v-big"]);
        assert_eq!(tags(false, &["canary"]), ["v-big"]);
    }

    #[test]
    fn a_groups_services_are_offered_and_those_of_tasks_that_run() {
        let [web] = &given(&[])[..] else {
            panic!("one service")
        };
        let reported = &web.registration;
        assert_eq!(reported.id, "_nomad-task-a-group-g-j-web-http");
        assert_eq!(
            (reported.service_name.as_str(), reported.port),
            ("j-web", 20_000)
        );
        assert_eq!(reported.address, "10.0.0.1");
        assert_eq!(*reported.tags, ["v-big"]);
        let probe = &web.checks[0];
        assert_eq!((probe.host.as_str(), probe.port), ("10.0.0.1", 20_000));

        let both = given(&["t"]);
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].registration.id, "_nomad-task-a-t-adm-9000");
        assert_eq!(both[1].registration.port, 9000);
        assert_ne!(both[0].checks[0].id, both[1].checks[0].id);
        assert_eq!(expected_checks(alloc().group().expect("a group")), 2);
    }
}
