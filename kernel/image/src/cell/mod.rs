//! Who this cell is, and the pages of it that other cells read: the cell page, with a clock word
//! for each hart, and the death record. Both stand below the image and are words (see
//! [`hive_hal::memory::published`]), stored one by one.

pub mod files;
mod member;
mod peers;
pub mod process;
mod recover;
pub mod rpc;

pub use member::{bus_error, decode, live, suspect};
pub use peers::{Careful, cell_of_node, everyone, peer};
pub use recover::on_clean_up;

use core::fmt::Write;
use core::mem::offset_of;
use hive_hal::memory::{self, Page};
use hive_hal::panic::{Death, Kind};
use hive_hal::platform::{self, Place};
use hive_hal::{console, hart};
use hive_protocol::death::{self, Cause, DeathRecord, MessageWriter};
use hive_protocol::event::{Entry, Event, mark};
use hive_protocol::page::{self, CellInfo, State};
use hive_protocol::{CellId, Incarnation, TypeTag};
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

/// Stores a word of the cell page.
fn publish(offset: usize, value: u64) {
    cell_page()[offset / 8].store(value);
}

/// Counts a message or a foreign datum that was refused.
fn count_refused() {
    cell_page()[offset_of!(page::CellInfo, refused) / 8].fetch_add(1);
}

/// Simulated seconds that a cell waits at boot for the others. One that is not there by then is
/// found by its silence.
const BOOT_PATIENCE_MS: u64 = 2_000;

/// Publishes this cell and, when all cells are there, starts watching them. On a kernel thread.
pub fn join() {
    peers::init();
    let Some(me) = peers::peer(id()) else { return };
    if place().cells > 1 {
        rpc::start();
        files::start();
        process::start();
    }
    let incarnation = Incarnation(0);
    let words = [
        (offset_of!(CellInfo, version), hive_protocol::message::VERSION.into()),
        (offset_of!(CellInfo, cell), place().cell as u64),
        (offset_of!(CellInfo, incarnation), incarnation.0.into()),
        (offset_of!(CellInfo, dram_base), me.dram.base),
        (offset_of!(CellInfo, dram_size), me.dram.size),
        (offset_of!(CellInfo, first_node), me.nodes.start as u64),
        (offset_of!(CellInfo, nodes), me.nodes.len() as u64),
        (offset_of!(CellInfo, harts), me.harts as u64),
        (offset_of!(CellInfo, cells), place().cells as u64),
        (offset_of!(CellInfo, live), everyone().0),
        (offset_of!(CellInfo, state), State::Live as u64),
        // Last: with it the page is one.
        (offset_of!(CellInfo, tag), TypeTag::CellInfo.word()),
    ];
    words.into_iter().for_each(|(offset, value)| publish(offset, value));
    show(Event::Booted { incarnation });
    if place().cells == 1 {
        return;
    }
    let up = |cell| {
        peer(cell).is_some_and(|peer| {
            peer.info().is_ok_and(|info| peer.sane(&info) && info.state == State::Live as u64)
        })
    };
    for _ in 0..BOOT_PATIENCE_MS {
        if everyone().iter().all(up) {
            break;
        }
        hive_sync::sched::sleep_ns(1_000_000);
    }
    recover::start();
    member::start();
    files::mount_others();
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
    cell_page()[offset_of!(page::CellInfo, state) / 8].store(State::Panicked as u64);
    hive_hal::mark(mark::PANIC, cause as u64);
    console::emergency(&format_args!("{}\n", line(Event::Panic { cause })));
}
