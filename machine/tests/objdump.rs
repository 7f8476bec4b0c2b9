//! The decoder against binutils' disassembler: which words are instructions, over all compressed
//! words, and which instruction, over words that vary opcode, functions and registers. Operands
//! are the affair of `qemu.rs`. Skipped, with a message, where objdump is missing.

mod bare;

use std::process::Command;

use hive_machine::decode::{Op, decode};

/// Extensions that binutils knows and we do not have, by mnemonic without dots.
fn foreign(mnemonic: &str) -> bool {
    const STARTS: [&str; 17] = [
        "h", "wrs", "prefetch", "sinval", "mnret", "dret", "fli", "czero", "aes", "sha", "sm3",
        "sm4", "clmul", "pack", "xperm", "th", "v",
    ];
    const NAMES: [&str; 36] = [
        "adduw", "andn", "orn", "xnor", "clz", "clzw", "ctz", "ctzw", "cpop", "cpopw", "max",
        "maxu", "min", "minu", "rev8", "orcb", "brev8", "sextb", "sexth", "zexth", "rol", "rolw",
        "ror", "rori", "roriw", "rorw", "sh1add", "sh2add", "sh3add", "bclr", "bclri", "bext",
        "bexti", "binv", "binvi", "slliuw",
    ];
    let quad_or_half = mnemonic.starts_with('f')
        && (mnemonic.ends_with('q')
            || mnemonic.ends_with('h')
            || mnemonic.starts_with("fcvtq")
            || mnemonic.starts_with("fcvth")
            || ["fmvhx", "fmvxh", "fcvtsq", "fcvtdq", "flh", "fsh", "flq", "fsq"]
                .contains(&mnemonic));
    STARTS.iter().any(|s| mnemonic.starts_with(s))
        || NAMES.contains(&mnemonic)
        || mnemonic.starts_with("sh1")
        || mnemonic.starts_with("sh2")
        || mnemonic.starts_with("sh3")
        || mnemonic.starts_with("bset")
        || ["zip", "unzip", "uret", "sfencevm", "sfencewinval"].contains(&mnemonic)
        || quad_or_half
}

/// The mnemonics that objdump gives to a flat image, in order.
fn disassemble(name: &str, bytes: &[u8]) -> Option<Vec<String>> {
    bare::cross_compiler()?;
    let file = bare::scratch(name).join("words.bin");
    std::fs::write(&file, bytes).expect("can write the words");
    let output = Command::new("riscv64-linux-gnu-objdump")
        .args(["-D", "-z", "-b", "binary", "-m", "riscv:rv64", "-M", "no-aliases"])
        .arg(&file)
        .output()
        .expect("objdump runs");
    let text = String::from_utf8(output.stdout).expect("objdump prints text");
    let mnemonic = |line: &str| {
        let rest = line.trim_start().split_once(":\t")?.1.split_once('\t')?.1;
        Some(rest.split_whitespace().next()?.to_string())
    };
    Some(text.lines().filter_map(mnemonic).collect())
}

#[test]
fn every_compressed_word() {
    let words: Vec<u16> = (0..=u16::MAX).filter(|w| w & 3 != 3).collect();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let Some(names) = disassemble("objdump-c", &bytes) else { return };
    assert_eq!(names.len(), words.len());
    let mut wrong = Vec::new();
    for (word, name) in words.iter().zip(&names) {
        // C.ADDI16SP with a zero immediate is reserved; objdump prints it.
        let theirs = !name.starts_with('.') && name != "c.unimp" && *word != 0x6101;
        let ours = decode(u32::from(*word)).op != Op::Illegal;
        if ours != theirs {
            wrong.push(format!(
                "{word:#06x}: objdump says {name}, we {:?}",
                decode((*word).into()).op
            ));
        }
    }
    assert!(wrong.is_empty(), "{} words\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
}

#[test]
fn sampled_words() {
    let mut words = Vec::new();
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 32) as u32
    };
    // Every opcode, funct3 and funct7 with random registers and with small ones.
    for opcode in (0..32).filter(|o| o & 7 != 7) {
        for funct in 0..1 << 10 {
            for registers in [next(), next(), 0, 1 << 20, 2 << 20, 3 << 20, next() & 0x7f << 7] {
                let fixed = opcode << 2 | 3 | (funct & 7) << 12 | (funct >> 3) << 25;
                words.push(fixed | registers & 0x01ff_8f80);
            }
        }
    }
    words.extend((0..50_000).map(|_| next() & 0xff8f_ff83 | 0x73 & 0x7c));
    let words: Vec<u32> = words
        .into_iter()
        .filter(|w| w & 3 == 3 && w & 0x1c != 0x1c)
        // Reserved fields of fences are ignored by hardware and refused by objdump, which also
        // wants to be told of Zicbom.
        .filter(|w| w & 0x7f != 0x0f)
        .collect();
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let Some(names) = disassemble("objdump", &bytes) else { return };
    assert_eq!(names.len(), words.len());
    let mut wrong = Vec::new();
    for (word, name) in words.iter().zip(&names) {
        let plain = name.trim_end_matches(".aqrl").trim_end_matches(".aq").trim_end_matches(".rl");
        let theirs = match plain.replace('.', "") {
            n if n.is_empty() || name.starts_with('.') || foreign(&n) => "illegal".to_string(),
            n if n.starts_with("fence") && n != "fencei" => "fence".to_string(),
            // Reserved rounding modes.
            _ if [5, 6].contains(&(word >> 12 & 7)) && rounds(*word) => "illegal".to_string(),
            n => n,
        };
        let ours = match decode(*word).op {
            Op::Mark => "slti".to_string(),
            Op::Pause => "fence".to_string(),
            op => format!("{op:?}").to_lowercase(),
        };
        // Exact conversions have a rounding mode all the same; objdump wants it zero.
        let exact = ["fcvtdw", "fcvtdwu", "fcvtds"].contains(&ours.as_str());
        // UNIMP is CSRRW to a read-only register.
        if ours != theirs && !exact && theirs != "unimp" {
            wrong.push(format!("{word:#010x}: objdump says {name}, we {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} words\n{}", wrong.len(), wrong[..wrong.len().min(60)].join("\n"));
}

/// Does the word have a rounding mode where funct3 stands?
fn rounds(word: u32) -> bool {
    let opcode = word >> 2 & 31;
    (16..20).contains(&opcode) || (opcode == 20 && ![4, 5, 20, 28, 30].contains(&(word >> 27)))
}
