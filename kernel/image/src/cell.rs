//! Who this cell is, and the pages of it that other cells read: the cell page, with a clock word
//! for each hart, and the death record. Both stand below the image and are words (see
//! [`hive_hal::memory::published`]), stored one by one.

use core::fmt::Write;
use hive_hal::memory::{self, Page};
use hive_hal::panic::{Death, Kind};
use hive_hal::platform::{self, Place};
use hive_hal::{console, hart};
use hive_protocol::death::{self, Cause, DeathRecord, MessageWriter};
use hive_protocol::event::{Entry, Event, mark};
use hive_protocol::page::{self, State};
use hive_protocol::{CellId, TypeTag};
use hive_sync::{AtomicU64, Once};

static PLACE: Once<Place> = Once::new();

/// Finds out which cell this is and clears its pages. Before the first tick.
pub fn init() {
    for offset in [page::CELL_PAGE_OFFSET, page::DEATH_PAGE_OFFSET] {
        memory::published(offset).iter().for_each(|word| word.store(0));
    }
    let _ = PLACE.set(platform::place());
}

/// Which cell this is, of how many.
pub fn place() -> Place {
    PLACE.get().copied().unwrap_or(Place { cell: 0, cells: 1 })
}

/// This cell's number.
pub fn id() -> CellId {
    CellId::of(place().cell)
}

/// The cell page.
pub fn cell_page() -> &'static Page {
    memory::published(page::CELL_PAGE_OFFSET)
}

/// The clock word of hart `index` of this cell (Hive §4.3).
pub fn clock(index: usize) -> &'static AtomicU64 {
    &cell_page()[page::clock_offset(index) / 8]
}

/// Shows `event`: a mark for the machine, a line on the console.
pub fn show(event: Event) {
    let (code, value) = event.mark();
    hive_hal::mark(code, value);
    hive_hal::println!("{}", line(event));
}

fn line(event: Event) -> Entry {
    Entry { time: hive_hal::time::ticks(), cell: id(), event }
}

/// Fills in the death record, from a dying hart: no locks, no allocation.
pub fn leave_record(death: &Death) {
    let page = memory::published(page::DEATH_PAGE_OFFSET);
    let word = |offset: usize| &page[offset / 8];
    use core::mem::offset_of;
    if death.recursion > 0 {
        word(offset_of!(DeathRecord, recursion)).fetch_add(1);
        word(offset_of!(DeathRecord, tag)).store(TypeTag::DeathRecord.word());
        return;
    }
    let cause = match death.kind {
        Kind::Panic => Cause::Panic,
        Kind::Trap => Cause::KernelTrap,
        Kind::StackOverflow => Cause::StackOverflow,
    };
    let put = |offset, value| word(offset).store(value);
    put(offset_of!(DeathRecord, version), DeathRecord::EMPTY.version);
    put(offset_of!(DeathRecord, cell), place().cell as u64);
    put(offset_of!(DeathRecord, hart), hart::local().id() as u64);
    put(offset_of!(DeathRecord, time), hive_hal::time::ticks());
    put(offset_of!(DeathRecord, cycle), hive_hal::time::cycles());
    put(offset_of!(DeathRecord, cause), cause as u64);
    put(offset_of!(DeathRecord, scause), death.scause);
    put(offset_of!(DeathRecord, stval), death.stval);
    for (i, x) in death.registers.iter().enumerate() {
        put(offset_of!(DeathRecord, registers) + i * 8, *x);
    }
    for (i, ra) in death.backtrace.iter().enumerate() {
        put(offset_of!(DeathRecord, backtrace) + i * 8, *ra);
    }
    let mut message = [0; death::MESSAGE];
    let _ = MessageWriter::new(&mut message).write_fmt(death.message);
    for (i, chunk) in message.chunks_exact(8).enumerate() {
        let word = chunk.try_into().map(u64::from_le_bytes).unwrap_or(0);
        put(offset_of!(DeathRecord, message) + i * 8, word);
    }
    put(offset_of!(DeathRecord, tag), TypeTag::DeathRecord.word());
    cell_page()[core::mem::offset_of!(page::CellInfo, state) / 8].store(State::Panicked as u64);
    hive_hal::mark(mark::PANIC, cause as u64);
    console::emergency(&format_args!("{}\n", line(Event::Panic { cause })));
}
