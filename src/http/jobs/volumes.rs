//! The rights that the caller needs to register a job that mounts volumes.

use drover_events::model::status::{VolumeType, volume_type};
use drover_events::model::{Job, TaskGroup};

use crate::acl::{Acl, HostVolumeCapability as Mount, NamespaceCapability as Ns};

/// Whether the volumes of a job may be mounted, and its plugins of volumes registered.
pub(super) fn allowed(acl: &Acl, job: &Job) -> bool {
    let mut groups = job.task_groups.iter();
    groups.all(|group| mounts(acl, &job.namespace, group) && tasks(acl, &job.namespace, group))
}

fn mounts(acl: &Acl, namespace: &str, group: &TaskGroup) -> bool {
    group.volumes.values().all(|volume| {
        let writes = acl.host_volume_allows(&volume.source, Mount::MountReadwrite);
        match volume.kind() {
            // Who may write may read as well.
            Some(VolumeType::Host) if volume.read_only => {
                writes || acl.host_volume_allows(&volume.source, Mount::MountReadonly)
            }
            Some(VolumeType::Host) => writes,
            Some(VolumeType::Csi) | None => acl.csi_mount_allows(namespace),
        }
    })
}

fn tasks(acl: &Acl, namespace: &str, group: &TaskGroup) -> bool {
    group.tasks.iter().all(|task| {
        let registers = task.csi_plugin_config.is_some();
        // What a task mounts in it is seen by the host: no less than writing.
        let spreads =
            |mount: &&drover_events::model::VolumeMount| mount.propagation_mode == "bidirectional";
        let mut spreading = task.volume_mounts.iter().filter(spreads);
        let held = spreading.all(|mount| {
            let volume = group.volumes.get(&mount.volume);
            volume.is_none_or(|volume| {
                volume.r#type != volume_type::HOST
                    || acl.host_volume_allows(&volume.source, Mount::MountReadwrite)
            })
        });
        held && (!registers || acl.namespace_allows(namespace, Ns::CsiRegisterPlugin))
    })
}

#[cfg(test)]
mod tests {
    use drover_events::gojson::from_value;
    use serde_json::json;

    use super::*;
    use crate::acl::{Strictness, parse};

    fn acl(rules: &str) -> Acl {
        let policy = parse(rules, Strictness::Strict).expect("a policy");
        Acl::compile(&[&policy])
    }

    fn job(volume: serde_json::Value, task: serde_json::Value) -> Job {
        from_value(json!({"ID": "j", "Namespace": "apps", "TaskGroups": [
            {"Name": "g", "Volumes": {"v": volume}, "Tasks": [task]}]}))
        .expect("a job")
    }

    #[test]
    fn job_08_a_volume_asks_for_the_right_to_mount_it_so() {
        let host =
            |read_only: bool| json!({"Type": "host", "Source": "data", "ReadOnly": read_only});
        let none = json!({"Name": "t"});
        let spread = json!({"Name": "t",
            "VolumeMounts": [{"Volume": "v", "PropagationMode": "bidirectional"}]});
        let csi = json!({"Type": "csi", "Source": "data"});
        let plugin = json!({"Name": "t", "CSIPluginConfig": {"ID": "p", "Type": "node"}});
        let other = json!({"Type": "host", "Source": "other"});
        let rules = |name: &str, policy: &str| {
            format!("host_volume \"{name}\" {{ policy = \"{policy}\" }}")
        };
        let namespace = |capability: &str| {
            format!("namespace \"apps\" {{ capabilities = [\"{capability}\"] }}")
        };
        let both = format!(
            "{}\nplugin {{ policy = \"read\" }}",
            namespace("csi-mount-volume")
        );
        for (rules, volume, task, may) in [
            (namespace("submit-job"), host(true), &none, false),
            (rules("data", "read"), host(true), &none, true),
            (rules("data", "read"), host(false), &none, false),
            (rules("da*", "write"), host(false), &none, true),
            (rules("data", "write"), host(true), &none, true),
            (rules("data", "write"), other, &none, false),
            (rules("data", "deny"), host(true), &none, false),
            (rules("data", "read"), host(true), &spread, false),
            (rules("data", "write"), host(true), &spread, true),
            (rules("data", "write"), csi.clone(), &none, false),
            (namespace("csi-mount-volume"), csi.clone(), &none, false),
            (both, csi, &none, true),
            (rules("data", "write"), host(false), &plugin, false),
        ] {
            let job = job(volume, task.clone());
            assert_eq!(allowed(&acl(&rules), &job), may, "{rules} {job:?}");
        }
    }
}
