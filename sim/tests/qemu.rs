//! The same kernel image as one cell on QEMU's `virt` board: what works here rests on the RISC-V
//! specifications and SBI, not on our machine. Left out, with a word, where QEMU is not installed.
//!
//! QEMU runs in its own time, so waits here are wall-clock limits and nothing else is measured.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BINARY: &str = "qemu-system-riscv64";
/// A loaded two-core host boots well within this.
const LIMIT: Duration = Duration::from_secs(120);

struct Qemu {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    read: usize,
}

impl Qemu {
    /// Boots the kernel on four harts; `None` if QEMU is not installed.
    fn boot(append: &str) -> Option<Qemu> {
        let installed = Command::new(BINARY).arg("--version").stdout(Stdio::null()).status();
        if installed.is_err() {
            println!("left out: {BINARY} is not installed (Debian package qemu-system-misc)");
            return None;
        }
        let images = hive_sim::images::folder();
        let mut child = Command::new(BINARY)
            .args(["-M", "virt", "-smp", "4", "-m", "512M", "-nographic", "-no-reboot"])
            .args(["-global", "virtio-mmio.force-legacy=false", "-append", append, "-kernel"])
            .arg(images.join("kernel.bin"))
            .arg("-drive")
            .arg(format!(
                "if=none,format=raw,snapshot=on,id=d,file={}",
                images.join("rootfs.ext2").display()
            ))
            .args(["-device", "virtio-blk-device,drive=d"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU starts");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut output = child.stdout.take().expect("stdout is piped");
        let sink = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                sink.lock().expect("no reader panics").extend_from_slice(&buffer[..n]);
            }
        });
        Some(Qemu { child, shown, read: 0 })
    }

    /// Waits for `text` beyond what has been read; returns what came up to it.
    fn expect(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            // Asked first: what a QEMU that ended had to say may still be on its way here.
            let dead = self.child.try_wait().expect("our child").is_some();
            if dead {
                std::thread::sleep(Duration::from_millis(300));
            }
            let shown = self.shown.lock().expect("no reader panics").clone();
            let unread = &shown[self.read..];
            if let Some(at) = unread.windows(text.len()).position(|w| w == text.as_bytes()) {
                let found = String::from_utf8_lossy(&unread[..at + text.len()]).into_owned();
                self.read += at + text.len();
                return found;
            }
            assert!(
                !dead && start.elapsed() < LIMIT,
                "no '{text}' on QEMU's console:\n{}",
                String::from_utf8_lossy(&shown)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("stdin is piped");
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).expect("QEMU reads");
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Debt: seen in a few of some twenty runs, a hart that OpenSBI says it started never ticks. Until
// that is found this runs with `./hive test --all` only.
#[test]
#[ignore = "long: a known defect, see above"]
fn long_kernel_self_test_passes_on_qemu() {
    let Some(mut qemu) = Qemu::boot("selftest=1") else { return };
    qemu.expect("selftest: all passed");
}

#[test]
#[ignore = "guest: needs the images that ./hive test makes"]
fn same_image_gives_a_shell_on_qemu() {
    let Some(mut qemu) = Qemu::boot("") else { return };
    qemu.expect("# ");
    qemu.type_line("echo $((6 * 7)) | sed s/^/answer:/; nproc");
    qemu.expect("answer:42");
    qemu.expect("4");
    qemu.expect("# ");
}
