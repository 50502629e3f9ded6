//! Allocations that another deployment takes over as they run.

use drover_events::model::AllocDeploymentStatus;

use super::*;

#[test]
fn health_is_told_to_each_deployment_once() {
    let mut case = Case::new(&[("web", task(Kind::Main))]).begin();
    for (id, canary) in [("first", true), ("second", false)] {
        case.alloc.deployment_status = Some(AllocDeploymentStatus {
            healthy: Some(true),
            ..AllocDeploymentStatus::default()
        });
        let id = id.to_owned();
        case.input(Input::Deployment {
            id: id.clone(),
            canary,
        });
        assert!(case.alloc.follows(&id));
        let shown = case.alloc.deployment_status.clone();
        assert_eq!(shown.map(|shown| shown.canary), canary.then_some(true));
    }
    assert!(!case.alloc.follows("first"));
}

#[test]
fn what_another_deployment_takes_over_has_to_be_healthy_for_as_long_again() {
    let mut case = Case::new(&[("web", task(Kind::Main))]);
    case.spec.health = Some(HealthSpec {
        min_healthy_time: 10 * SECOND,
        healthy_deadline: 300 * SECOND,
        deployment: true,
        checks: 0,
    });
    case.alloc.begin_with("first");
    let mut case = case.begin();
    let healthy = |case: &Case| {
        let status = case.alloc.deployment_status.as_ref();
        status.and_then(|status| status.healthy)
    };
    while case.now < 60 * SECOND {
        case.input(Input::Tick);
    }
    assert_eq!(healthy(&case), Some(true));
    case.input(Input::Deployment {
        id: "second".to_owned(),
        canary: false,
    });
    let changed = case.now;
    while case.now < changed + 9 * SECOND {
        assert_eq!(healthy(&case), None);
        case.input(Input::Tick);
    }
    assert_eq!(healthy(&case), None, "it ran before, which does not count");
    case.input(Input::Tick);
    assert_eq!(case.now, changed + 10 * SECOND);
    assert_eq!(healthy(&case), Some(true));
}
