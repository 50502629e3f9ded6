//! A small blocking HTTP/1.1 client that keeps its connection.
//!
//! It exists so that what is measured is the server: no pool, no tasks, one buffer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use crate::wait::LONG;

/// A client of one server.
pub struct Http {
    addr: SocketAddr,
    headers: String,
    timeout: Duration,
    tls: Option<Arc<ClientConfig>>,
    connection: Option<BufReader<Line>>,
}

/// A connection.
enum Line {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Line {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(to),
            Self::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Clear(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as it came: still compressed if the request allowed that.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of that name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When the status is not one of success or the body is no JSON.
    pub fn json(&self) -> Result<Value> {
        ensure!(self.status < 300, "{} {}", self.status, self.text());
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }
}

/// Status and headers of an answer whose body is still to come.
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn chunked(&self) -> bool {
        self.get("transfer-encoding")
            .is_some_and(|value| value.contains("chunked"))
    }
}

impl Http {
    /// A client; it connects when it is first used.
    pub fn new(addr: SocketAddr) -> Http {
        let headers = String::new();
        Http {
            addr,
            headers,
            timeout: Duration::from_secs(60),
            tls: None,
            connection: None,
        }
    }

    /// Speaks TLS; the server's certificate has to name its address.
    #[must_use]
    pub fn tls(mut self, config: Arc<ClientConfig>) -> Http {
        self.tls = Some(config);
        self
    }

    /// Sends this header with every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Http {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Gives up after this long without a byte.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Http {
        self.timeout = timeout;
        self
    }

    /// GET.
    ///
    /// # Errors
    /// When no answer came; a refusal by the server is an answer.
    pub fn get(&mut self, path: &str) -> Result<Response> {
        self.send("GET", path, &[])
    }

    /// PUT with a JSON body.
    ///
    /// # Errors
    /// When no answer came.
    pub fn put(&mut self, path: &str, body: &Value) -> Result<Response> {
        self.send("PUT", path, &serde_json::to_vec(body)?)
    }

    /// GET, read as JSON; anything but success is an error.
    ///
    /// # Errors
    /// When no answer came, or not a good one.
    pub fn json(&mut self, path: &str) -> Result<Value> {
        self.get(path)?.json().with_context(|| path.to_owned())
    }

    /// Any method, any body. A kept connection that the server closed meanwhile is replaced once.
    ///
    /// # Errors
    /// When no answer came.
    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Response> {
        let kept = self.connection.is_some();
        match self.exchange(method, path, body) {
            Err(_) if kept => {
                self.connection = None;
                self.exchange(method, path, body)
            }
            answer => answer,
        }
        .inspect_err(|_| self.connection = None)
        .with_context(|| format!("{method} {path}"))
    }

    fn exchange(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Response> {
        let mut reader = self.request(method, path, body)?;
        let head = read_head(&mut reader)?;
        let empty = method == "HEAD" || head.status == 204 || head.status == 304;
        let body = if empty {
            Vec::new()
        } else if head.chunked() {
            let mut body = Vec::new();
            while let Some(chunk) = read_chunk(&mut reader)? {
                body.extend_from_slice(&chunk);
            }
            body
        } else if let Some(length) = head.get("content-length") {
            let mut body = vec![0; length.parse().context("content-length")?];
            reader.read_exact(&mut body)?;
            body
        } else {
            let mut body = Vec::new();
            reader.read_to_end(&mut body)?;
            return Ok(Response {
                status: head.status,
                headers: head.headers,
                body,
            });
        };
        if head.get("connection") != Some("close") {
            self.connection = Some(reader);
        }
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<BufReader<Line>> {
        let mut reader = match self.connection.take() {
            Some(reader) => reader,
            None => {
                let stream = TcpStream::connect_timeout(&self.addr, Duration::from_secs(5))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.timeout))?;
                stream.set_write_timeout(Some(self.timeout))?;
                let line = match &self.tls {
                    None => Line::Clear(stream),
                    Some(config) => {
                        let name = ServerName::from(self.addr.ip());
                        let session = ClientConnection::new(Arc::clone(config), name)?;
                        Line::Tls(Box::new(StreamOwned::new(session, stream)))
                    }
                };
                BufReader::with_capacity(1 << 18, line)
            }
        };
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{}\r\n",
            self.addr,
            body.len(),
            self.headers
        )
        .into_bytes();
        request.extend_from_slice(body);
        reader.get_mut().write_all(&request)?;
        reader.get_mut().flush()?;
        Ok(reader)
    }

    /// GET of an answer without end: its lines as they come.
    ///
    /// # Errors
    /// When the server refuses, with its text.
    pub fn lines(mut self, path: &str) -> Result<Lines> {
        let mut reader = self.request("GET", path, &[])?;
        let head = read_head(&mut reader)?;
        ensure!(head.status == 200, "{path}: status {}", head.status);
        let chunked = head.chunked();
        Ok(Lines {
            head,
            reader,
            chunked,
            pending: Vec::new(),
            at: 0,
        })
    }
}

/// The lines of an answer without end.
pub struct Lines {
    head: Head,
    reader: BufReader<Line>,
    chunked: bool,
    pending: Vec<u8>,
    at: usize,
}

impl Lines {
    /// A header of the answer, its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// The next line without its end; `None` when the server has closed the stream.
    ///
    /// # Errors
    /// When nothing came for the client's timeout, or the connection broke.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let rest = &self.pending[self.at..];
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..length].to_vec();
                self.at += length + 1;
                return Ok(Some(line));
            }
            self.pending.drain(..self.at);
            self.at = 0;
            let more = if self.chunked {
                read_chunk(&mut self.reader)?
            } else {
                let bytes = self.reader.fill_buf()?.to_vec();
                self.reader.consume(bytes.len());
                (!bytes.is_empty()).then_some(bytes)
            };
            match more {
                Some(bytes) => self.pending.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// What this makes of the first line that it makes something of. Lines before it, heartbeats
    /// too, do not prolong the wait.
    ///
    /// # Errors
    /// When no such line came for [`LONG`], or the stream ended or broke.
    pub fn find<T>(&mut self, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            let line = self.next_line()?;
            let line = line.with_context(|| format!("the stream ended before {what}"))?;
            let line = String::from_utf8(line)?;
            if let Some(found) = wanted(&line) {
                return Ok(found);
            }
            ensure!(
                start.elapsed() < LONG,
                "waited {LONG:?} for {what}; last: {line}"
            );
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    ensure!(reader.read_line(&mut line)? > 0, "connection closed");
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn read_head(reader: &mut impl BufRead) -> Result<Head> {
    let line = read_line(reader)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let Some(status) = status else {
        bail!("not HTTP: {line:?}")
    };
    let mut headers = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(Head { status, headers });
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

/// The next chunk of a chunked body; `None` at its end.
fn read_chunk(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>> {
    let line = read_line(reader)?;
    let size = line.split(';').next().unwrap_or_default().trim();
    let size = usize::from_str_radix(size, 16).with_context(|| format!("chunk size {line:?}"))?;
    let mut chunk = vec![0; size];
    reader.read_exact(&mut chunk)?;
    read_line(reader)?;
    Ok((size > 0).then_some(chunk))
}
