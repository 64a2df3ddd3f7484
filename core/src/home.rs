//! The Python objects of a server, used as in ares/replica/configuration_state.py and
//! ares/replica/group_commit.py.

use crate::DOOR;
use crate::client::locked;
use crate::rows::Account;
use crate::table::ObjectTable;
use crate::wire::NIL;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PySet};
use std::sync::{Arc, Mutex};

type Bytes = Arc<Vec<u8>>;

/// The end of a pass: the Python path takes the requests, or Python raised.
pub enum Unusual {
    Left,
    Raised(PyErr),
}

impl From<PyErr> for Unusual {
    fn from(error: PyErr) -> Self {
        Unusual::Raised(error)
    }
}

impl From<pyo3::CastError<'_, '_>> for Unusual {
    fn from(_: pyo3::CastError<'_, '_>) -> Self {
        Unusual::Left
    }
}

impl From<pyo3::CastIntoError<'_>> for Unusual {
    fn from(_: pyo3::CastIntoError<'_>) -> Self {
        Unusual::Left
    }
}

pub type Looked<T> = Result<T, Unusual>;

pub fn usual(condition: bool) -> Looked<()> {
    if condition { Ok(()) } else { Err(Unusual::Left) }
}

/// A configuration, and its constant fields.
pub struct Known {
    pub id: Py<PyBytes>,
    pub hosting: Py<PyAny>,
    pub table: Py<ObjectTable>,
    pub index: i64,
    pub k: i64,
    pub capacity: usize,
    encoded: Mutex<Option<(Py<PyAny>, Bytes)>>,
}

impl Known {
    pub fn of(hosted: &Bound<PyDict>, id: &[u8]) -> Looked<Self> {
        let py = hosted.py();
        let id = PyBytes::new(py, id);
        let hosting = hosted.get_item(&id)?.ok_or(Unusual::Left)?;
        Ok(Known {
            id: id.unbind(),
            table: hosting.getattr("objects")?.cast_into().map_err(PyErr::from)?.unbind(),
            index: hosting.getattr("element_index")?.extract()?,
            capacity: hosting.getattr("capacity")?.extract()?,
            k: hosting.getattr("configuration")?.getattr("k")?.extract()?,
            hosting: hosting.unbind(),
            encoded: Mutex::default(),
        })
    }

    /// The bytes of the pending successor, if any; a finalized successor withholds data.
    fn successor(&self, py: Python) -> Looked<Option<Bytes>> {
        static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let successor = self.hosting.bind(py).getattr(intern!(py, "successor"))?;
        if successor.is_none() {
            return Ok(None);
        }
        usual(!successor.getattr(intern!(py, "finalized"))?.is_truthy()?)?;
        let encoded = locked(&self.encoded)
            .as_ref()
            .filter(|(known, _)| known.is(&successor))
            .map(|(_, bytes)| bytes.clone());
        if encoded.is_some() {
            return Ok(encoded);
        }
        let bytes: Bytes =
            Arc::new(ENCODE.import(py, DOOR, "encode")?.call1((&successor,))?.extract()?);
        *locked(&self.encoded) = Some((successor.unbind(), bytes.clone()));
        Ok(Some(bytes))
    }
}

/// A configuration in a call, and the changes that the call makes.
pub struct Home<'py> {
    pub known: Arc<Known>,
    pub id: Bound<'py, PyBytes>,
    pub table: PyRefMut<'py, ObjectTable>,
    /// The successor's bytes.
    pub successor: Option<Bytes>,
    pub order_known: bool,
    pub asked: usize,
    pub carried: i64,
    pub account: Option<Account>,
    /// For each commit: whether the pointer changes, and which objects change.
    pub pointed: [bool; 2],
    pub noted: [Option<Bound<'py, PySet>>; 2],
}

impl<'py> Home<'py> {
    /// Collect the state; no successor is finalized, hence no data were collected.
    pub fn of(
        py: Python<'py>,
        known: Arc<Known>,
        commits: &[Option<Commit<'py>>; 2],
    ) -> Looked<Self> {
        let hosting = known.hosting.bind(py);
        let table = known.table.bind(py).try_borrow_mut().map_err(|_| Unusual::Left)?;
        let order_known = hosting.getattr(intern!(py, "order_known"))?.is_truthy()?;
        let successor = known.successor(py)?;
        let id = known.id.bind(py).clone();
        let (mut pointed, mut noted) = ([false; 2], [None, None]);
        for (place, commit) in
            commits.iter().enumerate().filter_map(|(place, commit)| Some((place, commit.as_ref()?)))
        {
            pointed[place] = commit.pointers.contains(&id)?;
            noted[place] =
                commit.objects.get_item(&id)?.map(|objects| objects.cast_into()).transpose()?;
        }
        Ok(Home {
            account: table.account(),
            known,
            id,
            table,
            successor,
            order_known,
            carried: 0,
            asked: 0,
            pointed,
            noted,
        })
    }

    pub fn put_successor(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.successor.as_deref().map_or(&[NIL], |bytes| bytes));
    }

    pub fn settle(&mut self, py: Python<'py>) -> PyResult<()> {
        if self.carried != 0 {
            let (hosting, name) = (self.known.hosting.bind(py), intern!(py, "carried"));
            let sum: i64 = hosting.getattr(name)?.extract()?;
            hosting.setattr(name, sum + self.carried)?;
        }
        self.table.settle(py, self.account.take())
    }
}

/// Replies that wait for a commit: the commit, the replies, their rows, and their reads and writes.
pub type Kept = (Py<PyAny>, Py<PyBytes>, usize, usize, usize);

/// A group commit (ares/replica/group_commit.py), and the replies that wait for it now.
pub struct Commit<'py> {
    pub group_commit: Bound<'py, PyAny>,
    pub objects: Bound<'py, PyDict>,
    pub pointers: Bound<'py, PySet>,
    pub replies: Vec<u8>,
    pub rows: usize,
    pub reads: usize,
    pub writes: usize,
}

impl<'py> Commit<'py> {
    pub fn of(group_commit: Bound<'py, PyAny>) -> Looked<Self> {
        let py = group_commit.py();
        Ok(Commit {
            objects: group_commit.getattr(intern!(py, "objects"))?.cast_into()?,
            pointers: group_commit.getattr(intern!(py, "pointers"))?.cast_into()?,
            group_commit,
            replies: Vec::new(),
            rows: 0,
            reads: 0,
            writes: 0,
        })
    }

    pub fn kept(&self) -> Kept {
        (
            self.group_commit.clone().unbind(),
            PyBytes::new(self.group_commit.py(), &self.replies).unbind(),
            self.rows,
            self.reads,
            self.writes,
        )
    }
}
