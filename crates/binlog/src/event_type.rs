//! Event types by number and name (MySQL 9.x `Log_event_type`, MariaDB 11.x
//! `Log_event_type`).

macro_rules! event_types {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Type of a binlog event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)] // the names are the servers'
        pub enum EventType {
            $($name = $number,)*
        }

        impl EventType {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The type with this number.
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Name as the servers' documentation has it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Number on the wire.
            pub const fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

event_types! {
    Unknown = 0, "UNKNOWN_EVENT";
    StartV3 = 1, "START_EVENT_V3";
    Query = 2, "QUERY_EVENT";
    Stop = 3, "STOP_EVENT";
    Rotate = 4, "ROTATE_EVENT";
    IntVar = 5, "INTVAR_EVENT";
    Load = 6, "LOAD_EVENT";
    Slave = 7, "SLAVE_EVENT";
    CreateFile = 8, "CREATE_FILE_EVENT";
    AppendBlock = 9, "APPEND_BLOCK_EVENT";
    ExecLoad = 10, "EXEC_LOAD_EVENT";
    DeleteFile = 11, "DELETE_FILE_EVENT";
    NewLoad = 12, "NEW_LOAD_EVENT";
    Rand = 13, "RAND_EVENT";
    UserVar = 14, "USER_VAR_EVENT";
    FormatDescription = 15, "FORMAT_DESCRIPTION_EVENT";
    Xid = 16, "XID_EVENT";
    BeginLoadQuery = 17, "BEGIN_LOAD_QUERY_EVENT";
    ExecuteLoadQuery = 18, "EXECUTE_LOAD_QUERY_EVENT";
    TableMap = 19, "TABLE_MAP_EVENT";
    PreGaWriteRows = 20, "PRE_GA_WRITE_ROWS_EVENT";
    PreGaUpdateRows = 21, "PRE_GA_UPDATE_ROWS_EVENT";
    PreGaDeleteRows = 22, "PRE_GA_DELETE_ROWS_EVENT";
    WriteRowsV1 = 23, "WRITE_ROWS_EVENT_V1";
    UpdateRowsV1 = 24, "UPDATE_ROWS_EVENT_V1";
    DeleteRowsV1 = 25, "DELETE_ROWS_EVENT_V1";
    Incident = 26, "INCIDENT_EVENT";
    Heartbeat = 27, "HEARTBEAT_LOG_EVENT";
    Ignorable = 28, "IGNORABLE_LOG_EVENT";
    RowsQuery = 29, "ROWS_QUERY_LOG_EVENT";
    WriteRows = 30, "WRITE_ROWS_EVENT";
    UpdateRows = 31, "UPDATE_ROWS_EVENT";
    DeleteRows = 32, "DELETE_ROWS_EVENT";
    Gtid = 33, "GTID_LOG_EVENT";
    AnonymousGtid = 34, "ANONYMOUS_GTID_LOG_EVENT";
    PreviousGtids = 35, "PREVIOUS_GTIDS_LOG_EVENT";
    TransactionContext = 36, "TRANSACTION_CONTEXT_EVENT";
    ViewChange = 37, "VIEW_CHANGE_EVENT";
    XaPrepare = 38, "XA_PREPARE_LOG_EVENT";
    PartialUpdateRows = 39, "PARTIAL_UPDATE_ROWS_EVENT";
    TransactionPayload = 40, "TRANSACTION_PAYLOAD_EVENT";
    HeartbeatV2 = 41, "HEARTBEAT_LOG_EVENT_V2";
    GtidTagged = 42, "GTID_TAGGED_LOG_EVENT";
    AnnotateRows = 160, "ANNOTATE_ROWS_EVENT";
    BinlogCheckpoint = 161, "BINLOG_CHECKPOINT_EVENT";
    MariadbGtid = 162, "GTID_EVENT";
    GtidList = 163, "GTID_LIST_EVENT";
    StartEncryption = 164, "START_ENCRYPTION_EVENT";
    QueryCompressed = 165, "QUERY_COMPRESSED_EVENT";
    WriteRowsCompressedV1 = 166, "WRITE_ROWS_COMPRESSED_EVENT_V1";
    UpdateRowsCompressedV1 = 167, "UPDATE_ROWS_COMPRESSED_EVENT_V1";
    DeleteRowsCompressedV1 = 168, "DELETE_ROWS_COMPRESSED_EVENT_V1";
    WriteRowsCompressed = 169, "WRITE_ROWS_COMPRESSED_EVENT";
    UpdateRowsCompressed = 170, "UPDATE_ROWS_COMPRESSED_EVENT";
    DeleteRowsCompressed = 171, "DELETE_ROWS_COMPRESSED_EVENT";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_turn_back() {
        let numbers: Vec<u8> = EventType::ALL.iter().map(|t| t.number()).collect();
        let expected: Vec<u8> = (0..=42).chain(160..=171).collect();
        assert_eq!(numbers, expected);
        for event_type in EventType::ALL {
            assert_eq!(EventType::from_number(event_type.number()), Some(*event_type));
        }
        assert_eq!(EventType::from_number(43), None);
    }
}
