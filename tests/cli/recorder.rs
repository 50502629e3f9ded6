//! Stands between the program and its agent, and keeps the requests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What one connection said.
type SentBytes = Arc<Mutex<Vec<u8>>>;

/// A recorder that runs.
pub(crate) struct Recorder {
    /// Where it listens.
    pub(crate) address: String,
    requested: Arc<Mutex<Vec<SentBytes>>>,
}

impl Recorder {
    /// One before this agent.
    pub(crate) fn before(agent: SocketAddr) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let requested = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requested);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(client), Ok(server)) = (stream, TcpStream::connect(agent)) else {
                    return;
                };
                let sent = Arc::new(Mutex::new(Vec::new()));
                kept.lock().expect("not poisoned").push(Arc::clone(&sent));
                carry(&client, &server, Some(sent));
                carry(&server, &client, None);
            }
        });
        Recorder { address, requested }
    }

    /// What each connection said so far, as it was said.
    pub(crate) fn sent(&self) -> Vec<String> {
        let requested = self.requested.lock().expect("not poisoned");
        let texts = requested.iter().map(|sent| {
            let sent = sent.lock().expect("not poisoned");
            String::from_utf8_lossy(&sent).into_owned()
        });
        texts.collect()
    }

    /// The requests so far, first line and body.
    pub(crate) fn requested(&self) -> Vec<(String, String)> {
        self.sent()
            .iter()
            .map(|text| {
                let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
                let line = head.lines().next().unwrap_or_default();
                let line = line.trim_end_matches(" HTTP/1.1");
                (line.to_owned(), body.to_owned())
            })
            .collect()
    }
}

/// Carries bytes from one side to the other on a thread of its own.
fn carry(from: &TcpStream, to: &TcpStream, kept: Option<Arc<Mutex<Vec<u8>>>>) {
    let mut from = from.try_clone().expect("a second handle");
    let mut to = to.try_clone().expect("a second handle");
    thread::spawn(move || {
        let mut piece = [0; 16 << 10];
        while let Ok(read) = from.read(&mut piece) {
            if read == 0 {
                break;
            }
            if let Some(kept) = &kept {
                kept.lock()
                    .expect("not poisoned")
                    .extend_from_slice(&piece[..read]);
            }
            if to.write_all(&piece[..read]).is_err() {
                break;
            }
        }
        // The other side may be closed already.
        let _ = to.shutdown(Shutdown::Write);
    });
}
