//! What an error of the server means: whether it passes, and if not, what is wrong with
//! the rows. Codes are those of MySQL's "Server Error Message Reference" and MariaDB's
//! "MariaDB Error Codes".

use std::fmt;

use mysql_async::{DriverError, Error, IoError, ServerError};

/// Longest name that is taken out of a message.
const NAME_CHARS_MAX: usize = 64;

/// Code and SQLSTATE of an error, with the name of what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReply {
    /// Error number.
    pub code: u16,
    /// SQLSTATE.
    pub state: Box<str>,
    /// Key, column or constraint.
    pub name: Option<Box<str>>,
}

impl ServerReply {
    pub(crate) fn of(error: &ServerError) -> Self {
        Self {
            code: error.code,
            state: error
                .state
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .take(5)
                .collect::<String>()
                .into(),
            name: name_in(error.code, &error.message).map(Into::into),
        }
    }
}

impl fmt::Display for ServerReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server error {}", self.code)?;
        if !self.state.is_empty() {
            write!(f, ", SQLSTATE {}", self.state)?;
        }
        match &self.name {
            Some(name) => write!(f, ", `{name}`"),
            None => Ok(()),
        }
    }
}

/// What is wrong with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A value of a unique key is there already.
    Duplicate,
    /// No such table or schema.
    MissingTable,
    /// No such column, or one without a value.
    Columns,
    /// A value does not fit.
    Value,
    /// A foreign key.
    ForeignKey,
    /// A CHECK constraint.
    Check,
    /// No privilege.
    Denied,
    /// Larger than the target takes.
    TooLarge,
    /// Something else.
    Other,
}

impl Problem {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Duplicate => "WEIR-MYS-011",
            Self::MissingTable => "WEIR-MYS-012",
            Self::Columns => "WEIR-MYS-013",
            Self::Value => "WEIR-MYS-014",
            Self::ForeignKey => "WEIR-MYS-015",
            Self::Check => "WEIR-MYS-016",
            Self::Denied => "WEIR-MYS-017",
            Self::TooLarge => "WEIR-MYS-018",
            Self::Other => "WEIR-MYS-019",
        }
    }

    pub(crate) const fn action(self) -> &'static str {
        match self {
            Self::Duplicate => {
                "remove the row that the target has and the source has not, or drop the target's additional unique \
                 key, and start again"
            }
            Self::MissingTable => {
                "create the table at the target as it is at the source, or grant the user its privileges, and start again"
            }
            Self::Columns => "give the target table the columns of the source, and start again",
            Self::Value => {
                "give the column of the target the type that it has at the source, and start again"
            }
            Self::ForeignKey => {
                "bring the rows that the foreign key needs to the target, or replicate that table too, and start again"
            }
            Self::Check => "drop the constraint at the target, or correct it, and start again",
            Self::Denied => {
                "grant SELECT, INSERT, UPDATE and DELETE on the table at the target, and start again"
            }
            Self::TooLarge => "raise `max_allowed_packet` at the target, and start again",
            Self::Other => {
                "look up the error code in the manual of the target, repair its cause, and start again"
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duplicate => "a unique value is there already",
            Self::MissingTable => "the table does not exist, or the user may not see it",
            Self::Columns => "the columns do not match",
            Self::Value => "a value does not fit its column",
            Self::ForeignKey => "a foreign key does not hold",
            Self::Check => "a constraint does not hold",
            Self::Denied => "a privilege is missing",
            Self::TooLarge => "a row is larger than the target takes",
            Self::Other => "the statement fails",
        })
    }
}

/// Why something is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Chosen as the victim of a deadlock, or told to try again.
    Deadlock,
    /// Waited too long for a lock.
    Locked,
    /// Takes no writes for now.
    ReadOnly,
    /// No room left.
    DiskFull,
    /// The connection is gone: whether the last statement took effect is not known.
    Lost,
    /// Too busy, shutting down, starting.
    Busy,
}

impl Retry {
    pub(crate) const ALL: [Self; 6] = [
        Self::Deadlock,
        Self::Locked,
        Self::ReadOnly,
        Self::DiskFull,
        Self::Lost,
        Self::Busy,
    ];

    /// As metrics and the log name it.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Deadlock => "deadlock",
            Self::Locked => "locked",
            Self::ReadOnly => "read-only",
            Self::DiskFull => "disk-full",
            Self::Lost => "connection-lost",
            Self::Busy => "busy",
        }
    }
}

/// What to do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Retry(Retry),
    /// The login is refused.
    Login(ServerReply),
    /// No TLS as asked for.
    Tls(String),
    Definite(Problem, ServerReply),
}

/// What the TLS library says of a certificate, or of ends that have no version or cipher in common.
const TLS_REFUSALS: [&str; 6] = [
    "certificate",
    "unsupported protocol",
    "protocol version",
    "no protocols",
    "handshake failure",
    "cipher",
];

/// Whether both ends agree that they do not fit. Any other end of a handshake says nothing of TLS: the connection was
/// cut, or the server, which goes down or got half a message, answered in plain text.
fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    is_refusal(&error.to_string())
}

fn is_refusal(text: &str) -> bool {
    // The library adds in parentheses what it thinks of the certificate, to any error and also where nobody asked.
    let text = text.strip_suffix(')').map_or(text, |rest| {
        rest.rsplit_once(" (").map_or(text, |(before, _)| before)
    });
    let text = text.to_lowercase();
    TLS_REFUSALS.iter().any(|refusal| text.contains(refusal))
}

/// Judges an error of the client library.
pub(crate) fn judge(error: &Error) -> Verdict {
    match error {
        Error::Server(error) => judge_server(error),
        Error::Io(IoError::Tls(error)) if is_refused(error) => Verdict::Tls(error.to_string()),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            Verdict::Tls("the server does not offer it".to_owned())
        }
        Error::Driver(DriverError::PacketTooLarge) => Verdict::Definite(
            Problem::TooLarge,
            ServerReply {
                code: 1153,
                state: "08S01".into(),
                name: None,
            },
        ),
        Error::Io(_) | Error::Driver(_) | Error::Other(_) | Error::Url(_) => Verdict::Retry(Retry::Lost),
    }
}

fn judge_server(error: &ServerError) -> Verdict {
    let reply = || ServerReply::of(error);
    let definite = |problem| Verdict::Definite(problem, reply());
    match error.code {
        // Deadlock, aborted by certification of a cluster, changed definition, rollback.
        1213 | 1412 | 1615 | 3101 | 1180 => Verdict::Retry(Retry::Deadlock),
        1205 | 3572 | 1206 => Verdict::Retry(Retry::Locked),
        // Read-only options and modes; no primary of a group.
        1290 | 1792 | 1836 | 3100 | 1047 => Verdict::Retry(Retry::ReadOnly),
        // Disk full, table full, writing a file failed.
        1021 | 1114 | 3 | 1026 | 1030 | 3019 | 1598 => Verdict::Retry(Retry::DiskFull),
        // Connection killed, server shuts down, packets out of order, time-outs.
        1053 | 1077 | 1078 | 1079 | 1080 | 1152 | 1154..=1161 | 1184 | 1927 | 3169 | 4031 | 1317 => {
            Verdict::Retry(Retry::Lost)
        }
        // Out of connections, memory, threads; resource limits of an account.
        1037..=1041 | 1135 | 1203 | 1226 | 1043 | 1969 | 3024 | 3168 | 3032 | 1129 => {
            Verdict::Retry(Retry::Busy)
        }
        1045 | 1698 | 1820 | 1862 | 1251 | 1275 | 3118 | 4151 | 1130 | 1524 => Verdict::Login(reply()),
        1062 | 1586 | 1022 | 1169 => definite(Problem::Duplicate),
        1049 | 1051 | 1146 | 1109 => definite(Problem::MissingTable),
        1054 | 1136 | 1364 | 3105 | 1906 => definite(Problem::Columns),
        1406
        | 1264
        | 1265
        | 1366
        | 1292
        | 1048
        | 1411
        | 1416
        | 1690
        | 1300
        | 1367
        | 3140..=3158
        | 3643
        | 3903
        | 3730
        | 4078
        | 4079
        | 1293 => definite(Problem::Value),
        1216 | 1217 | 1451 | 1452 | 1761 | 1762 => definite(Problem::ForeignKey),
        3819 | 4025 => definite(Problem::Check),
        1044 | 1142 | 1143 | 1227 | 1370 => definite(Problem::Denied),
        1153 | 1301 | 1118 => definite(Problem::TooLarge),
        _ => definite(Problem::Other),
    }
}

/// The key, column or constraint that a message names. Messages also hold values: only
/// what follows the server's own fixed words is taken, and the last such place, since a
/// value may hold the words too.
fn name_in(code: u16, message: &str) -> Option<String> {
    let (before, quote) = match code {
        1062 | 1586 => (" for key ", '\''),
        1406 | 1264 | 1265 | 1366 | 1292 => (" for column ", '\''),
        1048 => ("Column ", '\''),
        1054 => ("Unknown column ", '\''),
        1364 => ("Field ", '\''),
        1216 | 1217 | 1451 | 1452 => ("CONSTRAINT ", '`'),
        3819 => ("Check constraint ", '\''),
        4025 => ("CONSTRAINT ", '`'),
        _ => return None,
    };
    let at = if matches!(code, 1264 | 1265 | 1406) {
        message.find(before)
    } else {
        message.rfind(before)
    };
    let rest = message.get(at? + before.len()..)?;
    let quote = match rest.chars().next()? {
        first @ ('\'' | '`') => first,
        _ => quote,
    };
    let rest = rest.strip_prefix(quote)?;
    let mut name: String = rest.chars().take_while(|c| *c != quote).collect();
    // MariaDB names columns as `schema`.`table`.`column`.
    if quote == '`' && before == " for column " {
        let path = rest.split(" at row").next().unwrap_or(rest);
        if let Some((_, last)) = path.trim_end_matches('`').rsplit_once("`.`") {
            last.clone_into(&mut name);
        }
    }
    let fits =
        !name.is_empty() && name.chars().count() <= 2 * NAME_CHARS_MAX && !name.chars().any(char::is_control);
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, message: &str) -> ServerError {
        ServerError {
            code,
            message: message.to_owned(),
            state: "23000".to_owned(),
        }
    }

    #[test]
    fn names_are_taken_and_values_are_not() {
        let name = |code, message| ServerReply::of(&server(code, message)).name;
        let cases = [
            (
                1062,
                "Duplicate entry 'secret' for key 't.PRIMARY'",
                Some("t.PRIMARY"),
            ),
            (1062, "Duplicate entry 'x' for key 'k'' for key 'u'", Some("u")),
            (1406, "Data too long for column 'note' at row 1", Some("note")),
            (
                1366,
                "Incorrect integer value: 'secret' for column 'c' at row 1",
                Some("c"),
            ),
            (
                1366,
                "Incorrect string value: '\\xE4' for column `d`.`t`.`c` at row 1",
                Some("c"),
            ),
            (1054, "Unknown column 'q' in 'field list'", Some("q")),
            (
                1452,
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `c_p` FOREIGN KEY (`p`) REFERENCES `p` (`id`))",
                Some("c_p"),
            ),
            (3819, "Check constraint 'positive' is violated.", Some("positive")),
            (4025, "CONSTRAINT `positive` failed for `d`.`t`", Some("positive")),
            (1234, "some 'secret'", None),
        ];
        for (code, message, expected) in cases {
            assert_eq!(name(code, message).as_deref(), expected, "{message}");
        }
        let shown = ServerReply::of(&server(1062, "Duplicate entry 'secret' for key 'k'")).to_string();
        assert_eq!(shown, "server error 1062, SQLSTATE 23000, `k`");
    }

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_definite() {
        let verdict = |code| judge(&Error::Server(server(code, "")));
        assert_eq!(verdict(1213), Verdict::Retry(Retry::Deadlock));
        assert_eq!(verdict(1205), Verdict::Retry(Retry::Locked));
        assert_eq!(verdict(1290), Verdict::Retry(Retry::ReadOnly));
        assert_eq!(verdict(1114), Verdict::Retry(Retry::DiskFull));
        assert_eq!(verdict(1053), Verdict::Retry(Retry::Lost));
        assert_eq!(verdict(1040), Verdict::Retry(Retry::Busy));
        assert!(matches!(verdict(1045), Verdict::Login(_)));
        assert!(matches!(
            verdict(1146),
            Verdict::Definite(Problem::MissingTable, _)
        ));
        assert!(matches!(verdict(1062), Verdict::Definite(Problem::Duplicate, _)));
        let gone = Error::Driver(DriverError::ConnectionClosed);
        assert_eq!(judge(&gone), Verdict::Retry(Retry::Lost));
    }
}

#[cfg(test)]
mod refusal_tests {
    use super::is_refusal;

    #[test]
    fn a_cut_handshake_is_no_refusal_whatever_the_certificate() {
        assert!(!is_refusal("unexpected EOF (self-signed certificate)"));
        assert!(!is_refusal(
            "Connection reset by peer (os error 104) (certificate has expired)"
        ));
        assert!(is_refusal(
            "error:0A000086:SSL routines:tls_post_process_server_certificate:certificate verify failed:statem_clnt.c:2: \
             (self-signed certificate in certificate chain)"
        ));
        assert!(is_refusal(
            "error:0A00045C:SSL routines:ssl3_read_bytes:tlsv13 alert certificate required"
        ));
    }
}
