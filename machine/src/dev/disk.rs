//! A node's disk: a shared read-only base image under a private copy-on-write overlay. The base
//! file on the host is never written; what the guest wrote can be exported.

use crate::error::Error;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Bytes of an overlay block.
const BLOCK: usize = 4096;

/// A base image, shared by all disks that start from it.
#[derive(Clone)]
pub struct Image {
    bytes: Arc<Vec<u8>>,
    hash: [u8; 32],
}

impl Image {
    /// An image with these bytes, filled up with zeros to a whole sector.
    pub fn from_bytes(mut bytes: Vec<u8>) -> Image {
        bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
        let hash = *blake3::hash(&bytes).as_bytes();
        Image { bytes: Arc::new(bytes), hash }
    }

    /// Reads the image file `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(path: &str) -> Result<Image, Error> {
        let bytes = std::fs::read(path)
            .map_err(|e| Error::new(format!("cannot read disk image {path}: {e}")))?;
        if bytes.is_empty() {
            return Err(Error::new(format!("disk image {path} is empty")));
        }
        Ok(Image::from_bytes(bytes))
    }

    /// BLAKE3 hash of the image, in hexadecimal.
    pub fn hash(&self) -> String {
        blake3::Hash::from_bytes(self.hash).to_hex().to_string()
    }

    /// The image's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// One disk.
#[derive(Clone)]
pub struct Disk {
    base: Image,
    overlay: BTreeMap<u64, Arc<[u8; BLOCK]>>,
}

/// A request beyond the end of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Disk {
    /// A disk that starts as `base`.
    pub fn new(base: Image) -> Disk {
        Disk { base, overlay: BTreeMap::new() }
    }

    /// BLAKE3 hash of the base image, in hexadecimal.
    pub fn base_hash(&self) -> String {
        self.base.hash()
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.base.bytes.len() as u64
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), OutOfRange> {
        let end = offset.checked_add(len as u64).ok_or(OutOfRange)?;
        if end <= self.size() { Ok(()) } else { Err(OutOfRange) }
    }

    /// Reads `out.len()` bytes at byte `offset`.
    ///
    /// # Errors
    /// If they are not all on the disk.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        self.check(offset, out.len())?;
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let inner = at as usize % BLOCK;
            let (now, later) = rest.split_at_mut(rest.len().min(BLOCK - inner));
            match self.overlay.get(&(at / BLOCK as u64)) {
                Some(block) => now.copy_from_slice(&block[inner..inner + now.len()]),
                None => now.copy_from_slice(&self.base.bytes[at as usize..at as usize + now.len()]),
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes `data` at byte `offset`, into the overlay.
    ///
    /// # Errors
    /// If it does not all fit on the disk; nothing is written then.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        self.check(offset, data.len())?;
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inner = at as usize % BLOCK;
            let (now, later) = rest.split_at(rest.len().min(BLOCK - inner));
            let base = &self.base;
            let block = self.overlay.entry(at / BLOCK as u64).or_insert_with(|| {
                let start = at as usize - inner;
                let end = (start + BLOCK).min(base.bytes.len());
                let mut copy = [0; BLOCK];
                copy[..end - start].copy_from_slice(&base.bytes[start..end]);
                Arc::new(copy)
            });
            Arc::make_mut(block)[inner..inner + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes the whole disk as it now is, base and overlay.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn export(&self, to: &mut impl Write) -> std::io::Result<()> {
        let mut block = [0; BLOCK];
        let mut at = 0;
        while at < self.size() {
            let n = (self.size() - at).min(BLOCK as u64) as usize;
            // Cannot fail: the range is on the disk.
            let _ = self.read(at, &mut block[..n]);
            to.write_all(&block[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// Adds what differs from the base to a hash.
    pub fn hash_overlay(&self, hasher: &mut blake3::Hasher) {
        for (number, block) in &self.overlay {
            hasher.update(&number.to_le_bytes());
            hasher.update(&block[..]);
        }
    }

    /// Number of 4 KB blocks that the guest wrote.
    pub fn overlay_blocks(&self) -> usize {
        self.overlay.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_leaves_the_base_alone() {
        let base = Image::from_bytes((0..10_000u32).map(|i| i as u8).collect());
        let mut a = Disk::new(base.clone());
        let b = Disk::new(base);
        assert_eq!(a.size(), 10_240);
        a.write(4090, &[1; 20]).unwrap();
        let mut got = [0; 22];
        a.read(4089, &mut got).unwrap();
        assert_eq!(got[1..21], [1; 20]);
        assert_eq!((got[0], got[21]), (4089u32 as u8, 4110u32 as u8));
        b.read(4090, &mut got).unwrap();
        assert_eq!(got[0], 4090u32 as u8);
        let mut out = Vec::new();
        a.export(&mut out).unwrap();
        assert_eq!((out.len(), out[4090], out[4110]), (10_240, 1, 4110u32 as u8));
    }

    #[test]
    fn nothing_beyond_the_end() {
        let mut d = Disk::new(Image::from_bytes(vec![0; 512]));
        assert_eq!(d.write(511, &[0; 2]), Err(OutOfRange));
        assert_eq!(d.read(u64::MAX, &mut [0; 2]), Err(OutOfRange));
        d.write(0, &[7; 512]).unwrap();
    }
}
