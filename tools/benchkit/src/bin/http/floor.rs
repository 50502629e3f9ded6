//! The floor of reads: a constant body from the smallest possible server.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::Result;

/// Serves a body of `size` bytes to every request until the process ends; its address.
pub(crate) fn serve(size: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    );
    let mut answer = head.into_bytes();
    answer.resize(answer.len() + size, b'x');
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // A client that goes away ends its thread.
            std::thread::spawn(move || answer_all(stream, &answer));
        }
    });
    Ok(addr)
}

fn answer_all(stream: TcpStream, answer: &[u8]) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            writer.write_all(answer)?;
        }
    }
}
