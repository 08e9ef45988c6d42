//! The HTTP port of a running command.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// Body of what the port answers; none while nobody listens.
pub fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}

/// Sum of a metric's samples whose labels contain `label`; none if there is no such sample.
pub fn metric(port: u16, name: &str, label: &str) -> Option<f64> {
    let body = get(port, "/metrics")?;
    body.lines()
        .filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, labels) = series.split_once('{').unwrap_or((series, ""));
            (found == name && labels.contains(label)).then(|| value.parse::<f64>().ok())?
        })
        .reduce(|sum, value| sum + value)
}
