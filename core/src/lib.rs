//! The compiled core of ares: what small reads and writes do most, without Python in between. The Python path beside it says the same, is complete, and is
//! what runs where nothing is compiled (docs/performance.md). Whatever is unusual is left to it.

use pyo3::prelude::*;

pub mod client;
pub mod coding;
pub mod requests;
pub mod seal;
pub mod server;
mod table;
pub mod wire;

#[pymodule]
#[pyo3(name = "_core")]
pub mod core_module {
    #[pymodule_export]
    use crate::client::{Client, Handed, Objects};
    #[pymodule_export]
    use crate::server::{Served, Server};
    #[pymodule_export]
    use crate::table::Entry;
    #[pymodule_export]
    const RELEASE: &str = env!("CARGO_PKG_VERSION");
}
