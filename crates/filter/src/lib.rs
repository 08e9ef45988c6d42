//! Which tables are replicated and how their names are routed.
