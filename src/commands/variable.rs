//! The command of variables: one operation, already encrypted. The race is settled in apply
//! (VAR-02): there is nothing to guard here.

use drover_events::model::VariableEncrypted;
use drover_events::variable::*;
use drover_projections::View;

use super::{Command, Decision, Stamp};
use crate::error::ApiError;

/// One operation on one variable. Its reply is `Reply::Variable`.
#[derive(Clone, Debug)]
pub struct ApplyVariable {
    /// The operation.
    pub op: VarOp,
    /// The variable; for a check-and-set with the modify index the caller knows.
    pub var: VariableEncrypted,
}

impl Command for ApplyVariable {
    fn decide(&self, _view: &View, _stamp: &Stamp) -> Result<Decision, ApiError> {
        if matches!(self.op, VarOp::LockAcquire | VarOp::LockRelease) {
            let text = format!("svr op \"{}\" is not supported", self.op.name());
            return Err(ApiError::bad_request(text));
        }
        if self.var.path.is_empty() {
            return Err(ApiError::bad_request("missing path"));
        }
        let writes = matches!(self.op, VarOp::Set | VarOp::Cas);
        if writes && (self.var.data.is_empty() || self.var.key_id.is_empty()) {
            return Err(ApiError::internal(
                "a variable must be encrypted before it is written",
            ));
        }
        let mut var = self.var.clone();
        if !writes {
            var.data = Default::default();
            var.key_id.clear();
        }
        Ok(Decision::free(VariableApplied { op: self.op, var }))
    }
}
