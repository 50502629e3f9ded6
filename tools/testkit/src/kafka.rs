//! A real Kafka broker for one test, and `kcat` to read from it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{LONG, Wire, free_port, has_program, skip, wait_for};
use anyhow::{Context, Result, anyhow, ensure};

/// The password that the broker takes from the user `drover`.
pub const PASSWORD: &str = "canary-9a1c-right";

/// A new key of its own for a certificate.
const NEW_KEY: &str = "-new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// The jars of the broker, or why it cannot run here.
///
/// # Errors
/// A program is missing, or Maven cannot be reached.
fn jars() -> Result<PathBuf, String> {
    for program in ["java", "kcat", "mvn", "openssl"] {
        if !has_program(program) {
            return Err(format!("needs {program}"));
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/kafka/fetch");
    let output = Command::new(script).output();
    let output = output.map_err(|error| format!("{script}: {error}"))?;
    if !output.status.success() {
        return Err("the broker cannot be fetched from Maven".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// A broker on files of its own.
pub struct Broker {
    jars: PathBuf,
    dir: PathBuf,
    plain: u16,
    sasl: u16,
    tls: u16,
    sasl_tls: u16,
    /// Where the listener is that sends clients to the port below.
    behind: u16,
    reported: u16,
    child: Option<Child>,
}

impl Broker {
    /// Formats the files of a broker in `dir`; it does not run yet. None where there can be
    /// none, and the reason is printed.
    ///
    /// # Errors
    /// The files cannot be written, or the broker says why not.
    pub fn or_skip(dir: &Path) -> Result<Option<Self>> {
        match jars() {
            Ok(jars) => Self::new(jars, dir).map(Some),
            Err(why) => {
                skip("kafka", &why);
                Ok(None)
            }
        }
    }

    fn new(jars: PathBuf, dir: &Path) -> Result<Self> {
        let broker = Self {
            jars,
            dir: dir.to_owned(),
            plain: free_port()?,
            sasl: free_port()?,
            tls: free_port()?,
            sasl_tls: free_port()?,
            behind: free_port()?,
            reported: free_port()?,
            child: None,
        };
        fs::create_dir_all(dir)?;
        broker.certificates()?;
        fs::write(broker.properties(), broker.configuration(free_port()?))?;
        let format = broker
            .java("kafka.tools.StorageTool")
            .args([
                "format",
                "--standalone",
                "-t",
                "8kuHNgD_TRWPrvEKkQhAVg",
                "-c",
            ])
            .arg(broker.properties())
            .output()?;
        let text = String::from_utf8_lossy(&format.stderr);
        ensure!(format.status.success(), "formatting the broker: {text}");
        Ok(broker)
    }

    fn properties(&self) -> PathBuf {
        self.dir.join("server.properties")
    }

    fn configuration(&self, controller: u16) -> String {
        let (plain, sasl, tls, sasl_tls) = (self.plain, self.sasl, self.tls, self.sasl_tls);
        let dir = self.dir.display();
        let (behind, reported) = (self.behind, self.reported);
        [
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("log.dirs={dir}/data"),
            format!(
                "listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},\
                 TLS://127.0.0.1:{tls},SASLTLS://127.0.0.1:{sasl_tls},\
                 BEHIND://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}"
            ),
            format!(
                "advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},\
                 TLS://127.0.0.1:{tls},SASLTLS://127.0.0.1:{sasl_tls},\
                 BEHIND://127.0.0.1:{reported}"
            ),
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,\
             TLS:SSL,SASLTLS:SASL_SSL,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT"
                .to_owned(),
            "inter.broker.listener.name=PLAINTEXT".to_owned(),
            self.certified("tls"),
            self.certified("sasltls"),
            "listener.name.tls.ssl.client.auth=required".to_owned(),
            "controller.listener.names=CONTROLLER".to_owned(),
            format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
            "sasl.enabled.mechanisms=PLAIN".to_owned(),
            users("sasl"),
            users("sasltls"),
            "offsets.topic.replication.factor=1".to_owned(),
            "offsets.topic.num.partitions=1".to_owned(),
            "transaction.state.log.replication.factor=1".to_owned(),
            "transaction.state.log.min.isr=1".to_owned(),
            "transaction.state.log.num.partitions=1".to_owned(),
            "share.coordinator.state.topic.replication.factor=1".to_owned(),
            "share.coordinator.state.topic.min.isr=1".to_owned(),
            "group.initial.rebalance.delay.ms=0".to_owned(),
            "auto.create.topics.enable=false".to_owned(),
        ]
        .join("\n")
    }

    /// What a listener needs to encrypt.
    fn certified(&self, listener: &str) -> String {
        let dir = self.dir.display();
        let own = format!("listener.name.{listener}.ssl");
        format!(
            "{own}.keystore.type=PEM\n{own}.keystore.location={dir}/broker.all\n\
             {own}.truststore.type=PEM\n{own}.truststore.location={dir}/ca.pem"
        )
    }

    /// Two authorities, of which one signs the broker's certificate and a client's.
    fn certificates(&self) -> Result<()> {
        let san = self.dir.join("san");
        fs::write(&san, "subjectAltName=IP:127.0.0.1,DNS:localhost")?;
        for name in ["ca", "other"] {
            self.openssl(&format!(
                "req -x509 {NEW_KEY} -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
            ))?;
        }
        for name in ["broker", "client"] {
            self.openssl(&format!(
                "req {NEW_KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ))?;
            self.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile san -out {name}.pem"
            ))?;
        }
        let mut all = fs::read(self.file("broker.key"))?;
        all.extend(fs::read(self.file("broker.pem"))?);
        Ok(fs::write(self.file("broker.all"), all)?)
    }

    fn openssl(&self, line: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(&self.dir);
        let output = command.output().context("openssl")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "openssl {line}: {text}");
        Ok(())
    }

    /// A file beside the broker's: `ca.pem` and `other.pem` are authorities, of which the first
    /// signed its certificate, `client.pem` and `client.key` what it takes from clients.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn java(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .args([
                "-Xmx384m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
            ])
            .arg(self.jars.join("*"))
            .arg(class);
        command
    }

    /// Starts it; clients wait for it by themselves.
    ///
    /// # Errors
    /// There is no `java`.
    pub fn start(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))?;
        let child = self
            .java("kafka.Kafka")
            .arg(self.properties())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("java")?;
        self.child = Some(child);
        Ok(())
    }

    /// kill -9.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Its address without authentication.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.plain)
    }

    /// Its address for users with passwords.
    pub fn sasl_addr(&self) -> String {
        format!("127.0.0.1:{}", self.sasl)
    }

    /// Its address for users with certificates.
    pub fn tls_addr(&self) -> String {
        format!("127.0.0.1:{}", self.tls)
    }

    /// Its address for users with passwords that are encrypted on the way.
    pub fn sasl_tls_addr(&self) -> String {
        format!("127.0.0.1:{}", self.sasl_tls)
    }

    /// A wire to it that its clients do not leave: it is the broker's advertised address.
    ///
    /// # Errors
    /// The port is taken.
    pub fn wire(&self) -> Result<Wire> {
        Wire::to(([127, 0, 0, 1], self.behind).into(), self.reported)
    }

    /// Everything in a topic that is committed, as `kcat` shows it.
    ///
    /// # Errors
    /// It cannot be read in time.
    pub fn read(&self, topic: &str) -> Result<Vec<Record>> {
        self.read_as(topic, "read_committed")
    }

    /// Everything in a topic, also of transactions that are open or were given up.
    ///
    /// # Errors
    /// It cannot be read in time.
    pub fn read_uncommitted(&self, topic: &str) -> Result<Vec<Record>> {
        self.read_as(topic, "read_uncommitted")
    }

    fn read_as(&self, topic: &str, isolation: &str) -> Result<Vec<Record>> {
        let isolation = format!("isolation.level={isolation}");
        wait_for("kcat", LONG, || {
            let output = Command::new("kcat")
                .args([
                    "-C",
                    "-e",
                    "-q",
                    "-o",
                    "beginning",
                    "-b",
                    &self.addr(),
                    "-t",
                    topic,
                ])
                .args(["-X", &isolation])
                .args(["-f", "%p\t%T\t%k\t%h\t%s\n"])
                .output()?;
            let text = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "kcat: {text}");
            let lines = String::from_utf8(output.stdout)?;
            lines.lines().map(Record::parse).collect()
        })
    }
}

/// Whom a listener lets in.
fn users(listener: &str) -> String {
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule";
    format!(
        "listener.name.{listener}.plain.sasl.jaas.config={login} required \
         user_drover=\"{PASSWORD}\";"
    )
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.kill();
    }
}

/// A message.
#[derive(Debug)]
pub struct Record {
    pub partition: u32,
    /// Its time, Unix milliseconds.
    pub stamp: i64,
    pub key: String,
    headers: String,
    pub payload: serde_json::Value,
}

impl Record {
    fn parse(line: &str) -> Result<Self> {
        let parts: Vec<&str> = line.splitn(5, '\t').collect();
        let [partition, stamp, key, headers, payload] = parts[..] else {
            return Err(anyhow!("not a message: {line}"));
        };
        Ok(Self {
            partition: partition.parse()?,
            stamp: stamp.parse()?,
            key: key.to_owned(),
            headers: headers.to_owned(),
            payload: serde_json::from_str(payload).with_context(|| payload.to_owned())?,
        })
    }

    /// A header, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self
            .headers
            .split(',')
            .filter_map(|pair| pair.split_once('='));
        pairs
            .into_iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    /// The header `index`.
    ///
    /// # Errors
    /// It is missing or no number.
    pub fn index(&self) -> Result<u64> {
        let index = self.header("index").context("no index")?;
        Ok(index.parse()?)
    }
}
