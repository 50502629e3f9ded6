use super::*;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Row {
    zebra: String,
    alpha: i64,
    flag: Option<bool>,
    list: Vec<u32>,
    map: BTreeMap<String, i32>,
    inner: Inner,
    inners: Vec<Inner>,
    kind: Kind,
    real: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Inner {
    #[serde(with = "bytes_form")]
    raw: Vec<u8>,
    n: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Kind {
    #[default]
    Plain,
    Sized(u8),
    Pair(u8, i8),
    Named {
        x: u8,
    },
}

mod bytes_form {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(v: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(v)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        bytes::Bytes::deserialize(d).map(Into::into)
    }
}

fn hex_of<T: Serialize>(value: &T) -> String {
    hex::encode(Canonical::default().encode(value).unwrap())
}

#[test]
fn the_form_is_for_ever() {
    let row = Row {
        zebra: "z".into(),
        alpha: -129,
        flag: Some(false),
        list: vec![0, 300],
        map: [("b".into(), 0), ("a".into(), 1)].into(),
        inner: Inner {
            raw: vec![1, 2],
            n: 0,
        },
        inners: vec![Inner::default()],
        kind: Kind::Named { x: 0 },
        real: 1.5,
    };
    let wanted = concat!(
        "89",
        "a36d6170",
        "82a16101a16200", // map, its entries kept
        "a4666c6167",
        "c2", // Some(false) is not none
        "a46b696e64",
        "81a54e616d656481a17800", // a variant keeps its fields
        "a46c697374",
        "9200cd012c",
        "a47265616c",
        "cb3ff8000000000000",
        "a5616c706861",
        "d1ff7f",
        "a5696e6e6572",
        "81a3726177c4020102",
        "a57a65627261",
        "a17a",
        "a6696e6e657273",
        "9180", // elements are kept
    );
    assert_eq!(hex_of(&row), wanted);
}

#[test]
fn zero_fields_are_left_out_and_come_back() {
    #[derive(Serialize)]
    struct Zero {
        a: u8,
        b: &'static str,
        c: Option<u8>,
        d: f64,
        e: Inner,
    }
    let zero = Zero {
        a: 0,
        b: "",
        c: None,
        d: 0.0,
        e: Inner::default(),
    };
    assert_eq!(hex_of(&zero), "80");
    let minus = Zero { d: -0.0, ..zero };
    assert_eq!(hex_of(&minus), "81a164cb8000000000000000");
}

#[test]
fn wide_maps_and_repeated_keys() {
    let wide: BTreeMap<String, u32> = (0..70_000).map(|n| (format!("{n:05}"), n)).collect();
    let mut canonical = Canonical::default();
    let bytes = canonical.encode(&wide).unwrap();
    assert_eq!(
        rmp_serde::from_slice::<BTreeMap<String, u32>>(bytes).unwrap(),
        wide
    );

    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([("k", 1), ("j", 0), ("k", 2)])
        }
    }
    assert!(canonical.encode(&Twice).is_err());
}

fn inner() -> impl Strategy<Value = Inner> {
    (proptest::collection::vec(any::<u8>(), 0..300), any::<u64>())
        .prop_map(|(raw, n)| Inner { raw, n })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Plain),
        any::<u8>().prop_map(Kind::Sized),
        any::<(u8, i8)>().prop_map(|(a, b)| Kind::Pair(a, b)),
        any::<u8>().prop_map(|x| Kind::Named { x }),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_read_back(
        (zebra, alpha, flag, list) in any::<(String, i64, Option<bool>, Vec<u32>)>(),
        map in proptest::collection::btree_map("[a-z]{0,40}", any::<i32>(), 0..20),
        inner in inner(), inners in proptest::collection::vec(inner(), 0..20),
        kind in kind(), real in -1e9..1e9_f64,
    ) {
        let row = Row { zebra, alpha, flag, list, map, inner, inners, kind, real };
        let mut canonical = Canonical::default();
        let bytes = canonical.encode(&row).unwrap().to_vec();
        let back: Row = rmp_serde::from_slice(&bytes).unwrap();
        prop_assert_eq!(&back, &row);
        prop_assert_eq!(canonical.encode(&back).unwrap(), &bytes[..]);
    }
}
