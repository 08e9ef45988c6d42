//! Files or server: the actor drives either.

use std::time::Duration;

use weir_protocol::store::ReadPosition;

use crate::actor::SourceInput;
use crate::assembler::{AssemblerOptions, Counts};
use crate::error::Result;
use crate::files::{FilesReader, Handover, Progress};
use crate::server::{Interrupt, ServerReader};

/// The reader of a source.
pub(crate) enum Reader {
    /// With how long to wait when nothing more is there.
    Files(Box<FilesReader>, Duration),
    Server(Box<ServerReader>),
}

impl Reader {
    pub(crate) fn open(
        input: SourceInput,
        assembler: AssemblerOptions,
        changefeed: &str,
        interrupt: Interrupt,
    ) -> Result<Self> {
        match input {
            SourceInput::Files(options) => {
                let pause = options.poll_interval;
                FilesReader::open(options, assembler).map(|reader| Self::Files(Box::new(reader), pause))
            }
            SourceInput::Server(options) => {
                let reader = ServerReader::open(options, assembler, changefeed, interrupt)?;
                Ok(Self::Server(Box::new(reader)))
            }
        }
    }

    pub(crate) fn step(&mut self, now_ms: u64, handover: &mut Handover<'_>) -> Result<Progress> {
        match self {
            Self::Files(reader, _) => reader.step(now_ms, handover),
            Self::Server(reader) => reader.step(handover),
        }
    }

    pub(crate) fn tick(&mut self, handover: &mut Handover<'_>) -> bool {
        match self {
            Self::Files(reader, _) => reader.tick(handover),
            Self::Server(reader) => reader.tick(handover),
        }
    }

    /// How long to wait after a step that found nothing.
    pub(crate) fn pause(&self) -> Duration {
        match self {
            Self::Files(_, pause) => *pause,
            Self::Server(reader) => reader.pause(),
        }
    }

    pub(crate) fn position(&self) -> ReadPosition {
        match self {
            Self::Files(reader, _) => reader.position(),
            Self::Server(reader) => reader.position(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Files(reader, _) => reader.counts(),
            Self::Server(reader) => reader.counts(),
        }
    }

    pub(crate) fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Files(reader, _) => reader.bytes(),
            Self::Server(reader) => reader.bytes(),
        }
    }

    pub(crate) fn time_ms(&self) -> u64 {
        match self {
            Self::Files(reader, _) => reader.time_ms(),
            Self::Server(reader) => reader.time_ms(),
        }
    }

    /// Files are there until they cannot be read.
    pub(crate) fn is_connected(&self) -> bool {
        match self {
            Self::Files(..) => true,
            Self::Server(reader) => reader.is_connected(),
        }
    }

    pub(crate) fn is_dry(&self) -> bool {
        match self {
            Self::Files(reader, _) => reader.is_dry(),
            Self::Server(reader) => reader.is_dry(),
        }
    }
}
