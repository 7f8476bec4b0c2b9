//! Placeholder head: see the crate description.
