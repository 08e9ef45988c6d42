//! MySQL and MariaDB binlog decoder: framing, events, table maps, rows, values; zero-copy and panic-free.
