//! Opens connections and speaks text queries.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::FromValue;
use mysql_async::{ClientIdentity, Conn, DriverError, Error, Opts, OptsBuilder, Row, SslOpts};
use openssl::pkcs12::Pkcs12;
use openssl::pkey::PKey;
use openssl::x509::X509;
use weir_types::{Flavor, TlsMode};

use crate::client::{Client, own};
use crate::config::MysqlSinkConfig;
use crate::error::{MysqlSinkError, Result};
use crate::reply::{Retry, Verdict, judge};

/// After this long without traffic the system asks whether the server is still there.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Password of the container that carries the client's key within this process.
const CONTAINER_PASSWORD: &str = "weir";

/// What is asked of each server that answers.
const ASK_SERVER: &str = "SELECT @@version, @@version_comment, @@max_allowed_packet, @@lower_case_table_names, \
                          @@hostname, @@port, @@read_only, @@log_bin, @@datadir, CONNECTION_ID(), CURRENT_USER()";

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Family.
    pub flavor: Flavor,
    /// `@@version`.
    pub version: String,
    /// Major, minor, patch.
    pub numbers: (u32, u32, u32),
    /// `@@max_allowed_packet`.
    pub max_allowed_packet: usize,
    /// Names of tables are compared without regard to case.
    pub fold_names: bool,
    /// `@@read_only`.
    pub read_only: bool,
    /// `@@log_bin`.
    pub log_bin: bool,
    /// Tells this server from others: `server_uuid` of MySQL, `server_uid` of MariaDB,
    /// or what comes nearest to it.
    pub identity: String,
    /// The account that the login was mapped to.
    pub account: String,
}

/// Builds connections from settings.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Arc<MysqlSinkConfig>,
    with_tls: Option<Opts>,
    without_tls: Option<Opts>,
}

impl Connector {
    /// # Errors
    /// A file of the TLS settings cannot be used.
    pub(crate) fn new(config: MysqlSinkConfig) -> Result<Self> {
        let base = || {
            OptsBuilder::default()
                .ip_or_hostname(config.host.clone())
                .tcp_port(config.port)
                .user(Some(config.user.clone()))
                .pass(config.password.as_ref().map(weir_types::Secret::expose))
                .prefer_socket(false)
                .tcp_nodelay(true)
                .tcp_keepalive(Some(KEEPALIVE))
                .stmt_cache_size(0)
                .client_found_rows(true)
        };
        let mode = config.tls.mode;
        let with_tls = match mode {
            TlsMode::Disabled => None,
            _ => Some(base().ssl_opts(ssl_options(&config)?).into()),
        };
        let without_tls = matches!(mode, TlsMode::Disabled | TlsMode::Preferred).then(|| base().into());
        Ok(Self {
            with_tls,
            without_tls,
            config: Arc::new(config),
        })
    }

    pub(crate) fn config(&self) -> &MysqlSinkConfig {
        &self.config
    }

    /// Connects and asks the server what it is.
    pub(crate) async fn connect(&self) -> Result<(Client, ServerInfo)> {
        let mut client = Client::new(self.dial().await?, self.clone());
        let info = own("read what the sink needs to know", ask_server(&mut client)).await?;
        Ok((client, info))
    }

    /// Connects.
    pub(crate) async fn dial(&self) -> Result<Conn> {
        if let Some(opts) = &self.with_tls {
            match self.dial_with(opts).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) if self.without_tls.is_some() => {}
                dialed => return dialed.map_err(|error| self.blame(&error)),
            }
        }
        match &self.without_tls {
            Some(opts) => self.dial_with(opts).await.map_err(|error| self.blame(&error)),
            None => Err(self.unreachable("no way to connect is configured".to_owned())),
        }
    }

    async fn dial_with(&self, opts: &Opts) -> std::result::Result<Conn, Error> {
        match tokio::time::timeout(self.config.connect_timeout, Conn::new(opts.clone())).await {
            Ok(dialed) => dialed,
            Err(_) => Err(Error::from(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no answer within {} s", self.config.connect_timeout.as_secs_f32()),
            ))),
        }
    }

    fn unreachable(&self, reason: String) -> MysqlSinkError {
        MysqlSinkError::Unreachable {
            address: self.config.address(),
            reason,
        }
    }

    /// The error that a failed attempt to connect is.
    fn blame(&self, error: &Error) -> MysqlSinkError {
        let address = self.config.address();
        match judge(error) {
            Verdict::Login(reply) | Verdict::Definite(_, reply) => MysqlSinkError::Login {
                address,
                user: self.config.user.clone(),
                reply,
            },
            Verdict::Tls(reason) => MysqlSinkError::Tls { address, reason },
            Verdict::Retry(reason) => self.unreachable(match error {
                Error::Server(error) => format!("{} (server error {})", reason.label(), error.code),
                Error::Io(error) => error.to_string(),
                _ => "the connection ended during the login".to_owned(),
            }),
        }
    }
}

/// An error of a query of Weir's own.
pub(crate) fn own_error(what: &'static str, error: &Error) -> MysqlSinkError {
    match judge(error) {
        Verdict::Retry(reason) => MysqlSinkError::Unavailable {
            retry: reason,
            reason: match error {
                Error::Server(error) => format!("{} (server error {})", reason.label(), error.code),
                _ => reason.label().to_owned(),
            },
        },
        Verdict::Tls(reason) => MysqlSinkError::Unavailable {
            retry: Retry::Lost,
            reason,
        },
        Verdict::Login(reply) | Verdict::Definite(_, reply) => MysqlSinkError::Refused { what, reply },
    }
}

fn ssl_options(config: &MysqlSinkConfig) -> Result<SslOpts> {
    let tls = &config.tls;
    let checks_ca = matches!(tls.mode, TlsMode::VerifyCa | TlsMode::VerifyIdentity);
    let mut options = SslOpts::default()
        .with_danger_accept_invalid_certs(!checks_ca)
        .with_danger_skip_domain_validation(tls.mode != TlsMode::VerifyIdentity);
    if let Some(ca) = &tls.ca {
        let pem = read_file(ca)?;
        X509::stack_from_pem(&pem).map_err(|_| bad_file(ca, "it holds no certificate".to_owned()))?;
        options = options
            .with_root_certs(vec![pem.into()])
            .with_disable_built_in_roots(true);
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        let container = client_container(cert, key)?;
        let identity = ClientIdentity::new(container.into()).with_password(CONTAINER_PASSWORD);
        options = options.with_client_identity(Some(identity));
    }
    Ok(options)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| bad_file(path, error.to_string()))
}

fn bad_file(path: &Path, reason: String) -> MysqlSinkError {
    MysqlSinkError::TlsFile {
        path: path.to_owned(),
        reason,
    }
}

/// Certificate and key as the one container that the client library takes.
fn client_container(cert: &Path, key: &Path) -> Result<Vec<u8>> {
    let certs = X509::stack_from_pem(&read_file(cert)?)
        .map_err(|_| bad_file(cert, "it holds no certificate".to_owned()))?;
    let private = PKey::private_key_from_pem(&read_file(key)?)
        .map_err(|_| bad_file(key, "it holds no private key without passphrase".to_owned()))?;
    let Some((leaf, chain)) = certs.split_first() else {
        return Err(bad_file(cert, "it holds no certificate".to_owned()));
    };
    let pack = || {
        let mut authorities = openssl::stack::Stack::new()?;
        for authority in chain {
            authorities.push(authority.clone())?;
        }
        let mut builder = Pkcs12::builder();
        builder.name("weir").pkey(&private).cert(leaf).ca(authorities);
        builder.build2(CONTAINER_PASSWORD)?.to_der()
    };
    pack().map_err(|_: openssl::error::ErrorStack| {
        bad_file(cert, format!("it does not belong to `{}`", key.display()))
    })
}

/// A value of a row; none if it is NULL, missing or of another type.
pub(crate) fn value<T: FromValue>(row: &Row, index: usize) -> Option<T> {
    row.get_opt::<Option<T>, _>(index)?.ok().flatten()
}

/// Text of a row, empty for none.
pub(crate) fn text(row: &Row, index: usize) -> String {
    value::<Vec<u8>>(row, index)
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

async fn ask_server(conn: &mut Client) -> std::result::Result<ServerInfo, Error> {
    let row: Option<Row> = conn.query_first(ASK_SERVER).await?;
    let row = row.ok_or_else(|| Error::from(DriverError::ConnectionClosed))?;
    let version = text(&row, 0);
    let is_mariadb = version.contains("MariaDB") || text(&row, 1).contains("mariadb");
    let flavor = if is_mariadb {
        Flavor::Mariadb
    } else {
        Flavor::Mysql
    };
    let variable = match flavor {
        Flavor::Mysql => "SHOW GLOBAL VARIABLES LIKE 'server_uuid'",
        Flavor::Mariadb => "SHOW GLOBAL VARIABLES LIKE 'server_uid'",
    };
    let named: Option<Row> = conn.query_first(variable).await?;
    let identity = named
        .map(|row| text(&row, 1))
        .filter(|identity| !identity.is_empty());
    let number = |at| text(&row, at).parse::<u64>().unwrap_or_default();
    Ok(ServerInfo {
        flavor,
        numbers: version_numbers(&version),
        max_allowed_packet: usize::try_from(number(2)).unwrap_or(usize::MAX),
        fold_names: number(3) != 0,
        read_only: !matches!(text(&row, 6).as_str(), "0" | "OFF"),
        log_bin: number(7) != 0,
        identity: identity
            .unwrap_or_else(|| format!("{}:{}:{}", text(&row, 4), text(&row, 5), text(&row, 8))),
        account: text(&row, 10),
        version,
    })
}

fn version_numbers(version: &str) -> (u32, u32, u32) {
    // MariaDB may put `5.5.5-` before its own version.
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse::<u32>().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_both_families() {
        assert_eq!(version_numbers("9.7.4"), (9, 7, 4));
        assert_eq!(version_numbers("10.11.19-MariaDB-0+deb12u1-log"), (10, 11, 19));
        assert_eq!(version_numbers("5.5.5-11.8.9-MariaDB"), (11, 8, 9));
        assert_eq!(version_numbers(""), (0, 0, 0));
    }
}
