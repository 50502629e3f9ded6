//! Commands that succeed: node pools, services, evaluations that are requested.

use drover_events::model::{NodePool, ServiceRegistration};
use drover_projections::tables::evals::Evals;
use drover_projections::tables::node_pools::NodePools;
use drover_projections::tables::services::Services;

use super::job::{EvaluateJob, RegisterJob};
use super::node::RegisterNode;
use super::node_pool::{DeleteNodePools, UpsertNodePools};
use super::service::{DeleteService, UpsertServices};
use super::testing::{World, alloc, id, job, node, placed};
use drover_error::Code;

#[test]
fn a_pool_is_made_changed_and_removed() {
    let mut world = World::new();
    let pool = |description: &str| UpsertNodePools {
        node_pools: vec![NodePool {
            name: "gpu".into(),
            description: description.into(),
            ..NodePool::default()
        }],
    };
    world.done(&pool("one"));
    let first = world.row::<NodePools>("gpu").unwrap();
    world.done(&pool("two"));
    let second = world.row::<NodePools>("gpu").unwrap();
    assert_eq!(second.description, "two");
    assert_ne!(first.hash, second.hash);
    assert_eq!(first.create_index, second.create_index);
    let delete = DeleteNodePools {
        names: vec!["gpu".into()],
    };
    world.done(&delete);
    assert!(world.row::<NodePools>("gpu").is_none());
    assert_eq!(world.refusal(&delete).0, Code::NotFound);
}

#[test]
fn a_service_is_registered_and_removed() {
    let mut world = World::new();
    world.done(&RegisterNode {
        node: node(10),
        create_node_pool: true,
    });
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..RegisterJob::default()
    });
    world.given(placed(alloc(40, "web", 10), 2));
    let service = ServiceRegistration {
        id: "_nomad-task-web".into(),
        service_name: "web".into(),
        namespace: "default".into(),
        node_id: id(10),
        job_id: "web".into(),
        alloc_id: id(40),
        ..ServiceRegistration::default()
    };
    world.done(&UpsertServices {
        services: vec![service],
    });
    let key = ("default", "_nomad-task-web");
    assert_eq!(world.row::<Services>(key).unwrap().service_name, "web");
    let delete = DeleteService {
        namespace: "default".into(),
        id: "_nomad-task-web".into(),
    };
    world.done(&delete);
    assert!(world.row::<Services>(key).is_none());
    assert_eq!(world.refusal(&delete).0, Code::NotFound);
}

#[test]
fn a_registration_is_refused_by_the_part_that_is_too_long() {
    type Change = fn(&mut ServiceRegistration, usize);
    let parts: [(&str, usize, Change); 10] = [
        ("the id", 4_096, |s, n| s.id = "x".repeat(n)),
        ("the job", 4_096, |s, n| s.job_id = "x".repeat(n)),
        ("service name", 1_024, |s, n| s.service_name = "x".repeat(n)),
        ("datacenter", 1_024, |s, n| s.datacenter = "x".repeat(n)),
        ("the namespace", 1_024, |s, n| s.namespace = "x".repeat(n)),
        ("the node", 1_024, |s, n| s.node_id = "x".repeat(n)),
        ("the allocation", 1_024, |s, n| s.alloc_id = "x".repeat(n)),
        ("the address", 1_024, |s, n| s.address = "x".repeat(n)),
        ("there are", 1_024, |s, n| {
            s.tags = vec![String::new(); n].into();
        }),
        ("tags are", 64 << 10, |s, n| {
            s.tags = vec!["x".repeat(n)].into();
        }),
    ];
    let world = World::new();
    for (what, most, change) in parts {
        let command = |n: usize| {
            let mut service = ServiceRegistration {
                id: "x".into(),
                namespace: "default".into(),
                ..ServiceRegistration::default()
            };
            change(&mut service, n);
            UpsertServices {
                services: vec![service],
            }
        };
        let (code, text) = world.refusal(&command(most + 1));
        assert_eq!(code, Code::BadRequest, "{what}: {text}");
        assert!(text.contains(what), "{what}: {text}");
        assert!(text.contains(&format!("at most {most}")), "{what}: {text}");
        assert!(world.decide(&command(most)).is_ok(), "{what}");
    }
}

#[test]
fn a_job_is_looked_at_again_when_somebody_asks() {
    let mut world = World::new();
    world.done(&RegisterJob {
        job: job("web"),
        eval_id: id(1),
        ..RegisterJob::default()
    });
    let ask = |job_id: &str| EvaluateJob {
        namespace: "default".into(),
        job_id: job_id.into(),
        force_reschedule: false,
        eval_id: id(2),
    };
    world.done(&ask("web"));
    let made = world.row::<Evals>(&id(2)).unwrap();
    assert_eq!(
        (
            made.status.as_str(),
            made.triggered_by.as_str(),
            made.job_modify_index
        ),
        ("pending", "job-register", 1)
    );
    assert_eq!(world.refusal(&ask("none")).1, "job not found");
}
