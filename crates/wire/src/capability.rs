//! Capability flags of the handshake (MySQL source documentation, "Capabilities Flags").

/// Set by MySQL's servers and by clients that know nothing of MariaDB's extensions; a
/// MariaDB server leaves it out.
pub(crate) const LONG_PASSWORD: u32 = 1;
/// Column flags of two bytes.
pub(crate) const LONG_FLAG: u32 = 1 << 2;
/// Packets of 4.1 and later.
pub(crate) const PROTOCOL_41: u32 = 1 << 9;
/// TLS.
pub(crate) const SSL: u32 = 1 << 11;
/// Status flags in answers.
pub(crate) const TRANSACTIONS: u32 = 1 << 13;
/// Challenge of 20 bytes.
pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
/// Authentication by a named plugin.
pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
/// Attributes of the client in the handshake.
pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
/// Authentication data may be longer than 255 bytes.
pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;

/// Without these no login is possible; every server since MySQL 4.1 has them.
pub(crate) const DEMANDED: u32 = PROTOCOL_41 | SECURE_CONNECTION;
/// What we use where the server has it. Of an end of rows by an OK packet, several
/// results, local files and progress reports none is asked for, so the server sends none.
pub(crate) const WANTED: u32 = LONG_PASSWORD
    | LONG_FLAG
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | PLUGIN_AUTH
    | CONNECT_ATTRS
    | PLUGIN_AUTH_LENENC;
