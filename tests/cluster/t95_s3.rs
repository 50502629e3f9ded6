//! An archive in a bucket: a server that really speaks S3 and checks every signature (moto), keys
//! that are wrong, connections that break in the middle.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use drover::history::store::{ArchiveLocation, Store};
use drover_testkit::{Agent, LONG, Setup, Wire, free_port, skip, wait_for};

use crate::support::{Known, check, check_replay, stop, words};
use crate::t90_retention::{status, write_much};

/// Makes a user whose key alone may do anything, and the bucket.
const BEGIN: &str = r#"
import boto3, sys
known = dict(endpoint_url=sys.argv[1], region_name="us-east-1",
             aws_access_key_id="anybody", aws_secret_access_key="anything")
iam = boto3.client("iam", **known)
iam.create_user(UserName="drover")
key = iam.create_access_key(UserName="drover")["AccessKey"]
allowed = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
iam.put_user_policy(UserName="drover", PolicyName="all", PolicyDocument=allowed)
boto3.client("s3", **known).create_bucket(Bucket="history")
print(key["AccessKeyId"], key["SecretAccessKey"])
"#;
/// Keeps a copy under another server's id, and changes a byte of a segment of the first.
const TWICE: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1",
                  aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3])
names = [one["Key"] for one in s3.list_objects_v2(Bucket="history")["Contents"]]
for name in names:
    parts = name.split("/")
    parts[3] = "another-server"
    s3.copy_object(Bucket="history", Key="/".join(parts),
                   CopySource={"Bucket": "history", "Key": name})
name = next(name for name in names if name.endswith(".seal"))
body = bytearray(s3.get_object(Bucket="history", Key=name)["Body"].read())
body[len(body) // 2] ^= 1
s3.put_object(Bucket="history", Key=name, Body=bytes(body))
print(name.split("/")[-1])
"#;
/// Requests of that, after which every one is checked.
const UNCHECKED: &str = "4";

/// A server that speaks S3.
struct Moto {
    child: Child,
    addr: SocketAddr,
    id: String,
    secret: String,
}

impl Moto {
    /// Where moto is installed; none, and it is said why, where it is not.
    fn bin_or_skip() -> Option<PathBuf> {
        match drover_testkit::python("moto", &["moto", "boto3"]) {
            Ok(python) => python.parent().map(Path::to_owned),
            Err(why) => {
                skip("an archive in S3", &why);
                None
            }
        }
    }

    fn start(bin: &Path) -> Result<Self> {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let child = Command::new(bin.join("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &addr.port().to_string()])
            .env("INITIAL_NO_AUTH_ACTION_COUNT", UNCHECKED)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut moto = Self {
            child,
            addr,
            id: String::new(),
            secret: String::new(),
        };
        wait_for("moto to listen", LONG, || {
            TcpStream::connect(addr).context("moto does not listen")
        })?;
        let output = Command::new(bin.join("python"))
            .args(["-c", BEGIN, &format!("http://{addr}")])
            .output()?;
        ensure!(output.status.success(), "{}", words(&output));
        let printed = String::from_utf8(output.stdout)?;
        let (id, secret) = printed.trim().split_once(' ').context("no key")?;
        (moto.id, moto.secret) = (id.to_owned(), secret.to_owned());
        Ok(moto)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn setup(dir: &Path, endpoint: SocketAddr, id: &str, secret: &str) -> Result<Setup> {
    let mut setup = Setup::server(env!("CARGO_BIN_EXE_drover"), dir)?;
    setup.config = format!(
        "server {{\n  enabled = true\n  bootstrap_expect = 1\n  retention {{\n    \
         log {{\n      events = 100\n    }}\n    interval = \"200ms\"\n    \
         segment_size = \"8M\"\n  }}\n  archive {{\n    url = \"s3://history/a/b\"\n    \
         endpoint = \"http://{endpoint}\"\n    access_key_id = \"{id}\"\n    \
         secret_access_key = \"{secret}\"\n  }}\n}}\n"
    );
    Ok(setup)
}

/// Waits until the reactor says why it fails.
fn trouble(agent: &Agent, word: &str) -> Result<()> {
    wait_for("the archive's trouble", LONG, || {
        let status = status(agent)?;
        let error = status["LastError"].as_str().unwrap_or_default();
        ensure!(error.contains(word), "{status}");
        Ok(())
    })?;
    let log = agent.http().json("/v1/log/segments")?;
    ensure!(log[0]["First"] == 0, "something was dropped: {log}");
    Ok(())
}

fn moved(agent: &Agent, beyond: u64) -> Result<()> {
    wait_for("the horizon to move", LONG, || {
        let status = status(agent)?;
        ensure!(
            status["Status"]["First"].as_u64() > Some(beyond),
            "{status}"
        );
        Ok(())
    })
}

#[test]
fn a_bucket_takes_what_is_dropped_and_is_read_by_the_tools() -> Result<()> {
    let Some(bin) = Moto::bin_or_skip() else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let moto = Moto::start(&bin)?;
    let wire = Wire::to(moto.addr, 0)?;
    let data = dir.path().join("data");
    // A wrong key drops nothing.
    let wrong = setup(&data, wire.addr, &moto.id, "wrong")?;
    let agent = wrong.start()?;
    let mut known = Known::new();
    write_much(&agent, &mut known, 0, 420)?;
    trouble(&agent, "SignatureDoesNotMatch")?;
    stop(agent)?;
    // The connection breaks in the middle of a segment, again and again.
    wire.cut_after(1 << 20);
    let right = setup(&data, wire.addr, &moto.id, &moto.secret)?;
    let agent = right.start()?;
    trouble(&agent, "cannot reach")?;
    wire.pass();
    moved(&agent, 200)?;
    let endpoint = format!("http://{}", moto.addr);
    let data = format!("-data-dir={}", data.display());
    let verify = |more: &[&str]| -> Result<String> {
        let output = Command::new(&right.binary)
            .args(["log", "verify", "-archive", "s3://history/a/b"])
            .args(["-archive-endpoint", &endpoint])
            .args(more)
            .env("AWS_ACCESS_KEY_ID", &moto.id)
            .env("AWS_SECRET_ACCESS_KEY", &moto.secret)
            .output()?;
        let printed = words(&output);
        let whole = output.status.success() && printed.contains("= 0 to ");
        assert!(whole, "{printed}");
        ensure!(printed.contains(", signed to "), "{printed}");
        Ok(printed)
    };
    // Where the segments end that are dropped first, nothing may have been signed yet.
    let mut next = 420;
    wait_for("the archive to hold a checkpoint", LONG, || {
        write_much(&agent, &mut known, next, next + 40)?;
        next += 40;
        verify(&[])
    })?;
    check(&agent, &known)?;
    check_replay(&right, &agent)?;
    stop(agent)?;
    verify(&["-digests", &data])?;
    verify(&[])?;
    // Of two copies the right one is read, whichever it is.
    let output = Command::new(bin.join("python"))
        .args(["-c", TWICE, &endpoint, &moto.id, &moto.secret])
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let segment = String::from_utf8(output.stdout)?;
    let printed = verify(&[&data])?;
    let named = printed.contains("is wrong") && printed.contains(segment.trim());
    ensure!(
        named && printed.contains("another-server is read"),
        "{printed}"
    );
    verify(&[])?;
    Ok(())
}

/// Says of each object of the bucket its name, its bytes and of how many parts it was made.
const LIST: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1",
                  aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3])
for one in s3.list_objects_v2(Bucket="history").get("Contents", []):
    parts = one["ETag"].strip('"').partition("-")[2] or "1"
    print(one["Key"], one["Size"], parts)
"#;

/// Name, bytes and parts of every object.
fn objects(bin: &Path, moto: &Moto) -> Result<Vec<(String, u64, u32)>> {
    let endpoint = format!("http://{}", moto.addr);
    let output = Command::new(bin.join("python"))
        .args(["-c", LIST, &endpoint, &moto.id, &moto.secret])
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let printed = String::from_utf8(output.stdout)?;
    let mut found = Vec::new();
    for line in printed.lines() {
        let [name, bytes, parts] = line.split(' ').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{line}");
        };
        found.push((name.to_owned(), bytes.parse()?, parts.parse()?));
    }
    Ok(found)
}

fn store(moto: &Moto, endpoint: SocketAddr) -> Result<Store> {
    Ok(Store::open(&ArchiveLocation {
        url: "s3://history/parts".to_owned(),
        endpoint: Some(format!("http://{endpoint}")),
        access_key_id: Some(moto.id.clone()),
        secret_access_key: Some(moto.secret.clone()),
        ..ArchiveLocation::default()
    })?)
}

/// A server that has too much to do, and one that breaks in the middle of an upload.
async fn busy_and_cut(
    bin: &Path,
    (moto, wire): (&Moto, &Wire),
    (small, large): (&Path, &Path),
) -> Result<()> {
    // Requests to an overloaded server are repeated for a while, and then the overload is reported.
    wire.overload();
    let busy = store(moto, wire.addr)?;
    let refused = busy.put("busy", small, false).await;
    let error = refused.err().context("it was written")?.to_string();
    ensure!(
        error.contains("cannot reach") && error.contains("503"),
        "{error}"
    );
    let from = small.to_owned();
    let requested = tokio::spawn(async move { busy.put("busy", &from, false).await });
    wire.pass();
    ensure!(requested.await??, "it is written once the server has time");

    // One that breaks in the middle of an upload leaves nothing under the name.
    wire.cut_after(12 << 20);
    let cut = store(moto, wire.addr)?.put("cut", large, false).await;
    ensure!(cut.is_err(), "half of it is no object");
    wire.pass();
    let names = objects(bin, moto)?;
    ensure!(names.iter().all(|one| one.0 != "parts/cut"), "{names:?}");
    ensure!(
        store(moto, wire.addr)?.put("cut", large, false).await?,
        "it is written again"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_go_in_parts_and_a_server_that_is_busy_or_hangs_is_named() -> Result<()> {
    let Some(bin) = Moto::bin_or_skip() else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let moto = Moto::start(&bin)?;
    // Nothing comes back from here: that takes as long as silence may last.
    let dead = Wire::to(moto.addr, 0)?;
    dead.stall_after(0);
    let small = dir.path().join("small");
    std::fs::write(&small, "small")?;
    let silent = store(&moto, dead.addr)?;
    let hanging = {
        let small = small.clone();
        tokio::spawn(async move { silent.put("hung", &small, false).await })
    };

    let wire = Wire::to(moto.addr, 0)?;
    let through = store(&moto, wire.addr)?;
    let large = dir.path().join("large");
    let bytes: Vec<u8> = (0..20_u32 << 20)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&large, &bytes)?;
    ensure!(through.put("large", &large, false).await?, "it is written");
    let whole = objects(&bin, &moto)?;
    let found = whole
        .iter()
        .find(|one| one.0 == "parts/large")
        .context("no object")?;
    ensure!(
        (found.1, found.2) == (20 << 20, 3),
        "{found:?}: three parts of 8 MiB at most"
    );
    let back = dir.path().join("back");
    through.fetch("large", &back).await?;
    ensure!(std::fs::read(&back)? == bytes, "it is not what was written");
    ensure!(
        !through.put("large", &large, false).await?,
        "the same is left as it is"
    );

    busy_and_cut(&bin, (&moto, &wire), (&small, &large)).await?;

    let hung = hanging.await?;
    let error = hung.err().context("it was written")?.to_string();
    ensure!(error.contains("cannot reach"), "{error}");
    Ok(())
}

#[test]
fn a_kill_in_the_middle_of_an_upload_leaves_an_archive_that_is_gone_on_with() -> Result<()> {
    let Some(bin) = Moto::bin_or_skip() else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let moto = Moto::start(&bin)?;
    let wire = Wire::to(moto.addr, 0)?;
    let data = dir.path().join("data");
    let setup = setup(&data, wire.addr, &moto.id, &moto.secret)?;
    let mut known = Known::new();
    let mut last = 0;
    for round in 0..3 {
        // It stands still within an object, a later one each time.
        wire.stall_after(300_000 + round * 700_000);
        let agent = setup.start()?;
        let from = usize::try_from(round)? * 420;
        write_much(&agent, &mut known, from, from + 420)?;
        wait_for("an upload that stands still", LONG, || {
            ensure!(wire.is_stalled(), "{}", status(&agent)?);
            Ok(())
        })?;
        agent.kill()?;
        wire.pass();
        let agent = setup.start()?;
        moved(&agent, last)?;
        last = status(&agent)?["Status"]["First"]
            .as_u64()
            .context("no horizon")?;
        check(&agent, &known)?;
        stop(agent)?;
    }
    let endpoint = format!("http://{}", moto.addr);
    let output = Command::new(&setup.binary)
        .args(["log", "verify", "-archive", "s3://history/a/b"])
        .args(["-archive-endpoint", &endpoint])
        .arg(format!("-data-dir={}", data.display()))
        .env("AWS_ACCESS_KEY_ID", &moto.id)
        .env("AWS_SECRET_ACCESS_KEY", &moto.secret)
        .output()?;
    let printed = words(&output);
    ensure!(
        output.status.success() && printed.contains("= 0 to "),
        "{printed}"
    );
    Ok(())
}
