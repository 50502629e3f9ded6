//! The tables: one file each, with prefix, key, row and secondary indexes.
//!
//! **What it is.** A table file says what its rows are, how they are found, and how they appear on
//! the stream. Rows that follow from others are `derived`: they are in snapshots and digests, only
//! without history. [`claims`] is what a row of `csi_volumes` allows.
//!
//! **What it must not know.** No event, no view, no question about several tables (`query`). It
//! imports the engine alone: what a table is, and [`ReadRows`](crate::ReadRows).
//!
//! **Invariants.** Numbers are for ever; a retired table keeps its line here. So are the names of a
//! row's fields.

pub mod acl_policies;
pub mod acl_roles;
pub mod acl_tokens;
pub mod alloc_job_counts;
pub mod alloc_jobs;
pub mod allocs;
pub mod auth_methods;
pub mod autopilot_config;
pub mod binding_rules;
pub mod claims;
pub mod cluster_meta;
pub mod csi_plugins;
pub mod csi_volumes;
pub mod deployments;
pub mod evals;
pub mod host_volume_claims;
pub mod host_volumes;
pub mod job_submissions;
pub mod job_summaries;
pub mod job_versions;
pub mod jobs;
pub mod namespaces;
pub mod node_pools;
pub mod node_states;
pub mod node_use;
pub mod nodes;
pub mod one_time_tokens;
pub mod periodic_launches;
pub mod root_keys;
pub mod scaling_events;
pub mod scaling_policies;
pub mod scheduler_config;
pub mod services;
pub mod table_indexes;
pub mod variable_quotas;
pub mod variables;

pub use acl_policies::AclPolicies;
pub use acl_roles::AclRoles;
pub use acl_tokens::AclTokens;
pub use alloc_job_counts::AllocJobCounts;
pub use alloc_jobs::AllocJobs;
pub use allocs::Allocs;
pub use auth_methods::AuthMethods;
pub use autopilot_config::AutopilotConfigTable;
pub use binding_rules::BindingRules;
pub use cluster_meta::ClusterMetaTable;
pub use csi_plugins::CsiPlugins;
pub use csi_volumes::CsiVolumes;
pub use deployments::Deployments;
pub use evals::Evals;
pub use host_volume_claims::HostVolumeClaims;
pub use host_volumes::HostVolumes;
pub use job_submissions::JobSubmissions;
pub use job_summaries::JobSummaries;
pub use job_versions::JobVersions;
pub use jobs::Jobs;
pub use namespaces::Namespaces;
pub use node_pools::NodePools;
pub use node_states::NodeStates;
pub use node_use::NodeUses;
pub use nodes::Nodes;
pub use one_time_tokens::OneTimeTokens;
pub use periodic_launches::PeriodicLaunches;
pub use root_keys::RootKeys;
pub use scaling_events::ScalingEvents;
pub use scaling_policies::ScalingPolicies;
pub use scheduler_config::SchedulerConfigTable;
pub use services::Services;
pub use table_indexes::TableIndexes;
pub use variable_quotas::VariableQuotas;
pub use variables::Variables;

#[cfg(test)]
mod tables_test;

pub use crate::engine::registry::{Registry, TableInfo};

static TABLES: Registry = Registry::new(&[
    TableInfo::of::<TableIndexes>(),
    TableInfo::of::<Nodes>(),
    TableInfo::of::<NodeStates>(),
    TableInfo::of::<NodePools>(),
    TableInfo::of::<NodeUses>(),
    TableInfo::of::<Jobs>(),
    TableInfo::of::<JobVersions>(),
    TableInfo::of::<JobSummaries>(),
    TableInfo::of::<JobSubmissions>(),
    TableInfo::of::<PeriodicLaunches>(),
    TableInfo::of::<Deployments>(),
    TableInfo::of::<Evals>(),
    TableInfo::of::<Allocs>(),
    TableInfo::of::<AllocJobs>(),
    TableInfo::of::<AllocJobCounts>(),
    TableInfo::of::<CsiVolumes>(),
    TableInfo::of::<CsiPlugins>(),
    TableInfo::of::<HostVolumes>(),
    TableInfo::of::<HostVolumeClaims>(),
    TableInfo::of::<AclPolicies>(),
    TableInfo::of::<AclTokens>(),
    TableInfo::of::<OneTimeTokens>(),
    TableInfo::of::<AclRoles>(),
    TableInfo::of::<AuthMethods>(),
    TableInfo::of::<BindingRules>(),
    TableInfo::of::<Namespaces>(),
    TableInfo::of::<Services>(),
    TableInfo::of::<Variables>(),
    TableInfo::of::<VariableQuotas>(),
    TableInfo::of::<RootKeys>(),
    TableInfo::of::<ScalingPolicies>(),
    TableInfo::of::<ScalingEvents>(),
    TableInfo::of::<SchedulerConfigTable>(),
    TableInfo::of::<AutopilotConfigTable>(),
    TableInfo::of::<ClusterMetaTable>(),
]);

/// drover's tables.
pub fn registry() -> &'static Registry {
    &TABLES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table's number is the prefix of its keys in every database there is.
    #[test]
    fn numbers_are_for_ever() {
        let known = [
            (1, "table_index"),
            (2, "nodes"),
            (3, "node_states"),
            (4, "node_pools"),
            (5, "node_use"),
            (6, "jobs"),
            (7, "job_versions"),
            (8, "job_summaries"),
            (9, "job_submissions"),
            (10, "periodic_launches"),
            (11, "deployments"),
            (12, "evals"),
            (13, "allocs"),
            (14, "alloc_jobs"),
            (15, "alloc_job_counts"),
            (16, "csi_volumes"),
            (17, "csi_plugins"),
            (18, "host_volumes"),
            (19, "host_volume_claims"),
            (20, "acl_policies"),
            (21, "acl_tokens"),
            (22, "one_time_tokens"),
            (23, "acl_roles"),
            (24, "auth_methods"),
            (25, "binding_rules"),
            (26, "namespaces"),
            (27, "services"),
            (28, "variables"),
            (29, "variable_quotas"),
            (30, "root_keys"),
            (31, "scaling_policies"),
            (32, "scaling_events"),
            (33, "scheduler_config"),
            (34, "autopilot_config"),
            (35, "cluster_meta"),
        ];
        let tables: Vec<_> = registry().tables().map(|t| (t.id(), t.name())).collect();
        assert_eq!(tables, known);
    }

    /// So is the number of an index inside its table.
    #[test]
    fn numbers_of_indexes_are_for_ever() {
        let mut text = String::new();
        for table in registry().tables() {
            let indexes = table.indexes();
            if indexes.is_empty() {
                continue;
            }
            text.push_str(&format!("{}:", table.name()));
            for (no, name) in indexes {
                text.push_str(&format!(" {no} {name}"));
            }
            text.push('\n');
        }
        let known = "\
nodes: 1 secret_id 2 node_pool 3 signing_key 4 csi_plugin
jobs: 1 type 2 gc 3 periodic 4 pool 5 modify_index
deployments: 1 namespace_create 2 job
evals: 1 namespace_create 2 job 3 job_open
allocs: 1 namespace_create 2 node 3 job 4 eval 5 deployment 6 signing_key
csi_volumes: 1 plugin_id 2 key_id
host_volumes: 1 name 2 node_id 3 node_pool
host_volume_claims: 1 claim_id
acl_policies: 1 job
acl_tokens: 1 create 2 secret 3 global 4 expires 5 key_id
one_time_tokens: 1 secret 2 expires
acl_roles: 1 name
binding_rules: 1 auth_method
namespaces: 1 quota
services: 1 service_name 2 job 3 node_id 4 alloc_id
variables: 1 key_id 2 path
scaling_policies: 1 target 2 type 3 enabled
";
        assert_eq!(text, known);
    }
}
