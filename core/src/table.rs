//! The table of a server: the Python objects (ares/replica/hosting.py, ares/dap/list.py, ares/model/messages.py), read and written as Python does it.

use crate::wire::{DETACHED_BYTES_MIN, Element, Tag, put_element, put_nil};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple};
use std::sync::Arc;

/// As in ares/replica/hosting.py: larger elements come only if they are asked for.
const INLINE_BYTES_MAX: usize = 8 * 1024;
/// In the journal: ares/replica/facts.py.
const TRIMMED_BYTES: i64 = 48;

/// What ends a pass: it is the Python path's, or Python raised.
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

pub type Looked<T> = Result<T, Unusual>;

pub fn usual(condition: bool) -> Looked<()> {
    if condition { Ok(()) } else { Err(Unusual::Left) }
}

/// One configuration, and what never changes of it.
pub struct Known {
    pub id: Py<PyBytes>,
    pub hosting: Py<PyAny>,
    pub objects: Py<PyDict>,
    pub index: i64,
    pub k: i64,
    pub capacity: usize,
}

impl Known {
    pub fn of(hosted: &Bound<PyDict>, id: &[u8]) -> Looked<Self> {
        let py = hosted.py();
        let id = PyBytes::new(py, id);
        let hosting = hosted.get_item(&id)?.ok_or(Unusual::Left)?;
        Ok(Known {
            id: id.unbind(),
            objects: hosting.getattr("_objects")?.cast_into().map_err(|_| Unusual::Left)?.unbind(),
            index: hosting.getattr("_element_index")?.extract()?,
            capacity: hosting.getattr("_capacity")?.extract()?,
            k: hosting.getattr("configuration")?.getattr("k")?.extract()?,
            hosting: hosting.unbind(),
        })
    }
}

/// One configuration that a call is about, and what the call changes of it.
pub struct Home<'py> {
    pub known: Arc<Known>,
    pub id: Bound<'py, PyBytes>,
    pub asked: usize,
    pub elements: i64,
    pub bytes: i64,
    /// Of the journal, by place: what is needed there from now on, and what is needed there no more.
    pub live: Vec<(i64, i64, i64)>,
    pub pointed: [bool; 2],
}

impl<'py> Home<'py> {
    /// Only while there is no successor, and so nothing was collected.
    pub fn of(py: Python<'py>, known: Arc<Known>, commits: &[Option<Commit<'py>>; 2]) -> Looked<Self> {
        usual(known.hosting.bind(py).getattr(intern!(py, "successor"))?.is_none())?;
        let id = known.id.bind(py).clone();
        let mut pointed = [false; 2];
        for (shown, commit) in pointed.iter_mut().zip(commits) {
            *shown = commit.as_ref().map_or(Ok(false), |commit| commit.pointers.contains(&id))?;
        }
        Ok(Home { known, id, asked: 0, elements: 0, bytes: 0, live: Vec::new(), pointed })
    }

    /// As `Share.add` of so many bytes at `place`; fewer, when they are needed no more.
    pub fn account(&mut self, place: i64, bytes: i64) {
        let position = self.live.iter().position(|row| row.0 == place).unwrap_or_else(|| {
            self.live.push((place, 0, 0));
            self.live.len() - 1
        });
        let row = &mut self.live[position];
        *(if bytes > 0 { &mut row.1 } else { &mut row.2 }) += bytes;
    }

    pub fn settle(&self, py: Python<'py>) -> PyResult<()> {
        let hosting = self.known.hosting.bind(py);
        for (name, more) in [(intern!(py, "elements"), self.elements), (intern!(py, "bytes"), self.bytes)] {
            if more != 0 {
                let sum: i64 = hosting.getattr(name)?.extract()?;
                hosting.setattr(name, sum + more)?;
            }
        }
        if !self.live.is_empty() {
            let add = hosting.getattr(intern!(py, "_share"))?.getattr(intern!(py, "add"))?;
            for (place, more, fewer) in &self.live {
                for bytes in [more, fewer].into_iter().filter(|bytes| **bytes != 0) {
                    add.call1((place, bytes))?;
                }
            }
        }
        Ok(())
    }
}

/// One group commit (ares/replica/unsynced.py), and the replies that wait for it now.
pub struct Commit<'py> {
    pub unsynced: Bound<'py, PyAny>,
    pub objects: Bound<'py, PySet>,
    pub pointers: Bound<'py, PySet>,
    pub replies: Vec<Bound<'py, PyAny>>,
    pub rows: usize,
    pub reads: usize,
    pub writes: usize,
}

impl<'py> Commit<'py> {
    pub fn of(unsynced: Bound<'py, PyAny>) -> Looked<Self> {
        let py = unsynced.py();
        Ok(Commit {
            objects: unsynced.getattr(intern!(py, "objects"))?.cast_into().map_err(|_| Unusual::Left)?,
            pointers: unsynced.getattr(intern!(py, "pointers"))?.cast_into().map_err(|_| Unusual::Left)?,
            unsynced,
            replies: Vec::new(),
            rows: 0,
            reads: 0,
            writes: 0,
        })
    }
}

/// The table's row that a request is about. `newest`: its newest entry when it was looked at, and the tag of that.
pub struct Found<'py> {
    pub home: usize,
    pub object: Bound<'py, PyString>,
    pub characters: usize,
    pub list: Option<List<'py>>,
    pub newest: Option<(Bound<'py, PyTuple>, Tag)>,
}

impl<'py> Found<'py> {
    /// The newest tag as it is now: most entries are still the same.
    pub fn newest(&self) -> Looked<Tag> {
        let Some(list) = &self.list else { return Ok(Tag::default()) };
        if list.entries.is_empty() {
            return Ok(Tag::default());
        }
        let entry = entry_at(&list.entries, 0)?;
        match &self.newest {
            Some((before, tag)) if entry.is(before) => Ok(*tag),
            _ => tag_in(&entry),
        }
    }
}

/// `Versions`, and its entries.
pub struct List<'py> {
    pub versions: Bound<'py, PyAny>,
    pub entries: Bound<'py, PyList>,
}

impl<'py> List<'py> {
    pub fn of(versions: Bound<'py, PyAny>) -> Looked<Self> {
        let entries = versions.getattr(intern!(versions.py(), "entries"))?.cast_into().map_err(|_| Unusual::Left)?;
        Ok(List { versions, entries })
    }

    pub fn trimmed(&self) -> PyResult<Tag> {
        tag_of(&self.versions.getattr(intern!(self.versions.py(), "trimmed"))?)
    }

    pub fn trim(&self, tag: &Bound<'py, PyAny>) -> PyResult<()> {
        self.versions.setattr(intern!(self.versions.py(), "trimmed"), tag)
    }

    /// The entry of this tag.
    pub fn entry_of(&self, tag: Tag) -> Looked<Option<Bound<'py, PyTuple>>> {
        for position in 0..self.entries.len() {
            let entry = entry_at(&self.entries, position)?;
            if tag_in(&entry)? == tag {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

pub fn tag_of(tag: &Bound<PyAny>) -> PyResult<Tag> {
    let py = tag.py();
    Ok(Tag { number: tag.getattr(intern!(py, "number"))?.extract()?, writer: tag.getattr(intern!(py, "writer"))?.extract()? })
}

pub fn entry_at<'py>(entries: &Bound<'py, PyList>, position: usize) -> Looked<Bound<'py, PyTuple>> {
    entries.get_item(position)?.cast_into().map_err(|_| Unusual::Left)
}

pub fn tag_in(entry: &Bound<PyTuple>) -> Looked<Tag> {
    Ok(tag_of(&*entry.get_borrowed_item(0)?)?)
}

pub fn parts_of<'py>(element: &Bound<'py, PyAny>) -> Looked<Bound<'py, PyTuple>> {
    element.getattr(intern!(element.py(), "parts"))?.cast_into().map_err(|_| Unusual::Left)
}

pub fn size_in(parts: &Bound<PyTuple>) -> Looked<usize> {
    let mut size = 0;
    for part in parts.iter_borrowed() {
        size += match part.cast::<PyBytes>() {
            Ok(part) => part.as_bytes().len(),
            Err(_) => part.len()?,
        };
    }
    Ok(size)
}

pub fn length_of(element: &Bound<PyAny>) -> PyResult<i64> {
    element.getattr(intern!(element.py(), "length"))?.extract()
}

/// Nothing of a read's answer must be verified, or travels in frames of its own.
pub fn look_at_element(element: &Bound<PyAny>, asked_for: bool) -> Looked<()> {
    let parts = parts_of(element)?;
    let size = size_in(&parts)?;
    if size > INLINE_BYTES_MAX && !asked_for {
        return Ok(());
    }
    usual(size < DETACHED_BYTES_MIN && parts.len() <= 1 && (size > 0 || length_of(element)? <= 0))?;
    usual(parts.is_empty() || parts.get_borrowed_item(0)?.is_instance_of::<PyBytes>())
}

/// Of a whole value of `length` bytes; nil, if it is large and nobody asked for it.
pub fn write_element(out: &mut Vec<u8>, element: &Bound<PyAny>, length: i64, asked_for: bool) -> Looked<()> {
    let py = element.py();
    let parts = parts_of(element)?;
    if !asked_for && size_in(&parts)? > INLINE_BYTES_MAX {
        put_nil(out);
        return Ok(());
    }
    let data = if parts.is_empty() { None } else { Some(parts.get_item(0)?) };
    let written = Element {
        index: element.getattr(intern!(py, "index"))?.extract()?,
        length,
        checksum: element.getattr(intern!(py, "checksum"))?.extract()?,
        data: data.as_ref().map(|part| part.cast::<PyBytes>().map(|part| part.as_bytes())).transpose()?,
    };
    put_element(out, &written);
    Ok(())
}

/// `Share.tell_trimmed`
pub fn tell_trimmed(home: &mut Home, versions: &Bound<PyAny>, characters: i64, place: i64, before: Tag) -> Looked<()> {
    let name = intern!(versions.py(), "trimmed_place");
    let bytes = TRIMMED_BYTES + characters;
    home.account(place, bytes);
    if before != Tag::default() {
        home.account(versions.getattr(name)?.extract()?, -bytes);
    }
    versions.setattr(name, place)?;
    Ok(())
}
