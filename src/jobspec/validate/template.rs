//! Rules of templates.

use super::{escapes, when, wrapped};
use crate::duration::format as dur;
use drover_events::model::Template;
use std::collections::BTreeMap;

pub(super) fn check(list: &[Template], errors: &mut Vec<String>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, t) in list.iter().enumerate() {
        let number = i + 1;
        wrapped(
            errors,
            || format!("Template {number} validation failed"),
            |e| one(t, e),
        );
        if t.dest_path.is_empty() {
            continue;
        }
        match seen.get(t.dest_path.as_str()) {
            Some(first) => {
                errors.push(format!("Template {number} has same destination as {first}"))
            }
            None => {
                seen.insert(&t.dest_path, number);
            }
        }
    }
}

fn one(t: &Template, errors: &mut Vec<String>) {
    when(
        errors,
        t.source_path.is_empty() && t.embedded_tmpl.is_empty(),
        || "Must specify a source path or have an embedded template".into(),
    );
    when(errors, t.dest_path.is_empty(), || {
        "Must specify a destination for the template".into()
    });
    when(errors, escapes(&t.dest_path, 1), || {
        "destination escapes allocation directory".into()
    });
    match t.change_mode.as_str() {
        "noop" | "restart" => {}
        "signal" => {
            when(errors, t.change_signal.is_empty(), || {
                "Must specify signal value when change mode is signal".into()
            });
            when(errors, t.envvars, || {
                "cannot use signals with env var templates".into()
            });
        }
        "script" => match &t.change_script {
            None => errors.push(
                "must specify change script configuration value when change mode is script".into(),
            ),
            Some(script) => when(errors, script.command.is_empty(), || {
                "must specify script path value when change mode is script".into()
            }),
        },
        _ => errors.push(
            "Invalid change mode. Must be one of the following: noop, signal, script, restart"
                .into(),
        ),
    }
    when(errors, t.splay < 0, || {
        "Must specify positive splay value".into()
    });
    if !t.perms.is_empty() && u32::from_str_radix(&t.perms, 8).is_err() {
        errors.push(format!(
            "Failed to parse {:?} as octal: invalid syntax",
            t.perms
        ));
    }
    if let Some(wait) = &t.wait
        && let (Some(min), Some(max)) = (wait.min, wait.max)
    {
        when(errors, min > max, || {
            format!("wait min {} is greater than max {}", dur(min), dur(max))
        });
    }
}
