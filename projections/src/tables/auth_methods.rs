//! `auth_methods`: ways to sign in.

use drover_events::Topic;
use drover_events::model::AclAuthMethod;

use crate::engine::table::{StreamKey, Table};

#[allow(missing_docs, reason = "the module says it")]
pub struct AuthMethods;

impl Table for AuthMethods {
    const ID: u16 = 24;
    const NAME: &'static str = "auth_methods";
    type Key = String;
    type Row = AclAuthMethod;

    fn key(row: &AclAuthMethod) -> String {
        row.name.clone()
    }

    fn stream(row: &AclAuthMethod) -> Option<StreamKey<'_>> {
        Some(StreamKey::new(Topic::AclAuthMethod, "", &row.name, &[]))
    }
}
