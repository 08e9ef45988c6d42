//! Domain vocabulary of Weir: identifiers, order keys, positions, GTIDs, table
//! versions, row values and the block of row events that travels from the source to
//! the sink. No I/O, no async, no logging.

pub mod block;
pub mod calendar;
pub mod class;
pub mod clock;
pub mod ddl;
pub mod endpoint;
pub mod gtid;
pub mod ids;
pub mod key;
pub mod position;
pub mod table;
pub mod token;
pub mod value;

pub use block::{Block, BlockBuilder, BlockSlice, RowEvent, RowKind};
pub use class::{Classified, ErrorClass, ErrorReport};
pub use clock::CommitClock;
pub use ddl::{DdlEvent, DdlKind, DdlSession};
pub use endpoint::{Check, Secret, TlsMode, TlsOptions};
pub use gtid::{Gtid, GtidSet};
pub use ids::{AttemptId, ChangefeedId, DispatcherId, Epoch, Generation, LineageId, SeqNo, TableName, Xid};
pub use key::{CommitTs, OrderKey};
pub use position::{SourceIdentity, SourcePosition};
pub use table::{Column, Flavor, TableVersion, WireType};
pub use token::Token;
pub use value::{Decimal, Value};
