//! Settings in the form that a plugin takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::proto::base::spec::Block as Kind;
use crate::proto::base::{
    Attr, Block, BlockAttrs, BlockList, BlockMap, Default as Usual, Literal, Object, Spec,
};
use crate::schema::encoded;

fn of(kind: Kind) -> Spec {
    Spec { block: Some(kind) }
}

fn attr(kind: &str, required: bool) -> Spec {
    of(Kind::Attr(Attr {
        name: String::new(),
        r#type: kind.to_owned(),
        required,
    }))
}

fn object<const N: usize>(attributes: [(&str, Spec); N]) -> Spec {
    let attributes: BTreeMap<String, Spec> = attributes
        .map(|(name, spec)| (name.to_owned(), spec))
        .into();
    of(Kind::Object(Object { attributes }))
}

/// One with everything that plugins of devices have.
fn form() -> Spec {
    let nested = || Some(Box::new(object([("size", attr("number", true))])));
    object([
        ("enabled", attr("bool", false)),
        ("ids", attr("list(string)", false)),
        (
            "period",
            of(Kind::Default(Box::new(Usual {
                primary: Some(Box::new(attr("string", false))),
                default: Some(Box::new(of(Kind::Literal(Literal {
                    value: "\"1m\"".to_owned(),
                })))),
            }))),
        ),
        (
            "limits",
            of(Kind::BlockValue(Box::new(Block {
                nested: nested(),
                ..Block::default()
            }))),
        ),
        (
            "group",
            of(Kind::BlockList(Box::new(BlockList {
                nested: nested(),
                max_items: 2,
                ..BlockList::default()
            }))),
        ),
        (
            "card",
            of(Kind::BlockMap(Box::new(BlockMap {
                labels: vec!["slot".to_owned()],
                nested: nested(),
                ..BlockMap::default()
            }))),
        ),
        (
            "words",
            of(Kind::BlockAttrs(BlockAttrs {
                r#type: "string".to_owned(),
                ..BlockAttrs::default()
            })),
        ),
    ])
}

fn fitted(form: &Spec, written: &Value) -> Result<Value, String> {
    let bytes = encoded(Some(form), written)?.expect("it takes settings");
    Ok(rmp_serde::from_slice(&bytes).unwrap())
}

#[test]
fn mod_07_settings_come_in_the_form_that_the_plugin_takes() {
    let none = json!({"enabled": null, "ids": null, "period": "1m", "limits": null,
        "group": [], "card": {}, "words": null});
    assert_eq!(fitted(&form(), &json!({})).unwrap(), none);
    assert_eq!(fitted(&form(), &Value::Null).unwrap(), none);
    let written = json!({"enabled": "true", "ids": ["a", 7], "period": "5s",
        "limits": {"size": "12"}, "group": [{"size": 1}, {"size": 2.5}],
        "card": [{"left": {"size": 3}}, {"right": {"size": 4}}],
        "words": {"x": true, "y": "z"}});
    let wanted = json!({"enabled": true, "ids": ["a", "7"], "period": "5s",
        "limits": {"size": 12}, "group": [{"size": 1}, {"size": 2.5}],
        "card": {"left": {"size": 3}, "right": {"size": 4}},
        "words": {"x": "true", "y": "z"}});
    assert_eq!(fitted(&form(), &written).unwrap(), wanted);
}

#[test]
fn mod_07_settings_that_the_plugin_does_not_take_are_refused() {
    for (written, why) in [
        (json!({"other": 1}), "other: there is no such setting"),
        (json!({"limits": {}}), "limits.size: it is missing"),
        (
            json!({"limits": {"size": 1, "x": 2}}),
            "limits.x: there is no such setting",
        ),
        (
            json!({"limits": [{"size": 1}, {"size": 1}]}),
            "limits: there are several",
        ),
        (json!({"limits": 5}), "limits: it must be a block"),
        (json!({"enabled": "maybe"}), "enabled: it is no bool"),
        (json!({"ids": "a"}), "ids: it is no list(string)"),
        (
            json!({"group": [{"size": 1}, {"size": 1}, {"size": 1}]}),
            "group: there are 3 of it",
        ),
        (json!([]), "its settings are no block"),
    ] {
        assert_eq!(fitted(&form(), &written).unwrap_err(), why, "{written}");
    }
    assert_eq!(encoded(None, &json!({})), Ok(None));
    let why = encoded(None, &json!({"a": 1})).unwrap_err();
    assert_eq!(why, "it takes no settings, and \"a\" is one");
    let unknown = object([("a", attr("object({})", false))]);
    assert!(fitted(&unknown, &json!({"a": {}})).is_err());
    let mut deep = object([]);
    for _ in 0..40 {
        let nested = Some(Box::new(deep));
        let block = of(Kind::BlockValue(Box::new(Block {
            nested,
            ..Block::default()
        })));
        deep = object([("a", block)]);
    }
    let mut written = json!({});
    for _ in 0..40 {
        written = json!({"a": written});
    }
    assert_eq!(
        fitted(&deep, &written).unwrap_err(),
        "its form nests too deeply"
    );
}
