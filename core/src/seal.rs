//! The seal of an element: ares/model/element.py, `checksum`, for an element in at most one part.

use crate::wire::{Element, Tag};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const NUMBERS_BYTES: usize = 28;
const NAMED_BYTES_MAX: usize = 1536;

impl Element<'_> {
    /// 64 bits over the data, seeded with the digest of the other fields; tombstones have no seal.
    /// None if not computed here: the Python twin computes the seal, or gives the error.
    pub fn seal(&self, configuration: &[u8], object: &str, tag: Tag) -> Option<u64> {
        let index = i32::try_from(self.index).ok()?;
        let size = configuration.len() + NUMBERS_BYTES + object.len();
        if size > NAMED_BYTES_MAX {
            return None;
        }
        let mut room = [0u8; NAMED_BYTES_MAX];
        let (head, rest) = room.split_at_mut(configuration.len());
        head.copy_from_slice(configuration);
        rest[..8].copy_from_slice(&tag.number.to_be_bytes());
        rest[8..16].copy_from_slice(&tag.writer.to_be_bytes());
        rest[16..20].copy_from_slice(&index.to_be_bytes());
        rest[20..28].copy_from_slice(&self.length.to_be_bytes());
        rest[NUMBERS_BYTES..NUMBERS_BYTES + object.len()].copy_from_slice(object.as_bytes());
        Some(xxh3_64_with_seed(self.bytes(), xxh3_64(&room[..size])))
    }
}
