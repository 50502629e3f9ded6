//! An archive in a bucket: a server that really speaks S3 and checks every signature (moto), keys
//! that are wrong, connections that break in the middle.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drover_testkit::{Agent, LONG, Setup, free_port, skip, wait_for};

use crate::support::{Known, check, check_replay, words};
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
    /// Where moto is installed.
    fn bin() -> Option<PathBuf> {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        let dir = home.join(".cache/drover/moto/bin");
        dir.join("moto_server").exists().then_some(dir)
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
        let said = String::from_utf8(output.stdout)?;
        let (id, secret) = said.trim().split_once(' ').context("no key")?;
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

/// Passes connections on, as long as there are bytes left to pass.
struct Wire {
    addr: SocketAddr,
    left: Arc<AtomicI64>,
}

impl Wire {
    fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let budget = Arc::clone(&left);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let pairs = [
                    (client.try_clone(), server.try_clone(), true),
                    (server.try_clone(), client.try_clone(), false),
                ];
                for (from, to, counted) in pairs {
                    let (Ok(from), Ok(to)) = (from, to) else {
                        continue;
                    };
                    let left = counted.then(|| Arc::clone(&budget));
                    thread::spawn(move || pass(from, to, left.as_deref()));
                }
            }
        });
        Ok(Self { addr, left })
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, left: Option<&AtomicI64>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(got) = from.read(&mut buffer) {
        let spent = |left: &AtomicI64| left.fetch_sub(got as i64, Ordering::SeqCst) < got as i64;
        if got == 0 || left.is_some_and(spent) || to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
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
    let Some(bin) = Moto::bin() else {
        skip(
            "an archive in S3",
            "needs moto: tools/install fetches it with pip",
        );
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let moto = Moto::start(&bin)?;
    let wire = Wire::to(moto.addr)?;
    let data = dir.path().join("data");
    // A wrong key drops nothing.
    let wrong = setup(&data, wire.addr, &moto.id, "wrong")?;
    let agent = wrong.start()?;
    let mut known = Known::new();
    write_much(&agent, &mut known, 0, 420)?;
    trouble(&agent, "SignatureDoesNotMatch")?;
    agent.stop(Duration::from_secs(8))?;
    // The connection breaks in the middle of a segment, again and again.
    wire.left.store(1 << 20, Ordering::SeqCst);
    let right = setup(&data, wire.addr, &moto.id, &moto.secret)?;
    let agent = right.start()?;
    trouble(&agent, "cannot reach")?;
    wire.left.store(i64::MAX, Ordering::SeqCst);
    moved(&agent, 200)?;
    check(&agent, &known)?;
    check_replay(&right, &agent)?;
    agent.stop(Duration::from_secs(8))?;
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
        let said = words(&output);
        let signed = said.contains(", signed to ");
        let whole = output.status.success() && said.contains("= 0 to ") && signed;
        ensure!(whole, "{said}");
        Ok(said)
    };
    verify(&["-digests", &data])?;
    verify(&[])?;
    // Of two copies the right one is read, whichever it is.
    let output = Command::new(bin.join("python"))
        .args(["-c", TWICE, &endpoint, &moto.id, &moto.secret])
        .output()?;
    ensure!(output.status.success(), "{}", words(&output));
    let segment = String::from_utf8(output.stdout)?;
    let said = verify(&[&data])?;
    let named = said.contains("is wrong") && said.contains(segment.trim());
    ensure!(named && said.contains("another-server is read"), "{said}");
    verify(&[])?;
    Ok(())
}
