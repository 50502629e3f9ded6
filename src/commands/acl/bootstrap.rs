//! The command that makes the first management token.

use drover_error::Refusal;
use drover_events::acl::*;
use drover_events::gojson::{GoTime, List};
use drover_events::model::AclToken;
use drover_events::model::status::token_type;
use drover_projections::View;
use drover_projections::tables::cluster_meta::ClusterMetaTable;

use super::require_acl_support;
use super::token::set_content_hash;
use crate::{Command, Decision, Stamp};

/// The first management token is made: once, and again for an operator who can write the index of
/// the last time into a file on the server.
#[derive(Clone, Debug)]
pub struct BootstrapAcl {
    /// The accessor made for it.
    pub accessor_id: String,
    pub secret: SealedSecret,
    /// The index in the file; 0 for none.
    pub reset_index: u64,
}

impl Command for BootstrapAcl {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        require_acl_support(view)?;
        let meta = view.get::<ClusterMetaTable>(())?.unwrap_or_default();
        let last = meta.acl_bootstrap_index;
        if last != 0 && self.reset_index == 0 {
            let text = format!("ACL bootstrap already done (reset index: {last})");
            return Err(Refusal::bad_request(text));
        }
        if last != 0 && self.reset_index != last {
            return Err(Refusal::bad_request(format!(
                "Invalid bootstrap reset index (specified {}, reset index: {last})",
                self.reset_index
            )));
        }
        let mut token = AclToken {
            accessor_id: self.accessor_id.clone(),
            name: "Bootstrap Token".to_owned(),
            r#type: token_type::MANAGEMENT.to_owned(),
            global: true,
            create_time: GoTime(stamp.now),
            policies: List::nil(),
            ..AclToken::default()
        };
        set_content_hash(&mut token);
        Ok(Decision::unguarded(AclBootstrapped {
            token: SealedToken {
                token,
                secret: self.secret.clone(),
            },
            reset_index: last,
        }))
    }
}
