//! Services registered with the cluster itself.

use crate::gojson::List;

crate::wire! {
    /// One instance of a service.
    pub struct ServiceRegistration {
        id: String = "ID",
        service_name: String = "ServiceName",
        namespace: String = "Namespace",
        node_id: String = "NodeID",
        datacenter: String = "Datacenter",
        job_id: String = "JobID",
        alloc_id: String = "AllocID",
        tags: List<String> = "Tags",
        address: String = "Address",
        port: i64 = "Port",
        create_index: u64 = "CreateIndex",
        modify_index: u64 = "ModifyIndex",
    }
}

crate::wire! {
    /// The services of a namespace.
    pub struct ServiceRegistrationListStub {
        namespace: String = "Namespace",
        services: List<ServiceRegistrationStub> = "Services",
    }
}

crate::wire! {
    /// A service with the tags of its instances.
    pub struct ServiceRegistrationStub {
        service_name: String = "ServiceName",
        tags: List<String> = "Tags",
    }
}

crate::wire! {
    /// The last result of a check.
    pub struct CheckQueryResult {
        id: String = "ID",
        mode: String = "Mode",
        status: String = "Status",
        status_code: i64 = "StatusCode",
        output: String = "Output" (Sensitive),
        timestamp: i64 = "Timestamp",
        group: String = "Group",
        task: String = "Task",
        service: String = "Service",
        check: String = "Check",
    }
}
