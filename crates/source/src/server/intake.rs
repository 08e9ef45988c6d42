//! Hands the events of a stream to the assembler: which file they are of, where they lie,
//! and what an end in the middle of a transaction means.

use weir_binlog::format::FormatDescription;
use weir_binlog::header::EventHeader;
use weir_binlog::raw::RawEvent;
use weir_types::SourceIdentity;

use super::place::Place;
use crate::assembler::TransactionAssembler;
use crate::error::{Result, SourceError};
use crate::feed::feed;
use crate::files::{HANDOVER_BYTES, Handover, hand_over};

/// See the module documentation.
pub(crate) struct Intake {
    pub(crate) assembler: TransactionAssembler,
    /// The file whose events follow, before the first of them was seen.
    announced: Option<Place>,
    /// The files are another server's than those of the assembler's position.
    moved: bool,
    /// Bytes of events taken in.
    pub(crate) bytes: u64,
}

impl Intake {
    pub(crate) const fn new(assembler: TransactionAssembler) -> Self {
        Self {
            assembler,
            announced: None,
            moved: false,
            bytes: 0,
        }
    }

    /// The events come from another server from here on.
    pub(crate) fn set_identity(&mut self, identity: SourceIdentity) {
        self.assembler.set_identity(identity);
        self.moved = true;
    }

    /// The connection ended: an open transaction is read again as a whole.
    pub(crate) fn cut(&mut self) {
        self.assembler.discard_open();
        self.announced = None;
    }

    /// The events of this file follow.
    pub(crate) fn file(&mut self, place: Place) {
        self.announced = Some(place);
    }

    /// How the events that follow are written.
    ///
    /// # Errors
    /// `Unended`: a file ended inside a transaction, though the server was not restarted.
    pub(crate) fn format(&mut self, header: &EventHeader, format: &FormatDescription) -> Result<()> {
        // The first file after a start says when that was.
        self.enter(format.created != 0)?;
        self.assembler.set_format(format);
        let begun_ms = u64::from(header.timestamp).saturating_mul(1000);
        self.assembler.set_time_ms(begun_ms);
        Ok(())
    }

    fn enter(&mut self, is_restart: bool) -> Result<()> {
        let Some(place) = self.announced.take() else {
            return Ok(());
        };
        if self.assembler.in_transaction() {
            if !is_restart {
                let place = format!("{}:{}", place.file, place.offset);
                return Err(SourceError::Unended { place });
            }
            tracing::warn!(file = %place.file, "the server went down inside a transaction, which is left out");
            self.assembler.discard_open();
        }
        let here = self.assembler.position();
        // Read by GTID, a file comes from its beginning; what was read of it is left out.
        if self.moved || here.file != place.file || here.offset < place.offset {
            self.moved = false;
            self.assembler.begin_file(place.file, place.offset)?;
        }
        Ok(())
    }

    /// Takes in an event of the file, from `start` to `end`. False if nothing more is
    /// taken.
    ///
    /// # Errors
    /// Those of the decoder and of the assembler.
    pub(crate) fn event(
        &mut self,
        (start, end): (u64, u64),
        raw: RawEvent<'_>,
        format: Option<&FormatDescription>,
        handover: &mut Handover<'_>,
    ) -> Result<bool> {
        self.enter(false)?;
        self.bytes += u64::from(raw.header.event_length);
        self.assembler.at_event(start);
        let end = end.max(self.assembler.position_offset());
        let mut drain = |assembler: &mut TransactionAssembler| hand_over(assembler, HANDOVER_BYTES, handover);
        feed(&mut self.assembler, format, raw, end, &mut drain)
    }
}
