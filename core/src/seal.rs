//! The seal of an element: ares/model/element.py, `checksum`, for an element in at most one part.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const NUMBERS_BYTES: usize = 28;
const NAMED_BYTES_MAX: usize = 1536;

/// 64 bits over the data, seeded with the digest of the other fields; tombstones have no seal. None
/// if not computed here: the Python twin computes the seal, or gives the error.
pub fn checksum(
    configuration: &[u8],
    object: &[u8],
    number: u64,
    writer: u64,
    index: i64,
    length: i64,
    data: &[u8],
) -> Option<u64> {
    let index = i32::try_from(index).ok()?;
    let size = configuration.len() + NUMBERS_BYTES + object.len();
    if size > NAMED_BYTES_MAX {
        return None;
    }
    let mut room = [0u8; NAMED_BYTES_MAX];
    let (head, rest) = room.split_at_mut(configuration.len());
    head.copy_from_slice(configuration);
    rest[..8].copy_from_slice(&number.to_be_bytes());
    rest[8..16].copy_from_slice(&writer.to_be_bytes());
    rest[16..20].copy_from_slice(&index.to_be_bytes());
    rest[20..28].copy_from_slice(&length.to_be_bytes());
    rest[NUMBERS_BYTES..NUMBERS_BYTES + object.len()].copy_from_slice(object);
    Some(xxh3_64_with_seed(data, xxh3_64(&room[..size])))
}
