//! The command of variables: one operation, already encrypted. The race is decided in apply
//! (VAR-02): there is nothing to guard here.

use drover_events::model::VariableEncrypted;
use drover_events::variable::*;
use drover_projections::View;
use drover_projections::apply::{check_quota, variable_size};
use drover_projections::tables::variable_quotas::VariableQuotas;
use drover_projections::tables::variables::Variables;

use super::support::all_servers_support;
use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// One operation on one variable. Its reply is `Reply::Variable`.
#[derive(Clone, Debug)]
pub struct ApplyVariable {
    pub op: VarOp,
    /// The variable; for a check-and-set with the modify index the caller knows.
    pub var: VariableEncrypted,
    /// The most bytes the variables of its namespace may take; 0: any number. Apply refuses what
    /// would pass it (VAR-05).
    pub quota: u64,
}

/// The feature level that brought quotas of variables.
const QUOTA_LEVEL: u32 = 6;

/// Saves the way through the log where the quota is passed already; apply checks it again.
fn check(view: &View, var: &VariableEncrypted, quota: u64) -> Result<(), Refusal> {
    let namespace = var.namespace.as_str();
    let known = view.get::<Variables>((namespace, var.path.as_str()))?;
    let used = view
        .get::<VariableQuotas>(namespace)?
        .map_or(0, |row| row.size);
    let by = variable_size(var) - known.map_or(0, |known| variable_size(&known));
    check_quota(namespace, used, by, quota).map_err(Refusal::by_rule)?;
    Ok(())
}

impl Command for ApplyVariable {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if matches!(self.op, VarOp::LockAcquire | VarOp::LockRelease) {
            let text = format!("svr op \"{}\" is not supported", self.op.name());
            return Err(Refusal::bad_request(text));
        }
        if self.var.path.is_empty() {
            return Err(Refusal::bad_request("missing path"));
        }
        let writes = matches!(self.op, VarOp::Set | VarOp::Cas);
        if writes && (self.var.data.is_empty() || self.var.key_id.is_empty()) {
            return Err(Refusal::internal(
                "a variable must be encrypted before it is written",
            ));
        }
        let mut var = self.var.clone();
        if !writes {
            var.data = Default::default();
            var.key_id.clear();
        }
        let quota = match all_servers_support(view, QUOTA_LEVEL)? {
            true => self.quota,
            false => 0,
        };
        if writes {
            check(view, &var, quota)?;
        }
        let op = self.op;
        Ok(Decision::unguarded(VariableApplied { op, var, quota }))
    }
}
