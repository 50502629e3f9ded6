//! Rules of checks.

use super::when;
use crate::duration::format as dur;
use drover_events::model::status::CheckStatus;
use drover_events::model::{Service, ServiceCheck};

const SECOND: i64 = 1_000_000_000;

pub(super) fn check(c: &ServiceCheck, s: &Service, errors: &mut Vec<String>) {
    let needs_port = matches!(c.r#type.as_str(), "http" | "tcp" | "grpc");
    let has_port = !c.port_label.is_empty() || !s.port_label.is_empty();
    let connect = s
        .connect
        .as_ref()
        .is_some_and(|c| c.sidecar_service.is_some());
    when(errors, needs_port && !has_port && !connect, || {
        format!(
            "Check {} invalid: check requires a port but neither check nor service {:?} have a \
                port",
            c.name, s.name
        )
    });
    when(
        errors,
        c.r#type == "tcp"
            && s.connect
                .as_ref()
                .is_some_and(|c| c.gateway.is_none() && !c.native),
        || {
            format!(
                "Check {} invalid: tcp checks are not valid for Connect enabled services",
                c.name
            )
        },
    );
    let mut inner = Vec::new();
    let nomad = s.provider == "nomad";
    kind(c, nomad, &mut inner);
    intervals(c, &mut inner);
    if nomad {
        for_nomad(c, &mut inner)
    } else {
        for_consul(c, &mut inner)
    }
    restart(c, &mut inner);
    errors.extend(
        inner
            .into_iter()
            .map(|text| format!("Check {} invalid: {text}", c.name)),
    );
}

fn kind(c: &ServiceCheck, nomad: bool, errors: &mut Vec<String>) {
    match c.r#type.as_str() {
        "http" if c.path.is_empty() => errors.push("http type must have http path".into()),
        "http" => {
            when(errors, c.path.contains("://"), || {
                "http type must have relative http path".into()
            });
            when(errors, c.path.contains(char::is_whitespace), || {
                "http type must have valid http path".into()
            });
        }
        "tcp" => {}
        "grpc" if !nomad => {}
        "script" if !nomad => when(errors, c.command.is_empty(), || {
            "script type must have a valid script path".into()
        }),
        other => {
            let known = if nomad {
                "tcp, http"
            } else {
                "http, tcp, script, grpc"
            };
            errors.push(format!(
                "invalid check type ({other:?}), must be one of {known}"
            ));
        }
    }
}

fn intervals(c: &ServiceCheck, errors: &mut Vec<String>) {
    match c.interval {
        0 => errors.push("missing required value interval. Interval cannot be less than 1s".into()),
        n if n < SECOND => errors.push(format!("interval ({}) cannot be lower than 1s", dur(n))),
        _ => {}
    }
    match c.timeout {
        0 => errors.push("missing required value timeout. Timeout cannot be less than 1s".into()),
        n if n < SECOND => {
            errors.push(format!(
                "timeout ({}) is lower than required minimum timeout 1s",
                dur(n)
            ));
        }
        _ => {}
    }
}

fn for_nomad(c: &ServiceCheck, errors: &mut Vec<String>) {
    let initial = c.initial_status.as_str();
    let is_status = initial.is_empty() || CheckStatus::of(initial).is_some();
    when(errors, !is_status, || {
        format!(
            "invalid initial check state ({initial}), must be one of \"pending\", \"success\", \
                \"failure\" or empty"
        )
    });
    when(errors, c.expose, || {
        "expose may only be set for Consul service checks".into()
    });
    let method = c.method.as_str();
    let known = [
        "", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE",
    ];
    when(errors, !known.contains(&method), || {
        format!("method type {method:?} not supported in Nomad http check")
    });
    when(errors, c.address_mode == "driver", || {
        "address_mode = driver may only be set for Consul service checks".into()
    });
    when(errors, !c.tls_server_name.is_empty(), || {
        "tls_server_name may only be set for Consul service checks".into()
    });
    for (name, value) in [
        ("success_before_passing", c.success_before_passing),
        ("failures_before_critical", c.failures_before_critical),
        ("failures_before_warning", c.failures_before_warning),
    ] {
        when(errors, value != 0, || {
            format!("{name} may only be set for Consul service checks")
        });
    }
}

fn for_consul(c: &ServiceCheck, errors: &mut Vec<String>) {
    let state = c.initial_status.as_str();
    when(
        errors,
        !matches!(state, "" | "passing" | "warning" | "critical"),
        || {
            format!(
                "invalid initial check state ({state}), must be one of \"passing\", \"warning\", \
                    \"critical\" or empty"
            )
        },
    );
    when(
        errors,
        c.expose && !matches!(c.r#type.as_str(), "http" | "grpc"),
        || "expose may only be set on HTTP or gRPC checks".into(),
    );
    for (name, value) in [
        ("success_before_passing", c.success_before_passing),
        ("failures_before_critical", c.failures_before_critical),
        ("failures_before_warning", c.failures_before_warning),
    ] {
        when(errors, value < 0, || format!("{name} must be non-negative"));
        when(errors, value > 0 && c.r#type == "script", || {
            format!("{name} not supported for check of type \"script\"")
        });
    }
    when(errors, c.notes.len() > 255, || {
        "notes must not be longer than 255 characters".into()
    });
}

fn restart(c: &ServiceCheck, errors: &mut Vec<String>) {
    let Some(rule) = &c.check_restart else { return };
    when(errors, rule.limit < 0, || {
        format!(
            "limit must be greater than or equal to 0 but found {}",
            rule.limit
        )
    });
    when(errors, rule.grace < 0, || {
        format!(
            "grace period must be greater than or equal to 0 but found {}",
            rule.grace
        )
    });
    when(errors, c.on_update == "ignore" && rule.limit > 0, || {
        "on_update value \"ignore\" is not compatible with check_restart".into()
    });
    when(
        errors,
        c.on_update == "ignore_warnings" && rule.limit > 0 && !rule.ignore_warnings,
        || {
            "on_update value \"ignore_warnings\" not supported with check_restart ignore_warnings \
                value \"false\""
                .into()
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chk_05_native_services_have_checks_of_two_kinds() {
        for (kind, provider, allowed) in [
            ("http", "nomad", true),
            ("tcp", "nomad", true),
            ("grpc", "nomad", false),
            ("script", "nomad", false),
            ("", "nomad", false),
            ("magic", "nomad", false),
            ("grpc", "consul", true),
            ("script", "consul", true),
            ("magic", "consul", false),
        ] {
            let check_of_kind = ServiceCheck {
                name: "alive".into(),
                r#type: kind.into(),
                path: "/".into(),
                command: "/bin/true".into(),
                interval: SECOND,
                timeout: SECOND,
                ..ServiceCheck::default()
            };
            let service = Service {
                name: "web".into(),
                provider: provider.into(),
                port_label: "http".into(),
                ..Service::default()
            };
            let mut errors = Vec::new();
            check(&check_of_kind, &service, &mut errors);
            let of_kind = errors.iter().any(|e| e.contains("invalid check type"));
            assert_eq!(of_kind, !allowed, "{kind:?} of {provider}: {errors:?}");
            assert_eq!(
                errors.is_empty(),
                allowed,
                "{kind:?} of {provider}: {errors:?}"
            );
        }
    }
}
