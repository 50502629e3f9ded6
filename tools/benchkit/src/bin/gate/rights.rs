//! Identities and rights of callers, found out in this process.
//!
//! A server knows as many tokens as are named, a role for a hundred of them, and ten policies for
//! each role; each token holds a role and one policy more. One line each for ACLs that are off, for
//! tokens that were looked up before, and for tokens that were not, their rows on the disk and in
//! memory.

use std::collections::HashSet;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use drover::acl::NamespaceCapability;
use drover::commands::Command;
use drover::commands::acl::{CreateAclToken, TtlBounds, UpsertAclPolicies, UpsertAclRoles};
use drover::config::Config;
use drover::gate::Gate;
use drover::proposer::Origin;
use drover::server::Server;
use drover_benchkit::{Line, sample};
use drover_events::Actor;
use drover_events::acl::SealedSecret;
use drover_events::model::{AclPolicy, AclRole, AclRolePolicyLink, AclToken, AclTokenRoleLink};
use drover_projections::tables::acl_tokens::secret_hash;

/// Tokens of a role.
const OF_ROLE: u64 = 100;
/// Policies of a role.
const POLICIES: u64 = 10;
/// Commands under way.
const IN_FLIGHT: u64 = 512;
/// Requests of each measurement.
const REQUESTS: u64 = 20_000;

/// The three figures.
pub(crate) async fn checked(tokens: u64, dir: &Path) -> Result<()> {
    let mut config = Config::dev();
    config.acl.enabled = true;
    let telemetry = drover::telemetry::install(Duration::from_secs(10));
    let server = Server::start(Arc::new(config), dir, telemetry).await?;
    server.wait_ready().await;
    fill(&server, tokens).await?;
    let open = Gate::open();
    measure("request, ACLs off", &open, |_| 0).await?;
    let guarded = || Gate::guarded(Arc::clone(&server.projections), Arc::clone(&server.keyring));
    let gate = guarded();
    let seen = |n| n % 1_000;
    for n in 0..1_000 {
        gate.authenticate(Some(&secret(n)), "").await?;
    }
    measure("right checked, warm", &gate, seen).await?;
    let cold = guarded();
    measure("right checked, cold", &cold, |n| n * 5 % tokens).await?;
    // The same again: the rows are in memory now, and nothing is known of them.
    let cold = guarded();
    measure("right checked, cold, rows in memory", &cold, |n| {
        n * 5 % tokens
    })
    .await?;
    server.shutdown().await;
    Ok(())
}

fn secret(n: u64) -> String {
    sample::uuid(3, n)
}

/// Finds out the caller and checks one right, again and again.
async fn measure(what: &str, gate: &Gate, which: impl Fn(u64) -> u64) -> Result<()> {
    let mut times = Vec::with_capacity(REQUESTS as usize);
    for n in 0..REQUESTS {
        let token = which(n);
        let secret = secret(token);
        let namespace = format!("team-{}-prod", token / OF_ROLE * POLICIES);
        let began = Instant::now();
        let identity = gate.authenticate(Some(&secret), "10.0.0.1").await?;
        let may = identity
            .acl
            .namespace_allows(&namespace, NamespaceCapability::ReadJob);
        times.push(began.elapsed());
        ensure!(black_box(may), "{what}: token {token} may not");
    }
    let total: Duration = times.iter().sum();
    Line::new(what)
        .number("mean_us", total.as_secs_f64() * 1e6 / REQUESTS as f64)
        .latencies(&mut times)
        .print();
    Ok(())
}

async fn submit(server: &Server, command: impl Command + 'static) -> Result<()> {
    let origin = Origin {
        actor: Actor::server("bench", "bench"),
        ..Origin::default()
    };
    server.submit(command, origin).await?;
    Ok(())
}

fn policy(name: String, namespace: &str) -> AclPolicy {
    AclPolicy {
        name,
        rules: format!(
            "namespace \"{namespace}\" {{ policy = \"write\" }}\nnode {{ policy = \"read\" }}"
        ),
        ..AclPolicy::default()
    }
}

async fn fill(server: &Arc<Server>, tokens: u64) -> Result<()> {
    let roles = tokens.div_ceil(OF_ROLE);
    let mut policies = Vec::new();
    for n in 0..roles * POLICIES {
        policies.push(policy(format!("policy-{n}"), &format!("team-{n}-*")));
    }
    for part in policies.chunks(500) {
        let policies = part.to_vec();
        submit(server, UpsertAclPolicies { policies }).await?;
    }
    for role in 0..roles {
        let link = |n: u64| AclRolePolicyLink {
            name: format!("policy-{}", role * POLICIES + n),
        };
        let command = UpsertAclRoles {
            roles: vec![AclRole {
                name: format!("role-{role}"),
                policies: (0..POLICIES).map(link).collect::<Vec<_>>().into(),
                ..AclRole::default()
            }],
            allow_missing_policies: false,
        };
        submit(server, command).await?;
    }
    let mut accessors = HashSet::new();
    for begin in (0..tokens).step_by(IN_FLIGHT as usize) {
        let mut all = tokio::task::JoinSet::new();
        for n in begin..tokens.min(begin + IN_FLIGHT) {
            let command = token(n, roles * POLICIES);
            ensure!(accessors.insert(command.token.accessor_id.clone()));
            let server = Arc::clone(server);
            all.spawn(async move { submit(&server, command).await });
        }
        while let Some(done) = all.join_next().await {
            done??;
        }
    }
    Ok(())
}

fn token(n: u64, policies: u64) -> CreateAclToken {
    let role = AclTokenRoleLink {
        name: format!("role-{}", n / OF_ROLE),
        ..AclTokenRoleLink::default()
    };
    CreateAclToken {
        token: AclToken {
            accessor_id: sample::uuid(2, n),
            name: format!("token-{n}"),
            r#type: "client".to_owned(),
            policies: vec![format!("policy-{}", n * 7 % policies)].into(),
            roles: vec![role].into(),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: secret_hash(&secret(n)),
            ..SealedSecret::default()
        },
        ttl: TtlBounds {
            min: Duration::ZERO,
            max: Duration::MAX,
        },
    }
}
