//! Bytes of the wire: the messages of small reads and writes, as ares/model/codec.py writes them.
//! Only the shortest form of a number or text is read, which every release writes; None for any
//! other form, which the Python twin handles. No allocation depends on a peer's claims.

use crate::constants::{DETACHED_BYTES_MIN, LEFT_LENGTH, SERVERS_MAX, VALUE_BYTES_MAX};
use std::ops::RangeInclusive;

const DEPTH_MAX: u32 = 32;
pub const NIL: u8 = 0xc0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Tag {
    pub number: u64,
    pub writer: u64,
}

/// An element with its data, in at most one part.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub index: i64,
    pub length: i64,
    pub checksum: u64,
    /// None: no part, as of a tombstone.
    pub data: Option<&'a [u8]>,
}

impl<'a> Element<'a> {
    pub fn bytes(&self) -> &'a [u8] {
        self.data.unwrap_or(&[])
    }
}

pub struct Cursor<'a> {
    pub data: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Self {
        Cursor { data, at }
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.data.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    fn big_endian(&mut self, count: usize) -> Option<u64> {
        Some(self.take(count)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// A length of at least `least`: the shortest form.
    #[inline]
    fn length(&mut self, count: usize, least: u64) -> Option<usize> {
        let length = self.big_endian(count)?;
        if length >= least { usize::try_from(length).ok() } else { None }
    }

    /// The number of items that follow.
    #[inline]
    pub fn array(&mut self) -> Option<usize> {
        match self.byte()? {
            head @ 0x90..=0x9f => Some(usize::from(head & 0x0f)),
            0xdc => self.length(2, 16),
            0xdd => self.length(4, 1 << 16),
            _ => None,
        }
    }

    /// Check the number of items that follow.
    #[inline]
    pub fn array_of(&mut self, count: usize) -> Option<()> {
        if self.array()? == count { Some(()) } else { None }
    }

    #[inline]
    pub fn unsigned(&mut self) -> Option<u64> {
        let (count, least) = match self.byte()? {
            head @ 0..=0x7f => return Some(u64::from(head)),
            0xcc => (1, 0x80),
            0xcd => (2, 1 << 8),
            0xce => (4, 1 << 16),
            0xcf => (8, 1 << 32),
            _ => return None,
        };
        let number = self.big_endian(count)?;
        if number >= least { Some(number) } else { None }
    }

    #[inline]
    pub fn signed(&mut self) -> Option<i64> {
        let (number, most) = match *self.data.get(self.at)? {
            head @ 0xe0..=0xff => {
                self.at += 1;
                return Some(i64::from(head as i8));
            }
            0xd0 => (self.widened(1)?, -33),
            0xd1 => (self.widened(2)?, -129),
            0xd2 => (self.widened(4)?, -32_769),
            0xd3 => (self.widened(8)?, -2_147_483_649),
            _ => return i64::try_from(self.unsigned()?).ok(),
        };
        if number <= most { Some(number) } else { None }
    }

    fn widened(&mut self, count: usize) -> Option<i64> {
        self.at += 1;
        let shift = 64 - 8 * count as u32;
        Some((self.big_endian(count)? << shift) as i64 >> shift)
    }

    #[inline]
    pub fn binary(&mut self) -> Option<&'a [u8]> {
        let length = match self.byte()? {
            0xc4 => self.length(1, 0)?,
            0xc5 => self.length(2, 1 << 8)?,
            0xc6 => self.length(4, 1 << 16)?,
            _ => return None,
        };
        self.take(length)
    }

    #[inline]
    pub fn text(&mut self) -> Option<&'a str> {
        let length = match self.byte()? {
            head @ 0xa0..=0xbf => usize::from(head & 0x1f),
            0xd9 => self.length(1, 32)?,
            0xda => self.length(2, 1 << 8)?,
            0xdb => self.length(4, 1 << 16)?,
            _ => return None,
        };
        std::str::from_utf8(self.take(length)?).ok()
    }

    #[inline]
    pub fn boolean(&mut self) -> Option<bool> {
        match self.byte()? {
            0xc2 => Some(false),
            0xc3 => Some(true),
            _ => None,
        }
    }

    /// Whether the next item is nil, which is passed over.
    #[inline]
    pub fn is_nil(&mut self) -> Option<bool> {
        let nil = *self.data.get(self.at)? == NIL;
        self.at += usize::from(nil);
        Some(nil)
    }

    #[inline]
    pub fn nil(&mut self) -> Option<()> {
        if self.is_nil()? { Some(()) } else { None }
    }

    #[inline]
    pub fn tag(&mut self) -> Option<Tag> {
        self.array_of(2)?;
        Some(Tag { number: self.unsigned()?, writer: self.unsigned()? })
    }

    #[inline]
    fn within(&mut self, bounds: RangeInclusive<i64>) -> Option<i64> {
        self.signed().filter(|number| bounds.contains(number))
    }

    #[inline]
    pub fn value_length(&mut self) -> Option<i64> {
        self.within(LEFT_LENGTH..=VALUE_BYTES_MAX)
    }

    /// An element with at most one part of data, too small for a frame of its own.
    #[inline]
    pub fn element(&mut self) -> Option<Element<'a>> {
        self.array_of(5)?;
        let index = self.within(0..=SERVERS_MAX as i64 - 1)?;
        let (length, checksum) = (self.value_length()?, self.unsigned()?);
        let data = match self.array()? {
            0 => None,
            1 => Some(self.binary()?),
            _ => return None,
        };
        if data.is_some_and(|data| data.len() >= DETACHED_BYTES_MIN) || self.signed()? != -1 {
            return None;
        }
        Some(Element { index, length, checksum, data })
    }

    /// Pass over the next item, of any form.
    pub fn skip(&mut self) -> Option<()> {
        self.skip_within(DEPTH_MAX)
    }

    fn skip_within(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let (bytes, items) = match self.byte()? {
            0..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
            head @ 0x80..=0x8f => (0, 2 * u64::from(head & 0x0f)),
            head @ 0x90..=0x9f => (0, u64::from(head & 0x0f)),
            head @ 0xa0..=0xbf => (u64::from(head & 0x1f), 0),
            0xc4 | 0xd9 => (self.big_endian(1)?, 0),
            0xc5 | 0xda => (self.big_endian(2)?, 0),
            0xc6 | 0xdb => (self.big_endian(4)?, 0),
            0xcc | 0xd0 => (1, 0),
            0xcd | 0xd1 => (2, 0),
            0xce | 0xd2 | 0xca => (4, 0),
            0xcf | 0xd3 | 0xcb => (8, 0),
            0xdc => (0, self.big_endian(2)?),
            0xdd => (0, self.big_endian(4)?),
            0xde => (0, 2 * self.big_endian(2)?),
            0xdf => (0, 2 * self.big_endian(4)?),
            _ => return None,
        };
        self.take(usize::try_from(bytes).ok()?)?;
        for _ in 0..items {
            self.skip_within(depth)?;
        }
        Some(())
    }
}

// -- writing --------------------------------------------------------------------------------------

#[inline]
fn put_headed(out: &mut Vec<u8>, head: u8, number: &[u8]) {
    out.push(head);
    out.extend_from_slice(number);
}

pub fn put_array(out: &mut Vec<u8>, count: usize) {
    match count {
        0..=15 => out.push(0x90 | count as u8),
        16..=0xffff => put_headed(out, 0xdc, &(count as u16).to_be_bytes()),
        _ => put_headed(out, 0xdd, &(count as u32).to_be_bytes()),
    }
}

#[inline]
pub fn put_unsigned(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => put_headed(out, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => put_headed(out, 0xce, &(number as u32).to_be_bytes()),
        _ => put_headed(out, 0xcf, &number.to_be_bytes()),
    }
}

#[inline]
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    match number {
        0.. => put_unsigned(out, number as u64),
        -32..=-1 => out.push(number as u8),
        -128..=-33 => out.extend_from_slice(&[0xd0, number as u8]),
        -32_768..=-129 => put_headed(out, 0xd1, &(number as i16).to_be_bytes()),
        -2_147_483_648..=-32_769 => put_headed(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => put_headed(out, 0xd3, &number.to_be_bytes()),
    }
}

#[inline]
pub fn put_binary(out: &mut Vec<u8>, data: &[u8]) {
    let length = data.len();
    match length {
        0..=0xff => out.extend_from_slice(&[0xc4, length as u8]),
        0x100..=0xffff => put_headed(out, 0xc5, &(length as u16).to_be_bytes()),
        _ => put_headed(out, 0xc6, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(data);
}

#[inline]
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = text.len();
    match length {
        0..=31 => out.push(0xa0 | length as u8),
        32..=0xff => out.extend_from_slice(&[0xd9, length as u8]),
        0x100..=0xffff => put_headed(out, 0xda, &(length as u16).to_be_bytes()),
        _ => put_headed(out, 0xdb, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(text.as_bytes());
}

pub fn put_nil(out: &mut Vec<u8>) {
    out.push(NIL);
}

pub fn boolean(value: bool) -> u8 {
    if value { 0xc3 } else { 0xc2 }
}

pub fn put_boolean(out: &mut Vec<u8>, value: bool) {
    out.push(boolean(value));
}

#[inline]
pub fn put_tag(out: &mut Vec<u8>, tag: Tag) {
    put_array(out, 2);
    put_unsigned(out, tag.number);
    put_unsigned(out, tag.writer);
}

#[inline]
pub fn put_element(out: &mut Vec<u8>, element: &Element) {
    put_array(out, 5);
    put_signed(out, element.index);
    put_signed(out, element.length);
    put_unsigned(out, element.checksum);
    match element.data {
        None => put_array(out, 0),
        Some(data) => {
            put_array(out, 1);
            put_binary(out, data);
        }
    }
    put_signed(out, -1);
}
