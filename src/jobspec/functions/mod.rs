//! The functions a specification may call.
//!
//! All are pure but `uuidv4` and the file functions, which exist only where a user runs them: a
//! server refuses them. Results are bounded: no function returns more than its arguments let it,
//! or it refuses.

mod args;
mod collection;
mod crypto;
mod encoding;
mod file;
mod network;
mod numeric;
mod sets;
mod strings;
mod time;
mod yaml;

use super::budget::Budget;
use super::value::Value;
use args::Args;
use std::path::PathBuf;

/// Which functions may be called, and from where files are read.
#[derive(Clone, Debug)]
pub enum Functions {
    /// On a server: nothing may touch the file system.
    Server,
    /// On a user's machine; relative paths start here.
    Local(PathBuf),
}

/// Why a call gave no value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// There is no such function.
    Unknown,
    /// It refused its arguments; the text says why.
    Failed(String),
}

/// The most text one call may build, in bytes.
const MAX_TEXT: usize = 16 << 20;

const FILE_FUNCTIONS: [&str; 8] = [
    "abspath",
    "basename",
    "dirname",
    "file",
    "filebase64",
    "fileexists",
    "fileset",
    "pathexpand",
];

type Outcome = Result<Value, String>;

impl Functions {
    /// Calls a function by name. What it costs is mostly forecast; what cannot be is taken from the
    /// budget while the function runs.
    ///
    /// # Errors
    /// `CallError`.
    pub(super) fn call(
        &self,
        name: &str,
        args: Vec<Value>,
        budget: &Budget,
    ) -> Result<Value, CallError> {
        let mut args = Args::new(args, budget);
        if FILE_FUNCTIONS.contains(&name) {
            return match self {
                Functions::Server => {
                    Err(CallError::Failed("filesystem function disabled".to_owned()))
                }
                Functions::Local(base) => file::call(name, &mut args, base)
                    .unwrap_or(Ok(Value::Null))
                    .map_err(CallError::Failed),
            };
        }
        let tables: [fn(&str, &mut Args) -> Option<Outcome>; 8] = [
            strings::call,
            collection::call,
            sets::call,
            numeric::call,
            encoding::call,
            crypto::call,
            time::call,
            network::call,
        ];
        for table in tables {
            if let Some(outcome) = table(name, &mut args) {
                return outcome.map_err(CallError::Failed);
            }
        }
        Err(CallError::Unknown)
    }
}

#[cfg(test)]
mod bounds_test;
#[cfg(test)]
mod tests;
