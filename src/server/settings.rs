//! What the parts of a server are told, made of the plain values of the configuration.

use crate::config;
use crate::history::store::Place;
use crate::log::Keep;
use crate::requests::Guarantee;

/// How much of a log is kept.
pub(crate) fn kept(keep: &config::Keep) -> Keep {
    Keep {
        bytes: keep.bytes,
        age: keep.age,
        events: keep.events,
    }
}

/// What happens where a request cannot be written.
pub(super) fn guarantee(told: config::Guarantee) -> Guarantee {
    match told {
        config::Guarantee::BestEffort => Guarantee::BestEffort,
        config::Guarantee::Enforced => Guarantee::Enforced,
    }
}

/// Where what is dropped from the log is copied to before.
pub(super) fn archive(told: &config::ArchiveConfig) -> Place {
    let secret = told.secret_access_key.as_ref();
    Place {
        url: told.url.clone(),
        endpoint: told.endpoint.clone(),
        region: told.region.clone(),
        access_key_id: told.access_key_id.clone(),
        secret_access_key: secret.map(|hidden| hidden.0.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_archive_and_guarantee_is_what_the_parts_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.hcl");
        let text = "server {\n archive {\n url = \"s3://b/p\"\n endpoint = \"http://e\"\n \
                    region = \"r\"\n access_key_id = \"i\"\n \
                    secret_access_key = \"canary-3d1c\"\n }\n \
                    retention { log {\n bytes = \"9G\"\n age = \"1h\"\n events = 7\n} }\n}\n\
                    audit { delivery_guarantee = \"enforced\" }";
        std::fs::write(&path, text).unwrap();
        let mut config = config::Config::default();
        config::load(&mut config, &[path]).unwrap();
        let place = config.server.archive.as_ref().map(archive).unwrap();
        assert_eq!(place.url, "s3://b/p");
        assert_eq!(place.endpoint.as_deref(), Some("http://e"));
        assert_eq!(place.region.as_deref(), Some("r"));
        assert_eq!(place.access_key_id.as_deref(), Some("i"));
        assert_eq!(place.secret_access_key.as_deref(), Some("canary-3d1c"));
        assert!(!format!("{config:?}").contains("canary-3d1c"));
        let keep = kept(&config.server.retention.log);
        assert_eq!((keep.bytes, keep.events), (Some(9_000_000_000), Some(7)));
        assert_eq!(keep.age, Some(std::time::Duration::from_secs(3600)));
        assert_eq!(
            guarantee(config.audit.delivery_guarantee),
            Guarantee::Enforced
        );
        for told in [config::Guarantee::BestEffort, config::Guarantee::Enforced] {
            assert_eq!(told.name(), guarantee(told).name());
        }
    }
}
