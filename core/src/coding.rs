//! The erasure code of small values, equal to PyECLib's isa_l_rs_cauchy: elements 0 to k-1 are
//! slices of the value, the others sums over GF(256) with a Cauchy matrix. For large slices the
//! library is quicker, and it has the other backends (ares/dap/coding.py).

use crate::constants::FRAGMENT_HEADER_BYTES;

const SLICE_BYTES_MAX: usize = 256;
const POLYNOMIAL: usize = 0x11d;
const ORDER: usize = 255;

const fn powers() -> ([u8; 2 * ORDER], [u8; 256]) {
    let (mut power, mut logarithm) = ([0; 2 * ORDER], [0; 256]);
    let (mut value, mut exponent) = (1, 0);
    while exponent < ORDER {
        power[exponent] = value as u8;
        power[exponent + ORDER] = value as u8;
        logarithm[value] = exponent as u8;
        value <<= 1;
        if value > ORDER {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    (power, logarithm)
}

static POWERS: ([u8; 2 * ORDER], [u8; 256]) = powers();

fn product(a: u8, b: u8) -> u8 {
    let (power, logarithm) = &POWERS;
    if a == 0 || b == 0 {
        0
    } else {
        power[usize::from(logarithm[usize::from(a)]) + usize::from(logarithm[usize::from(b)])]
    }
}

fn inverse(a: u8) -> u8 {
    POWERS.0[ORDER - usize::from(POWERS.1[usize::from(a)])]
}

fn coefficient(k: usize, index: usize, column: usize) -> u8 {
    if index < k { u8::from(index == column) } else { inverse((index ^ column) as u8) }
}

fn add(sum: &mut [u8], factor: u8, slice: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(slice) {
        *sum ^= product(factor, *byte);
    }
}

const MAGIC: u32 = 0x0b0c_5ecc;
const VERSION_MIN: u32 = 0x1_0200; // 1.2.0, the first release whose headers have a sum
const SUMMED_BYTES: usize = 59;
const CRC_POLYNOMIAL: u32 = 0xedb8_8320;

static CRC_OF_BYTE: [u32; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ ((sum & 1) * CRC_POLYNOMIAL);
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

fn crc32(bytes: &[u8]) -> u32 {
    let next = |sum: u32, byte: &u8| CRC_OF_BYTE[usize::from(sum as u8 ^ byte)] ^ sum >> 8;
    !bytes.iter().fold(u32::MAX, next)
}

/// A fragment: index and bytes. The bytes begin with a header: index, bytes of slice, of backend and
/// of value, which differ; magic number and version at 59; the sum of the bytes before these at 67.
pub type Fragment<'a> = (usize, &'a [u8]);

/// The value from k fragments by index; None where the library decodes or refuses: it also knows
/// headers of other machines and older releases.
pub fn decoded(
    fragments: &[Fragment<'_>],
    length: usize,
    more_bytes: usize,
    own: bool,
) -> Option<Vec<u8>> {
    let k = fragments.len();
    let size = fragments.first()?.1.len().checked_sub(more_bytes)?;
    if size == 0 || more_bytes < FRAGMENT_HEADER_BYTES || length > size * k {
        return None;
    }
    for (index, fragment) in fragments {
        let number = |at: usize| {
            fragment.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
        };
        let whole = u64::from(number(16)?) << 32 | u64::from(number(12)?);
        if fragment.len() != size + more_bytes
            || number(0)? as usize != *index
            || number(4)? as usize != size
            || whole != length as u64
            || number(59)? != MAGIC
            || number(63)? < VERSION_MIN
            || number(67)? != crc32(&fragment[..SUMMED_BYTES])
        {
            return None;
        }
    }
    let slices: Vec<Fragment<'_>> = fragments
        .iter()
        .map(|(index, fragment)| {
            (*index, &fragment[FRAGMENT_HEADER_BYTES..FRAGMENT_HEADER_BYTES + size])
        })
        .collect();
    let mut value = vec![0; size * k];
    if slices.iter().all(|(index, _)| *index < k) {
        for (index, slice) in slices {
            value[index * size..(index + 1) * size].copy_from_slice(slice);
        }
    } else {
        if !own || size > SLICE_BYTES_MAX || more_bytes != FRAGMENT_HEADER_BYTES {
            return None;
        }
        let solution = inverted(
            slices
                .iter()
                .map(|(index, _)| (0..k).map(|column| coefficient(k, *index, column)).collect())
                .collect(),
        )?;
        for (row, sum) in solution.iter().zip(value.chunks_exact_mut(size)) {
            for (factor, (_, slice)) in row.iter().zip(&slices) {
                add(sum, *factor, slice);
            }
        }
    }
    value.truncate(length);
    Some(value)
}

fn inverted(mut rows: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let k = rows.len();
    for (index, row) in rows.iter_mut().enumerate() {
        row.extend((0..k).map(|column| u8::from(index == column)));
    }
    for column in 0..k {
        let pivot = (column..k).find(|row| rows[*row][column] != 0)?;
        rows.swap(column, pivot);
        let factor = inverse(rows[column][column]);
        let scaled: Vec<u8> = rows[column].iter().map(|value| product(factor, *value)).collect();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if index != column {
                add(row, factor, &scaled);
            }
        }
        rows[column] = scaled;
    }
    Some(rows.into_iter().map(|row| row[k..].to_vec()).collect())
}

/// The headers of fragments of values with the same length.
pub struct Headers {
    size: usize,
    headers: Vec<[u8; FRAGMENT_HEADER_BYTES]>,
}

impl Headers {
    /// The library's headers; None if this code makes other fragments, or leaves such values.
    pub fn of(k: usize, value: &[u8], fragments: &[Option<Vec<u8>>]) -> Option<Self> {
        let size = fragments.first()?.as_ref()?.len().checked_sub(FRAGMENT_HEADER_BYTES)?;
        if size == 0 || size > SLICE_BYTES_MAX {
            return None;
        }
        let headers = fragments
            .iter()
            .map(|fragment| fragment.as_ref()?.get(..FRAGMENT_HEADER_BYTES)?.try_into().ok());
        let headers = Headers { size, headers: headers.collect::<Option<_>>()? };
        if headers.fragments(k, value) == fragments { Some(headers) } else { None }
    }

    /// The fragments of a value of this length.
    pub fn fragments(&self, k: usize, value: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut padded = value.to_vec();
        padded.resize(self.size * k, 0);
        let fragment = |(index, header): (usize, &[u8; FRAGMENT_HEADER_BYTES])| {
            let mut fragment = header.to_vec();
            fragment.resize(FRAGMENT_HEADER_BYTES + self.size, 0);
            for (column, slice) in padded.chunks_exact(self.size).enumerate() {
                add(&mut fragment[FRAGMENT_HEADER_BYTES..], coefficient(k, index, column), slice);
            }
            Some(fragment)
        };
        self.headers.iter().enumerate().map(fragment).collect()
    }
}
