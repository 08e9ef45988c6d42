//! Seeded pipeline simulator, oracle and faulty transports.
