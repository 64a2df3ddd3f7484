//! The constants that Python has, too. ares/compiled.py refuses a core with other values.

use pyo3::prelude::*;
use pyo3::types::PyDict;

macro_rules! constants {
    ($($name:ident: $kind:ty = $value:expr;)*) => {
        $(pub const $name: $kind = $value;)*

        pub fn all(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
            let found = PyDict::new(py);
            $(found.set_item(stringify!($name), $name)?;)*
            Ok(found)
        }
    };
}

constants! {
    RELEASE: &str = env!("CARGO_PKG_VERSION");
    // Rounds and operations of a client.
    ROUND_RESEND_S: f64 = 0.5;
    SEND_BYTES_PER_S_EXPECTED: f64 = 50e6;
    USUAL_ROUNDS: f64 = 64.0;
    OPERATIONS_MAX: usize = 2048;
    TURN_MESSAGES_MAX: usize = 512;
    // Batches and messages.
    WIRE_VERSION: u8 = 1;
    BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;
    BATCH_MESSAGES_MAX: usize = 4096;
    DETACHED_BYTES_MIN: usize = 8 * 1024;
    HEADER_BYTES_MAX: usize = 32 * 1024 * 1024;
    GET_TAG: u64 = 1;
    GET_DATA: u64 = 2;
    PUT_DATA: u64 = 3;
    TAG_REPLY: u64 = 32;
    DATA_REPLY: u64 = 33;
    ACK: u64 = 34;
    TAGS_TRIMMED: u64 = 129;
    // Configurations, names, values and tags.
    SERVERS_MAX: usize = 32;
    DELTA_MAX: usize = 1000;
    BACKEND_DEFAULT: &str = "isa_l_rs_cauchy";
    FRAGMENT_HEADER_BYTES: usize = 80;
    RESERVED: &str = "\0";
    OF_WRITERS: [&str; 4] = ["\0file/", "\0block/", "\0mark/", "\0mirror/"];
    KEY_BYTES_MAX: usize = 1024;
    VALUE_BYTES_MAX: i64 = 1024 * 1024 * 1024;
    DELETED_LENGTH: i64 = -1;
    LEFT_LENGTH: i64 = -2;
    NUMBER_FLOOR: u64 = 1 << 48;
    NUMBER_LAST: u64 = u64::MAX;
    // Tables of objects.
    PAGE_CHARACTERS_MAX: i64 = 128 * 1024;
    PUT_NONE: u8 = 0;
    PUT_TRIMMED: u8 = 1;
    PUT_STORED: u8 = 2;
    // Facts in a journal.
    PUT_BYTES: i64 = 80;
    PUT_BYTES_MAX: usize = 176;
    PART_BYTES_MAX: usize = 16;
    CHARACTER_BYTES_MAX: usize = 4;
    TRIMMED_BYTES: i64 = 48;
    // Fingerprints that cut files.
    RABIN_POLYNOMIAL: u64 = 0x3d_a335_8b4d_c173;
    RABIN_WINDOW_BYTES: usize = 48;
}
