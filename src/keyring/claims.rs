//! What a workload identity says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The audience of identities that are meant for this cluster's own API.
pub const DEFAULT_AUDIENCE: &str = "nomadproject.io";

/// Who a workload is and which of its identities is meant; [`WorkloadIdentity::claims`] makes the
/// claims of its token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadIdentity {
    pub region: String,
    /// The job's namespace.
    pub namespace: String,
    pub job_id: String,
    /// The task group.
    pub group: String,
    /// The task; empty for a service's identity.
    pub task: String,
    /// The service; empty for a task's identity.
    pub service: String,
    pub alloc_id: String,
    /// Name of the identity block, `default` where it has none.
    pub name: String,
    /// Audiences; empty means the cluster's own API.
    pub audience: Vec<String>,
    /// How long the token is good for, in nanoseconds; 0 means as long as the allocation lives.
    pub ttl_ns: i64,
    /// Claims requested beyond the usual ones.
    pub extra: BTreeMap<String, String>,
}

/// The claims of a token (RFC 7519), with the names that Nomad's clients know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Audiences.
    pub aud: Vec<String>,
    /// End of validity in Unix seconds; absent for a token that does not expire by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// When it was issued, in Unix seconds.
    pub iat: i64,
    /// The token's own id, a function of what it is for and when it was issued.
    pub jti: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nomad_allocation_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nomad_job_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nomad_namespace: String,
    /// The service, for a service's identity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nomad_service: String,
    /// The task, for a task's identity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nomad_task: String,
    /// Not before, in Unix seconds.
    pub nbf: i64,
    /// `region:namespace:job:group:task:identity`.
    pub sub: String,
    /// Claims requested beyond the usual ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_claims: BTreeMap<String, String>,
}

impl WorkloadIdentity {
    /// The claims of a token issued at `issued`, in Unix nanoseconds. Equal input, equal claims.
    pub fn claims(&self, issued: i64) -> Claims {
        let seconds = issued.div_euclid(1_000_000_000);
        let last = if self.service.is_empty() {
            &self.task
        } else {
            &self.service
        };
        let sub = [
            &self.region,
            &self.namespace,
            &self.job_id,
            &self.group,
            last,
            &self.name,
        ]
        .map(String::as_str)
        .join(":");
        let aud = if self.audience.is_empty() {
            vec![DEFAULT_AUDIENCE.to_owned()]
        } else {
            self.audience.clone()
        };
        Claims {
            aud,
            exp: (self.ttl_ns > 0).then(|| seconds + self.ttl_ns.div_euclid(1_000_000_000)),
            iat: seconds,
            jti: token_id(&sub, &self.alloc_id, issued),
            nomad_allocation_id: self.alloc_id.clone(),
            nomad_job_id: self.job_id.clone(),
            nomad_namespace: self.namespace.clone(),
            nomad_service: self.service.clone(),
            nomad_task: self.task.clone(),
            nbf: seconds,
            sub,
            extra_claims: self.extra.clone(),
        }
    }
}

/// A UUID (RFC 9562, version 8) made from what the token is for.
fn token_id(subject: &str, alloc_id: &str, issued: i64) -> String {
    let mut hash = Sha256::new();
    for part in [subject.as_bytes(), alloc_id.as_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(issued.to_le_bytes());
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}
