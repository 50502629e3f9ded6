//! Takes a job out of the body of a request, as far as jobs have such fields: what is unknown is
//! skipped over and never built but for a note that it is there, and a job of too many parts is
//! refused while it is read. A body of some megabytes could be made into thirty times as much
//! otherwise.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use drover_events::field::{Kind, Shape, Specified};
use drover_events::gojson::{Says, Unknown, Zero};
use drover_events::model::Job;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value as Json};

use super::api::ApiJob;
use super::normal::FieldError;

/// Fields and elements of a job at most, with those that every object gets by default. As many make
/// some hundred megabytes for a moment (where a body says two jobs, both live while the second is
/// read), and far more than a job that an event could hold.
const MOST_PARTS: usize = 1 << 19;

/// What a body says as its job: no more of it than jobs have, `null` where it says none.
#[derive(Clone, Default, PartialEq)]
pub struct ParsedJob(Json);

impl ParsedJob {
    /// The job, if there is one.
    ///
    /// # Errors
    /// The first field of the wrong type, with its path.
    pub fn job(self) -> Result<Option<ApiJob>, FieldError> {
        match self.0 {
            Json::Null => Ok(None),
            job => ApiJob::from_json(job).map(Some),
        }
    }
}

/// A job may hold what is secret.
impl fmt::Debug for ParsedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedJob").finish_non_exhaustive()
    }
}

impl Zero for ParsedJob {
    fn is_zero(&self) -> bool {
        self.0.is_null()
    }
}

impl Serialize for ParsedJob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl JsonSchema for ParsedJob {
    fn schema_name() -> Cow<'static, str> {
        "ParsedJob".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Json::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for ParsedJob {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let left = Left {
            parts: Cell::new(MOST_PARTS),
            unknown: Cell::new(Unknown::MOST),
        };
        let job = JobPart {
            what: What::Object(Job::SHAPE),
            left: &left,
        };
        job.deserialize(json).map(Self)
    }
}

/// What may still be built.
struct Left {
    parts: Cell<usize>,
    /// How many unknown fields may still be noted.
    unknown: Cell<usize>,
}

/// What a value should be, and so how much of it is built.
#[derive(Clone, Copy)]
enum What {
    /// An object; only its known fields.
    Object(&'static Shape),
    /// A list of such.
    List(&'static Shape),
    /// Such by label.
    ByLabel(&'static Shape),
    /// Anything, whole.
    Free,
}

impl From<Kind> for What {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::One(shape) | Kind::Omit(shape) => Self::Object(shape),
            Kind::Many(shape) | Kind::Labelled(shape, _) => Self::List(shape),
            Kind::ByLabel(shape, _) => Self::ByLabel(shape),
            _ => Self::Free,
        }
    }
}

/// A value within the job.
#[derive(Clone, Copy)]
struct JobPart<'c> {
    what: What,
    left: &'c Left,
}

impl JobPart<'_> {
    /// Takes from what is left; what is of another kind than it should be is refused later, with
    /// its path.
    fn charge<E: serde::de::Error>(&self, parts: usize) -> Result<(), E> {
        let left = self.left.parts.get().checked_sub(parts);
        let left = left.ok_or_else(|| {
            E::custom(format_args!(
                "a job of more than {MOST_PARTS} fields is not read"
            ))
        })?;
        self.left.parts.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for JobPart<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Json, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JobPart<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let what = match self.what {
            What::List(shape) => What::Object(shape),
            What::Free => What::Free,
            What::Object(_) | What::ByLabel(_) => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Json::Array(Vec::new()));
            }
        };
        let mut out = Vec::new();
        while let Some(item) = seq.next_element_seed(JobPart { what, ..self })? {
            self.charge::<A::Error>(1)?;
            out.push(item);
        }
        Ok(Json::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        if let What::Object(shape) = self.what {
            self.charge::<A::Error>(shape.fields.len())?;
        }
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let what = match self.what {
                What::Free => What::Free,
                What::ByLabel(shape) => What::Object(shape),
                What::Object(shape) => match shape.json(&key) {
                    Some(field) => field.kind.into(),
                    None => {
                        let unknown = self.left.unknown.get();
                        if map.next_value::<Says>()?.0 && unknown > 0 {
                            self.left.unknown.set(unknown - 1);
                            out.insert(key, Json::Bool(true));
                        }
                        continue;
                    }
                },
                What::List(_) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            self.charge::<A::Error>(1)?;
            let value = map.next_value_seed(JobPart { what, ..self })?;
            out.insert(key, value);
        }
        Ok(Json::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As a body that holds the job.
    fn job(job: &str) -> Result<Json, String> {
        drover_events::wire! {
            struct Body {
                job: ParsedJob = "Job",
            }
        }
        let body = drover_events::gojson::from_slice::<Body>(job.as_bytes());
        body.map(|body| body.job.0).map_err(|e| e.to_string())
    }

    #[test]
    fn known_fields_are_built_and_others_are_not() {
        let body = json!({
            "Other": [{"a": 0}, {"a": 0}],
            "job": {
                "id": "web", "Unknown": [{"a": 0}], "Meta": {"any": "key"},
                "TaskGroups": [{
                    "Name": "g", "Nope": {"a": [0]}, "Empty": [], "Unset": null,
                    "Tasks": [{"Name": "t", "Config": {"args": [1, {"x": null}]}, "y": 1}],
                }],
                "Update": [1, 2, 3],
            },
        });
        let read = job(&body.to_string()).expect("reads");
        assert_eq!(
            read,
            json!({
                "id": "web", "Unknown": true, "Meta": {"any": "key"},
                "TaskGroups": [{
                    "Name": "g", "Nope": true,
                    "Tasks": [{"Name": "t", "Config": {"args": [1, {"x": null}]}, "y": true}],
                }],
                "Update": [],
            })
        );
        assert_eq!(job("{}").expect("reads"), Json::Null);
        assert!(job("[]").is_err() && job("{} x").is_err());
    }

    #[test]
    fn of_a_long_name_of_an_unknown_field_the_beginning_is_kept() {
        let long = "x".repeat(1_500_000);
        let config = json!({ &long: 1, "Meta": { &long: "a free key is none" } });
        let labelled = json!({ &long: { "Nope": 1 } });
        let body = json!({ "Job": {
            "ID": "web", &long: 1, "TaskGroups": [{ &long: true, "Volumes": labelled,
            "Tasks": [config] }],
        }});
        let parsed = ParsedJob(job(&body.to_string()).expect("reads"));
        let read = parsed.job().expect("reads").expect("a job");
        let unknown = read.unknown();
        assert_eq!(unknown.len(), 4, "{}", unknown.len());
        for path in unknown {
            let length = path.chars().count();
            assert!((64..=256).contains(&length), "{length}: {path}");
            assert!(path.starts_with("Job."), "{path}");
        }
    }

    #[test]
    fn a_job_of_too_many_parts_is_refused_before_it_is_built() {
        let objects = format!(
            "{{\"Job\":{{\"TaskGroups\":[{}{{}}]}}}}",
            "{},".repeat(200_000)
        );
        let values = format!(
            "{{\"Job\":{{\"Meta\":{{\"a\":[{}0]}}}}}}",
            "0,".repeat(2_000_000)
        );
        for body in [objects, values] {
            let refused = job(&body).expect_err("too many");
            assert!(refused.contains("more than 524288 fields"), "{refused}");
        }
        let unknown = format!("{{\"Job\":{{\"x\":[{}0]}}}}", "{\"a\":0},".repeat(500_000));
        let held = drover_testkit::counting::peak(1 << 20, || {
            assert_eq!(job(&unknown).expect("reads"), json!({"x": true}));
        });
        assert!(held < 64 << 10, "{held} bytes");
    }
}
