//! The compiled core of ares: the frequent work of small reads and writes, without Python. The
//! Python path does the same, takes all unusual requests, and runs alone without a core
//! (docs/performance.md).

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
