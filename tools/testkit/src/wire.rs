//! A wire between a client and a server of TCP that can be cut, stalled, or answer for the server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// Between two looks at a wire that is stalled.
const LOOK: Duration = Duration::from_millis(5);

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// They pass; when the budget is spent, the connection ends.
    Pass = 0,
    /// They pass until the budget is spent, and then nothing does, and nothing ends.
    Stall = 1,
    /// New connections get 503 for every request; the others continue.
    Overloaded = 2,
}

#[derive(Debug)]
struct State {
    mode: AtomicU8,
    /// Bytes to the server that may still pass.
    left: AtomicI64,
}

impl State {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::SeqCst) == mode as u8
    }

    fn set(&self, mode: Mode, left: i64) {
        self.left.store(left, Ordering::SeqCst);
        self.mode.store(mode as u8, Ordering::SeqCst);
    }

    fn is_stalled(&self) -> bool {
        self.is(Mode::Stall) && self.left.load(Ordering::SeqCst) <= 0
    }
}

/// The wire. Its threads end with the process.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Where clients connect.
    pub addr: SocketAddr,
    state: Arc<State>,
}

impl Wire {
    /// To a server, on any port of this host, or on the one that clients know.
    ///
    /// # Errors
    /// The port is taken.
    pub fn to(server: SocketAddr, port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let addr = listener.local_addr()?;
        let state = Arc::new(State {
            mode: AtomicU8::new(Mode::Pass as u8),
            left: AtomicI64::new(i64::MAX),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                if state.is(Mode::Overloaded) {
                    thread::spawn(move || refuse(client));
                    continue;
                }
                connect(client, server, &state);
            }
        });
        Ok(Self { addr, state })
    }

    /// Everything passes.
    pub fn pass(&self) {
        self.state.set(Mode::Pass, i64::MAX);
    }

    /// Connections end when so many more bytes have passed to the server.
    pub fn cut_after(&self, bytes: i64) {
        self.state.set(Mode::Pass, bytes);
    }

    /// Nothing passes any more when so many bytes have passed to the server, and nothing ends.
    pub fn stall_after(&self, bytes: i64) {
        self.state.set(Mode::Stall, bytes);
    }

    /// Every request on a new connection is answered with 503.
    pub fn overload(&self) {
        self.state.set(Mode::Overloaded, i64::MAX);
    }

    /// Whether it stands still.
    pub fn is_stalled(&self) -> bool {
        self.state.is_stalled()
    }
}

fn connect(client: TcpStream, server: SocketAddr, state: &Arc<State>) {
    let Ok(server) = TcpStream::connect(server) else {
        return;
    };
    let pairs = [
        (client.try_clone(), server.try_clone(), true),
        (server.try_clone(), client.try_clone(), false),
    ];
    for (from, to, counted) in pairs {
        if let (Ok(from), Ok(to)) = (from, to) {
            let state = Arc::clone(state);
            thread::spawn(move || pass(from, to, &state, counted));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, counted: bool) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(got) = from.read(&mut buffer) {
        if got == 0 {
            break;
        }
        if counted {
            let bytes = i64::try_from(got).unwrap_or(i64::MAX);
            let before = state.left.fetch_sub(bytes, Ordering::SeqCst);
            if before < bytes && state.is(Mode::Pass) {
                break;
            }
        }
        while state.is_stalled() {
            thread::sleep(LOOK);
        }
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Answers as a server does that has too much to do.
fn refuse(mut client: TcpStream) {
    let mut head = [0; 16 << 10];
    let _ = client.read(&mut head);
    let _ = client
        .write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let _ = client.shutdown(Shutdown::Both);
}
