//! Firewall vectors of one node (Hive §4.2): who may write each page, in two-level copy-on-write
//! storage so that a fork of the machine shares them.

use std::sync::Arc;

const CHUNK: usize = 512;

/// One vector for each page of a node's DRAM.
#[derive(Clone)]
pub struct Firewall {
    chunks: Vec<Arc<[u64; CHUNK]>>,
    pages: usize,
}

impl Firewall {
    /// Vectors for `pages` pages, all `value`: one chunk, shared until it is written.
    pub fn new(pages: usize, value: u64) -> Firewall {
        let chunk = Arc::new([value; CHUNK]);
        Firewall { chunks: vec![chunk; pages.div_ceil(CHUNK)], pages }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The vector of `page`; 0 beyond the last.
    pub fn get(&self, page: usize) -> u64 {
        if page < self.pages { self.chunks[page / CHUNK][page % CHUNK] } else { 0 }
    }

    /// Sets the vector of `page` and returns the old one; `None` beyond the last.
    pub fn set(&mut self, page: usize, value: u64) -> Option<u64> {
        if page >= self.pages {
            return None;
        }
        let old = self.get(page);
        if old != value {
            Arc::make_mut(&mut self.chunks[page / CHUNK])[page % CHUNK] = value;
        }
        Some(old)
    }
}
