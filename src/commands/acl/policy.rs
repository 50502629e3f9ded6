//! Commands about policies.

use drover_acl::{Strictness, parse};
use drover_error::Refusal;
use drover_events::acl::*;
use drover_events::model::{AclPolicy, JobAcl};
use drover_projections::View;
use serde_json::json;

use super::{MAX_TEXT, content_hash, reject_invalid, require_acl_support};
use crate::support::is_name;
use crate::{Command, Decision, Stamp};

/// Policies are created or changed.
#[derive(Clone, Debug)]
pub struct UpsertAclPolicies {
    pub policies: Vec<AclPolicy>,
}

impl Command for UpsertAclPolicies {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        if self.policies.is_empty() {
            return Err(Refusal::bad_request("must specify as least one policy"));
        }
        let mut policies = self.policies.clone();
        for (n, policy) in policies.iter_mut().enumerate() {
            let what = format!("policy {n}");
            reject_invalid(&what, &validation_errors(policy))?;
            if let Err(error) = parse(&policy.rules, Strictness::Strict) {
                let text = format!("{what} invalid: failed to parse rules: {error}");
                return Err(Refusal::bad_request(text));
            }
            policy.job_acl.take_if(|job| *job == JobAcl::default());
            policy.create_index = 0;
            policy.modify_index = 0;
            policy.hash = content_hash(&json!([
                "acl policy",
                policy.name,
                policy.description,
                policy.rules,
                policy.job_acl,
            ]));
        }
        Ok(Decision::unguarded(AclPoliciesUpserted { policies }))
    }
}

fn validation_errors(policy: &AclPolicy) -> Vec<String> {
    let mut wrong = Vec::new();
    if !is_name(&policy.name, &[]) {
        wrong.push(format!("invalid name '{}'", policy.name));
    }
    if policy.description.len() > MAX_TEXT {
        wrong.push(format!("description longer than {MAX_TEXT}"));
    }
    if let Some(job) = &policy.job_acl {
        let parts = [&job.namespace, &job.job_id, &job.group, &job.task];
        let texts = [
            "namespace must be set to set job ID",
            "job ID must be set to set group",
            "group must be set to set task",
        ];
        for (pair, text) in parts.windows(2).zip(texts) {
            if pair[0].is_empty() && !pair[1].is_empty() {
                wrong.push(text.to_owned());
            }
        }
        let names = [
            ("job ACL namespace", &job.namespace),
            ("job ACL job", &job.job_id),
            ("job ACL group", &job.group),
            ("job ACL task", &job.task),
        ];
        let long = names.map(|(what, name)| drover_events::model::names::too_long(what, name));
        wrong.extend(long.into_iter().flatten());
    }
    wrong
}

/// Policies are removed; one that is not there is no mistake.
#[derive(Clone, Debug)]
pub struct DeleteAclPolicies {
    /// Their names.
    pub names: Vec<String>,
}

impl Command for DeleteAclPolicies {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        if self.names.is_empty() {
            return Err(Refusal::bad_request("must specify as least one policy"));
        }
        let names = self.names.clone();
        Ok(Decision::unguarded(AclPoliciesDeleted { names }))
    }
}

#[cfg(test)]
mod tests {
    use drover_error::Code;
    use drover_events::gojson::Base64;
    use drover_projections::query::acl::policies_of_job;
    use drover_projections::tables::acl_policies::AclPolicies;

    use super::*;
    use crate::testing::World;

    fn policy(name: &str) -> AclPolicy {
        AclPolicy {
            name: name.into(),
            rules: "namespace \"default\" { policy = \"read\" }".into(),
            ..AclPolicy::default()
        }
    }

    fn upsert(policy: AclPolicy) -> UpsertAclPolicies {
        UpsertAclPolicies {
            policies: vec![policy],
        }
    }

    fn world() -> World {
        let mut world = World::new();
        world.raise();
        world
    }

    #[test]
    fn policies_are_made_changed_and_removed() {
        let mut world = world();
        world.done(&upsert(policy("ci")));
        let first = world.row::<AclPolicies>("ci").expect("made");
        assert_eq!(first.create_index, first.modify_index);
        world.done(&upsert(AclPolicy {
            description: "x".into(),
            hash: Base64::from(vec![1]),
            ..policy("ci")
        }));
        let second = world.row::<AclPolicies>("ci").expect("changed");
        assert_eq!(second.create_index, first.create_index);
        assert!(second.modify_index > first.modify_index && second.hash != first.hash);
        let names = vec!["ci".to_owned()];
        world.done(&DeleteAclPolicies {
            names: names.clone(),
        });
        assert!(world.row::<AclPolicies>("ci").is_none());
        world.done(&DeleteAclPolicies { names });
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_named() {
        let world = world();
        let job = |namespace: &str, job: &str, group: &str, task: &str| AclPolicy {
            job_acl: Some(JobAcl {
                namespace: namespace.into(),
                job_id: job.into(),
                group: group.into(),
                task: task.into(),
            }),
            ..policy("ci")
        };
        for (policy, expected) in [
            (
                policy("a b"),
                "policy 0 invalid: 1 error occurred:\n\t* invalid name 'a b'\n\n",
            ),
            (
                AclPolicy {
                    description: "x".repeat(257),
                    ..policy("")
                },
                "2 errors occurred:\n\t* invalid name ''\n\t* description longer than 256\n\n",
            ),
            (
                AclPolicy {
                    rules: "namespace {".into(),
                    ..policy("ci")
                },
                "policy 0 invalid: failed to parse rules: Failed to parse ACL Policy: ",
            ),
            (
                job("", "web", "", ""),
                "namespace must be set to set job ID",
            ),
            (
                job("default", "", "g", ""),
                "job ID must be set to set group",
            ),
            (
                job("default", "web", "", "t"),
                "group must be set to set task",
            ),
        ] {
            let (code, text) = world.refusal(&upsert(policy));
            assert_eq!(code, Code::BadRequest);
            assert!(text.contains(expected), "{text}\n{expected}");
        }
        let none = UpsertAclPolicies { policies: vec![] };
        assert_eq!(world.refusal(&none).1, "must specify as least one policy");
    }

    #[test]
    fn a_policy_is_attached_by_its_job_alone_never_by_its_name() {
        let mut world = world();
        let attached = |namespace: &str, job: &str, group: &str| AclPolicy {
            job_acl: Some(JobAcl {
                namespace: namespace.into(),
                job_id: job.into(),
                group: group.into(),
                ..JobAcl::default()
            }),
            ..policy(&format!("{namespace}-{job}-{group}-x"))
        };
        world.done(&upsert(policy("web")));
        world.done(&upsert(policy("default-web")));
        world.done(&upsert(attached("default", "web", "")));
        world.done(&upsert(attached("default", "web", "api")));
        world.done(&upsert(attached("prod", "web", "")));
        let found = |namespace, job| -> Vec<String> {
            let found = policies_of_job(&world.view(), (namespace, job)).expect("read");
            found.iter().map(|policy| policy.name.clone()).collect()
        };
        assert_eq!(
            found("default", "web"),
            ["default-web--x", "default-web-api-x"]
        );
        assert_eq!(found("prod", "web"), ["prod-web--x"]);
        assert!(found("default", "we").is_empty());
    }

    #[test]
    fn policies_of_a_job_are_found_without_looking_at_the_others() {
        let mut world = world();
        for page in 0..5 {
            let policies = (0..1000).map(|n| AclPolicy {
                job_acl: Some(JobAcl {
                    namespace: "default".into(),
                    job_id: format!("job-{page}-{n}"),
                    ..JobAcl::default()
                }),
                ..policy(&format!("p-{page}-{n}"))
            });
            world.done(&UpsertAclPolicies {
                policies: policies.collect(),
            });
        }
        let view = world.view();
        let mut found = Vec::new();
        let taken = drover_testkit::counting::taken(|| {
            found = policies_of_job(&view, ("default", "job-3-77")).expect("read");
        });
        assert_eq!(found.len(), 1);
        assert!(
            taken < 64 << 10,
            "{taken} bytes of memory to find one of 5000"
        );
    }

    #[test]
    fn nothing_is_written_that_another_server_would_refuse() {
        let world = World::new();
        let (code, text) = world.refusal(&upsert(policy("ci")));
        assert_eq!(code, Code::Unavailable);
        assert!(text.contains("every server"), "{text}");
    }
}
