//! The twin in memory, for tests and simulation.

use weir_types::Generation;

use super::{MetaStore, Progress, TokenUpdate, check_update};
use crate::error::{Error, Result};

/// Progress in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryMetaStore {
    progress: Option<Progress>,
    generation: u64,
}

impl MetaStore for MemoryMetaStore {
    fn load(&mut self) -> Result<Option<Progress>> {
        Ok(self.progress.clone())
    }

    fn init(&mut self, progress: &Progress) -> Result<()> {
        progress.check()?;
        self.progress = Some(progress.clone());
        Ok(())
    }

    fn save(&mut self, update: &TokenUpdate) -> Result<()> {
        let progress = self.progress.as_mut().ok_or(Error::NotInitialised)?;
        check_update(&progress.start, update)?;
        progress.schema = update.schema.clone();
        for table in &update.removed {
            progress.tables.remove(table);
        }
        progress.tables.extend(update.changed.iter().cloned());
        Ok(())
    }

    fn next_generation(&mut self) -> Result<Generation> {
        self.generation += 1;
        Ok(Generation(self.generation))
    }
}
