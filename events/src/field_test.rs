use std::collections::BTreeSet;

use super::*;
use crate::model::{self, Job, LogConfig, VolumeRequest};

/// Calls back for every block of a job, once for each place where it stands.
fn each_block(shape: &'static Shape, seen: &mut dyn FnMut(&'static Shape)) {
    seen(shape);
    for field in shape.fields {
        if let Some((inner, _)) = field.kind.shape() {
            each_block(inner, seen);
        }
    }
}

#[test]
fn a_line_says_all_that_there_is_of_a_field() {
    let of = |json: &str| LogConfig::SHAPE.json(json).expect("a field");
    let size = of("maxfilesizemb");
    assert_eq!(
        (size.hcl, size.json),
        ("max_file_size", "MaxFileSizeMB"),
        "{size:?}"
    );
    assert!(matches!(size.kind, Kind::Int { opt: true, .. }));
    assert_eq!(
        (of("Disabled").hcl, size.class),
        ("disabled", Class::Public)
    );
    let env = model::Task::SHAPE.hcl("env").expect("said");
    assert_eq!((env.class, env.json), (Class::Sensitive, "Env"));
    // Kept as another field, so no value of the model and no schema has it.
    assert!(matches!(of("Enabled").kind, Kind::Bool { opt: true }));
    assert!(!LogConfig::FIELDS.contains(&"Enabled"));
    // A word of the language is a name as any other; what has no brackets is had by JSON alone.
    assert_eq!(VolumeRequest::SHAPE.hcl("type").expect("said").json, "Type");
    let name = VolumeRequest::SHAPE.json("Name").expect("a field");
    assert!(name.hcl.is_empty() && name.shown && !name.required);
    let interval = model::RestartPolicy::SHAPE.hcl("interval");
    let interval = interval.expect("said").kind;
    assert!(matches!(interval, Kind::Dur { opt: true }), "{interval:?}");
    assert_eq!(
        (size.default, size.empty_is_unset),
        (Some(Preset::Int(10)), false)
    );
    let priority = Job::SHAPE.json("Priority").expect("a field");
    assert_eq!(
        (priority.default, priority.empty_is_unset),
        (Some(Preset::Int(50)), true)
    );
}

#[test]
fn names_are_found_and_mean_one_field() {
    let mut blocks = 0;
    each_block(Job::SHAPE, &mut |shape| {
        blocks += 1;
        let (mut hcl_names, mut names) = (BTreeSet::new(), BTreeSet::new());
        for field in shape.fields {
            let place = format!("{}.{}", shape.name, field.json);
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(field.hcl.chars().all(is_plain), "{place}");
            assert!(
                field.hcl.is_empty() || hcl_names.insert(field.hcl),
                "{place}"
            );
            assert!(names.insert(field.json.to_lowercase()), "{place}");
            // What is had only until it is put where it belongs has to be said to be had.
            let passing = field.is_internal();
            let sayable = !field.hcl.is_empty();
            assert!(sayable || !passing && !field.required, "{place}");
            if let Kind::Labelled(inner, label) | Kind::ByLabel(inner, label) = field.kind {
                let known = label.starts_with('@') || inner.json(label).is_some();
                assert!(known, "{place}: no field {label}");
            }
        }
    });
    assert!(blocks > 100, "{blocks}");
}

/// What a struct keeps is in its block, in the order of the wire, before what it does not keep.
#[test]
fn a_block_begins_with_what_its_struct_keeps() {
    let keeps = [
        (Job::SHAPE, Job::FIELDS),
        (model::Task::SHAPE, model::Task::FIELDS),
        (model::TaskGroup::SHAPE, model::TaskGroup::FIELDS),
        (model::Service::SHAPE, model::Service::FIELDS),
        (LogConfig::SHAPE, LogConfig::FIELDS),
    ];
    for (shape, fields) in keeps {
        let names = shape.fields.iter().map(|field| field.json);
        let names: Vec<_> = names.take(fields.len()).collect();
        assert_eq!(names, fields, "{}", shape.name);
    }
}
