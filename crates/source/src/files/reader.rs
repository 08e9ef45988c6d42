//! Reads one file after another into the assembler. No thread and no waiting: the caller
//! steps, and decides when to look again.

use std::sync::Arc;

use weir_binlog::file::{BinlogFile, Ending, FIRST_EVENT_OFFSET, Step};
use weir_binlog::index::FileIndex;
use weir_protocol::store::{ReadPosition, StoreInput};
use weir_types::SourceIdentity;

use super::start::{Begin, begin};
use super::{FilesOptions, StopAt, file_number, probe};
use crate::assembler::{AssemblerOptions, Counts, TransactionAssembler};
use crate::error::{Result, SourceError};
use crate::feed::feed;
use crate::skip::Skip;

/// What is ready is handed over from this many bytes on.
pub(crate) const HANDOVER_BYTES: usize = 512 * 1024;
/// While a file is written, the folder is listed once in so many looks.
const LIST_EVERY: u32 = 5;
/// Events read in one step at most.
pub(crate) const STEP_EVENTS: usize = 256;

/// Why the reading ended.
#[derive(Debug)]
pub enum End {
    /// The end that was asked for.
    Reached,
    /// The files end inside a transaction; everything whole before it was handed over.
    Cut(SourceError),
    /// The caller took no more.
    Refused,
}

/// Result of a step.
#[derive(Debug)]
pub enum Progress {
    /// There may be more.
    More,
    /// Everything that is there was read and handed over.
    Dry,
    /// There is nothing more to read.
    Ended(End),
}

/// Takes what is ready; false ends the reading.
pub type Handover<'a> = dyn FnMut(Vec<StoreInput>, usize) -> bool + 'a;

/// See the module documentation.
pub struct FilesReader {
    options: FilesOptions,
    index: FileIndex,
    assembler: TransactionAssembler,
    file: BinlogFile,
    /// Offset at which the reading of the file began.
    began_at: u64,
    name: Arc<str>,
    stop: Option<StopAt>,
    /// Looks for the end of the source before anything is taken.
    finding_end: bool,
    /// The next file, whose head is not whole yet.
    headless: Option<String>,
    /// How often nothing more was found in the file.
    dry_steps: u32,
    /// The last step found nothing more to read.
    is_dry: bool,
    /// Bytes of events read.
    bytes: u64,
    bytes_total: u64,
}

fn open(options: &FilesOptions, index: &FileIndex, name: &str, offset: u64) -> Result<BinlogFile> {
    let error = |source| SourceError::Binlog {
        place: format!("{name}:{offset}"),
        source,
    };
    let mut file = BinlogFile::open(index.path(name), options.file_options()).map_err(error)?;
    // Reads the format description, whatever the offset.
    file.seek(offset).map_err(error)?;
    Ok(file)
}

/// Bytes from a place to the end of the files.
fn bytes_from(index: &FileIndex, name: &str, offset: u64) -> u64 {
    let behind = index.names().iter().skip_while(|known| *known != name);
    let sizes = behind.map(|name| std::fs::metadata(index.path(name)).map_or(0, |m| m.len()));
    sizes.sum::<u64>().saturating_sub(offset)
}

impl FilesReader {
    /// Finds the start. `assembler`: its settings; which transactions to skip is set here.
    ///
    /// # Errors
    /// No files, a start or saved position that is not there any more, files of another
    /// server.
    pub fn open(options: FilesOptions, assembler: AssemblerOptions) -> Result<Self> {
        let index = options.list()?;
        let stop = resolve_stop(options.stop.as_ref(), &index)?;
        let Begin {
            identity,
            file: name,
            offset,
            skip,
            seen,
            time_ms,
        } = begin(&options, &index)?;
        let finding_end = skip == Skip::All;
        let mut assembler = TransactionAssembler::new(identity, AssemblerOptions { skip, ..assembler });
        assembler.add_seen(&seen);
        assembler.set_time_ms(time_ms);
        let file = open(&options, &index, &name, offset)?;
        // In the middle of a file its format description was read to get there.
        if let Some(format) = file.format() {
            assembler.set_format(format);
        }
        let name: Arc<str> = Arc::from(name);
        assembler.begin_file(Arc::clone(&name), offset)?;
        assembler.tick();
        let bytes_total = bytes_from(&index, &name, offset);
        Ok(Self {
            options,
            index,
            assembler,
            began_at: offset,
            file,
            name,
            stop,
            finding_end,
            headless: None,
            dry_steps: 0,
            is_dry: false,
            bytes: 0,
            bytes_total,
        })
    }

    /// Whose files they are.
    pub fn identity(&self) -> SourceIdentity {
        self.assembler.position().identity
    }

    /// Read position behind the last whole transaction.
    pub fn position(&self) -> ReadPosition {
        self.assembler.position()
    }

    /// What was read so far.
    pub const fn counts(&self) -> Counts {
        self.assembler.counts()
    }

    /// Bytes of events read, and bytes that there were at the start.
    pub const fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.bytes_total)
    }

    /// Time at the source, milliseconds since the Unix epoch.
    pub const fn time_ms(&self) -> u64 {
        self.assembler.last_time_ms()
    }

    /// Whether the last step found nothing more to read.
    pub const fn is_dry(&self) -> bool {
        self.is_dry
    }

    /// Tells the store the position, if it moved and the store has not heard of it.
    pub fn tick(&mut self, handover: &mut Handover<'_>) -> bool {
        self.assembler.tick();
        hand_over(&mut self.assembler, 1, handover)
    }

    /// Reads a few events. `now_ms`: wall clock, milliseconds since the Unix epoch; ends
    /// a run until a time.
    ///
    /// # Errors
    /// Damaged files, and what cannot be replicated. What was whole before was handed
    /// over.
    pub fn step(&mut self, now_ms: u64, handover: &mut Handover<'_>) -> Result<Progress> {
        let result = self.read_events(now_ms, handover);
        self.is_dry = matches!(result, Ok(Progress::Dry));
        if result.is_err() {
            self.assembler.flush();
            hand_over(&mut self.assembler, 1, handover);
        }
        result
    }

    fn read_events(&mut self, now_ms: u64, handover: &mut Handover<'_>) -> Result<Progress> {
        for _ in 0..STEP_EVENTS {
            if self.reached() {
                return Ok(self.end(End::Reached, handover));
            }
            if let Some(progress) = self.read_event(now_ms, handover)? {
                return Ok(progress);
            }
        }
        Ok(Progress::More)
    }

    /// Reads one event; none if there may be another one.
    fn read_event(&mut self, now_ms: u64, handover: &mut Handover<'_>) -> Result<Option<Progress>> {
        let offset = self.file.offset();
        let step = self.file.next().map_err(|source| SourceError::Binlog {
            place: format!("{}:{offset}", self.name),
            source,
        })?;
        let read = match step {
            Step::Event(read) => read,
            Step::NeedMore { have, .. } => return self.dry(have, now_ms, handover),
        };
        let end = read.next_offset;
        self.assembler.at_event(offset);
        let mut drain = |assembler: &mut TransactionAssembler| hand_over(assembler, HANDOVER_BYTES, handover);
        let on = feed(&mut self.assembler, read.format, read.event, end, &mut drain)?;
        self.bytes += end.saturating_sub(offset);
        Ok((!on).then_some(Progress::Ended(End::Refused)))
    }

    /// Whether the end that was asked for lies before the next event.
    fn reached(&mut self) -> bool {
        let Some(stop) = &self.stop else {
            return false;
        };
        match stop {
            StopAt::CaughtUp => false,
            StopAt::Time(time_ms) => {
                let beyond = self.assembler.open_commit_time_ms().is_some_and(|t| t > *time_ms);
                if beyond {
                    self.assembler.discard_open();
                }
                beyond
            }
            StopAt::Gtids(set) => !self.assembler.in_transaction() && self.assembler.seen().contains_all(set),
            StopAt::File { name, offset } => {
                if self.assembler.in_transaction() {
                    return false;
                }
                if **name == *self.name {
                    return self.assembler.position_offset() >= *offset;
                }
                let place = |wanted: &str| self.index.names().iter().position(|known| known == wanted);
                matches!((place(&self.name), place(name)), (Some(at), Some(end)) if at > end)
            }
        }
    }

    fn end(&mut self, end: End, handover: &mut Handover<'_>) -> Progress {
        self.assembler.tick();
        if hand_over(&mut self.assembler, 1, handover) {
            Progress::Ended(end)
        } else {
            Progress::Ended(End::Refused)
        }
    }

    /// The file has no whole event at its end (`have`: bytes of a part of one).
    fn dry(&mut self, have: u64, now_ms: u64, handover: &mut Handover<'_>) -> Result<Option<Progress>> {
        if self.next_file(have)? {
            return Ok(None);
        }
        if self.finding_end {
            self.finding_end = false;
            return self.turn_to_live(handover);
        }
        self.assembler.flush();
        if !hand_over(&mut self.assembler, 1, handover) {
            return Ok(Some(Progress::Ended(End::Refused)));
        }
        let whole = have == 0 && !self.assembler.in_transaction();
        let ended = match &self.stop {
            // The end of the source at the start, if that was asked for: nothing more is
            // waited for, but the end of a transaction that has grown over it since.
            Some(StopAt::File { name, offset }) if self.options.stop == Some(StopAt::CaughtUp) => {
                whole || **name != *self.name || self.file.offset() <= *offset
            }
            Some(StopAt::Time(time_ms)) => whole && now_ms > *time_ms,
            Some(StopAt::Gtids(_) | StopAt::File { .. } | StopAt::CaughtUp) | None => false,
        };
        if !ended {
            return Ok(Some(Progress::Dry));
        }
        let end = if !whole {
            let place = format!("{}:{}", self.name, self.file.offset() + have);
            End::Cut(SourceError::CutTransaction { place })
        } else if let Some(file) = self.headless.take() {
            let what = "its head is not whole";
            End::Cut(SourceError::CutFile { file, what })
        } else {
            End::Reached
        };
        Ok(Some(self.end(end, handover)))
    }

    /// The end of the source was found: what comes from here on counts. A transaction
    /// that is open has yet to commit, and is read again as a whole.
    fn turn_to_live(&mut self, handover: &mut Handover<'_>) -> Result<Option<Progress>> {
        self.assembler.discard_open();
        self.assembler.set_skip(Skip::Nothing);
        let offset = self.assembler.position_offset();
        self.file = open(&self.options, &self.index, &self.name, offset)?;
        self.began_at = offset;
        self.assembler.begin_file(Arc::clone(&self.name), offset)?;
        self.bytes_total = 0;
        if !self.tick(handover) {
            return Ok(Some(Progress::Ended(End::Refused)));
        }
        Ok(None)
    }

    /// Goes on in the next file, if this one is at its end and the next one is there.
    fn next_file(&mut self, have: u64) -> Result<bool> {
        let ending = self.ending()?;
        let rotate = match &ending {
            Some(Ending::Rotate { file, .. }) => Some(file.as_str()),
            Some(Ending::Stop) | None => None,
        };
        // Listing a folder opens its files: not each time while this one is being written.
        let looks = rotate.is_some() || self.dry_steps.is_multiple_of(LIST_EVERY);
        self.dry_steps = self.dry_steps.wrapping_add(1);
        if looks && self.index.next_after(&self.name, rotate).is_none() {
            self.index = self.options.list()?;
        }
        let Some(next) = self.index.next_after(&self.name, rotate).map(str::to_owned) else {
            if let Some(missing) = rotate
                && self.index.next_after(&self.name, None).is_some()
            {
                return Err(SourceError::Purged {
                    file: missing.to_owned(),
                });
            }
            return Ok(false);
        };
        if ending.is_none() && self.has_grown()? {
            return Ok(true);
        }
        let path = self.index.path(&next);
        let Some(head) = probe(&path, self.options.file_options())? else {
            if self.index.next_after(&next, None).is_some() {
                let what = "its head is not whole";
                return Err(SourceError::CutFile { file: next, what });
            }
            self.headless = std::fs::metadata(&path)
                .is_ok_and(|m| m.len() > 0)
                .then_some(next);
            return Ok(false);
        };
        self.headless = None;
        self.dry_steps = 0;
        if rotate.is_none() {
            self.check_restart(&next, &head, ending.is_some(), have)?;
        }
        let file = open(&self.options, &self.index, &next, FIRST_EVENT_OFFSET)?;
        self.began_at = FIRST_EVENT_OFFSET;
        self.file = file;
        self.name = Arc::from(next);
        self.assembler
            .begin_file(Arc::clone(&self.name), FIRST_EVENT_OFFSET)?;
        Ok(true)
    }

    /// How the file ended. Reading that began at its very end has not seen that.
    fn ending(&mut self) -> Result<Option<Ending>> {
        if self.file.ending().is_some() || self.file.offset() != self.began_at {
            return Ok(self.file.ending().cloned());
        }
        let (name, end) = (Arc::clone(&self.name), self.file.offset());
        let mut file = open(&self.options, &self.index, &name, FIRST_EVENT_OFFSET)?;
        let error = |offset: u64, source| SourceError::Binlog {
            place: format!("{name}:{offset}"),
            source,
        };
        while file.offset() < end {
            let offset = file.offset();
            if let Step::NeedMore { .. } = file.next().map_err(|source| error(offset, source))? {
                break;
            }
        }
        Ok(file.ending().cloned())
    }

    /// The server may have written on, and begun the next file, since this one was read
    /// to its end.
    fn has_grown(&mut self) -> Result<bool> {
        let offset = self.file.offset();
        let step = self.file.next().map_err(|source| SourceError::Binlog {
            place: format!("{}:{offset}", self.name),
            source,
        })?;
        let grown = matches!(step, Step::Event(_));
        drop(step);
        if grown {
            self.file.seek(offset).map_err(|source| SourceError::Binlog {
                place: format!("{}:{offset}", self.name),
                source,
            })?;
        }
        Ok(grown)
    }

    /// A file without ROTATE is followed by another one only if the server was started
    /// anew. What it had not committed before that is gone; what it had committed must
    /// have been read.
    fn check_restart(
        &mut self,
        next: &str,
        head: &super::probe::Head,
        stopped: bool,
        have: u64,
    ) -> Result<()> {
        let cut = |what: &'static str| SourceError::CutFile {
            file: self.name.to_string(),
            what,
        };
        if let (Some(now), Some(then)) = (file_number(&self.name), file_number(next))
            && then != now + 1
        {
            return Err(SourceError::Purged {
                file: format!("between `{}` and `{next}`", self.name),
            });
        }
        if let Some(previous) = &head.previous
            && !self.assembler.seen().contains_all(previous)
        {
            return Err(cut("the next file follows transactions that it does not hold"));
        }
        if stopped && have == 0 {
            return Ok(());
        }
        if head.created == 0 {
            return Err(cut("its end marker is missing, and the server was not restarted"));
        }
        if have > 0 || self.assembler.in_transaction() {
            tracing::warn!(file = %self.name, "the server went down inside a transaction, which is left out");
            self.assembler.discard_open();
        }
        Ok(())
    }
}

/// Hands over what is ready, if it is at least so many bytes.
pub(crate) fn hand_over(
    assembler: &mut TransactionAssembler,
    bytes_min: usize,
    handover: &mut Handover<'_>,
) -> bool {
    if assembler.output_bytes() < bytes_min {
        return true;
    }
    let (inputs, bytes) = assembler.take();
    handover(inputs, bytes)
}

/// `caught-up` is a place once the files are known.
fn resolve_stop(stop: Option<&StopAt>, index: &FileIndex) -> Result<Option<StopAt>> {
    let (Some(StopAt::CaughtUp), Some(last)) = (stop, index.names().last()) else {
        return Ok(stop.cloned());
    };
    let path = index.path(last);
    let length = std::fs::metadata(&path).map_err(|source| SourceError::Binlog {
        place: last.clone(),
        source: weir_binlog::error::BinlogError::Io {
            path: path.display().to_string(),
            source,
        },
    })?;
    Ok(Some(StopAt::File {
        name: last.clone(),
        offset: length.len(),
    }))
}
