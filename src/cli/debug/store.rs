//! Where captures go: a directory that becomes an archive.

use super::super::out::Out;
use super::super::show::pretty;
use crate::history::backup::tar::TarWriter;
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// What was captured, and what could not be.
pub(super) struct Store {
    name: String,
    root: PathBuf,
    report: RefCell<StoreReport>,
    verbose: Option<Out>,
}

#[derive(Default)]
struct StoreReport {
    files: Vec<String>,
    missing: Vec<(String, String)>,
}

impl Store {
    /// An empty one, which no other user may read.
    pub(super) fn begin(name: &str, below: Option<&Path>, verbose: Option<Out>) -> Result<Self> {
        let below = below.map_or_else(std::env::temp_dir, Path::to_owned);
        let root = below.join(name);
        make_dir(&root)?;
        Ok(Self {
            name: name.to_owned(),
            root,
            report: RefCell::default(),
            verbose,
        })
    }

    /// A new file.
    pub(super) fn open(&self, path: &str) -> Result<File> {
        let whole = self.root.join(path);
        if let Some(dir) = whole.parent().filter(|dir| !dir.exists()) {
            make_dir(dir)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&whole)
            .with_context(|| format!("Error writing {}", whole.display()))?;
        self.report.borrow_mut().files.push(path.to_owned());
        if let Some(out) = &self.verbose {
            out.line(&format!("    {path}"));
        }
        Ok(file)
    }

    /// Writes a file.
    pub(super) fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let mut file = self.open(path)?;
        file.write_all(bytes)
            .with_context(|| format!("Error writing {path}"))
    }

    /// Notes what could not be had.
    pub(super) fn missing(&self, path: &str, why: &str) {
        if let Some(out) = &self.verbose {
            out.line(&format!("    {path} could not be had: {why}"));
        }
        let mut report = self.report.borrow_mut();
        report.missing.push((path.to_owned(), why.to_owned()));
    }

    /// How many could not be had.
    pub(super) fn missing_count(&self) -> usize {
        self.report.borrow().missing.len()
    }

    /// Writes what is in it, and makes the archive; where that lies.
    pub(super) fn finish(self, head: Json, keep: bool) -> Result<String> {
        let (mut files, missing) = {
            let report = self.report.borrow();
            (report.files.clone(), report.missing.clone())
        };
        files.sort();
        let mut index = head;
        index["Files"] = json!(files);
        let missed = missing.iter();
        index["Missing"] = missed
            .map(|(file, reason)| json!({ "File": file, "Reason": reason }))
            .collect();
        self.put("index.json", pretty(&index).as_bytes())?;
        self.put("index.html", page(&self.name, &files, &missing).as_bytes())?;
        if keep {
            return Ok(self.root.display().to_string());
        }
        let archive = format!("{}.tar.gz", self.name);
        self.pack(Path::new(&archive))
            .with_context(|| format!("Error writing {archive}"))?;
        fs::remove_dir_all(&self.root)
            .with_context(|| format!("Error removing {}", self.root.display()))?;
        Ok(archive)
    }

    fn pack(&self, archive: &Path) -> std::io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(archive)?;
        let mut out = GzEncoder::new(file, Compression::default());
        let mut tar = TarWriter::new(&mut out);
        for path in &self.report.borrow().files {
            let mut file = File::open(self.root.join(path))?;
            let size = file.metadata()?.len();
            tar.add(&format!("{}/{path}", self.name), size, &mut file)?;
        }
        tar.finish()?;
        out.finish()?.sync_all()
    }
}

fn make_dir(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    // A directory of this name that exists already belongs to another run or user.
    let made = match path.parent().is_some_and(Path::exists) {
        true => builder.mode(0o700).create(path),
        false => builder.mode(0o700).recursive(true).create(path),
    };
    made.with_context(|| format!("Error creating {}", path.display()))
}

/// The list of files as a page.
fn page(name: &str, files: &[String], missing: &[(String, String)]) -> String {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
    };
    let link = |file: &String| {
        let file = escaped(file);
        format!("<li><a href=\"{file}\">{file}</a></li>\n")
    };
    let gap = |(file, reason): &(String, String)| {
        format!("<li>{}: {}</li>\n", escaped(file), escaped(reason))
    };
    let links: String = files.iter().map(link).collect();
    let gaps: String = missing.iter().map(gap).collect();
    format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{name}</title></head><body>\n\
         <h1>{name}</h1>\n<ul>\n{links}</ul>\n<h2>Not to be had</h2>\n<ul>\n{gaps}</ul>\n\
         </body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_becomes_a_directory_that_says_what_is_in_it_and_what_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::begin("nomad-debug-x", Some(dir.path()), None).unwrap();
        store.put("cluster/a.json", b"{}").unwrap();
        store.missing("cluster/<b>.json", "403 & more");
        assert!(store.put("cluster/a.json", b"").is_err(), "written once");
        assert!(Store::begin("nomad-debug-x", Some(dir.path()), None).is_err());
        let place = store.finish(json!({"Version": "v"}), true).unwrap();
        let read = |file: &str| fs::read_to_string(Path::new(&place).join(file)).unwrap();
        let index: Json = serde_json::from_str(&read("index.json")).unwrap();
        assert_eq!(index["Files"], json!(["cluster/a.json"]));
        assert_eq!(index["Missing"][0]["Reason"], "403 & more");
        assert_eq!(index["Version"], "v");
        let page = read("index.html");
        assert!(page.contains("<a href=\"cluster/a.json\">"), "{page}");
        assert!(
            page.contains("cluster/&lt;b&gt;.json: 403 &amp; more"),
            "{page}"
        );
    }

    #[test]
    fn an_archive_holds_every_file_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::begin("nomad-debug-y", Some(dir.path()), None).unwrap();
        let long = format!("client/{}/{}.txt", "i".repeat(36), "f".repeat(60));
        store.put(&long, b"long").unwrap();
        store.put("short.txt", b"short").unwrap();
        let archive = dir.path().join("y.tar.gz");
        store.pack(&archive).unwrap();
        let listed = std::process::Command::new("tar")
            .arg("-tzf")
            .arg(&archive)
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let wanted = format!("nomad-debug-y/{long}\nnomad-debug-y/short.txt\n");
        assert_eq!(listed, wanted);
    }
}
