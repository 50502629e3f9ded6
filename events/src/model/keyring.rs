//! Root keys: what is known of them, never their material.

crate::wire! {
    /// What is known of a root key.
    pub struct RootKeyMeta {
        key_id: String = "KeyID",
        algorithm: String = "Algorithm",
        create_time: i64 = "CreateTime",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
        state: String = "State",
        publish_time: i64 = "PublishTime",
    }
}
