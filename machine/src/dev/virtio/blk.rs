//! virtio block device (virtio 1.2 §5.2): IN, OUT, FLUSH, GET_ID.

use super::queue::{Buffer, Chain};
use crate::dev::Dma;
use crate::dev::disk::{Disk, SECTOR};

/// Most bytes of one request: keeps what one request costs the host in bounds.
pub const REQUEST_MAX: u64 = 8 << 20;
/// Most data pieces of one request (`seg_max`).
pub const SEGMENTS_MAX: u32 = 126;
/// Bytes moved at a time.
const STEP: usize = 4096;

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;

/// Feature bits: SEG_MAX, BLK_SIZE, FLUSH.
pub const FEATURES: u64 = 1 << 2 | 1 << 6 | 1 << 9;

/// Configuration space.
pub fn config(disk: &Disk) -> [u8; 24] {
    let mut space = [0; 24];
    space[..8].copy_from_slice(&(disk.size() / SECTOR).to_le_bytes());
    space[12..16].copy_from_slice(&SEGMENTS_MAX.to_le_bytes());
    space[20..24].copy_from_slice(&(SECTOR as u32).to_le_bytes());
    space
}

/// Serves one request; returns the bytes written to guest memory. A request without room for a
/// status byte is given back empty.
pub fn serve(disk: &mut Disk, dma: &mut dyn Dma, chain: &Chain) -> u32 {
    let Some((status_at, data)) = split(chain) else { return 0 };
    let mut written = 0;
    let status = match header(dma, chain) {
        Some((kind, sector)) => execute(disk, dma, kind, sector, &data, &mut written),
        None => IO_ERROR,
    };
    match dma.write(status_at, &[status]) {
        Ok(()) => written + 1,
        Err(_) => written,
    }
}

/// The address of the status byte and the pieces between header and status.
fn split(chain: &Chain) -> Option<(u64, Vec<Buffer>)> {
    let mut buffers = chain.buffers.clone();
    let last = buffers.last_mut()?;
    if !last.writable || last.len == 0 {
        return None;
    }
    last.len -= 1;
    let status_at = last.address.checked_add(u64::from(last.len))?;
    // The header may share a piece with data: skip 16 bytes, wherever they end.
    let mut skip = 16;
    for buffer in buffers.iter_mut().filter(|b| !b.writable) {
        let n = buffer.len.min(skip);
        buffer.address = buffer.address.wrapping_add(u64::from(n));
        buffer.len -= n;
        skip -= n;
    }
    Some((status_at, buffers))
}

fn header(dma: &mut dyn Dma, chain: &Chain) -> Option<(u32, u64)> {
    let mut raw = [0; 16];
    let mut have = 0;
    for buffer in chain.buffers.iter().filter(|b| !b.writable) {
        let n = (buffer.len as usize).min(raw.len() - have);
        dma.read(buffer.address, &mut raw[have..have + n]).ok()?;
        have += n;
    }
    let field = u128::from_le_bytes(raw);
    (have == raw.len()).then_some((field as u32, (field >> 64) as u64))
}

fn execute(
    disk: &mut Disk,
    dma: &mut dyn Dma,
    kind: u32,
    sector: u64,
    data: &[Buffer],
    written: &mut u32,
) -> u8 {
    let to_guest = match kind {
        IN | GET_ID => true,
        OUT => false,
        FLUSH => return OK,
        _ => return UNSUPPORTED,
    };
    let pieces = data.iter().filter(|b| b.writable == to_guest);
    let total: u64 = pieces.clone().map(|b| u64::from(b.len)).sum();
    if total > REQUEST_MAX {
        return IO_ERROR;
    }
    let Some(mut offset) = sector.checked_mul(SECTOR) else { return IO_ERROR };
    if kind == GET_ID {
        let id = *b"hive-disk\0\0\0\0\0\0\0\0\0\0\0";
        let Some(first) = pieces.clone().next() else { return IO_ERROR };
        let n = id.len().min(first.len as usize);
        *written = n as u32;
        return if dma.write(first.address, &id[..n]).is_ok() { OK } else { IO_ERROR };
    }
    if total % SECTOR != 0 || offset.checked_add(total).is_none_or(|end| end > disk.size()) {
        return IO_ERROR;
    }
    let mut step = [0; STEP];
    for piece in pieces {
        let mut done = 0;
        while done < piece.len {
            let n = (piece.len - done).min(STEP as u32) as usize;
            let Some(at) = piece.address.checked_add(u64::from(done)) else { return IO_ERROR };
            let moved = if to_guest {
                disk.read(offset, &mut step[..n]).is_ok() && dma.write(at, &step[..n]).is_ok()
            } else {
                dma.read(at, &mut step[..n]).is_ok() && disk.write(offset, &step[..n]).is_ok()
            };
            if !moved {
                return IO_ERROR;
            }
            if to_guest {
                *written += n as u32;
            }
            offset += n as u64;
            done += n as u32;
        }
    }
    OK
}
