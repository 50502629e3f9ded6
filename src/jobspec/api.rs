//! A job as clients send it: what was not set is absent, so canonicalisation can distinguish it
//! from zero.

use super::normal::{self, FieldError};
use super::{admit, canonical};
use drover_events::field::Specified;
use drover_events::gojson::{self, GoJsonError, Unknown};
use drover_events::model::Job;
use serde_json::{Map, Value as Json};

/// A job in the API's form, with only the fields that were set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiJob {
    fields: Map<String, Json>,
    unknown: Vec<String>,
}

impl ApiJob {
    /// From fields that are known to be of the right names and types.
    pub(super) fn from_fields(fields: Map<String, Json>) -> ApiJob {
        ApiJob {
            fields,
            ..ApiJob::default()
        }
    }

    /// From API JSON: field names in any case, durations in nanoseconds or as text. What is no
    /// field is left out, and named by [`ApiJob::unknown`].
    ///
    /// # Errors
    /// The first field of the wrong type, with its path.
    pub fn from_json(json: Json) -> Result<ApiJob, FieldError> {
        let mut unknown = Unknown::default();
        let read = normal::read(Job::SHAPE, json, &mut unknown);
        Ok(ApiJob {
            fields: read.map_err(|error| error.under(|| "Job".to_owned()))?,
            unknown: unknown.paths("Job"),
        })
    }

    /// Fills in the defaults that a client fills in; what a server adds comes with
    /// [`ApiJob::into_model`].
    pub fn canonicalise(&mut self) {
        canonical::job(&mut self.fields);
    }

    /// As [`ApiJob::canonicalise`], but an unset priority stays unset: the server knows its
    /// default.
    pub fn canonicalise_for_server(&mut self) {
        let unstated = self.priority().is_none();
        self.canonicalise();
        if unstated {
            self.fields.remove("Priority");
        }
    }

    /// The full JSON form: every field, `null` where an optional one was not set.
    pub fn to_json(&self) -> Json {
        normal::full(Job::SHAPE, &self.fields)
    }

    /// Canonicalises, applies what a server changes on admission, and gives the model's job.
    ///
    /// `job.NodePool` stays empty if it was: the pool of the namespace is the caller's to know.
    ///
    /// # Errors
    /// A field the model cannot hold; the decode table rules that out for all but free-form JSON.
    pub fn into_model(mut self) -> Result<Job, GoJsonError> {
        self.canonicalise();
        canonical::server(&mut self.fields);
        let mut job: Job = gojson::from_value(Json::Object(self.fields))?;
        admit::adapt(&mut job);
        Ok(job)
    }

    /// The job's ID, if it was set.
    pub fn id(&self) -> Option<&str> {
        self.fields.get("ID").and_then(Json::as_str)
    }

    /// The job's namespace, if it was set.
    pub fn namespace(&self) -> Option<&str> {
        self.fields.get("Namespace").and_then(Json::as_str)
    }

    /// The job's priority, if it was set; 0 counts as unset.
    pub fn priority(&self) -> Option<i64> {
        let stated = self.fields.get("Priority").and_then(Json::as_i64);
        stated.filter(|priority| *priority != 0)
    }

    /// Sets a text field that was not set.
    pub fn default_text(&mut self, field: &str, value: &str) {
        self.fields.entry(field).or_insert_with(|| value.into());
    }

    /// The paths of what was set and no job keeps; of many, some.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The fields that were set.
    pub fn fields(&self) -> &Map<String, Json> {
        &self.fields
    }
}
