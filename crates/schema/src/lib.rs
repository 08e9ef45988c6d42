//! Understanding of DDL statements: what they write, read, make and drop.
