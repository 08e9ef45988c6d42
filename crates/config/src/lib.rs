//! Typed changefeed configuration: defaults, validation, units.
