//! Composition root: builds the pipeline bottom-up, serves metrics, shuts down in order.
