//! Scans the store per dispatcher inside its own window and credit.
