//! Reads a whole binlog file into lines like those of `mysqlbinlog -v`, with our decoder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use weir_binlog::gtid::{FL_DDL, FL_TRANSACTIONAL, GTID_FLAG_MAY_HAVE_STATEMENTS};
use weir_binlog::query::Query;
use weir_binlog::{
    BinlogError, BinlogFile, Event, EventHeader, FileOptions, FormatDescription, GtidEvent, MariadbGtid,
    PayloadReader, RowImages, RowPlan, Rows, Step, TableMap, TableMapCache, TransactionPayload,
    inflate_query, inflate_rows,
};
use weir_types::{GtidSet, RowKind, TableVersion, Value};

/// Cap that no recorded event reaches.
pub(crate) const MAX_BYTES: u64 = 16 << 20;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// A line to compare as it is.
    Text(String),
    /// `@n=` and a value: text of the value, other texts that `mysqlbinlog` may show for
    /// it.
    Value(usize, Vec<Vec<u8>>),
    /// A row event begins.
    Border,
}

/// What was read.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) events: Vec<String>,
    pub(crate) gtids: Vec<String>,
    /// Sets of PREVIOUS_GTIDS and GTID_LIST events.
    pub(crate) sets: Vec<GtidSet>,
    pub(crate) ddl: Vec<String>,
    pub(crate) rows: Vec<Line>,
    pub(crate) versions: Vec<Arc<TableVersion>>,
    pub(crate) errors: Vec<BinlogError>,
    /// Queries with a status variable that is not known.
    pub(crate) unknown_settings: usize,
    /// Sequence numbers of MariaDB's halves of ALTER, and of the first half for a second.
    pub(crate) alter_halves: Vec<(u64, Option<u64>)>,
    maps: HashMap<u64, Arc<TableVersion>>,
    cache: Option<TableMapCache>,
}

pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Reads the file to its end; errors of framing end the walk and are kept.
pub(crate) fn walk(path: &std::path::Path) -> Walk {
    let mut walk = Walk::default();
    let options = FileOptions {
        max_event_bytes: MAX_BYTES,
        ..FileOptions::default()
    };
    if let Err(error) = walk.file(path, options) {
        walk.errors.push(error);
    }
    walk
}

impl Walk {
    fn file(&mut self, path: &std::path::Path, options: FileOptions) -> Result<(), BinlogError> {
        let mut file = BinlogFile::open(path, options)?;
        loop {
            let Step::Event(event) = file.next()? else {
                return Ok(());
            };
            self.event(event.format, &event.event.header, event.event.body())?;
        }
    }

    pub(crate) fn event(
        &mut self,
        format: Option<&FormatDescription>,
        header: &EventHeader,
        body: &[u8],
    ) -> Result<(), BinlogError> {
        let event = Event::decode(header, body, format)?;
        let text = match event {
            Event::FormatDescription(format) => format!("Start {}", format.server_version),
            Event::PreviousGtids(set) => {
                self.sets.push(set);
                "Previous-GTIDs".to_owned()
            }
            Event::GtidList(set) => format!("Gtid list [{set}]"),
            Event::BinlogCheckpoint(file) => format!("Binlog checkpoint {}", String::from_utf8_lossy(file)),
            Event::Rotate(rotate) => format!(
                "Rotate to {}  pos: {}",
                String::from_utf8_lossy(rotate.file),
                rotate.position
            ),
            Event::Gtid(gtid) | Event::AnonymousGtid(gtid) => self.gtid(&gtid),
            Event::MariadbGtid(gtid) => self.mariadb_gtid(&gtid),
            Event::Query(query) => self.query("Query", &query),
            Event::QueryCompressed(query) => {
                let mut text = Vec::new();
                let query = inflate_query(&query, MAX_BYTES, &mut text)?;
                self.query("Query_compressed", &query)
            }
            Event::Xid(xid) => format!("Xid = {xid}"),
            Event::XaPrepare(xa) => format!("XA PREPARE {}", xa.xid.0),
            Event::TableMap(map) => self.table_map(&map, format),
            Event::Rows(rows) => {
                self.rows(&rows);
                rows_text(
                    &rows,
                    if rows.partial_json {
                        "_rows_partial"
                    } else {
                        "_rows"
                    },
                )
            }
            Event::RowsCompressed(rows) => {
                let mut body = Vec::new();
                let plain = inflate_rows(&rows, MAX_BYTES, &mut body)?;
                self.rows(&plain);
                rows_text(&rows, "_compressed_rows")
            }
            Event::AnnotateRows(_) => "Annotate_rows:".to_owned(),
            Event::Statement(part) => match part {
                weir_binlog::event::StatementPart::IntVar => "Intvar".to_owned(),
                weir_binlog::event::StatementPart::Rand => "Rand".to_owned(),
                weir_binlog::event::StatementPart::LoadData => "Load".to_owned(),
            },
            Event::UserVar(_) => "User_var".to_owned(),
            Event::TransactionPayload(payload) => return self.payload(&payload, format),
            // Not shown without -vv.
            Event::RowsQuery(_) => return Ok(()),
            Event::Stop => "Stop".to_owned(),
            Event::Heartbeat(_) | Event::Incident(_) | Event::StartEncryption | Event::Ignored(_) => {
                format!("{event:?}")
            }
        };
        self.events.push(text);
        Ok(())
    }

    fn table_map(&mut self, map: &TableMap<'_>, format: Option<&FormatDescription>) -> String {
        let flavor = format.expect("format").flavor;
        let cache = self.cache.get_or_insert_with(|| TableMapCache::new(flavor));
        match cache.get(map) {
            Ok(version) => {
                self.versions.push(Arc::clone(&version));
                self.maps.insert(map.table_id, version);
            }
            Err(error) => self.errors.push(error),
        }
        let (schema, table) = (
            String::from_utf8_lossy(map.schema),
            String::from_utf8_lossy(map.table),
        );
        format!(
            "Table_map: `{schema}`.`{table}` mapped to number {}",
            map.table_id
        )
    }

    fn payload(
        &mut self,
        payload: &TransactionPayload<'_>,
        format: Option<&FormatDescription>,
    ) -> Result<(), BinlogError> {
        self.events.push(format!(
            "Transaction_Payload  payload_size={} compression_type={} uncompressed_size={}",
            payload.payload.len(),
            if payload.method == 0 { "ZSTD" } else { "NONE" },
            payload.uncompressed_bytes.unwrap_or(0)
        ));
        let mut reader = PayloadReader::new(payload, MAX_BYTES)?;
        while let Some(inner) = reader.next()? {
            self.event(format, &inner.header, inner.body())?;
        }
        Ok(())
    }

    fn gtid(&mut self, gtid: &GtidEvent<'_>) -> String {
        if let Some(gtid) = gtid.gtid() {
            self.gtids.push(gtid.to_string());
        }
        let rbr_only = gtid.flags & GTID_FLAG_MAY_HAVE_STATEMENTS == 0;
        format!(
            "{} last_committed={} sequence_number={} rbr_only={} original_committed_timestamp={} \
             immediate_commit_timestamp={} transaction_length={}",
            if gtid.number == 0 {
                "Anonymous_GTID"
            } else {
                "GTID"
            },
            gtid.last_committed,
            gtid.sequence_number,
            if rbr_only { "yes" } else { "no" },
            gtid.original_commit_micros,
            gtid.immediate_commit_micros,
            gtid.transaction_length
        )
    }

    fn mariadb_gtid(&mut self, gtid: &MariadbGtid) -> String {
        let word = |flag, word| if gtid.flags2 & flag != 0 { word } else { "" };
        let words = (word(FL_DDL, " ddl"), word(FL_TRANSACTIONAL, " trans"));
        let half = gtid.is_start_alter() || gtid.start_alter_sequence.is_some();
        self.alter_halves
            .extend(half.then_some((gtid.sequence, gtid.start_alter_sequence)));
        format!("GTID {}{}{}", gtid.gtid(), words.0, words.1)
    }

    fn query(&mut self, name: &str, query: &Query<'_>) -> String {
        self.unknown_settings += usize::from(query.settings.unknown.is_some());
        let sql = String::from_utf8_lossy(query.sql);
        let first = sql.lines().next().unwrap_or_default().trim_end().to_owned();
        let lower = first.to_lowercase();
        if ["create ", "drop ", "alter "]
            .iter()
            .any(|w| lower.starts_with(w))
        {
            self.ddl.push(first);
        }
        let xid = match query.settings.ddl_xid {
            Some(xid) if xid != 0 => format!(" Xid = {xid}"),
            _ => String::new(),
        };
        format!(
            "{name} thread_id={} exec_time={} error_code={}{xid}",
            query.thread, query.exec_seconds, query.error_code
        )
    }

    fn rows(&mut self, rows: &Rows<'_>) {
        self.rows.push(Line::Border);
        let Some(version) = self.maps.get(&rows.table_id).cloned() else {
            return;
        };
        if let Err(error) = self.read_rows(rows, &version) {
            self.errors.push(error);
        }
    }

    fn read_rows(&mut self, rows: &Rows<'_>, version: &TableVersion) -> Result<(), BinlogError> {
        let plan = RowPlan::new(version)?;
        let mut reader = plan.rows(rows.kind, rows.block_flags(), rows.body)?;
        let mut images = RowImages::default();
        let (verb, first) = match rows.kind {
            RowKind::Insert => ("INSERT INTO", None),
            RowKind::Update => ("UPDATE", Some("WHERE")),
            RowKind::Delete => ("DELETE FROM", Some("WHERE")),
        };
        while reader.next(&mut images)? {
            let name = &version.name;
            self.text(&format!("{verb} `{}`.`{}`", name.schema, name.table));
            if let Some(word) = first {
                self.text(word);
                for at in 0..version.columns.len() {
                    self.value(version, at, images.before(at));
                }
            }
            if rows.kind != RowKind::Delete {
                self.text("SET");
                for at in 0..version.columns.len() {
                    self.value(version, at, images.after(at));
                }
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.rows.push(Line::Text(text.to_owned()));
    }

    fn value(&mut self, version: &TableVersion, at: usize, value: Option<&Value<'_>>) {
        if let Some(value) = value {
            let texts = crate::render::texts(&version.columns[at], value);
            self.rows.push(Line::Value(at + 1, texts));
        }
    }
}

fn rows_text(rows: &Rows<'_>, name: &str) -> String {
    let verb = match rows.kind {
        RowKind::Insert => "Write",
        RowKind::Update => "Update",
        RowKind::Delete => "Delete",
    };
    let end = if rows.is_statement_end() { " end" } else { "" };
    format!("{verb}{name} {}{end}", rows.table_id)
}
