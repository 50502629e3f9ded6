//! `acl_roles`: ACL roles.

use drover_events::Topic;
use drover_events::model::AclRole;

use crate::engine::key::Id;
use crate::engine::table::{Entries, Index, IndexDef, StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct AclRoles;

impl Table for AclRoles {
    const ID: u16 = 23;
    const NAME: &'static str = "acl_roles";
    type Key = Id;
    type Row = AclRole;
    const INDEXES: &'static [IndexDef<Self>] = &[IndexDef::of::<AclRolesByName>()];

    fn key(row: &AclRole) -> Id {
        Id::new(row.id.as_str())
    }

    fn stream(row: &AclRole) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::AclRole, "", &row.id, &[&row.name]))
    }
}

/// The role with this name (EV-17).
pub struct AclRolesByName;

impl Index for AclRolesByName {
    type Table = AclRoles;
    const NO: u8 = 1;
    const NAME: &'static str = "name";
    type Group = String;
    type Order = ();

    fn entries(row: &AclRole, out: &mut Entries) {
        out.add::<Self>(&row.name, ());
    }
}
