//! Times and sizes, and the relations between them that the rest relies on.
//!
//! The unit of time is the clock tick of the cell that counts. Ticks of different cells have the
//! same length and any phase: what takes "n ticks" there takes between n - 1 and n + 1 here.

/// Clock interrupts per second of every hart.
pub const HZ: u64 = 250;
/// Microseconds in a tick.
pub const TICK_US: u64 = 1_000_000 / HZ;

/// Successive checks that must find a clock word unchanged before it is a hint (Hive §4.3).
/// One would accuse a cell whose tick came a little late.
pub const CLOCK_CHECKS: u64 = 2;
/// Ticks of the prober within which a probe of a cell must decide. A live cell's clock advances
/// between two checks that lie a tick apart, so the second check after the start is conclusive.
pub const PROBE_TICKS: u64 = 2;
/// Ticks after which a cell that has not said in agreement what it must say is accused of it: its
/// own probes, a tick for hearing of the round from us only, and a tick for phases.
pub const ROUND_TICKS: u64 = PROBE_TICKS + 2;
/// Ticks for which a convict may go on running after this cell's vote, before the conviction
/// counts as failed: every other voter needs at most its probe and its phase.
pub const STOP_TICKS: u64 = ROUND_TICKS;
/// Ticks during which the same alert, once voted down, convicts whoever repeats it.
pub const STRIKE_TICKS: u64 = 10 * HZ;
/// Ticks during which a cell keeps an alert of its own to itself that was voted down.
pub const MUTE_TICKS: u64 = STRIKE_TICKS + 2 * HZ;
/// Rounds without result that a cell may cause in [`STRIKE_TICKS`] before its accusations are no
/// longer heard (deaths it reports still are, for they are checked by probe first).
pub const FRUITLESS_ROUNDS: u8 = 8;

/// Longest from a halted hart to the last cell in recovery, in ticks: up to one tick of luck
/// before the first idle check, the checks, the probes, and a tick for phases.
pub const HALT_TO_RECOVERY_TICKS: u64 = 1 + CLOCK_CHECKS + PROBE_TICKS + 1;
/// What DESIGN §8 and the paper (table 7.4) allow for it, in microseconds.
pub const HALT_TO_RECOVERY_MAX_US: u64 = 45_000;
/// On average.
pub const HALT_TO_RECOVERY_AVG_US: u64 = 21_000;

const _: () = {
    assert!(TICK_US * HZ == 1_000_000);
    assert!(CLOCK_CHECKS >= 2 && PROBE_TICKS >= 2);
    assert!(HALT_TO_RECOVERY_TICKS * TICK_US <= HALT_TO_RECOVERY_MAX_US);
    // A second cell that halts in the middle is found by its silence: still within the limit.
    assert!((HALT_TO_RECOVERY_TICKS + ROUND_TICKS) * TICK_US <= HALT_TO_RECOVERY_MAX_US);
    // Halt to first unchanged check: half a tick to the check that still sees a change, then the
    // checks less half a tick; then the probes, whose last tick is half spent on average.
    assert!((2 * CLOCK_CHECKS + 2 * PROBE_TICKS) * TICK_US / 2 <= HALT_TO_RECOVERY_AVG_US);
    assert!(ROUND_TICKS > 1 + PROBE_TICKS, "a correct cell must be able to answer in time");
    assert!(MUTE_TICKS > STRIKE_TICKS + 2 * ROUND_TICKS, "no correct cell strikes out");
};

/// Microseconds that an RPC client spins before it gives up its hart (Hive §6).
pub const RPC_SPIN_US: u64 = 50;
/// Microseconds without an answer of a kind after which a call is a hint. A queued call is
/// answered "queued" at interrupt level, so a slow disk is not a slow cell.
pub const RPC_TIMEOUT_US: u64 = 20_000;
/// Microseconds without a reply after which the client gives up though the server's cell is still
/// held to be live: agreement has long had its say.
pub const RPC_GIVE_UP_US: u64 = 1_000_000;
/// Calls that may be under way from one cell at once.
pub const RPC_CALLS: usize = 256;
/// Requests to one cell whose reply is outstanding: the reply queue has room for no more, so a
/// reply is never refused.
pub const RPC_UNANSWERED: usize = hive_platform::controller::SIPS_DEPTH;

const _: () = {
    assert!(RPC_SPIN_US < RPC_TIMEOUT_US);
    assert!(RPC_TIMEOUT_US >= 2 * TICK_US, "a tick with interrupts off is no failure");
    assert!(RPC_TIMEOUT_US <= HALT_TO_RECOVERY_MAX_US);
    assert!(RPC_GIVE_UP_US > RPC_TIMEOUT_US + 4 * HALT_TO_RECOVERY_MAX_US);
    assert!(RPC_UNANSWERED <= hive_platform::controller::SIPS_DEPTH);
};
