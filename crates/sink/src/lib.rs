//! The sink trait, the job scheduler and the file and blackhole sinks.
