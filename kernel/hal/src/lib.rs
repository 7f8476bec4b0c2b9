//! Guest only.
#![no_std]
