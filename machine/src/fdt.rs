//! A writer for flattened device trees (Devicetree specification v0.4 §5), version 17.
//!
//! Own code because writing is all that is needed and it is this short; `dtc` judges it in a
//! test. Properties of a node come before its children, as the specification asks.

use std::collections::BTreeMap;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;
const HEADER: usize = 40;
const VERSION: u32 = 17;
const COMPATIBLE_VERSION: u32 = 16;

/// A tree being written.
pub struct Writer {
    structure: Vec<u8>,
    strings: Vec<u8>,
    offsets: BTreeMap<String, u32>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// An empty tree; its root node is called "".
    pub fn new() -> Writer {
        Writer { structure: Vec::new(), strings: Vec::new(), offsets: BTreeMap::new() }
    }

    fn word(&mut self, value: u32) {
        self.structure.extend_from_slice(&value.to_be_bytes());
    }

    fn pad(&mut self) {
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
    }

    /// Writes node `name` whose properties and children `body` writes.
    pub fn node(&mut self, name: &str, body: impl FnOnce(&mut Writer)) {
        self.word(BEGIN_NODE);
        self.structure.extend_from_slice(name.as_bytes());
        self.structure.push(0);
        self.pad();
        body(self);
        self.word(END_NODE);
    }

    /// Property with raw bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) {
        let offset = match self.offsets.get(name) {
            Some(offset) => *offset,
            None => {
                let offset = self.strings.len() as u32;
                self.strings.extend_from_slice(name.as_bytes());
                self.strings.push(0);
                self.offsets.insert(name.to_string(), offset);
                offset
            }
        };
        self.word(PROPERTY);
        self.word(value.len() as u32);
        self.word(offset);
        self.structure.extend_from_slice(value);
        self.pad();
    }

    /// Property without value.
    pub fn flag(&mut self, name: &str) {
        self.bytes(name, &[]);
    }

    /// Property of 32-bit cells.
    pub fn cells(&mut self, name: &str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|c| c.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    /// Property of pairs of 64-bit numbers: `reg` with two address and two size cells.
    pub fn reg(&mut self, address: u64, size: u64) {
        let cells = [address >> 32, address, size >> 32, size].map(|c| c as u32);
        self.cells("reg", &cells);
    }

    /// Property of strings.
    pub fn strings(&mut self, name: &str, values: &[&str]) {
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        self.bytes(name, &bytes);
    }

    /// Property of one string.
    pub fn string(&mut self, name: &str, value: &str) {
        self.strings(name, &[value]);
    }

    /// The finished tree.
    pub fn finish(mut self, boot_hart: u32) -> Vec<u8> {
        self.word(END);
        let reserve_map = [0u8; 16];
        let structure_at = HEADER + reserve_map.len();
        let strings_at = structure_at + self.structure.len();
        let header = [
            MAGIC,
            (strings_at + self.strings.len()) as u32,
            structure_at as u32,
            strings_at as u32,
            HEADER as u32,
            VERSION,
            COMPATIBLE_VERSION,
            boot_hart,
            self.strings.len() as u32,
            self.structure.len() as u32,
        ];
        let mut out: Vec<u8> = header.iter().flat_map(|w| w.to_be_bytes()).collect();
        out.extend_from_slice(&reserve_map);
        out.extend_from_slice(&self.structure);
        out.extend_from_slice(&self.strings);
        out
    }
}
