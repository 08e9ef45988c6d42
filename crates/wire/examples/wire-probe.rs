//! Tries a server by hand: logs in, says what it found, runs statements, or reads its
//! binlog and counts.
//!
//! ```text
//! wire-probe HOST PORT USER [--password P] [--tls MODE] [--ca F] [--cert F --key F]
//!            [--timeout SECONDS] [--query SQL]… [--register ID]
//!            [--gtid SET | --file NAME:OFFSET] [--server-id N] [--types]
//! ```
//! A dump ends when nothing has come for the timeout.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use weir_types::{ErrorReport, GtidSet};
use weir_types::{Secret, TlsMode, TlsOptions};
use weir_wire::{Connection, DumpRequest, Endpoint, WireError};

/// Largest event that a dump takes.
const EVENT_BYTES_MAX: u64 = 1 << 30;
/// Server id of the dump without `--server-id`.
const SERVER_ID: u32 = 424_242;

struct Arguments {
    endpoint: Endpoint,
    queries: Vec<String>,
    register: bool,
    dump: Option<DumpRequest>,
    types: bool,
    server_id: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    if let Err(error) = run(&arguments) {
        let report = ErrorReport::new(&error);
        println!("{} {:?}: {}", report.code, report.class, report.message);
        println!("  {}", report.action);
    }
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let mut out = Arguments {
        endpoint: Endpoint {
            host: next("HOST")?,
            port: next("PORT")?.parse()?,
            user: next("USER")?,
            password: None,
            tls: TlsOptions {
                mode: TlsMode::Preferred,
                ca: None,
                cert: None,
                key: None,
            },
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(2),
        },
        queries: Vec::new(),
        register: false,
        dump: None,
        types: false,
        server_id: SERVER_ID,
    };
    while let Ok(option) = next("") {
        match option.as_str() {
            "--password" => out.endpoint.password = Some(Secret::new(next("P")?)),
            "--tls" => out.endpoint.tls.mode = mode(&next("MODE")?)?,
            "--ca" => out.endpoint.tls.ca = Some(next("F")?.into()),
            "--cert" => out.endpoint.tls.cert = Some(next("F")?.into()),
            "--key" => out.endpoint.tls.key = Some(next("F")?.into()),
            "--timeout" => out.endpoint.read_timeout = Duration::from_secs_f64(next("S")?.parse()?),
            "--query" => out.queries.push(next("SQL")?),
            "--register" => out.register = true,
            "--types" => out.types = true,
            "--server-id" => out.server_id = next("N")?.parse()?,
            "--gtid" => {
                out.dump = Some(DumpRequest::MysqlGtid {
                    server_id: out.server_id,
                    executed: GtidSet::parse(&next("SET")?)?,
                });
            }
            "--file" => {
                let place = next("NAME:OFFSET")?;
                let (file, offset) = place.rsplit_once(':').ok_or("NAME:OFFSET")?;
                out.dump = Some(DumpRequest::File {
                    server_id: out.server_id,
                    file: file.to_owned(),
                    offset: offset.parse()?,
                });
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(out)
}

fn mode(name: &str) -> Result<TlsMode, String> {
    [
        TlsMode::Disabled,
        TlsMode::Preferred,
        TlsMode::Required,
        TlsMode::VerifyCa,
        TlsMode::VerifyIdentity,
    ]
    .into_iter()
    .find(|mode| mode.name() == name)
    .ok_or_else(|| format!("unknown mode {name}"))
}

fn run(arguments: &Arguments) -> Result<(), WireError> {
    let mut connection = Connection::open(&arguments.endpoint)?;
    let server = connection.server();
    println!(
        "{:?} {}, connection {}, encrypted {}",
        server.flavor, server.version, server.connection_id, server.encrypted
    );
    for sql in &arguments.queries {
        let rows = connection.query(sql)?;
        println!("{} rows of {:?}", rows.len(), rows.columns);
        for row in rows.rows.iter().take(20) {
            let line: Vec<_> = row
                .iter()
                .map(|v| {
                    v.as_deref()
                        .map_or_else(|| "NULL".into(), String::from_utf8_lossy)
                })
                .collect();
            println!("  {}", line.join(" | "));
        }
    }
    if arguments.register {
        connection.register_replica(arguments.server_id, "wire-probe")?;
    }
    match &arguments.dump {
        Some(request) => dump(connection, request, arguments.types),
        None => Ok(()),
    }
}

fn dump(connection: Connection, request: &DumpRequest, types: bool) -> Result<(), WireError> {
    let mut stream = connection.dump(request)?;
    let (mut events, mut bytes, mut largest) = (0_u64, 0_u64, 0_usize);
    let mut by_type = BTreeMap::<u8, u64>::new();
    let start = Instant::now();
    let mut last = start;
    let end = loop {
        match stream.next(EVENT_BYTES_MAX) {
            Ok(Some(event)) => {
                events += 1;
                bytes += event.len() as u64;
                largest = largest.max(event.len());
                if types {
                    *by_type
                        .entry(event.get(4).copied().unwrap_or_default())
                        .or_default() += 1;
                }
                last = Instant::now();
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let seconds = last.duration_since(start).as_secs_f64();
    println!(
        "{events} events, {bytes} bytes, largest {largest}, {seconds:.3} s, {:.1} MB/s",
        bytes as f64 / 1e6 / seconds
    );
    if types {
        println!("  by type: {by_type:?}");
    }
    end.map_or(Ok(()), Err)
}
