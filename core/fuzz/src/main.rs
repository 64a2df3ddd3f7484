//! libFuzzer on the compiled core, with Python in the same process: every input is a course of
//! events for a core and its Python twin (courses.py). `ARES_FUZZ` selects server or client.
//! docs/limits.md says how to run the fuzzer.

#![no_main]

use std::env;
use std::sync::OnceLock;

use ares_core::core_module;
use libfuzzer_sys::fuzz_target;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

static COURSE: OnceLock<Py<PyAny>> = OnceLock::new();

/// `courses.server` or `courses.client`, with this program's core in the place of the extension.
fn course(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let core = pyo3::wrap_pymodule!(core_module)(py);
    py.import("sys")?.getattr("modules")?.set_item("ares._core", core)?;
    let whose = env::var("ARES_FUZZ").unwrap_or_else(|_| "server".to_owned());
    Ok(py.import("courses")?.getattr(whose.as_str())?.unbind())
}

fuzz_target!(|data: &[u8]| {
    Python::attach(|py| {
        let course = COURSE.get_or_init(|| course(py).unwrap_or_else(|error| raised(py, &error)));
        course.call1(py, (PyBytes::new(py, data),)).unwrap_or_else(|error| raised(py, &error));
    });
});

fn raised(py: Python<'_>, error: &PyErr) -> ! {
    error.print(py);
    std::process::abort()
}
