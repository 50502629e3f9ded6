//! Variables: small secrets and settings, by path.

use zeroize::Zeroize;

use crate::gojson::{Base64, DurationTextOrEmpty, Map};

crate::wire! {
    /// What is known of a variable without reading it.
    pub struct VariableMetadata {
        namespace: String = "Namespace",
        path: String = "Path",
        lock: Option<VariableLock> = "Lock",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
    }
}

crate::wire! {
    /// A variable with its items in clear.
    pub struct VariableDecrypted {
        namespace: String = "Namespace",
        path: String = "Path",
        lock: Option<VariableLock> = "Lock",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
        items: Map<String> = "Items" (Secret),
    }
}

/// Clears the names and values of its items: code that holds a variable in clear clears it when it
/// drops it.
impl Zeroize for VariableDecrypted {
    fn zeroize(&mut self) {
        for (mut name, mut value) in std::mem::take(&mut self.items) {
            name.zeroize();
            value.zeroize();
        }
    }
}

crate::wire! {
    /// A variable as it is stored: ciphertext and the key it needs.
    pub struct VariableEncrypted {
        namespace: String = "Namespace",
        path: String = "Path",
        lock: Option<VariableLock> = "Lock",
        create_index: u64 = "CreateIndex",
        create_time: i64 = "CreateTime",
        modify_index: u64 = "ModifyIndex",
        modify_time: i64 = "ModifyTime",
        data: Base64 = "Data" (Secret),
        key_id: String = "KeyID",
    }
}

crate::wire! {
    /// A lock on a variable.
    pub struct VariableLock {
        id: String = "ID" (Sensitive),
        ttl: DurationTextOrEmpty = "TTL",
        lock_delay: DurationTextOrEmpty = "LockDelay",
    }
}
