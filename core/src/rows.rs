//! The Lists of a configuration without Python: the effects of `PythonObjectTable`
//! (ares/replica/object_table.py). An object takes a row, and a block of memory with its name and
//! the data of its newest version. Other versions, and elements which are not small, are beside the
//! row: a change touches one version, whatever the size of the List.

use crate::constants::{PUT_BYTES, TRIMMED_BYTES};
use crate::index::{HashIndex, OrderedRows};
use crate::wire::{Element, Tag};
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem;

const SLAB_ROWS: usize = 1024;
/// Up to so many older versions, no room is kept for more.
const FEW_VERSIONS: usize = 8;

/// A version without its data. `place`: of its record in the journal. `is_bare`: the element has no
/// part.
#[derive(Clone, Copy, Default)]
pub struct Version {
    pub tag: Tag,
    pub checksum: u64,
    pub length: i32,
    pub place: u32,
    pub index: u8,
    pub is_bare: bool,
}

impl Version {
    pub fn of(tag: Tag, element: &Element, place: u32) -> Self {
        Version {
            tag,
            checksum: element.checksum,
            length: element.length as i32,
            place,
            index: element.index as u8,
            is_bare: element.data.is_none(),
        }
    }
}

/// An element's data: at most one small part, or a Python object with any parts, and their size.
pub enum Content<'a> {
    Small(&'a [u8]),
    Python(Py<PyAny>, usize),
}

impl Content<'_> {
    pub fn size(&self) -> usize {
        match self {
            Content::Small(data) => data.len(),
            Content::Python(_, size) => *size,
        }
    }
}

/// The data of a version beside its row.
enum Apart {
    Small(Box<[u8]>),
    Python(Py<PyAny>, usize),
}

impl From<Content<'_>> for Apart {
    fn from(content: Content) -> Self {
        match content {
            Content::Small(data) => Apart::Small(data.into()),
            Content::Python(element, size) => Apart::Python(element, size),
        }
    }
}

/// The data of a held version.
#[derive(Clone, Copy)]
pub enum Held<'a> {
    Small(&'a [u8]),
    Python(&'a Py<PyAny>, usize),
}

impl Held<'_> {
    pub fn size(&self) -> usize {
        match self {
            Held::Small(data) => data.len(),
            Held::Python(_, size) => *size,
        }
    }
}

/// The newest element if it is a Python object, and the older versions, newest first.
#[derive(Default)]
struct More {
    newest: Option<(Py<PyAny>, usize)>,
    older: VecDeque<(Version, Apart)>,
}

/// `VersionList`. `block`: the length of the name, the name, and the newest version's small data.
pub struct Row {
    newest: Version,
    pub trimmed: Tag,
    block: Box<[u8]>,
    more: Option<Box<More>>,
    pub trimmed_place: u32,
    has_versions: bool,
    pub follows: bool,
}

enum Inserted {
    /// Size and version of the lowest version, beyond the capacity.
    Stored(Option<(usize, Version)>),
    Held,
    Below,
}

impl Row {
    fn new(name: &[u8]) -> Self {
        let mut block = Vec::with_capacity(name.len() + 1); // exact for names below 128 bytes
        let mut rest = name.len();
        while rest >= 0x80 {
            block.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        block.push(rest as u8);
        block.extend_from_slice(name);
        Row {
            newest: Version::default(),
            trimmed: Tag::default(),
            block: block.into(),
            more: None,
            trimmed_place: 0,
            has_versions: false,
            follows: false,
        }
    }

    /// Begin and end of the name in the block.
    fn name_span(&self) -> (usize, usize) {
        let (mut length, mut begin) = (0, 0);
        for byte in &self.block {
            length |= usize::from(byte & 0x7f) << (7 * begin);
            begin += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        (begin, begin + length)
    }

    pub fn name(&self) -> &[u8] {
        let (begin, end) = self.name_span();
        &self.block[begin..end]
    }

    pub fn count(&self) -> usize {
        usize::from(self.has_versions) + self.more.as_ref().map_or(0, |more| more.older.len())
    }

    /// A version by its position, newest first.
    pub fn version(&self, position: usize) -> Option<(&Version, Held<'_>)> {
        let more = self.more.as_deref();
        if let Some(older) = position.checked_sub(1) {
            let (version, apart) = more?.older.get(older)?;
            let held = match apart {
                Apart::Small(data) => Held::Small(data),
                Apart::Python(element, size) => Held::Python(element, *size),
            };
            return Some((version, held));
        }
        let held = match more.and_then(|more| more.newest.as_ref()) {
            Some((element, size)) => Held::Python(element, *size),
            None => Held::Small(&self.block[self.name_span().1..]),
        };
        self.has_versions.then_some((&self.newest, held))
    }

    pub fn versions(&self) -> impl Iterator<Item = (&Version, Held<'_>)> {
        (0..self.count()).filter_map(|position| self.version(position))
    }

    pub fn newest(&self) -> Tag {
        self.newest.tag
    }

    /// The position of a version, or the position at which to insert it.
    pub fn position(&self, tag: Tag) -> Result<usize, usize> {
        if !self.has_versions || tag > self.newest.tag {
            return Err(0);
        }
        if tag == self.newest.tag {
            return Ok(0);
        }
        let Some(more) = &self.more else { return Err(1) };
        match more.older.binary_search_by(|(version, _)| tag.cmp(&version.tag)) {
            Ok(position) => Ok(position + 1),
            Err(position) => Err(position + 1),
        }
    }

    /// `VersionList.is_at`
    pub fn is_at(&self, place: u32) -> bool {
        (self.trimmed_place == place && self.trimmed != Tag::default())
            || self.versions().any(|(version, _)| version.place == place)
    }

    pub fn is_below(&self, tag: Tag, capacity: usize) -> bool {
        self.count() == capacity && self.position(tag) == Err(capacity)
    }

    fn insert(&mut self, version: Version, content: Content, capacity: usize) -> Inserted {
        let position = match self.position(version.tag) {
            Ok(_) => return Inserted::Held,
            Err(position) => position,
        };
        if position >= capacity {
            return Inserted::Below;
        }
        if !self.has_versions || capacity == 1 {
            let lost = self.version(0).map(|(version, held)| (held.size(), *version));
            self.set_newest(version, content);
            return Inserted::Stored(lost);
        }
        let is_full = self.count() == capacity;
        let newest = if position == 0 { Some(self.take_newest()) } else { None };
        let older = &mut self.more.get_or_insert_default().older;
        let lost = if is_full { older.pop_back() } else { None };
        if older.len() < FEW_VERSIONS {
            older.reserve_exact(1);
        }
        if let Some(newest) = newest {
            older.push_front(newest);
            self.set_newest(version, content);
        } else {
            older.insert(position - 1, (version, content.into()));
        }
        Inserted::Stored(lost.map(|(version, apart)| {
            let size = match apart {
                Apart::Small(data) => data.len(),
                Apart::Python(_, size) => size,
            };
            (size, version)
        }))
    }

    /// The newest version, to be kept beside the row.
    fn take_newest(&mut self) -> (Version, Apart) {
        let apart = match self.more.as_mut().and_then(|more| more.newest.take()) {
            Some((element, size)) => Apart::Python(element, size),
            None => Apart::Small(self.block[self.name_span().1..].into()),
        };
        (self.newest, apart)
    }

    fn set_newest(&mut self, version: Version, content: Content) {
        (self.newest, self.has_versions) = (version, true);
        let end = self.name_span().1;
        let (data, element) = match content {
            Content::Small(data) => (data, None),
            Content::Python(element, size) => (&[][..], Some((element, size))),
        };
        if self.block.len() == end + data.len() {
            self.block[end..].copy_from_slice(data);
        } else {
            let mut block = Vec::with_capacity(end + data.len());
            block.extend_from_slice(&self.block[..end]);
            block.extend_from_slice(data);
            self.block = block.into();
        }
        if element.is_some() {
            self.more.get_or_insert_default().newest = element;
        } else if let Some(more) = &mut self.more {
            more.newest = None;
            if more.older.is_empty() {
                self.more = None;
            }
        }
    }

    /// Replace a held version.
    fn replace(&mut self, position: usize, version: Version, content: Content) {
        let Some(older) = position.checked_sub(1) else {
            return self.set_newest(version, content);
        };
        if let Some(held) = self.more.as_mut().and_then(|more| more.older.get_mut(older)) {
            *held = (version, content.into());
        }
    }

    /// `PythonObjectTable._record_trimmed`
    fn record_trimmed(&mut self, place: u32, before: Tag, account: Option<&mut Account>) {
        let Some(account) = account else { return };
        let bytes = TRIMMED_BYTES + characters(self.name());
        account.add(place, bytes);
        if before != Tag::default() {
            account.add(self.trimmed_place, -bytes);
        }
        self.trimmed_place = place;
    }
}

/// Characters of a name in UTF-8.
pub fn characters(name: &[u8]) -> i64 {
    name.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as i64
}

/// Bytes in the journal by place: newly needed, and no longer needed.
#[derive(Default)]
pub struct Account {
    pub places: Vec<(u32, i64, i64)>,
}

impl Account {
    /// `ConfigurationUsage.add` of bytes at `place`; negative bytes are no longer needed.
    pub fn add(&mut self, place: u32, bytes: i64) {
        let position = self.places.iter().position(|row| row.0 == place).unwrap_or_else(|| {
            self.places.push((place, 0, 0));
            self.places.len() - 1
        });
        let row = &mut self.places[position];
        *(if bytes > 0 { &mut row.1 } else { &mut row.2 }) += bytes;
    }
}

/// `PutEffect`
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Trimmed,
    Stored,
}

/// All rows, in any order. A row stays where it is until the last row takes the place of a
/// forgotten one.
pub struct Rows {
    pub capacity: usize,
    pub elements: usize,
    pub bytes: usize,
    slabs: Vec<Vec<Row>>,
    index: HashIndex,
    order: OrderedRows,
    is_ordered: bool,
    hasher: RandomState,
}

impl Rows {
    pub fn new(capacity: usize) -> Self {
        Rows {
            capacity,
            elements: 0,
            bytes: 0,
            slabs: Vec::new(),
            index: HashIndex::new(),
            order: OrderedRows::default(),
            is_ordered: true,
            hasher: RandomState::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.slabs.last().map_or(0, |last| (self.slabs.len() - 1) * SLAB_ROWS + last.len())
    }

    pub fn row(&self, number: u32) -> &Row {
        &self.slabs[number as usize / SLAB_ROWS][number as usize % SLAB_ROWS]
    }

    fn row_mut(&mut self, number: u32) -> &mut Row {
        &mut self.slabs[number as usize / SLAB_ROWS][number as usize % SLAB_ROWS]
    }

    fn hash(&self, name: &[u8]) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_hashed(self.hash(name), name)
    }

    fn find_hashed(&self, hash: u32, name: &[u8]) -> Option<u32> {
        self.index.find(hash, |row| self.row(row).name() == name)
    }

    pub fn get(&self, name: &[u8]) -> Option<&Row> {
        self.find(name).map(|number| self.row(number))
    }

    /// The row of an object, made if missing.
    pub fn find_or_add(&mut self, name: &[u8]) -> u32 {
        let hash = self.hash(name);
        if let Some(number) = self.find_hashed(hash, name) {
            return number;
        }
        let number = self.count() as u32;
        match self.slabs.last_mut() {
            Some(last) if last.len() < SLAB_ROWS => last.push(Row::new(name)),
            None => self.slabs.push(vec![Row::new(name)]),
            Some(_) => {
                let mut slab = Vec::with_capacity(SLAB_ROWS);
                slab.push(Row::new(name));
                self.slabs.push(slab);
            }
        }
        self.index.insert(hash, number);
        if self.is_ordered {
            let mut order = mem::take(&mut self.order);
            order.insert(number, |row| self.row(row).name() < name);
            self.order = order;
        }
        number
    }

    /// The rows from the first on whose name is not before; see `OrderedRows::from`.
    pub fn from(&self, is_before: &dyn Fn(&[u8]) -> bool) -> impl Iterator<Item = &Row> {
        self.order.from(&|row| is_before(self.row(row).name())).map(|number| self.row(number))
    }

    /// `PythonObjectTable.put`, except for `follows`
    pub fn put(
        &mut self,
        number: u32,
        version: Version,
        content: Content,
        mut account: Option<&mut Account>,
    ) -> Effect {
        let (capacity, size) = (self.capacity, content.size());
        let row = self.row_mut(number);
        let before = row.trimmed;
        let lost = match row.insert(version, content, capacity) {
            Inserted::Held => return Effect::None,
            Inserted::Below if version.tag <= before => return Effect::None,
            Inserted::Below => {
                row.trimmed = version.tag;
                row.record_trimmed(version.place, before, account);
                return Effect::Trimmed;
            }
            Inserted::Stored(lost) => lost,
        };
        let bytes = PUT_BYTES + characters(row.name());
        if let Some(account) = &mut account {
            account.add(version.place, bytes + size as i64);
        }
        let mut lost_size = 0;
        if let Some((size, lost)) = lost {
            lost_size = size;
            if let Some(account) = &mut account {
                account.add(lost.place, -bytes - size as i64);
            }
            if lost.tag > before {
                row.trimmed = lost.tag;
                row.record_trimmed(lost.place, before, account);
            }
        }
        self.elements += usize::from(lost.is_none());
        self.bytes = self.bytes + size - lost_size;
        Effect::Stored
    }

    /// `PythonObjectTable.forget`
    pub fn forget(&mut self, name: &[u8], account: Option<&mut Account>) -> Vec<u32> {
        let hash = self.hash(name);
        let Some(number) = self.find_hashed(hash, name) else { return Vec::new() };
        self.index.remove(hash, number);
        let mut order = mem::take(&mut self.order);
        if self.is_ordered {
            order.remove(|row| self.row(row).name() < name);
        }
        let last = self.count() as u32 - 1;
        if number != last {
            let name = self.row(last).name();
            if self.is_ordered {
                order.renumber(number, |row| self.row(row).name() < name);
            }
            let hash = self.hash(name);
            self.index.renumber(hash, last, number);
        }
        self.order = order;
        let row = self.take(number, last);
        let bytes = PUT_BYTES + characters(row.name());
        let (mut places, mut account) = (Vec::new(), account);
        for (version, data) in row.versions() {
            places.push(version.place);
            self.elements -= 1;
            self.bytes -= data.size();
            if let Some(account) = &mut account {
                account.add(version.place, -bytes - data.size() as i64);
            }
        }
        if row.trimmed != Tag::default() {
            places.push(row.trimmed_place);
            if let Some(account) = &mut account {
                account.add(row.trimmed_place, -TRIMMED_BYTES - characters(row.name()));
            }
        }
        places
    }

    /// Take a row out; the last row, with number `last`, takes its place.
    fn take(&mut self, number: u32, last: u32) -> Row {
        let slab = &mut self.slabs[last as usize / SLAB_ROWS];
        let row = slab.swap_remove(last as usize % SLAB_ROWS);
        if slab.is_empty() {
            self.slabs.pop();
        }
        if number == last { row } else { mem::replace(self.row_mut(number), row) }
    }

    pub fn follow(&mut self, number: u32) {
        self.row_mut(number).follows = true;
    }

    /// `PythonObjectTable.trim`
    pub fn trim(&mut self, name: &[u8], tag: Tag, place: u32, account: Option<&mut Account>) {
        let number = self.find_or_add(name);
        let row = self.row_mut(number);
        let before = row.trimmed;
        if tag >= before {
            row.trimmed = tag;
            row.record_trimmed(place, before, account);
        }
    }

    /// `PythonObjectTable.move_trimmed`
    pub fn move_trimmed(&mut self, name: &[u8], place: u32, account: Option<&mut Account>) {
        if let Some(number) = self.find(name) {
            let row = self.row_mut(number);
            row.record_trimmed(place, row.trimmed, account);
        }
    }

    /// `PythonObjectTable.move`; without `place`, `PythonObjectTable.replace`
    pub fn replace(
        &mut self,
        number: u32,
        mut version: Version,
        content: Content,
        place: Option<u32>,
        account: Option<&mut Account>,
    ) {
        let row = self.row_mut(number);
        let Ok(position) = row.position(version.tag) else { return };
        let Some((held, data)) = row.version(position) else { return };
        let (old_place, old_size, size) = (held.place, data.size(), content.size());
        version.place = place.unwrap_or(old_place);
        if let (Some(place), Some(account)) = (place, account) {
            let bytes = PUT_BYTES + characters(row.name());
            account.add(place, bytes + size as i64);
            account.add(old_place, -bytes - old_size as i64);
        }
        row.replace(position, version, content);
        self.bytes = self.bytes + size - old_size;
    }

    /// Keep rows without their order from now on.
    pub fn begin_loading(&mut self) {
        self.order = OrderedRows::default();
        self.is_ordered = false;
    }

    pub fn end_loading(&mut self) {
        let order =
            OrderedRows::of((0..self.count() as u32).collect(), &|row| self.row(row).name());
        self.order = order;
        self.is_ordered = true;
    }

    /// Drop the last rows, at most `limit`, and a part of their order; return how many.
    pub fn drop_some(&mut self, limit: usize) -> usize {
        self.index.drop_some(limit);
        self.order.drop_some(limit);
        let mut dropped = 0;
        while dropped < limit {
            let Some(last) = self.slabs.last_mut() else { break };
            let kept = last.len().saturating_sub(limit - dropped);
            dropped += last.len() - kept;
            last.truncate(kept);
            if kept == 0 {
                self.slabs.pop();
            }
        }
        dropped
    }
}
