//! The kernel on our machine, through our firmware: what the images do once they are whole.
//! `./hive test` makes them first.

use hive_machine::config::Config;
use hive_sim::images::{self, Images};
use hive_sim::lab::{Lab, Progress, Setup};

/// Simulated time within which the self-test ends.
const LIMIT_US: u64 = 10_000_000;

fn setup(machine: &str, cells: usize, append: &str) -> Setup {
    Setup {
        config: Config::preset(machine).unwrap(),
        cells,
        images: Images::load(&images::folder(), None).unwrap(),
        command: None,
        append: append.into(),
    }
}

/// Runs to the end of the machine; its exit code.
fn run_out(lab: &mut Lab) -> u8 {
    while lab.now_us() < LIMIT_US {
        match lab.step() {
            Progress::Running => {}
            Progress::Ended(code) => return code,
            Progress::Stuck => break,
        }
    }
    panic!("the machine did not end: {}", lab.console(0).tail(20));
}

#[test]
#[ignore = "guest: needs the images that ./hive test makes"]
fn kernel_self_test_passes_on_the_machine() {
    for (machine, cells) in [("smp4", 1), ("flash4-512m", 1)] {
        let mut lab = Lab::new(&setup(machine, cells, "selftest=1")).unwrap();
        assert_eq!(run_out(&mut lab), 0, "{machine}: {}", lab.console(0).tail(20));
        assert!(lab.console(0).find("selftest: all passed").is_some());
    }
}

#[test]
#[ignore = "guest: needs the images that ./hive test makes"]
fn one_seed_is_one_run() {
    let hash = |seed| {
        let mut setup = setup("smp4", 1, "selftest=1");
        setup.config = setup.config.with_seed(seed);
        let mut lab = Lab::new(&setup).unwrap();
        run_out(&mut lab);
        (lab.machine().trace_hash(), lab.machine().instructions())
    };
    let first = hash(1);
    assert_eq!(first, hash(1));
    // The device tree's random seed alone makes another run of it.
    assert_ne!(first.0, hash(2).0);
}
