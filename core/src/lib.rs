//! The compiled core of ares: the frequent work of small reads and writes, and the cuts of files by
//! fingerprints, without Python. The Python path does the same, takes all unusual requests, and runs
//! alone without a core (docs/performance.md). ares/compiled.py has all that Python and this core
//! know of each other.

use pyo3::prelude::*;

pub mod client;
pub mod coding;
pub mod constants;
mod home;
mod index;
pub mod rabin;
mod replay;
pub mod requests;
mod rows;
pub mod seal;
pub mod server;
mod table;
pub mod wire;

/// The Python module with the objects that this core uses, `GIVEN`.
pub const DOOR: &str = "ares.compiled";

#[pymodule]
#[pyo3(name = "_core")]
pub mod core_module {
    #[pymodule_export]
    use crate::client::{ClientCore, FastOperation, FastRound, SmallObjects};
    #[pymodule_export]
    use crate::rabin::rabin_ends;
    #[pymodule_export]
    use crate::replay::{replay, replay_run};
    #[pymodule_export]
    use crate::server::{ServedTurn, ServerCore};
    #[pymodule_export]
    use crate::table::ObjectTable;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("CONSTANTS", crate::constants::all(module.py())?)
    }
}
