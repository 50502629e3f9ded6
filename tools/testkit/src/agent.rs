//! The real program as a child process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Http, LONG, leftovers, limit, wait_for};

/// How an agent is to be started.
#[derive(Clone)]
pub struct Setup {
    /// The program.
    pub binary: PathBuf,
    /// Where it keeps everything. It outlives the agent, so that another can be started on it.
    pub data_dir: PathBuf,
    /// `-dev`: server and client in one.
    pub dev: bool,
    /// More configuration, as HCL.
    pub config: String,
    /// Port of the API.
    pub http: u16,
    /// Port between servers and clients.
    pub rpc: u16,
}

impl Setup {
    /// A development agent on free ports. `binary` is `env!("CARGO_BIN_EXE_drover")` in a suite.
    ///
    /// # Errors
    /// When the system has no free port.
    pub fn dev(binary: impl Into<PathBuf>, data_dir: &Path) -> Result<Setup> {
        limit::this_test();
        Ok(Setup {
            binary: binary.into(),
            data_dir: data_dir.to_owned(),
            dev: true,
            config: String::new(),
            http: free_port()?,
            rpc: free_port()?,
        })
    }

    /// A lone server without a client on free ports.
    ///
    /// # Errors
    /// When the system has no free port.
    pub fn server(binary: impl Into<PathBuf>, data_dir: &Path) -> Result<Setup> {
        let mut setup = Setup::dev(binary, data_dir)?;
        setup.dev = false;
        setup.config = "server {\n  enabled = true\n  bootstrap_expect = 1\n}\n".to_owned();
        Ok(setup)
    }

    /// Starts the agent and waits until it answers and has a leader.
    ///
    /// # Errors
    /// When it ends or is not ready in time; the end of its log is part of the error.
    pub fn start(&self) -> Result<Agent> {
        let agent = self.spawn()?;
        agent.ready(LONG)?;
        Ok(agent)
    }

    /// Starts the agent and does not wait.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn spawn(&self) -> Result<Agent> {
        fs::create_dir_all(&self.data_dir)?;
        leftovers::guard(&self.data_dir);
        let beside = |suffix: &str| self.data_dir.with_extension(suffix);
        let config = format!(
            "bind_addr = \"127.0.0.1\"\nports {{\n  http = {}\n  rpc = {}\n  serf = {}\n}}\n{}",
            self.http,
            self.rpc,
            free_port()?,
            self.config
        );
        fs::write(beside("hcl"), config)?;
        let log = beside("log");
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(&self.binary);
        command.arg("agent");
        if self.dev {
            command.arg("-dev");
        }
        command
            .arg("-data-dir")
            .arg(&self.data_dir)
            .arg("-config")
            .arg(beside("hcl"));
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command
            .spawn()
            .with_context(|| self.binary.display().to_string())?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, self.http));
        let rpc = SocketAddr::from((Ipv4Addr::LOCALHOST, self.rpc));
        Ok(Agent {
            child,
            addr,
            rpc,
            log,
        })
    }
}

/// A running agent; dropping it kills the process (its tasks live on, as they must).
pub struct Agent {
    child: Child,
    addr: SocketAddr,
    rpc: SocketAddr,
    log: PathBuf,
}

impl Agent {
    /// The address of its API.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address that servers and clients call.
    pub fn rpc_addr(&self) -> SocketAddr {
        self.rpc
    }

    /// A new client of its API.
    pub fn http(&self) -> Http {
        Http::new(self.addr)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers and knows a leader.
    ///
    /// # Errors
    /// When it has ended or time is up.
    pub fn ready(&self, limit: Duration) -> Result<()> {
        let mut http = self.http().timeout(Duration::from_secs(5));
        let alive = Path::new("/proc").join(self.pid().to_string()).join("exe");
        wait_for("the agent", limit, || {
            ensure!(alive.exists(), "the agent has ended");
            let leader = http.json("/v1/status/leader")?;
            ensure!(
                leader.as_str().is_some_and(|text| !text.is_empty()),
                "no leader"
            );
            Ok(())
        })
        .map_err(|error| anyhow!("{error:#}\n{}", self.log_tail(40)))
    }

    /// The last lines of what it wrote.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// kill -9, and waits until it is gone.
    ///
    /// # Errors
    /// When it had ended already.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits until it has ended by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(self, limit: Duration) -> Result<ExitStatus> {
        self.end(Signal::SIGTERM, limit)
    }

    /// SIGINT, as from a terminal, and waits until it has ended by itself.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn interrupt(self, limit: Duration) -> Result<ExitStatus> {
        self.end(Signal::SIGINT, limit)
    }

    fn end(mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        kill(Pid::from_raw(self.pid().cast_signed()), signal)?;
        wait_for("the agent to stop", limit, || {
            self.child
                .try_wait()?
                .ok_or_else(|| anyhow!("it still runs"))
        })
    }

    /// Resident memory in bytes.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.context("VmRSS")?.parse::<u64>()? * 1024)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already; both calls are for the case that it has not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports below those that the system gives to connections of its own choice: a connection that
/// happened to get the same one would keep the agent from listening.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port that was free a moment ago, and that no other caller in this process was given.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Processes that run at the same time begin elsewhere.
    let begin = || {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let scattered = std::process::id().wrapping_mul(7_919) ^ now.subsec_nanos();
        AtomicU16::new(u16::try_from(scattered % u32::from(u16::MAX)).unwrap_or_default())
    };
    let next = NEXT.get_or_init(begin);
    let many = PORTS.end - PORTS.start;
    for _ in 0..many {
        let port = PORTS.start + next.fetch_add(1, Ordering::Relaxed) % many;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(anyhow!(
        "no port between {} and {} is free",
        PORTS.start,
        PORTS.end
    ))
}
