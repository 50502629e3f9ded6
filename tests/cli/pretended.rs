//! Stands in the place of an agent, one of another release for example: what it answers is known
//! before.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Requests, first line and body.
type Requested = Arc<Mutex<Vec<(String, String)>>>;

/// One that runs.
pub(crate) struct Pretended {
    /// Where it listens.
    pub(crate) address: String,
    requested: Requested,
}

impl Pretended {
    /// One with these answers, by method and path without its query; nothing else is found.
    pub(crate) fn with(answers: &[(&str, &str)]) -> Pretended {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let owned = |(place, answer): &(&str, &str)| ((*place).to_owned(), (*answer).to_owned());
        let answers: Vec<(String, String)> = answers.iter().map(owned).collect();
        let requested = Requested::default();
        let kept = Arc::clone(&requested);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away in between wants no answer.
                let _ = answer(&stream, &answers, &kept);
            }
        });
        Pretended { address, requested }
    }

    /// The requests so far, first line and body.
    pub(crate) fn requested(&self) -> Vec<(String, String)> {
        self.requested.lock().expect("not poisoned").clone()
    }
}

/// Answers a request.
fn answer(
    mut stream: &TcpStream,
    answers: &[(String, String)],
    kept: &Requested,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let requested = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let place = requested.split('?').next().unwrap_or_default().to_owned();
    let body = String::from_utf8_lossy(&body).into_owned();
    kept.lock().expect("not poisoned").push((requested, body));
    let found = answers.iter().find(|(known, _)| *known == place);
    let (status, text) = match found {
        Some((_, text)) => ("200 OK", text.as_str()),
        None => ("404 Not Found", "not found"),
    };
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}
