//! Row numbers by the hash and by the order of their names, without the names themselves. No change
//! moves more than a bucket or a chunk, whatever the size of the table, except the end of a start.

use crate::constants::KEY_BYTES_MAX;

const SLOTS_MIN: usize = 8;
const SLOTS_MAX: usize = 4096;
/// More levels only cost memory: beyond, a bucket grows instead of being split.
const DEPTH_MAX: u32 = 20;
/// Rows dropped with a bucket and a chunk, which have more rows in the mean.
const DROPPED_ROWS: usize = CHUNK_ROWS / 4;
const FREE: u32 = u32::MAX;
const CHUNK_ROWS: usize = 512;
/// Runs of names with equal beginnings up to this length are sorted by comparison.
const SHORT_RUN: usize = 16;
const WORD_BYTES: usize = 8;

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    row: u32,
}

/// `depth`: number of the highest bits of a hash that are equal in the bucket.
struct Bucket {
    depth: u32,
    used: usize,
    slots: Vec<Slot>,
}

impl Bucket {
    fn new(depth: u32, slots: usize) -> Self {
        Bucket { depth, used: 0, slots: vec![Slot { hash: 0, row: FREE }; slots] }
    }

    fn is_full(&self) -> bool {
        (self.used + 1) * 16 > self.slots.len() * 13
    }

    fn insert(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = slot.hash as usize & mask;
        while self.slots[at].row != FREE {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Free a slot, and move later slots of its run so that each is still found.
    fn free(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut at = (hole + 1) & mask;
        while self.slots[at].row != FREE {
            let begin = self.slots[at].hash as usize & mask;
            if at.wrapping_sub(begin) & mask >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.slots[hole].row = FREE;
        self.used -= 1;
    }

    fn grow(&mut self) {
        let wider = Bucket::new(self.depth, self.slots.len() * 2);
        let old = std::mem::replace(self, wider);
        old.slots.into_iter().filter(|slot| slot.row != FREE).for_each(|slot| self.insert(slot));
    }
}

/// Extendible hashing: a full bucket is split in two, and the directory names each bucket by the
/// highest bits of its hashes.
pub struct HashIndex {
    depth: u32,
    directory: Vec<u32>,
    buckets: Vec<Bucket>,
}

impl HashIndex {
    pub fn new() -> Self {
        HashIndex { depth: 0, directory: vec![0], buckets: vec![Bucket::new(0, SLOTS_MIN)] }
    }

    /// The row with this hash for which `is_it` holds.
    pub fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = &self.buckets[self.directory[leading(hash, self.depth)] as usize].slots;
        let mask = slots.len() - 1;
        let mut at = hash as usize & mask;
        while slots[at].row != FREE {
            if slots[at].hash == hash && is_it(slots[at].row) {
                return Some(slots[at].row);
            }
            at = (at + 1) & mask;
        }
        None
    }

    pub fn insert(&mut self, hash: u32, row: u32) {
        loop {
            let number = self.directory[leading(hash, self.depth)] as usize;
            let bucket = &mut self.buckets[number];
            if !bucket.is_full() {
                return bucket.insert(Slot { hash, row });
            }
            if bucket.slots.len() < SLOTS_MAX || bucket.depth >= DEPTH_MAX {
                bucket.grow();
            } else {
                self.split(number, hash);
            }
        }
    }

    /// Remove a row with this hash.
    pub fn remove(&mut self, hash: u32, row: u32) {
        if let Some((bucket, at)) = self.slot(hash, row) {
            bucket.free(at);
        }
    }

    /// Give a row with this hash another number.
    pub fn renumber(&mut self, hash: u32, row: u32, number: u32) {
        if let Some((bucket, at)) = self.slot(hash, row) {
            bucket.slots[at].row = number;
        }
    }

    fn slot(&mut self, hash: u32, row: u32) -> Option<(&mut Bucket, usize)> {
        let bucket = &mut self.buckets[self.directory[leading(hash, self.depth)] as usize];
        let mask = bucket.slots.len() - 1;
        let mut at = hash as usize & mask;
        while bucket.slots[at].row != row {
            if bucket.slots[at].row == FREE {
                return None;
            }
            at = (at + 1) & mask;
        }
        Some((bucket, at))
    }

    /// Drop some buckets of a table that is not used any more.
    pub fn drop_some(&mut self, rows: usize) {
        let kept = self.buckets.len().saturating_sub(1 + rows / DROPPED_ROWS);
        self.buckets.truncate(kept);
    }

    /// Split the full bucket of `hash` by the next bit.
    fn split(&mut self, number: usize, hash: u32) {
        let before = self.buckets[number].depth;
        let depth = before + 1;
        if depth > self.depth {
            self.directory = self.directory.iter().flat_map(|bucket| [*bucket; 2]).collect();
            self.depth = depth;
        }
        let lower = Bucket::new(depth, SLOTS_MAX);
        let old = std::mem::replace(&mut self.buckets[number], lower);
        let mut upper = Bucket::new(depth, SLOTS_MAX);
        for slot in old.slots.into_iter().filter(|slot| slot.row != FREE) {
            let is_upper = slot.hash >> (32 - depth) & 1 == 1;
            if is_upper { &mut upper } else { &mut self.buckets[number] }.insert(slot);
        }
        let half = 1 << (self.depth - depth);
        let start = leading(hash, before) * 2 * half + half;
        self.directory[start..start + half].fill(self.buckets.len() as u32);
        self.buckets.push(upper);
    }
}

/// The number made of the highest `bits` of a hash.
fn leading(hash: u32, bits: u32) -> usize {
    (u64::from(hash) << bits >> 32) as usize
}

/// Rows in the order of their names, in chunks.
#[derive(Default)]
pub struct OrderedRows {
    chunks: Vec<Vec<u32>>,
}

impl OrderedRows {
    /// Order `rows`, which have different names.
    pub fn of<'a>(rows: Vec<u32>, name: &impl Fn(u32) -> &'a [u8]) -> Self {
        let mut words: Vec<(u64, u32)> = rows.into_iter().map(|row| (0, row)).collect();
        sort_names(&mut words, 0, name);
        let chunks = words.chunks(CHUNK_ROWS).map(|some| some.iter().map(|word| word.1).collect());
        OrderedRows { chunks: chunks.collect() }
    }

    /// Insert a row. `is_before`: whether a row's name is before the new name.
    pub fn insert(&mut self, row: u32, is_before: impl Fn(u32) -> bool) {
        let (number, at) = self.position(&is_before);
        let Some(chunk) = self.chunks.get_mut(number) else {
            return self.chunks.push(vec![row]);
        };
        if chunk.len() < CHUNK_ROWS {
            return chunk.insert(at, row);
        }
        let mut next = Vec::with_capacity(CHUNK_ROWS);
        // names often come in order: the last chunk stays full
        if at < CHUNK_ROWS || number + 1 < self.chunks.len() {
            let chunk = &mut self.chunks[number];
            next.extend(chunk.drain(CHUNK_ROWS / 2..));
            let (part, at) =
                if at > CHUNK_ROWS / 2 { (&mut next, at - CHUNK_ROWS / 2) } else { (chunk, at) };
            part.insert(at, row);
        } else {
            next.push(row);
        }
        self.chunks.insert(number + 1, next);
    }

    /// Remove the first row whose name is not before.
    pub fn remove(&mut self, is_before: impl Fn(u32) -> bool) {
        let Some((number, at)) = self.place(&is_before) else { return };
        self.chunks[number].remove(at);
        let next = self.chunks.get(number + 1).map_or(CHUNK_ROWS, Vec::len);
        if self.chunks[number].len() + next <= CHUNK_ROWS / 2 {
            let next = self.chunks.remove(number + 1);
            self.chunks[number].extend(next);
        }
        if self.chunks[number].is_empty() {
            self.chunks.remove(number);
        }
    }

    /// Give the first row whose name is not before another number.
    pub fn renumber(&mut self, row: u32, is_before: impl Fn(u32) -> bool) {
        if let Some((number, at)) = self.place(&is_before) {
            self.chunks[number][at] = row;
        }
    }

    /// The chunk, and the position in it, of the first row whose name is not before.
    fn place(&self, is_before: &dyn Fn(u32) -> bool) -> Option<(usize, usize)> {
        let (number, at) = self.position(is_before);
        let found =
            if at < self.chunks.get(number)?.len() { (number, at) } else { (number + 1, 0) };
        self.chunks.get(found.0).map(|_| found)
    }

    /// Drop some chunks of a table that is not used any more.
    pub fn drop_some(&mut self, rows: usize) {
        let kept = self.chunks.len().saturating_sub(1 + rows / DROPPED_ROWS);
        self.chunks.truncate(kept);
    }

    /// The rows from the first on whose name is not before.
    pub fn from(&self, is_before: &dyn Fn(u32) -> bool) -> impl Iterator<Item = u32> + '_ {
        let (number, at) = self.position(is_before);
        self.chunks[number.min(self.chunks.len())..].iter().flatten().skip(at).copied()
    }

    /// The chunk, and the position in it, of the first name that is not before; the end of the last
    /// chunk if all names are before.
    fn position(&self, is_before: &dyn Fn(u32) -> bool) -> (usize, usize) {
        let following = self.chunks.partition_point(|chunk| is_before(chunk[0]));
        let Some(number) = following.checked_sub(1) else { return (0, 0) };
        (number, self.chunks[number].partition_point(|row| is_before(*row)))
    }
}

/// Sort rows by the bytes of their names from `depth` on, which are equal before, a word at a time:
/// few names are looked up in more than a word, and each word once.
fn sort_names<'a>(words: &mut [(u64, u32)], depth: usize, name: &impl Fn(u32) -> &'a [u8]) {
    if words.len() <= SHORT_RUN || depth > KEY_BYTES_MAX {
        return words.sort_unstable_by_key(|word| name(word.1));
    }
    let mut longest = 0;
    for (word, row) in words.iter_mut() {
        let rest = name(*row).get(depth..).unwrap_or_default();
        let mut bytes = [0; WORD_BYTES];
        let count = rest.len().min(WORD_BYTES);
        bytes[..count].copy_from_slice(&rest[..count]);
        *word = u64::from_be_bytes(bytes);
        longest = longest.max(rest.len());
    }
    words.sort_unstable();
    if longest == 0 {
        return words.sort_unstable_by_key(|word| name(word.1));
    }
    for run in words.chunk_by_mut(|one, next| one.0 == next.0).filter(|run| run.len() > 1) {
        sort_names(run, depth + WORD_BYTES, name);
    }
}
