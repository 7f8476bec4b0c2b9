use super::*;
use crate::dev::DmaError;
use crate::dev::disk::Image;
use crate::seed::Stream;

/// 64 KB of memory at 0x8000_0000, the last page of which refuses writes.
struct Memory(Vec<u8>);

const BASE: u64 = 0x8000_0000;

impl Memory {
    fn range(&self, address: u64, len: usize) -> Result<usize, DmaError> {
        let at = address.checked_sub(BASE).ok_or(DmaError)? as usize;
        let end = at.checked_add(len).ok_or(DmaError)?;
        if end <= self.0.len() { Ok(at) } else { Err(DmaError) }
    }
}

impl Dma for Memory {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), DmaError> {
        let at = self.range(address, buf.len())?;
        buf.copy_from_slice(&self.0[at..at + buf.len()]);
        Ok(())
    }
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), DmaError> {
        let at = self.range(address, data.len())?;
        if at + data.len() > self.0.len() - 4096 {
            return Err(DmaError);
        }
        self.0[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn started(device: Device) -> Virtio {
    let mut v = Virtio::new(device);
    for (offset, value) in [
        (0x070, 1),
        (0x070, 3),
        (0x024, 1),
        (0x020, 1),
        (0x070, 11),
        (0x030, 0),
        (0x038, 8),
        (0x080, BASE),
        (0x090, BASE + 0x1000),
        (0x0a0, BASE + 0x2000),
        (0x044, 1),
        (0x070, 15),
    ] {
        v.write(offset, 4, value).unwrap();
    }
    assert_eq!(v.read(0x070, 4), Some(15));
    v
}

fn describe(m: &mut Memory, i: u64, address: u64, len: u32, flags: u16, next: u16) {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&address.to_le_bytes());
    raw[8..12].copy_from_slice(&len.to_le_bytes());
    raw[12..14].copy_from_slice(&flags.to_le_bytes());
    raw[14..].copy_from_slice(&next.to_le_bytes());
    m.write(BASE + i * 16, &raw).unwrap();
}

/// Puts a three-piece request into slot 0 and makes it available.
fn request(m: &mut Memory, kind: u32, sector: u64, data: u64, len: u32) {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&kind.to_le_bytes());
    head[8..].copy_from_slice(&sector.to_le_bytes());
    m.write(BASE + 0x3000, &head).unwrap();
    describe(m, 0, BASE + 0x3000, 16, 1, 1);
    describe(m, 1, data, len, if kind == 0 { 3 } else { 1 }, 2);
    describe(m, 2, BASE + 0x3800, 1, 2, 0);
    m.write(BASE + 0x3800, &[0xff]).unwrap();
    let index = u16::from_le_bytes([m.0[0x1002], m.0[0x1003]]).wrapping_add(1);
    m.write(BASE + 0x1002, &index.to_le_bytes()).unwrap();
}

fn block() -> (Virtio, Memory) {
    let image = Image::from_bytes((0..65536u32).map(|i| (i / 512) as u8).collect());
    (started(Device::Block(Disk::new(image))), Memory(vec![0; 65536]))
}

#[test]
fn reads_and_writes() {
    let (mut v, mut m) = block();
    request(&mut m, 0, 3, BASE + 0x4000, 1024);
    assert_eq!(v.write(0x050, 4, 0), Some(true));
    assert!(v.serve(&mut m) && !v.serve(&mut m));
    assert_eq!((m.0[0x3800], m.0[0x4000], m.0[0x4000 + 512]), (0, 3, 4));
    assert!(v.interrupt());
    v.write(0x064, 4, 1).unwrap();
    assert!(!v.interrupt());
    m.write(BASE + 0x4000, &[9; 512]).unwrap();
    request(&mut m, 1, 5, BASE + 0x4000, 512);
    assert!(v.serve(&mut m));
    let Device::Block(disk) = v.device() else { panic!() };
    let mut got = [0; 512];
    disk.read(5 * 512, &mut got).unwrap();
    assert_eq!(got, [9; 512]);
}

#[test]
fn denied_memory_is_an_io_error() {
    let (mut v, mut m) = block();
    for (sector, data, len) in [
        (0, BASE + 0xf000, 512),
        (0, 0x1000, 512),
        (0, u64::MAX - 5, 512),
        (128, BASE + 0x4000, 512),
        (u64::MAX, BASE + 0x4000, 512),
        (0, BASE + 0x4000, 100),
        (0, BASE + 0x4000, u32::MAX),
    ] {
        request(&mut m, 0, sector, data, len);
        assert!(v.serve(&mut m));
        assert_eq!(m.0[0x3800], 1, "{sector} {data:#x} {len}");
    }
}

#[test]
fn loops_and_rubbish_break_the_queue_not_the_host() {
    let (mut v, mut m) = block();
    request(&mut m, 0, 0, BASE + 0x4000, 512);
    describe(&mut m, 1, BASE + 0x4000, 512, 3, 0);
    assert!(!v.serve(&mut m));
    assert_eq!(v.read(0x070, 4), Some(15 | 0x40));
    assert_eq!(v.write(0x050, 4, 0), Some(false));
    v.write(0x070, 4, 0).unwrap();
    assert_eq!(v.read(0x070, 4), Some(0));
}

#[test]
fn random_rings_and_registers() {
    for seed in 0..200 {
        let mut random = Random::new(seed, Stream::Storm, 0);
        let (mut v, mut m) = block();
        random.fill(&mut m.0[..0x3000]);
        for round in 0..200 {
            if round % 4 == 0 {
                let at = random.below(0x3000) as usize;
                random.fill(&mut m.0[at..at + 8]);
            }
            v.serve(&mut m);
            let (offset, size) = (random.below(0x200), 1 << random.below(4));
            v.write(offset, size as usize, random.next());
            v.read(offset, size as usize);
        }
    }
}

#[test]
fn entropy_depends_on_the_seed() {
    let get = |seed| {
        let mut v = started(Device::Entropy(Box::new(Random::new(seed, Stream::Entropy, 0))));
        let mut m = Memory(vec![0; 65536]);
        describe(&mut m, 0, BASE + 0x4000, 32, 2, 0);
        m.write(BASE + 0x1002, &[1, 0]).unwrap();
        assert!(v.serve(&mut m));
        m.0[0x4000..0x4020].to_vec()
    };
    assert_eq!(get(1), get(1));
    assert_ne!(get(1), get(2));
}
