//! Messages between the stages, one file per hop.
