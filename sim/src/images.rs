//! What a Hive machine starts from: firmware, kernel, root file system, and the boot flash made
//! of them.
//!
//! Images are looked for where `cargo xtask guest` and `cargo xtask rootfs` leave them. Their
//! hashes are part of the line that repeats a run: the same line on other images is another run.

use crate::Error;
use hive_machine::dev::disk::Image;
use hive_platform::flash::{FLAG_FIREWALL, HEADER_SIZE, Header, MAGIC};
use hive_platform::map;
use std::path::{Path, PathBuf};

/// Kernels start at a page boundary of the flash.
const KERNEL_OFFSET: usize = 4096;
const _: () = assert!(KERNEL_OFFSET >= HEADER_SIZE);

/// The images of one machine.
#[derive(Clone)]
pub struct Images {
    /// Flat firmware for the remap window.
    pub firmware: Vec<u8>,
    /// Flat kernel.
    pub kernel: Vec<u8>,
    /// The disk every node starts with.
    pub rootfs: Image,
    /// What they are, for the line that repeats the run.
    pub hashes: Hashes,
}

/// First 64 bits of the BLAKE3 hash of each image, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Of the firmware.
    pub firmware: String,
    /// Of the kernel.
    pub kernel: String,
    /// Of the root file system.
    pub rootfs: String,
}

impl Images {
    /// Reads the images in `folder`; `rootfs` replaces the root file system found there.
    ///
    /// # Errors
    /// One line that names the file that cannot be read, and how to make it.
    pub fn load(folder: &Path, rootfs: Option<&Path>) -> Result<Images, Error> {
        let firmware = read(folder.join("firmware.bin"), "cargo xtask guest")?;
        let kernel = read(folder.join("kernel.bin"), "cargo xtask guest")?;
        let disk = match rootfs {
            Some(path) => {
                let bytes = std::fs::read(path);
                bytes.map_err(|e| {
                    Error::Input(format!("root file system {}: {e}", path.display()))
                })?
            }
            None => read(folder.join("rootfs.ext2"), "cargo xtask rootfs")?,
        };
        if let Some(path) = rootfs
            && !is_ext2(&disk)
        {
            let path = path.display();
            return Err(Error::Input(format!("root file system {path}: not an ext2 image")));
        }
        let rootfs = Image::from_bytes(disk);
        let hashes = Hashes {
            firmware: short(&blake3::hash(&firmware).to_hex()),
            kernel: short(&blake3::hash(&kernel).to_hex()),
            rootfs: short(&rootfs.hash()),
        };
        Ok(Images { firmware, kernel, rootfs, hashes })
    }

    /// The contents of every node's boot flash, for a machine cut into `cells` partitions.
    ///
    /// # Errors
    /// If the kernel does not fit into a flash.
    pub fn flash(&self, cells: usize, firewall: bool) -> Result<Vec<u8>, Error> {
        if (KERNEL_OFFSET + self.kernel.len()) as u64 > map::FLASH_SIZE {
            return Err(Error::Input("the kernel is larger than a boot flash (256 MB)".into()));
        }
        let header = Header {
            magic: MAGIC,
            partitions: cells as u64,
            kernel_offset: KERNEL_OFFSET as u64,
            kernel_size: self.kernel.len() as u64,
            flags: if firewall { FLAG_FIREWALL } else { 0 },
        };
        let mut flash = header.to_bytes().to_vec();
        flash.resize(KERNEL_OFFSET, 0);
        flash.extend_from_slice(&self.kernel);
        Ok(flash)
    }
}

/// Where the images of this working tree are: under `$HIVE_ROOT`, which `./hive` sets, else
/// above the program (`target/release/hive`), else under the current folder.
pub fn folder() -> PathBuf {
    let above = || {
        let program = std::env::current_exe().ok()?;
        let mut folders = program.ancestors().map(|folder| folder.join("guest"));
        folders.find(|folder| folder.join("kernel.bin").exists())
    };
    match std::env::var_os("HIVE_ROOT") {
        Some(root) => PathBuf::from(root).join("target/guest"),
        None => above().unwrap_or_else(|| "target/guest".into()),
    }
}

fn read(path: PathBuf, made_by: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(&path).map_err(|e| {
        Error::Input(format!("{}: {e}: './hive' makes it, or '{made_by}'", path.display()))
    })
}

/// Whether the superblock's magic number is there.
fn is_ext2(image: &[u8]) -> bool {
    image.get(1024 + 56..1024 + 58) == Some(&[0x53, 0xef])
}

/// The first 16 hexadecimal digits.
fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flash_holds_header_and_kernel() {
        let images = Images {
            firmware: vec![1],
            kernel: vec![7; 100],
            rootfs: Image::from_bytes(vec![0; 512]),
            hashes: Hashes { firmware: "".into(), kernel: "".into(), rootfs: "".into() },
        };
        let flash = images.flash(4, true).unwrap();
        let header = Header::from_bytes(flash[..HEADER_SIZE].try_into().unwrap()).unwrap();
        assert_eq!((header.partitions, header.flags), (4, FLAG_FIREWALL));
        let start = header.kernel_offset as usize;
        assert_eq!(&flash[start..start + header.kernel_size as usize], &[7; 100][..]);
        assert_eq!(flash.len(), start + 100);
    }

    #[test]
    fn a_missing_image_is_one_line_with_the_mend() {
        let error = Images::load(Path::new("/nonexistent"), None).err().unwrap().to_string();
        assert!(error.contains("xtask guest") && !error.contains('\n'), "{error}");
    }
}
