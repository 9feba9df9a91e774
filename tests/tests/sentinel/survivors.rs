//! What became of each lock, and what the new master is told.
