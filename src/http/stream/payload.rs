//! What of a row an event shows.

use std::io::Write;

use drover_events::mask::{Hidden, NoSecrets};
use drover_events::model::{AclToken, Allocation};
use drover_events::{Topic, gojson};
use drover_projections::changes::{Change, Operation};
use drover_projections::filter::Fields;
use drover_projections::query::{self, csi};
use drover_projections::tables::*;
use drover_projections::view::View;
use drover_projections::{Table, key::Id};
use serde::{Serialize, Serializer};

use crate::error::Refusal;
use crate::http::list::storage;
use crate::http::variables::metadata;

/// A payload: filters look into it, and it becomes JSON.
pub(super) trait Shown: Fields + Send + Sync {
    /// Appends the JSON.
    ///
    /// # Errors
    /// When a value has no form in JSON.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Refusal>;
}

impl<T: Serialize + Send + Sync> Shown for T {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        gojson::to_writer(out.by_ref(), self).map_err(|e| Refusal::internal(e.to_string()))
    }
}

impl std::fmt::Debug for dyn Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("payload")
    }
}

/// Payloads by the name of what they show; their fields go out in this order.
macro_rules! payloads {
    ($($name:ident $text:literal $({ $($field:ident $label:literal: $type:ty),* })?;)*) => {$(
        #[derive(Default, Serialize)]
        struct $name<R> {
            #[serde(rename = $text)]
            row: R,
            $($(#[serde(rename = $label)] $field: $type,)*)?
        }
    )*};
}

payloads! {
    OfJob "Job" { deleted "Deleted": bool };
    OfEvaluation "Evaluation";
    OfAllocation "Allocation" {
        timeout "Timeout": bool, timeout_reason "TimeoutReason": &'static str
    };
    OfDeployment "Deployment";
    OfNode "Node";
    OfNodePool "NodePool";
    OfService "Service";
    OfVariable "Metadata" { deleted "Deleted": bool };
    OfToken "ACLToken";
    OfPolicy "ACLPolicy";
    OfRole "ACLRole";
    OfMethod "AuthMethod";
    OfRule "ACLBindingRule";
    OfVolume "Volume";
    OfPlugin "Plugin";
}

/// A row that may hold secrets, and shows none of them: neither to readers nor to filters.
#[derive(Default)]
struct WithoutSecrets<R>(R);

impl<R: Serialize> Serialize for WithoutSecrets<R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Hidden::new(&self.0, &NoSecrets).serialize(to)
    }
}

/// What an event of the stream shows of a change.
type StreamPayload = Box<dyn Shown>;

fn boxed<P: Shown + 'static>(payload: P) -> StreamPayload {
    Box::new(payload)
}

/// The payload of a change; none for rows that say nothing on the stream.
///
/// # Errors
/// When the row cannot be read.
pub(super) fn payload(view: &View, change: &Change) -> Result<Option<StreamPayload>, Refusal> {
    let deleted = match change.operation {
        Operation::Put => false,
        Operation::Delete => true,
        Operation::Rule => return Ok(None),
    };
    let read = At {
        view,
        change,
        index: change.index.saturating_sub(u64::from(deleted)),
    };
    match change.table {
        jobs::Jobs::ID => read.row::<jobs::Jobs>(|row| boxed(OfJob { row, deleted })),
        evals::Evals::ID => read.row::<evals::Evals>(|row| boxed(OfEvaluation { row })),
        deployments::Deployments::ID => {
            read.row::<deployments::Deployments>(|row| boxed(OfDeployment { row }))
        }
        node_pools::NodePools::ID => {
            read.row::<node_pools::NodePools>(|row| boxed(OfNodePool { row }))
        }
        services::Services::ID => read.row::<services::Services>(|row| boxed(OfService { row })),
        variables::Variables::ID => read.row::<variables::Variables>(|row| {
            let row = metadata(row);
            boxed(OfVariable { row, deleted })
        }),
        allocs::Allocs::ID => read.row::<allocs::Allocs>(|row| of_allocation(row.alloc)),
        nodes::Nodes::ID | node_states::NodeStates::ID => read.node(),
        _ => read.rest(),
    }
}

fn of_allocation(alloc: Allocation) -> StreamPayload {
    let timeout = alloc.ran_too_long();
    let timeout_reason = match timeout {
        true => Allocation::RAN_TOO_LONG,
        false => "",
    };
    boxed(OfAllocation {
        row: alloc.with_summed_resources(),
        timeout,
        timeout_reason,
    })
}

/// Where a change's row is read.
struct At<'a> {
    view: &'a View,
    change: &'a Change,
    index: u64,
}

impl At<'_> {
    fn row<T: Table>(
        &self,
        show: impl FnOnce(T::Row) -> StreamPayload,
    ) -> Result<Option<StreamPayload>, Refusal> {
        let row = self.view.get_at_encoded::<T>(&self.change.key, self.index);
        Ok(row.map_err(storage)?.map(show))
    }

    /// The whole node, without its secret.
    fn node(&self) -> Result<Option<StreamPayload>, Refusal> {
        let id = Id::new(self.change.stream_keys.first().cloned().unwrap_or_default());
        let row = query::node_at(self.view, &id, self.index).map_err(storage)?;
        let row = row.map(WithoutSecrets);
        Ok(row.map(|row| boxed(OfNode { row })))
    }

    /// Access control and volumes.
    fn rest(&self) -> Result<Option<StreamPayload>, Refusal> {
        match self.change.table {
            acl_tokens::AclTokens::ID => self.row::<acl_tokens::AclTokens>(|row| {
                let row = WithoutSecrets(row.token);
                boxed(OfToken { row })
            }),
            acl_policies::AclPolicies::ID => {
                self.row::<acl_policies::AclPolicies>(|row| boxed(OfPolicy { row }))
            }
            acl_roles::AclRoles::ID => self.row::<acl_roles::AclRoles>(|row| boxed(OfRole { row })),
            auth_methods::AuthMethods::ID => self.row::<auth_methods::AuthMethods>(|row| {
                let row = WithoutSecrets(row);
                boxed(OfMethod { row })
            }),
            binding_rules::BindingRules::ID => {
                self.row::<binding_rules::BindingRules>(|row| boxed(OfRule { row }))
            }
            host_volumes::HostVolumes::ID => {
                self.row::<host_volumes::HostVolumes>(|row| boxed(OfVolume { row }))
            }
            csi_volumes::CsiVolumes::ID => self.row::<csi_volumes::CsiVolumes>(|row| {
                let mut row = row.volume;
                csi::hide_mount_flags(&mut row);
                let row = WithoutSecrets(row);
                boxed(OfVolume { row })
            }),
            csi_plugins::CsiPlugins::ID => {
                self.row::<csi_plugins::CsiPlugins>(|row| boxed(OfPlugin { row: row.plugin }))
            }
            _ => Ok(None),
        }
    }
}

/// The empty payload of a topic of Nomad's, for filters to be tried on.
pub(super) fn sample(topic: Topic) -> Option<StreamPayload> {
    type Row<T> = <T as Table>::Row;
    Some(match topic {
        Topic::Job => boxed(OfJob::<Row<jobs::Jobs>>::default()),
        Topic::Evaluation => boxed(OfEvaluation::<Row<evals::Evals>>::default()),
        Topic::Allocation => boxed(OfAllocation::<Allocation>::default()),
        Topic::Deployment => boxed(OfDeployment::<Row<deployments::Deployments>>::default()),
        Topic::Node => boxed(OfNode::<Row<nodes::Nodes>>::default()),
        Topic::NodePool => boxed(OfNodePool::<Row<node_pools::NodePools>>::default()),
        Topic::Service => boxed(OfService::<Row<services::Services>>::default()),
        Topic::Variable => boxed(OfVariable::<drover_events::model::VariableMetadata>::default()),
        Topic::AclToken => boxed(OfToken::<AclToken>::default()),
        Topic::AclPolicy => boxed(OfPolicy::<Row<acl_policies::AclPolicies>>::default()),
        Topic::AclRole => boxed(OfRole::<Row<acl_roles::AclRoles>>::default()),
        Topic::AclAuthMethod => boxed(OfMethod::<Row<auth_methods::AuthMethods>>::default()),
        Topic::AclBindingRule => boxed(OfRule::<Row<binding_rules::BindingRules>>::default()),
        Topic::HostVolume => boxed(OfVolume::<Row<host_volumes::HostVolumes>>::default()),
        Topic::CsiVolume => boxed(OfVolume::<drover_events::model::CsiVolume>::default()),
        Topic::CsiPlugin => boxed(OfPlugin::<drover_events::model::CsiPlugin>::default()),
        // Of those that are our own the event itself is shown; under Operator nothing is published.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_allocation_that_ran_too_long_says_so() {
        for (description, timeout, reason) in [
            ("All tasks have completed", false, ""),
            (
                "allocation exceeded max_run_duration",
                true,
                "allocation exceeded max_run_duration",
            ),
        ] {
            let alloc = Allocation {
                client_description: description.into(),
                ..Allocation::default()
            };
            let mut text = Vec::new();
            Shown::write(&*of_allocation(alloc), &mut text).unwrap();
            let reported: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(reported["Timeout"], json!(timeout));
            assert_eq!(reported["TimeoutReason"], json!(reason));
        }
    }
}
