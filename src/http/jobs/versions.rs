//! The versions of a job, and what each of them changed.

use drover_events::model::Job;
use drover_projections::tables::job_versions::JobVersions;
use drover_projections::{Prefix, Scan};
use serde_json::json;

use super::path::job_id;
use crate::error::Refusal;
use crate::http::answer::Answer;
use crate::http::front::Read;
use crate::http::list::{self, storage};
use crate::http::pieces::Pieces;
use crate::scheduler::diff::job_diff;

/// `GET /v1/job/:id/versions`: the newest first, then their differences.
pub(super) fn versions(read: &Read<'_>) -> Result<Answer, Refusal> {
    let id = job_id(read.request)?;
    let ends = read.view.rows::<JobVersions>(newest_first(read, &id));
    let ends = ends.of_route();
    let ends: Vec<Job> = ends.take(2).collect::<Result<_, _>>().map_err(storage)?;
    let Some(newest) = ends.first() else {
        return Err(Refusal::not_found("job versions not found"));
    };
    let base = match read.request.query.flag("diffs")? {
        true => base(read, &id)?,
        false => Base::None,
    };
    let base = match base {
        Base::Before if ends.len() < 2 => Base::None,
        base => base,
    };
    let answer = Answering {
        read,
        id: &id,
        index: newest.modify_index,
    };
    let options = read.options;
    let (stage, place) = match options.later {
        true => options.place().split_at_checked(1).unwrap_or_default(),
        false => ("v", ""),
    };
    let mut pieces = match options.later {
        true => Pieces::later(),
        false => Pieces::within(b"{\"Versions\":["),
    };
    let place = list::place(place)?;
    let rest = match stage {
        "v" => answer.versions(&mut pieces, &place, &base)?,
        _ => answer.diffs(&mut pieces, &place, &base)?,
    };
    Ok(match rest {
        Some(rest) => Answer::begun(pieces, rest),
        None => Answer::pieces(pieces.finish_with(answer.tail(&base).as_bytes())),
    }
    .at(newest.modify_index))
}

fn newest_first(read: &Read<'_>, id: &str) -> Scan {
    Scan::prefix(Prefix::new().str(read.request.namespace()).str(id)).reverse()
}

/// What the versions are compared with.
enum Base {
    /// Nothing: no differences are shown.
    None,
    /// Each with the one before it.
    Before,
    /// All with one.
    One(Box<Job>),
}

/// What the request names by number or tag.
fn base(read: &Read<'_>, id: &str) -> Result<Base, Refusal> {
    let query = &read.request.query;
    let number: Option<u64> = query.number("diff_version")?;
    let found = match (query.text("diff_tag"), number) {
        ("", None) => return Ok(Base::Before),
        ("", Some(number)) => read
            .view
            .get::<JobVersions>((read.request.namespace(), id, number))
            .map_err(storage)?
            .ok_or_else(|| Refusal::by_rule(format!("version {number} not found")))?,
        (tag, _) => {
            let tagged = |job: &Job| job.version_tag.as_ref().is_some_and(|t| t.name == tag);
            let all = read.view.rows::<JobVersions>(newest_first(read, id));
            let mut all = all.of_route();
            let found = all.find(|job| job.as_ref().map_or(true, tagged));
            let missing = || Refusal::by_rule(format!("tag \"{tag}\" not found"));
            found.transpose().map_err(storage)?.ok_or_else(missing)?
        }
    };
    Ok(Base::One(Box::new(found)))
}

/// The answer in the making. Each step says with what it goes on where the answer is long: the list
/// it is in, and the key of the last version that was read.
struct Answering<'a> {
    read: &'a Read<'a>,
    id: &'a str,
    index: u64,
}

impl Answering<'_> {
    fn full(&self, pieces: &Pieces) -> bool {
        pieces.bytes() >= list::part(self.read.options)
    }

    fn versions(
        &self,
        pieces: &mut Pieces,
        after: &[u8],
        base: &Base,
    ) -> Result<Option<String>, Refusal> {
        let scan = match after {
            [] => newest_first(self.read, self.id),
            key => newest_first(self.read, self.id).after(key),
        };
        for row in self.read.view.keyed::<JobVersions>(scan).of_route() {
            let (key, job) = row.map_err(storage)?;
            pieces.push(&job)?;
            if self.full(pieces) {
                return Ok(Some(format!("v{}", hex::encode(&key))));
            }
        }
        if matches!(base, Base::None) {
            return Ok(None);
        }
        pieces.turn(b"],\"Diffs\":[");
        self.diffs(pieces, &[], base)
    }

    fn diffs(
        &self,
        pieces: &mut Pieces,
        from: &[u8],
        base: &Base,
    ) -> Result<Option<String>, Refusal> {
        let scan = match from {
            [] => newest_first(self.read, self.id),
            key => newest_first(self.read, self.id).from(key),
        };
        let mut newer: Option<Job> = None;
        for row in self.read.view.keyed::<JobVersions>(scan).of_route() {
            let (key, job) = row.map_err(storage)?;
            // The version that the part before ended with is read again, to be compared with.
            let again = key == from;
            let diff = match (base, &newer) {
                (Base::One(base), _) if !again && base.version != job.version => {
                    Some(job_diff(Some(base.as_ref()), Some(&job), false))
                }
                (Base::Before, Some(newer)) => Some(job_diff(Some(&job), Some(newer), false)),
                _ => None,
            };
            newer = Some(job);
            if let Some(diff) = diff {
                pieces.push(&diff)?;
                if self.full(pieces) {
                    return Ok(Some(format!("d{}", hex::encode(&key))));
                }
            }
        }
        Ok(None)
    }

    /// What stands behind the lists.
    fn tail(&self, base: &Base) -> String {
        let known = self.read.api.server.leader_address().is_some();
        let rest = json!({
            "Index": self.index, "KnownLeader": known, "LastContact": 0, "NextToken": "",
        });
        let rest = rest.to_string();
        let rest = rest.trim_start_matches('{');
        match base {
            Base::None => format!("],\"Diffs\":null,{rest}"),
            _ => format!("],{rest}"),
        }
    }
}
