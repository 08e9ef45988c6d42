//! Encoders of row changes and DDL: canal-json.
