//! Marks: how a guest shows an event to whoever watches the machine, at no cost on hardware.
//!
//! A mark is the HINT `slti x0, a0, CODE` (unprivileged specification, "HINT instructions": the
//! `slti` row is set aside for custom use). Real harts and QEMU execute it as a no-op; this
//! machine records (cycle, hart, code, value of `a0`). It changes nothing that a guest can see.

/// The instruction word of mark `code` (0 to 2047) with its argument in `a0`.
pub const fn instruction(code: u16) -> u32 {
    assert!(code < 2048);
    (code as u32) << 20 | 10 << 15 | 2 << 12 | 0x13
}

/// The mark code of an instruction word, if it is a mark.
pub const fn decode(word: u32) -> Option<u16> {
    if word & 0x800f_ffff == instruction(0) { Some((word >> 20) as u16) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip_and_write_no_register() {
        for code in [0u16, 1, 7, 2047] {
            let word = instruction(code);
            assert_eq!(decode(word), Some(code));
            assert_eq!(word >> 7 & 31, 0);
        }
        assert_eq!(decode(0x13), None);
        assert_eq!(decode(0xfff5_2013), None);
    }
}
