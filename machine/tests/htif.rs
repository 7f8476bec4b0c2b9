//! Bare ELF programs with `tohost`, as the public riscv-tests are, built with Debian's cross
//! compiler (skipped where it is not installed).

use hive_machine::config::Config;
use hive_machine::env::Recorder;
use hive_machine::machine::boot::Boot;
use hive_machine::machine::{Machine, Stop, Until};
use std::process::Command;

fn elf(name: &str, source: &str) -> Option<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("hive-htif-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (s, out) = (folder.join("a.S"), folder.join("a.elf"));
    std::fs::write(&s, source).unwrap();
    let built = Command::new("riscv64-linux-gnu-gcc")
        .args(["-nostdlib", "-static", "-march=rv64imafdc_zicsr", "-Wl,-Ttext=0x80000000", "-o"])
        .args([&out, &s])
        .output();
    let file = match built {
        Ok(built) if built.status.success() => std::fs::read(&out).ok(),
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(_) => None,
    };
    std::fs::remove_dir_all(&folder).unwrap();
    file
}

fn run(name: &str, source: &str) -> Option<(Stop, String)> {
    let kernel = Some(elf(name, source)?);
    let config = Config::preset("smp4").unwrap();
    let mut machine = Machine::new(&config, &Boot { kernel, ..Boot::default() }).unwrap();
    let mut seen = Recorder::default();
    let stop = machine.run(Until::cycle(1_000_000), &mut seen);
    Some((stop, seen.text(0)))
}

const WORDS: &str = "
.data
.align 6
.globl tohost, fromhost
tohost: .dword 0
.align 6
fromhost: .dword 0
";

#[test]
fn the_exit_code_is_the_programs() {
    for (word, code) in [(1, 0), (7, 3), (1339, 255)] {
        let source = format!(
            ".globl _start\n_start: csrr t0, mhartid; bnez t0, 1f; li t0, {}; la t1, tohost\n\
             sd t0, 0(t1)\n1: j 1b\n{WORDS}",
            word
        );
        let Some((stop, _)) = run("exit", &source) else { return };
        assert_eq!(stop, Stop::Exit(code));
    }
}

#[test]
fn the_proxy_writes_and_answers() {
    let source = format!(
        "
.globl _start
_start: csrr t0, mhartid; bnez t0, wait
        la a0, call; la t1, tohost; la t2, fromhost
        sd a0, 0(t1)
1:      ld t0, 0(t2); beqz t0, 1b
        sd zero, 0(t2)
        ld s0, 0(a0)            # bytes written
        li t0, (1 << 56) | (1 << 48) | '!'
        sd t0, 0(t1)
2:      ld t0, 0(t1); bnez t0, 2b
        slli s0, s0, 1; ori s0, s0, 1
        sd s0, 0(t1)
wait:   j wait
.data
.align 6
call:   .dword 64, 1, text, 6, 0, 0, 0, 0
text:   .ascii \"proxy\\n\"
{WORDS}"
    );
    let Some((stop, text)) = run("proxy", &source) else { return };
    assert_eq!((stop, text.as_str()), (Stop::Exit(6), "proxy\n!"));
}
