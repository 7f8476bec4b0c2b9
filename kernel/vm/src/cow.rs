//! Anonymous memory in copy-on-write trees (Hive §5.3).
//!
//! An address space has one [`Leaf`]. Its pages are numbered by virtual page number. Fork splits
//! the leaf: what it held moves to an *interior* node, which never changes again, and parent and
//! child get an empty leaf each below it. A page is looked for in the leaf and then up the tree,
//! so that a process sees what its nearest ancestor wrote before forking. Since interior nodes
//! are immutable, lookups need neither locks nor writes there, and a node can later be read from
//! another cell.
//!
//! Pages are pfdats named (node, virtual page number) by the node in which they were made, and
//! keep that name for life; a node *records* pages, and a pfdat counts the nodes that record it
//! (its owners). A page with one owner that is a leaf may be written in place.
//!
//! Two things keep the tree small: a leaf that finds itself the only child takes its parent's
//! pages over ([`Leaf::collapse`]), and a leaf deeper than [`DEPTH_MAX`] records all it sees
//! itself when it forks, and lets go of its ancestors ([`Leaf::flatten`]). So of any page number
//! at most `DEPTH_MAX + 1` copies hang above a leaf, however often it forks.
//!
//! A page number that is unmapped while an ancestor records it becomes a *hole* in the leaf: the
//! search up the tree ends there.
//!
//! A leaf belongs to its address space and is reached under that lock only. A page-table entry
//! for a page must be gone from all harts before the node that records the page lets go of it.

use crate::memory::{Memory, PageRef};
use crate::pfdat::PfdatId;
use crate::ranges::Ranges;
use crate::types::{Error, LogicalId, Tag};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// Most interior nodes above a leaf: the price of a lookup that finds nothing. Shells that fork
/// from subshells of subshells stay below.
pub const DEPTH_MAX: u32 = 8;

/// Pages that a node records, and its holes. Owns one reference to each page.
struct Record {
    memory: Arc<Memory>,
    pages: BTreeMap<u64, PfdatId>,
    holes: Ranges,
}

impl Record {
    fn new(memory: Arc<Memory>) -> Record {
        Record { memory, pages: BTreeMap::new(), holes: Ranges::new() }
    }

    fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.holes.is_empty()
    }

    /// Records a page that other nodes may record too, unless the record has that number.
    fn share(&mut self, number: u64, id: PfdatId) {
        if self.pages.contains_key(&number) || self.holes.contains(number) {
            return;
        }
        let mut table = self.memory.table();
        table.get(id);
        table.own(id, 1);
        drop(table);
        self.pages.insert(number, id);
    }

    /// Takes back one owner's part of a page.
    fn release(memory: &Memory, id: PfdatId) {
        let mut table = memory.table();
        table.own(id, -1);
        if table.owners(id) == 0 {
            table.forget(id);
        }
        table.put(id);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        for id in self.pages.values() {
            Record::release(&self.memory, *id);
        }
    }
}

/// An interior node: immutable.
struct Interior {
    record: Record,
    parent: Option<Arc<Interior>>,
    /// Interior nodes from here to the root, this one included.
    depth: u32,
}

/// A page as [`Leaf::find`] sees it.
pub struct Found<'a> {
    /// The page.
    pub page: PageRef<'a>,
    /// Nobody else sees it: it may be written in place.
    pub exclusive: bool,
}

/// The leaf of an address space.
pub struct Leaf {
    tag: Tag,
    record: Record,
    parent: Option<Arc<Interior>>,
}

impl Leaf {
    /// The leaf, and root, of a new tree.
    pub fn new(memory: Arc<Memory>) -> Leaf {
        Leaf { tag: memory.new_node(), record: Record::new(memory), parent: None }
    }

    /// The memory its pages are in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.record.memory
    }

    /// Interior nodes above the leaf.
    pub fn depth(&self) -> u32 {
        self.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    /// The page that the process sees at `number`: its own or its nearest ancestor's. `memory` is
    /// that of the leaf (passed so that the answer does not borrow the leaf).
    pub fn find<'m>(&self, memory: &'m Memory, number: u64) -> Option<Found<'m>> {
        debug_assert!(core::ptr::eq(memory, &*self.record.memory));
        let (id, own) = match self.record.pages.get(&number) {
            Some(id) => (*id, true),
            None => (self.find_above(number)?, false),
        };
        let mut table = memory.table();
        let exclusive = own && table.owners(id) == 1;
        let page = memory.reference(&mut table, id);
        Some(Found { page, exclusive })
    }

    fn find_above(&self, number: u64) -> Option<PfdatId> {
        if self.record.holes.contains(number) {
            return None;
        }
        let mut above = &self.parent;
        while let Some(node) = above {
            if let Some(id) = node.record.pages.get(&number) {
                return Some(*id);
            }
            if node.record.holes.contains(number) {
                return None;
            }
            above = &node.parent;
        }
        None
    }

    /// Records `page`, a frame without a name whose bytes are valid, at `number`. What the process
    /// saw there before must not be mapped any more.
    pub fn insert(&mut self, number: u64, page: PageRef<'_>) {
        let id = page.into_raw();
        // The old page first: it may bear the new one's name.
        if let Some(old) = self.record.pages.insert(number, id) {
            Record::release(&self.record.memory, old);
        }
        let mut table = self.record.memory.table();
        table.name(id, LogicalId { tag: self.tag, page: number }, false);
        table.own(id, 1);
    }

    /// Forgets the pages of `numbers`: the process sees nothing there, whatever its ancestors
    /// wrote. They must not be mapped any more.
    pub fn discard(&mut self, numbers: Range<u64>) {
        let mut inside = self.record.pages.split_off(&numbers.start);
        self.record.pages.append(&mut inside.split_off(&numbers.end.max(numbers.start)));
        for id in inside.into_values() {
            Record::release(&self.record.memory, id);
        }
        if self.parent.is_some() {
            self.record.holes.insert(numbers);
        }
    }

    /// Renumbers what the process sees in `from..from + count` to start at `to`, and leaves
    /// nothing at the old numbers. The two ranges do not overlap; neither is mapped any more.
    pub fn shift(&mut self, from: u64, to: u64, count: u64) {
        let mut moved = Vec::new();
        let mut node = &self.parent;
        // From the root down, so that nearer nodes overwrite farther ones.
        let mut above = Vec::new();
        while let Some(interior) = node {
            above.push(&interior.record);
            node = &interior.parent;
        }
        let mut seen = BTreeMap::new();
        for record in above.into_iter().rev().chain([&self.record]) {
            seen.retain(|number, _| !record.holes.contains(*number));
            seen.extend(record.pages.range(from..from + count).map(|(n, id)| (*n, *id)));
        }
        for (number, id) in seen {
            let mut table = self.record.memory.table();
            table.get(id);
            table.own(id, 1);
            moved.push((number - from + to, id));
        }
        self.discard(from..from + count);
        self.discard(to..to + count);
        self.record.pages.extend(moved);
        // Pages moved keep their names: new ones at the old numbers need others.
        self.tag = self.record.memory.new_node();
    }

    /// Splits the leaf: the child sees all that this process sees now, and neither sees what the
    /// other writes later. No page of the leaf may be mapped writable any more.
    pub fn fork(&mut self) -> Leaf {
        self.collapse();
        if self.depth() >= DEPTH_MAX {
            self.flatten();
        }
        let memory = self.record.memory.clone();
        if !self.record.is_empty() {
            let record = core::mem::replace(&mut self.record, Record::new(memory.clone()));
            let depth = self.depth() + 1;
            let parent = self.parent.take();
            self.parent = Some(Arc::new(Interior { record, parent, depth }));
            self.tag = memory.new_node();
        }
        Leaf { tag: memory.new_node(), record: Record::new(memory), parent: self.parent.clone() }
    }

    /// Takes over the pages of ancestors that have no other child left.
    pub fn collapse(&mut self) {
        while let Some(parent) = self.parent.take() {
            let mut parent = match Arc::try_unwrap(parent) {
                Ok(parent) => parent,
                Err(shared) => {
                    self.parent = Some(shared);
                    return;
                }
            };
            self.parent = parent.parent.take();
            let above = core::mem::take(&mut parent.record.pages);
            for (number, id) in above {
                if self.record.pages.contains_key(&number) || self.record.holes.contains(number) {
                    Record::release(&self.record.memory, id);
                } else {
                    self.record.pages.insert(number, id);
                }
            }
            if self.parent.is_some() {
                self.record.holes.insert_all(&parent.record.holes);
            } else {
                self.record.holes = Ranges::new();
            }
        }
    }

    /// Records every page the process sees in the leaf itself, and lets go of all ancestors.
    fn flatten(&mut self) {
        let mut above = self.parent.take();
        while let Some(node) = above {
            for (number, id) in &node.record.pages {
                self.record.share(*number, *id);
            }
            self.record.holes.insert_all(&node.record.holes);
            above = node.parent.clone();
        }
        self.record.holes = Ranges::new();
    }

    /// Pages that the leaf itself records.
    pub fn recorded(&self) -> usize {
        self.record.pages.len()
    }
}

/// A shared anonymous object (MAP_SHARED | MAP_ANONYMOUS): its pages belong to all that map it,
/// are made zeroed on first touch, and live as long as the object.
pub struct SharedAnon {
    memory: Arc<Memory>,
    tag: Tag,
}

impl SharedAnon {
    /// An object whose pages are all zero.
    pub fn new(memory: Arc<Memory>) -> SharedAnon {
        SharedAnon { tag: memory.new_node(), memory }
    }

    /// Its name, for futex keys.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Page `number`, made if need be.
    pub fn page(&self, number: u64) -> Result<PageRef<'_>, Error> {
        let name = LogicalId { tag: self.tag, page: number };
        if let Some(page) = self.memory.find(&name) {
            return Ok(page);
        }
        let page = self.memory.allocate_zeroed()?;
        let mut table = self.memory.table();
        if let Some(id) = table.lookup(&name) {
            // Another process was faster.
            let theirs = self.memory.reference(&mut table, id);
            drop(table);
            return Ok(theirs);
        }
        table.name(page.id(), name, false);
        table.own(page.id(), 1);
        table.get(page.id());
        drop(table);
        Ok(page)
    }
}

impl Drop for SharedAnon {
    fn drop(&mut self) {
        loop {
            let found = self.memory.table().first_of(&self.tag, 0..u64::MAX, |_, _| true);
            let Some(id) = found else { return };
            Record::release(&self.memory, id);
        }
    }
}

#[cfg(test)]
#[path = "cow_tests.rs"]
mod tests;
