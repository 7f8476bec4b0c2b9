//! The outputs beside the host's own: every output on every survivor's disk, after `e2fsck -fn`,
//! byte for byte against the same work done by the host's tools on the same input files.
//!
//! Uses `e2fsck` and `debugfs` (package e2fsprogs), gzip, coreutils and awk of the host, in a
//! private folder under the system's one for temporary files, removed again.

use crate::Error;
use crate::lab::Lab;
use hive_machine::dev::disk::Image;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A line of the guest's task list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    kind: String,
    file: String,
}

/// What the disks held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Outputs compared (a task's output may be on more than one disk).
    pub checked: usize,
    /// Outputs that differ, or that no survivor has, by name.
    pub mismatched: Vec<String>,
    /// Survivors whose file system `e2fsck -fn` found fault with, with its last words.
    pub unclean: Vec<String>,
}

impl Task {
    /// The output's file name, as the guest's script makes it.
    fn name(&self) -> String {
        self.file
            .split('/')
            .filter(|part| !part.is_empty())
            .fold(self.kind.clone(), |name, part| name + "-" + part)
    }
}

/// A folder of our own, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Error> {
        let path = std::env::temp_dir().join(format!("hive-demo-{}", std::process::id()));
        let fail = |e| Error::Run(format!("{}: {e}", path.display()));
        std::fs::create_dir_all(&path).map_err(fail)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left-overs only take room.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The guest's list of tasks, from the image.
pub fn tasks(rootfs: &Image) -> Result<Vec<Task>, Error> {
    let scratch = Scratch::new()?;
    let image = write(&scratch, "base.ext2", rootfs.bytes())?;
    let list = scratch.0.join("tasks");
    dump(&image, "/demo/tasks", &list)?;
    let text = std::fs::read_to_string(&list).unwrap_or_default();
    let tasks: Vec<Task> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(kind, file)| Task { kind: kind.into(), file: file.into() })
        .collect();
    if tasks.is_empty() {
        return Err(Error::Input(
            "the root file system has no /demo/tasks: './hive' makes one".into(),
        ));
    }
    Ok(tasks)
}

/// Compares everything.
///
/// # Errors
/// If a tool of the host is missing or fails.
pub fn outputs(lab: &Lab, tasks: &[Task], victim: usize) -> Result<Outcome, Error> {
    let scratch = Scratch::new()?;
    let mut outcome = Outcome::default();
    let survivors = (0..lab.cells()).filter(|cell| *cell != victim);
    let mut found: Vec<(usize, PathBuf)> = Vec::new();
    for cell in survivors {
        let Some(disk) = lab.machine().disk(lab.node_of(cell)) else { continue };
        let mut bytes = vec![0; disk.size() as usize];
        let read = disk.read(0, &mut bytes);
        read.map_err(|_| Error::Run(format!("the disk of cell {cell} cannot be read")))?;
        let image = write(&scratch, &format!("cell{cell}.ext2"), &bytes)?;
        let check = tool("e2fsck", &["-fn"], &image)?;
        if !check.status.success() {
            let words = String::from_utf8_lossy(&check.stdout);
            let faults: Vec<&str> =
                words.lines().filter(|l| !l.starts_with("Pass")).take(3).collect();
            outcome.unclean.push(format!("cell {cell}: {}", faults.join("; ")));
        }
        for (number, task) in tasks.iter().enumerate() {
            let to = scratch.0.join(format!("cell{cell}-{number}"));
            if dump(&image, &format!("/cells/{cell}/out/{}", task.name()), &to).is_ok() {
                found.push((number, to));
            }
        }
    }
    let base = write(&scratch, "base.ext2", lab.base_image().bytes())?;
    for (number, task) in tasks.iter().enumerate() {
        let expected = by_host(&scratch, &base, task)?;
        let copies: Vec<&PathBuf> =
            found.iter().filter(|(n, _)| *n == number).map(|(_, path)| path).collect();
        if copies.is_empty() {
            outcome.mismatched.push(format!("{}: on no survivor's disk", task.name()));
        }
        for copy in copies {
            outcome.checked += 1;
            if std::fs::read(copy).ok().as_ref() != Some(&expected) {
                outcome.mismatched.push(task.name());
            }
        }
    }
    Ok(outcome)
}

/// The same work by the host's tools.
fn by_host(scratch: &Scratch, base: &Path, task: &Task) -> Result<Vec<u8>, Error> {
    let input = scratch.0.join("input");
    dump(base, &task.file, &input)?;
    let script = match task.kind.as_str() {
        "gzip" => "gzip -6 -n -c < input",
        "sha256" => "sha256sum < input",
        "sort" => "gzip -dc < input | tr -cs A-Za-z '\\n' | sort | uniq -c",
        "awk" => {
            "gzip -dc < input | awk '{ for (i = 1; i <= NF; i++) n[$i]++ } \
             END { for (w in n) print n[w], w }' | sort"
        }
        other => return Err(Error::Run(format!("/demo/tasks: no such kind of task: {other}"))),
    };
    let run = Command::new("sh")
        .args(["-c", script])
        .current_dir(&scratch.0)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::Run(format!("sh: {e}")))?;
    if !run.status.success() {
        return Err(Error::Run(format!("the host's own tools fail at {}", task.name())));
    }
    if task.kind == "sha256" {
        // From standard input it names "-" where the guest names the file.
        let text = String::from_utf8_lossy(&run.stdout).replace('-', &task.file);
        return Ok(text.into_bytes());
    }
    Ok(run.stdout)
}

fn write(scratch: &Scratch, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
    let path = scratch.0.join(name);
    std::fs::write(&path, bytes).map_err(|e| Error::Run(format!("{}: {e}", path.display())))?;
    Ok(path)
}

/// Copies a file out of an image. A path that is a link in the image is followed by hand: the
/// task list names files only.
fn dump(image: &Path, file: &str, to: &Path) -> Result<(), Error> {
    if to.exists() {
        // A stale copy would be taken for the file.
        std::fs::remove_file(to).map_err(|e| Error::Run(format!("{}: {e}", to.display())))?;
    }
    let request = format!("dump {file} {}", to.display());
    tool("debugfs", &["-R", &request], image)?;
    if to.exists() { Ok(()) } else { Err(Error::Run(format!("no {file} in the image"))) }
}

/// Runs a tool of e2fsprogs, wherever Debian keeps it.
fn tool(name: &str, arguments: &[&str], image: &Path) -> Result<std::process::Output, Error> {
    let places = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name));
    let program = places.into_iter().find(|path| path.exists()).unwrap_or_else(|| name.into());
    let output = Command::new(program).args(arguments).arg(image).stdin(Stdio::null()).output();
    output.map_err(|e| Error::Run(format!("{name}: {e}: install the package e2fsprogs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_named_as_the_script_names_them() {
        let task = Task { kind: "gzip".into(), file: "/usr/lib/x.so.6".into() };
        assert_eq!(task.name(), "gzip-usr-lib-x.so.6");
    }
}
