#![no_std]
//! What cells, firmware and tools say to one another.
