//! Shape of a table at one place of the stream.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::TableName;

/// Which server family wrote the binlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Flavor {
    /// MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
}

/// Column type on the wire (MySQL `enum_field_types`; MariaDB's additions included).
/// CHAR, ENUM and SET come as `String` in a table map and are told apart by the decoder,
/// which stores the real type here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the server's
pub enum WireType {
    Tiny,
    Short,
    Int24,
    Long,
    LongLong,
    Float,
    Double,
    NewDecimal,
    Year,
    Date,
    Time,
    Time2,
    Datetime,
    Datetime2,
    Timestamp,
    Timestamp2,
    VarChar,
    /// CHAR and BINARY.
    String,
    Enum,
    Set,
    Bit,
    Blob,
    Json,
    Geometry,
    Vector,
    /// MariaDB `COMPRESSED` VARCHAR and VARBINARY.
    VarCharCompressed,
    /// MariaDB `COMPRESSED` TEXT and BLOB.
    BlobCompressed,
}

/// One column of a table version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Name.
    pub name: Arc<str>,
    /// Type on the wire.
    pub wire: WireType,
    /// Length in bytes (CHAR, VARCHAR), fraction digits (TIME2 …), precision << 8 |
    /// scale (DECIMAL), bits (BIT), length of the length field (BLOB, JSON, GEOMETRY,
    /// VECTOR), pack length (ENUM, SET, FLOAT, DOUBLE).
    pub meta: u16,
    /// Accepts NULL.
    pub nullable: bool,
    /// Numeric and unsigned.
    pub unsigned: bool,
    /// Collation id of a character column; 63 is binary; 0 where it has none.
    pub collation: u16,
    /// Members of ENUM and SET as the server wrote them, in the column's charset.
    pub members: Vec<Arc<[u8]>>,
    /// Geometry type number of a GEOMETRY column (0 = any).
    pub geometry: u8,
    /// Visible to `SELECT *` (MySQL tells; true elsewhere).
    pub visible: bool,
}

/// Collation id of binary strings.
pub const BINARY_COLLATION: u16 = 63;

impl Column {
    /// Whether a string or blob column holds bytes rather than text.
    pub fn is_binary(&self) -> bool {
        self.collation == BINARY_COLLATION
    }
}

/// Names, types, charsets and keys of a table, as one run of row events needs them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableVersion {
    /// Name at the source.
    pub name: TableName,
    /// Server family that wrote the rows.
    pub flavor: Flavor,
    /// Columns in the order of the rows.
    pub columns: Vec<Column>,
    /// Indexes into `columns` of the primary key, in key order; empty for none.
    pub primary_key: Vec<u16>,
}
