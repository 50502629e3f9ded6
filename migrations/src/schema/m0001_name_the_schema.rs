//! Step 1: a database from before there was a header gets one. Its tables are as they were.

use drover_projections::StorageError;
use drover_projections::maintenance::Maintenance;

use super::run::{Step, StepProgress};

/// The step.
pub(super) struct NameTheSchema;

impl Step for NameTheSchema {
    fn name(&self) -> &'static str {
        "name the schema"
    }

    fn page(&self, _db: &Maintenance, _cursor: &[u8]) -> Result<StepProgress, StorageError> {
        Ok(StepProgress::Done(Vec::new()))
    }
}
