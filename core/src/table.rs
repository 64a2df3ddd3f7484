//! The Python objects of a server, used as in ares/replica/configuration_state.py and
//! ares/dap/version_list.py.

use crate::DOOR;
use crate::client::locked;
use crate::constants::{DETACHED_BYTES_MIN, TRIMMED_BYTES};
use crate::wire::{Element, NIL, Tag, put_element};
use pyo3::exceptions::PyIndexError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple};
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
    pub table: Py<PyAny>,
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
            table: hosting.getattr("objects")?.unbind(),
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
    pub lists: Bound<'py, PyDict>,
    /// The successor's bytes, and the objects put since the successor is known.
    pub successor: Option<(Bytes, Bound<'py, PySet>)>,
    pub order_known: bool,
    pub asked: usize,
    pub carried: i64,
    pub elements: i64,
    pub bytes: i64,
    /// Bytes in the journal by place: newly needed, and no longer needed.
    pub live: Vec<(i64, i64, i64)>,
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
        let (hosting, table) = (known.hosting.bind(py), known.table.bind(py));
        let lists = table.getattr(intern!(py, "lists"))?.cast_into()?;
        let order_known = hosting.getattr(intern!(py, "order_known"))?.is_truthy()?;
        let successor = known
            .successor(py)?
            .map(|bytes| {
                Looked::Ok((bytes, table.getattr(intern!(py, "following"))?.cast_into()?))
            })
            .transpose()?;
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
            known,
            id,
            lists,
            successor,
            order_known,
            carried: 0,
            asked: 0,
            elements: 0,
            bytes: 0,
            live: Vec::new(),
            pointed,
            noted,
        })
    }

    /// `ConfigurationUsage.add` of bytes at `place`; negative bytes are no longer needed.
    pub fn account(&mut self, place: i64, bytes: i64) {
        let position = self.live.iter().position(|row| row.0 == place).unwrap_or_else(|| {
            self.live.push((place, 0, 0));
            self.live.len() - 1
        });
        let row = &mut self.live[position];
        *(if bytes > 0 { &mut row.1 } else { &mut row.2 }) += bytes;
    }

    pub fn put_successor(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.successor.as_ref().map_or(&[NIL], |(bytes, _)| bytes));
    }

    pub fn settle(&self, py: Python<'py>) -> PyResult<()> {
        let (hosting, table) = (self.known.hosting.bind(py), self.known.table.bind(py));
        let counts = [
            (table, intern!(py, "elements"), self.elements),
            (table, intern!(py, "bytes"), self.bytes),
            (hosting, intern!(py, "carried"), self.carried),
        ];
        for (counted, name, more) in counts {
            if more != 0 {
                let sum: i64 = counted.getattr(name)?.extract()?;
                counted.setattr(name, sum + more)?;
            }
        }
        if !self.live.is_empty() {
            let add = hosting.getattr(intern!(py, "share"))?.getattr(intern!(py, "add"))?;
            for (place, more, fewer) in &self.live {
                for bytes in [more, fewer].into_iter().filter(|bytes| **bytes != 0) {
                    add.call1((place, bytes))?;
                }
            }
        }
        Ok(())
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

/// A small version. Python sees it as the tuple of tag, element and place
/// (ares/dap/version_list.py), made when Python looks.
#[pyclass(frozen, sequence, module = "ares._core")]
pub struct Entry {
    pub tag: Tag,
    pub index: i64,
    pub length: i64,
    pub checksum: u64,
    pub data: Option<Py<PyBytes>>,
    pub place: i64,
}

#[pymethods]
impl Entry {
    fn __getitem__<'py>(&self, py: Python<'py>, position: usize) -> PyResult<Bound<'py, PyAny>> {
        static ELEMENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        match position {
            0 => python_tag(py, self.tag),
            1 => {
                let parts = PyTuple::new(py, self.data.iter())?;
                ELEMENT.import(py, DOOR, "Element")?.call1((
                    self.index,
                    self.length,
                    self.checksum,
                    parts,
                ))
            }
            2 => Ok(self.place.into_pyobject(py)?.into_any()),
            _ => Err(PyIndexError::new_err(position)),
        }
    }
}

impl Entry {
    pub fn size(&self, py: Python) -> usize {
        self.data.as_ref().map_or(0, |data| data.as_bytes(py).len())
    }

    /// The entry equal to a tuple made by Python, if the version is small and whole.
    fn of(given: &Bound<PyTuple>) -> Looked<Option<Self>> {
        let py = given.py();
        let element = given.get_borrowed_item(1)?;
        let parts: Bound<PyTuple> = element.getattr(intern!(py, "parts"))?.cast_into()?;
        let data = match parts.len() {
            0 => None,
            1 if parts.get_borrowed_item(0)?.is_instance_of::<PyBytes>() => {
                Some(parts.get_item(0)?.cast_into()?.unbind())
            }
            _ => return Ok(None),
        };
        let entry = Entry {
            tag: tag_of(&*given.get_borrowed_item(0)?)?,
            index: element.getattr(intern!(py, "index"))?.extract()?,
            length: element.getattr(intern!(py, "length"))?.extract()?,
            checksum: element.getattr(intern!(py, "checksum"))?.extract()?,
            data,
            place: given.get_borrowed_item(2)?.extract()?,
        };
        let size = entry.size(py);
        Ok(if size < DETACHED_BYTES_MIN && (size > 0 || entry.length <= 0) {
            Some(entry)
        } else {
            None
        })
    }

    pub fn write(&self, py: Python, out: &mut Vec<u8>) {
        let data = self.data.as_ref().map(|data| data.as_bytes(py));
        put_element(
            out,
            &Element { index: self.index, length: self.length, checksum: self.checksum, data },
        );
    }
}

pub fn python_tag(py: Python, tag: Tag) -> PyResult<Bound<PyAny>> {
    static TAG: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    TAG.import(py, DOOR, "Tag")?.call1((tag.number, tag.writer))
}

fn tag_of(tag: &Bound<PyAny>) -> PyResult<Tag> {
    let py = tag.py();
    Ok(Tag {
        number: tag.getattr(intern!(py, "number"))?.extract()?,
        writer: tag.getattr(intern!(py, "writer"))?.extract()?,
    })
}

/// The row of the table for a request.
pub struct Found<'py> {
    pub home: usize,
    pub object: Bound<'py, PyString>,
    pub characters: usize,
    pub list: Option<List<'py>>,
}

impl Found<'_> {
    pub fn newest(&self) -> Looked<Tag> {
        match &self.list {
            Some(list) if !list.entries.is_empty() => Ok(list.entry(0)?.get().tag),
            _ => Ok(Tag::default()),
        }
    }
}

/// `VersionList` and their entries.
pub struct List<'py> {
    pub versions: Bound<'py, PyAny>,
    pub entries: Bound<'py, PyList>,
}

impl<'py> List<'py> {
    /// The list, if all versions are small and whole; tuples become entries, equal for Python.
    pub fn of(versions: Bound<'py, PyAny>) -> Looked<Self> {
        let py = versions.py();
        let entries: Bound<PyList> = versions.getattr(intern!(py, "entries"))?.cast_into()?;
        for (position, entry) in entries.iter().enumerate() {
            if !entry.is_exact_instance_of::<Entry>() {
                entries.set_item(
                    position,
                    Bound::new(py, Entry::of(entry.cast()?)?.ok_or(Unusual::Left)?)?,
                )?;
            }
        }
        Ok(List { versions, entries })
    }

    pub fn entry(&self, position: usize) -> Looked<Bound<'py, Entry>> {
        Ok(self.entries.iter().nth(position).ok_or(Unusual::Left)?.cast_into()?)
    }

    pub fn trimmed(&self) -> PyResult<Tag> {
        tag_of(&self.versions.getattr(intern!(self.versions.py(), "trimmed"))?)
    }

    pub fn trim(&self, tag: &Bound<'py, PyAny>) -> PyResult<()> {
        self.versions.setattr(intern!(self.versions.py(), "trimmed"), tag)
    }

    /// The position of a version, or the position at which to insert it.
    pub fn position(&self, tag: Tag) -> Looked<Result<usize, usize>> {
        for (position, entry) in self.entries.iter().enumerate() {
            let held = entry.cast::<Entry>()?.get().tag;
            if held <= tag {
                return Ok(if held == tag { Ok(position) } else { Err(position) });
            }
        }
        Ok(Err(self.entries.len()))
    }
}

/// `ConfigurationUsage.record_trimmed`
pub fn record_trimmed(
    home: &mut Home,
    versions: &Bound<PyAny>,
    characters: i64,
    place: i64,
    before: Tag,
) -> Looked<()> {
    let name = intern!(versions.py(), "trimmed_place");
    let bytes = TRIMMED_BYTES + characters;
    home.account(place, bytes);
    if before != Tag::default() {
        home.account(versions.getattr(name)?.extract()?, -bytes);
    }
    versions.setattr(name, place)?;
    Ok(())
}
