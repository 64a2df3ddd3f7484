//! The cuts of a file by Rabin fingerprints, as in ares/fragment/rabin.py.

use pyo3::prelude::*;

use crate::constants::{RABIN_POLYNOMIAL, RABIN_WINDOW_BYTES};

const DEGREE: u32 = RABIN_POLYNOMIAL.ilog2();

const fn remainder(mut value: u128) -> u64 {
    while value >> DEGREE != 0 {
        value ^= (RABIN_POLYNOMIAL as u128) << (value.ilog2() - DEGREE);
    }
    value as u64
}

/// Table 0: the sum that takes the bits above the degree away, by these bits. Table 1: the term of
/// the byte that leaves the window.
const fn tables() -> ([u64; 256], [u64; 256]) {
    let (mut reduction, mut leaving) = ([0; 256], [0; 256]);
    let mut byte = 0;
    while byte < 256 {
        reduction[byte] = (byte as u64) << DEGREE ^ remainder((byte as u128) << DEGREE);
        let (mut term, mut shifts) = (byte as u64, 0);
        while shifts < RABIN_WINDOW_BYTES {
            term = remainder((term as u128) << 8);
            shifts += 1;
        }
        leaving[byte] = term;
        byte += 1;
    }
    (reduction, leaving)
}

static TABLES: ([u64; 256], [u64; 256]) = tables();

fn shifted(fingerprint: u64, byte: u8) -> u64 {
    let high = (fingerprint >> (DEGREE - 8)) as u8;
    (fingerprint << 8 | u64::from(byte)) ^ TABLES.0[usize::from(high)]
}

/// The end of the first chunk; None: the chunk may go on behind the data.
fn first_end(data: &[u8], min: usize, max: usize, mask: u64) -> Option<usize> {
    let window = data.get(min - RABIN_WINDOW_BYTES..min)?;
    let mut fingerprint = window.iter().fold(0, |sum, byte| shifted(sum, *byte));
    let stop = data.len().min(max);
    let mut bytes = data[min - RABIN_WINDOW_BYTES..stop].iter().zip(&data[min..stop]);
    let mut end = min;
    while fingerprint & mask != mask {
        let Some((old, new)) = bytes.next() else {
            return (stop == max).then_some(max);
        };
        fingerprint = shifted(fingerprint, *new) ^ TABLES.1[usize::from(*old)];
        end += 1;
    }
    Some(end)
}

/// The ends of the chunks that surely end within the data.
#[pyfunction]
pub fn rabin_ends(py: Python<'_>, data: &[u8], min: usize, max: usize, bits: u32) -> Vec<usize> {
    py.detach(|| {
        let (mut ends, mut start) = (Vec::new(), 0);
        while let Some(length) = first_end(&data[start..], min, max, (1 << bits) - 1) {
            start += length;
            ends.push(start);
        }
        ends
    })
}
