//! Commands about root keys. The material is in the key store, synced, before any of these.

use drover_events::gojson::Base64;
use drover_events::keyring::*;
use drover_events::model::RootKeyMeta;
use drover_events::model::status::root_key;
use drover_projections::tables::root_keys::RootKeys;
use drover_projections::{View, query};

use super::{Command, Decision, Stamp};
use drover_error::Refusal;

/// A root key's metadata is written.
#[derive(Clone, Debug)]
pub struct UpsertRootKey {
    /// The metadata.
    pub key: RootKeyMeta,
    /// The public half of the key that signs identities.
    pub public_key: Base64,
    /// Whether what the former keys encrypt is to be encrypted again.
    pub rekey: bool,
}

impl Command for UpsertRootKey {
    fn decide(&self, view: &View, stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.key.key_id.is_empty() {
            return Err(Refusal::by_rule("root key metadata is missing the key ID"));
        }
        if !root_key::ALL.contains(&self.key.state.as_str()) {
            let text = format!("root key state \"{}\" is invalid", self.key.state);
            return Err(Refusal::by_rule(text));
        }
        let mut key = self.key.clone();
        if key.create_time == 0 {
            key.create_time = stamp.now;
        }
        let guards = vec![view.guard::<RootKeys>(key.key_id.as_str())?];
        let (public_key, rekey) = (self.public_key.clone(), self.rekey);
        Ok(Decision::guarded(
            RootKeyUpserted {
                key,
                public_key,
                rekey,
            },
            guards,
        ))
    }
}

/// A root key is removed (KR-08); apply checks it all again.
#[derive(Clone, Debug)]
pub struct DeleteRootKey {
    pub key_id: String,
    /// Also when something is still encrypted or signed with it.
    pub force: bool,
}

impl Command for DeleteRootKey {
    fn decide(&self, view: &View, _stamp: &Stamp) -> Result<Decision, Refusal> {
        if self.key_id.is_empty() {
            return Err(Refusal::by_rule("root key ID is required"));
        }
        let known = view.get::<RootKeys>(self.key_id.as_str())?;
        let known = known.ok_or_else(|| Refusal::by_rule("root key not found"))?;
        if known.meta.state == root_key::ACTIVE {
            let text = "active root key cannot be deleted - call rotate first";
            return Err(Refusal::by_rule(text));
        }
        if !self.force && query::root_key_in_use(view, &self.key_id)? {
            return Err(Refusal::by_rule("root key in use, cannot delete"));
        }
        let (key_id, force) = (self.key_id.clone(), self.force);
        Ok(Decision::unguarded(RootKeyDeleted { key_id, force }))
    }
}
