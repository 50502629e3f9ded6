//! Every index of every table there is, against a scan of the same table, through random changes.

use std::cell::RefCell;
use std::collections::BTreeSet;

use drover_events::acl::{SealedSecret, SealedToken};
use drover_events::gojson::{GoTime, Map, Time};
use drover_events::model::{
    AclBindingRule, AclPolicy, AclRole, AclToken, Allocation, CsiInfo, CsiVolume, Deployment,
    Evaluation, HostVolume, Job, JobAcl, Namespace, Node, OneTimeToken, PeriodicConfig,
    ScalingPolicy, ServiceRegistration, TaskGroupHostVolumeClaim, VariableEncrypted,
};
use drover_events::{EventId, EventKind, Guard};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::engine::key::Id;
use crate::engine::outcome::{Refused, Reply};
use crate::engine::table::{Index, Table};
use crate::engine::txn::{Ctx, Txn};
use crate::store::writer::GuardedEntry;
use crate::tables::*;
use crate::{DatabaseOptions, Projections, Scan, View};

/// How many rows a table has at most.
const KEYS: usize = 5;

/// An event that writes a row of a table, or removes the one with its key.
pub(crate) struct Change<T: Table> {
    pub(crate) index: u64,
    pub(crate) row: T::Row,
    pub(crate) is_put: bool,
}

impl<T: Table> GuardedEntry for Change<T> {
    fn ctx(&self) -> Ctx {
        Ctx {
            index: self.index,
            term: 1,
            time: 0, // that of the event before
            id: EventId::ZERO,
            kind: EventKind::ClusterIdSet,
        }
    }

    fn guards(&self) -> &[Guard] {
        &[]
    }

    fn run(&self, txn: &mut Txn<'_>, _: &Ctx) -> Result<Reply, Refused> {
        match self.is_put {
            true => txn.put::<T>(self.row.clone())?,
            false => drop(txn.delete::<T>(&T::key(&self.row))?),
        }
        Ok(Reply::None)
    }
}

/// A row with one of the keys; the other two numbers decide what else it says.
type Made<T> = fn(usize, usize, usize) -> <T as Table>::Row;
/// Compares an index with a scan; returns how many rows its largest group has.
type Look<T> = Box<dyn Fn(&View, &[<T as Table>::Row]) -> usize>;

/// Rows of a table, and what its indexes have to say of each.
struct Rows<T: Table> {
    made: Made<T>,
    looks: Vec<Look<T>>,
    names: Vec<&'static str>,
}

impl<T: Table> Rows<T> {
    fn new(made: Made<T>) -> Self {
        Self {
            made,
            looks: Vec::new(),
            names: Vec::new(),
        }
    }

    /// An index, and the groups of it that a row is in.
    fn by<I: Index<Table = T>>(mut self, of: fn(&T::Row) -> Vec<I::Group>) -> Self {
        let look = move |view: &View, possible: &[T::Row]| looked_up::<I>(view, possible, of);
        self.looks.push(Box::new(look));
        self.names.push(I::NAME);
        self
    }

    /// Writes and removes rows at random, and looks after each change; the indexes it looked at.
    fn agree(self) -> Vec<String> {
        let mut possible = Vec::new();
        for number in 0..KEYS * 9 {
            possible.push((self.made)(number / 9, number / 3 % 3, number % 3));
        }
        let possible = possible.as_slice();
        let most = RefCell::new(vec![0; self.looks.len()]);
        let deeds = prop::collection::vec((0..10_u8, 0..KEYS, 0..3_usize, 0..3_usize), 60);
        let run = TestRunner::new(Config::with_cases(4)).run(&deeds, |deeds| {
            let dir = tempfile::tempdir().unwrap();
            let (projections, mut writer) =
                Projections::open(dir.path(), DatabaseOptions::dev()).unwrap();
            for (index, (verb, key, a, b)) in (1..).zip(deeds) {
                let change = Change::<T> {
                    index,
                    row: (self.made)(key, a, b),
                    is_put: verb < 7,
                };
                writer.apply_batch(&[change]).unwrap();
                let view = projections.view();
                for (look, most) in self.looks.iter().zip(most.borrow_mut().iter_mut()) {
                    *most = look(&view, possible).max(*most);
                }
            }
            Ok(())
        });
        run.unwrap();
        for (most, name) in most.into_inner().into_iter().zip(&self.names) {
            assert!(most > 0, "nothing was found: {} {name}", T::NAME);
        }
        let names = self.names.iter();
        names.map(|name| format!("{} {name}", T::NAME)).collect()
    }
}

/// Looks up every group that a possible row is in, those that hold nothing now among them.
fn looked_up<I: Index>(
    view: &View,
    possible: &[<I::Table as Table>::Row],
    of: fn(&<I::Table as Table>::Row) -> Vec<I::Group>,
) -> usize {
    let rows = view.scan::<I::Table>(Scan::all());
    let rows: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
    let groups: BTreeSet<I::Group> = possible.iter().flat_map(of).collect();
    // What is printed hides what is confidential, keys do not.
    let reported = |row: &<I::Table as Table>::Row| (I::Table::key(row), format!("{row:?}"));
    let mut most = 0;
    for group in &groups {
        let wanted = rows.iter().filter(|row| of(row).contains(group));
        let mut wanted: Vec<_> = wanted.map(reported).collect();
        let found = view.by_index::<I>(group);
        let mut found: Vec<_> = found.map(|row| reported(&row.unwrap())).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        let table = <I::Table as Table>::NAME;
        assert_eq!(found, wanted, "{table} {}: {group:?}", I::NAME);
        most = most.max(wanted.len());
    }
    most
}

fn key(number: usize) -> String {
    format!("k{number}")
}

fn word(number: usize) -> String {
    ["", "x", "y"][number].to_owned()
}

fn id(text: &str) -> Vec<Id> {
    vec![Id::new(text)]
}

/// The same, none for an empty one.
fn id_if_any(text: &str) -> Vec<Id> {
    if text.is_empty() {
        return Vec::new();
    }
    id(text)
}

fn pair(one: &str, two: &str) -> Vec<(String, String)> {
    vec![(one.to_owned(), two.to_owned())]
}

/// The group of those that are in an index without any.
fn one_group(is_in: bool) -> Vec<()> {
    is_in.then_some(()).into_iter().collect()
}

fn who_may() -> Vec<String> {
    let policies = Rows::<AclPolicies>::new(|number, a, b| AclPolicy {
        name: key(number),
        job_acl: (a > 0).then(|| JobAcl {
            namespace: word(a),
            job_id: word(b),
            ..JobAcl::default()
        }),
        ..AclPolicy::default()
    });
    let policies = policies.by::<acl_policies::AclPoliciesByJob>(|row| {
        let jobs = row.job_acl.iter();
        jobs.flat_map(|job| pair(&job.namespace, &job.job_id))
            .collect()
    });
    let rules = Rows::<BindingRules>::new(|number, a, b| AclBindingRule {
        id: key(number),
        auth_method: word(a),
        selector: word(b),
        ..AclBindingRule::default()
    });
    let rules =
        rules.by::<binding_rules::BindingRulesByMethod>(|row| vec![row.auth_method.clone()]);
    let roles = Rows::<AclRoles>::new(|number, a, b| AclRole {
        id: key(number),
        name: word(a),
        description: word(b),
        ..AclRole::default()
    });
    let roles = roles.by::<acl_roles::AclRolesByName>(|row| vec![row.name.clone()]);
    [policies.agree(), rules.agree(), roles.agree()].concat()
}

fn tokens() -> Vec<String> {
    use acl_tokens::*;
    use one_time_tokens::*;
    let tokens = Rows::<AclTokens>::new(|number, a, b| SealedToken {
        token: AclToken {
            accessor_id: key(number),
            global: a == 1,
            expiration_time: (b > 0).then_some(GoTime(b as i64)),
            ..AclToken::default()
        },
        secret: SealedSecret {
            hash: word(b),
            key_id: word(a),
            ..SealedSecret::default()
        },
    });
    let tokens = tokens
        .by::<AclTokensByCreate>(|_| one_group(true))
        .by::<AclTokensBySecret>(|row| id(&row.secret.hash))
        .by::<AclTokensByGlobal>(|row| vec![row.token.global])
        .by::<AclTokensByExpiration>(|row| {
            let expires = row.token.expiration_time.iter();
            expires.map(|_| row.token.global).collect()
        })
        .by::<AclTokensByKey>(|row| id(&row.secret.key_id));
    let once = Rows::<OneTimeTokens>::new(|number, a, b| OneTimeToken {
        accessor_id: key(number),
        one_time_secret_id: word(a),
        expires_at: Time(b as i64),
        ..OneTimeToken::default()
    });
    let once = once
        .by::<OneTimeTokensBySecret>(|row| id(&row.one_time_secret_id))
        .by::<OneTimeTokensByExpiration>(|_| one_group(true));
    [tokens.agree(), once.agree()].concat()
}

fn jobs_and_evaluations() -> Vec<String> {
    use evals::*;
    use jobs::*;
    let jobs = Rows::<Jobs>::new(|number, a, b| Job {
        namespace: "default".into(),
        id: key(number),
        r#type: ["service", "batch", "system"][a].into(),
        node_pool: word(b),
        status: ["running", "dead", "dead"][b].into(),
        stop: a == 2,
        periodic: (b == 1).then(PeriodicConfig::default),
        modify_index: (a + b) as u64,
        ..Job::default()
    });
    let jobs = jobs
        .by::<JobsByType>(|row| vec![row.r#type.clone()])
        .by::<JobsCollectable>(|row| {
            let ends = row.stop || row.r#type == "batch";
            one_group(row.status == "dead" && ends)
        })
        .by::<JobsPeriodic>(|row| one_group(row.periodic.is_some()))
        .by::<JobsByPool>(|row| vec![row.node_pool.clone()])
        .by::<JobsByModify>(|_| one_group(true));
    let evals = Rows::<Evals>::new(|number, a, b| Evaluation {
        id: key(number),
        namespace: word(a),
        job_id: word(a),
        status: ["pending", "blocked", "complete"][b].into(),
        create_index: b as u64,
        ..Evaluation::default()
    });
    let evals = evals
        .by::<EvalsByNamespace>(|row| vec![row.namespace.clone()])
        .by::<EvalsByJob>(|row| pair(&row.namespace, &row.job_id))
        .by::<EvalsOpenByJob>(|row| match row.status.as_str() {
            "complete" => Vec::new(),
            _ => pair(&row.namespace, &row.job_id),
        });
    [jobs.agree(), evals.agree()].concat()
}

fn allocations_and_deployments() -> Vec<String> {
    use allocs::*;
    use deployments::*;
    let allocs = Rows::<Allocs>::new(|number, a, b| AllocRow {
        alloc: Allocation {
            id: key(number),
            namespace: word(a),
            job_id: word(b),
            node_id: word(a),
            eval_id: word(b),
            deployment_id: word(a),
            signing_key_id: word(b),
            client_status: ["running", "complete", "pending"][a].into(),
            create_index: b as u64,
            ..Allocation::default()
        },
        ..AllocRow::default()
    });
    let allocs = allocs
        .by::<AllocsByNamespace>(|row| vec![row.alloc.namespace.clone()])
        .by::<AllocsByNode>(|row| id_if_any(&row.alloc.node_id))
        .by::<AllocsByJob>(|row| pair(&row.alloc.namespace, &row.alloc.job_id))
        .by::<AllocsByEval>(|row| id_if_any(&row.alloc.eval_id))
        .by::<AllocsByDeployment>(|row| id_if_any(&row.alloc.deployment_id))
        .by::<AllocsBySigningKey>(|row| match row.alloc.client_status.as_str() {
            "complete" => Vec::new(),
            _ => id_if_any(&row.alloc.signing_key_id),
        });
    let deployments = Rows::<Deployments>::new(|number, a, b| Deployment {
        id: key(number),
        namespace: word(a),
        job_id: word(b),
        create_index: (a + b) as u64,
        ..Deployment::default()
    });
    let deployments = deployments
        .by::<DeploymentsByNamespace>(|row| vec![row.namespace.clone()])
        .by::<DeploymentsByJob>(|row| pair(&row.namespace, &row.job_id));
    [allocs.agree(), deployments.agree()].concat()
}

fn nodes_and_services() -> Vec<String> {
    use nodes::*;
    use services::*;
    let nodes = Rows::<Nodes>::new(|number, a, b| Node {
        id: key(number),
        secret_id: word(a),
        node_pool: word(b),
        identity_signing_key_id: word(b),
        csi_controller_plugins: Map::from([(word(a), CsiInfo::default())]),
        csi_node_plugins: Map::from([(word(b), CsiInfo::default())]),
        ..Node::default()
    });
    let nodes = nodes
        .by::<NodesBySecret>(|row| id_if_any(&row.secret_id))
        .by::<NodesByPool>(|row| vec![row.node_pool.clone()])
        .by::<NodesBySigningKey>(|row| id_if_any(&row.identity_signing_key_id))
        .by::<NodesByPlugin>(|row| {
            let controllers = row.csi_controller_plugins.keys();
            let all = controllers.chain(row.csi_node_plugins.keys());
            all.cloned().collect()
        });
    let services = Rows::<Services>::new(|number, a, b| ServiceRegistration {
        namespace: word(number % 2),
        id: key(number),
        service_name: word(a),
        job_id: word(b),
        node_id: word(a),
        alloc_id: word(b),
        ..ServiceRegistration::default()
    });
    let services = services
        .by::<ServicesByName>(|row| pair(&row.namespace, &row.service_name))
        .by::<ServicesByJob>(|row| pair(&row.namespace, &row.job_id))
        .by::<ServicesByNode>(|row| id(&row.node_id))
        .by::<ServicesByAlloc>(|row| id(&row.alloc_id));
    [nodes.agree(), services.agree()].concat()
}

fn volumes() -> Vec<String> {
    use host_volumes::*;
    let csi = Rows::<CsiVolumes>::new(|number, a, b| csi_volumes::CsiVolumeRow {
        volume: CsiVolume {
            namespace: "default".into(),
            id: key(number),
            plugin_id: word(a),
            secrets: Map::from([
                ("one", format!("sealed:{}:text", word(a))),
                ("two", format!("sealed:{}:text", word(b))),
            ]),
            ..CsiVolume::default()
        },
        ..csi_volumes::CsiVolumeRow::default()
    });
    let csi = csi
        .by::<csi_volumes::CsiVolumesByPlugin>(|row| vec![row.volume.plugin_id.clone()])
        .by::<csi_volumes::CsiVolumesByKey>(|row| {
            let secrets = row.volume.secrets.values();
            let keys = secrets.filter_map(|secret| secret.split(':').nth(1));
            keys.flat_map(id_if_any).collect()
        });
    let host = Rows::<HostVolumes>::new(|number, a, b| HostVolume {
        namespace: word(number % 2),
        id: key(number),
        name: word(a),
        node_id: word(b),
        node_pool: word(a),
        ..HostVolume::default()
    });
    let host = host
        .by::<HostVolumesByName>(|row| pair(&row.namespace, &row.name))
        .by::<HostVolumesByNode>(|row| id(&row.node_id))
        .by::<HostVolumesByPool>(|row| vec![row.node_pool.clone()]);
    let claims = Rows::<HostVolumeClaims>::new(|number, a, b| TaskGroupHostVolumeClaim {
        id: word(a),
        job_id: key(number),
        alloc_id: word(b),
        ..TaskGroupHostVolumeClaim::default()
    });
    let claims = claims.by::<host_volume_claims::HostVolumeClaimsById>(|row| id(&row.id));
    [csi.agree(), host.agree(), claims.agree()].concat()
}

fn others() -> Vec<String> {
    use scaling_policies::*;
    use variables::*;
    let namespaces = Rows::<Namespaces>::new(|number, a, b| Namespace {
        name: key(number),
        quota: word(a),
        description: word(b),
        ..Namespace::default()
    });
    let namespaces = namespaces.by::<namespaces::NamespacesByQuota>(|row| {
        let quota = Some(row.quota.clone());
        quota
            .filter(|quota| !quota.is_empty())
            .into_iter()
            .collect()
    });
    let variables = Rows::<Variables>::new(|number, a, b| VariableEncrypted {
        namespace: word(number % 2),
        path: key(number),
        key_id: word(a),
        create_index: b as u64,
        ..VariableEncrypted::default()
    });
    let variables = variables
        .by::<VariablesByKey>(|row| id(&row.key_id))
        .by::<VariablesByPath>(|_| one_group(true));
    let policies = Rows::<ScalingPolicies>::new(|number, a, b| ScalingPolicy {
        id: key(number),
        r#type: word(a),
        enabled: b == 1,
        target: Map::from([
            ("Namespace", word(a)),
            ("Job", word(b)),
            ("Group", "g".to_owned()),
        ]),
        ..ScalingPolicy::default()
    });
    let policies = policies
        .by::<ScalingPoliciesByTarget>(|row| pair(&row.target["Namespace"], &row.target["Job"]))
        .by::<ScalingPoliciesByType>(|row| vec![row.r#type.clone()])
        .by::<ScalingPoliciesByEnabled>(|row| vec![row.enabled]);
    [namespaces.agree(), variables.agree(), policies.agree()].concat()
}

/// Policies by (namespace, job), binding rules by method, roles by name, and all others.
#[test]
fn ev_17_every_index_finds_what_a_scan_finds_through_updates_and_deletes() {
    let all = [
        who_may(),
        tokens(),
        jobs_and_evaluations(),
        allocations_and_deployments(),
        nodes_and_services(),
        volumes(),
        others(),
    ];
    let tried: BTreeSet<String> = all.into_iter().flatten().collect();
    let names = registry().tables().flat_map(|table| {
        let indexes = table.indexes().into_iter();
        indexes.map(move |(_, name)| format!("{} {name}", table.name()))
    });
    let names: BTreeSet<String> = names.collect();
    assert_eq!(tried, names, "one is not looked at here");
}
