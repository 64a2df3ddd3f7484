//! The Lists of a configuration for Python: `ObjectTable` of ares/replica/port.py.

use crate::DOOR;
use crate::constants::{
    DELETED_LENGTH, DETACHED_BYTES_MIN, KEY_BYTES_MAX, PAGE_CHARACTERS_MAX, PUT_NONE, PUT_STORED,
    PUT_TRIMMED,
};
use crate::rows::{Account, Content, Effect, Held, Row, Rows, Version, characters};
use crate::wire::Tag;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

/// `usage`: `ConfigurationUsage`; None without a journal.
#[pyclass(module = "ares._core")]
pub struct ObjectTable {
    pub rows: Rows,
    #[pyo3(get)]
    usage: Option<Py<PyAny>>,
    dropped: Vec<Rows>,
}

#[pymethods]
impl ObjectTable {
    #[new]
    #[pyo3(signature = (capacity, usage = None))]
    fn new(capacity: usize, usage: Option<Py<PyAny>>) -> Self {
        ObjectTable { rows: Rows::new(capacity.max(1)), usage, dropped: Vec::new() }
    }

    fn __len__(&self) -> usize {
        self.rows.count()
    }

    #[getter]
    fn elements(&self) -> usize {
        self.rows.elements
    }

    #[getter]
    fn bytes(&self) -> usize {
        self.rows.bytes
    }

    // -- reading ----------------------------------------------------------------------------------

    fn get<'py>(&self, object: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = object.py();
        let Some(row) = self.row(object) else { return Ok(None) };
        let entries = PyList::empty(py);
        for (version, data) in row.versions() {
            let tag = python_tag(py, version.tag)?;
            entries.append((tag, python_element(py, version, data)?, version.place))?;
        }
        let versions = VERSION_LIST.import(py, DOOR, "VersionList")?.call0()?;
        versions.setattr(intern!(py, "entries"), entries)?;
        if row.trimmed != Tag::default() {
            versions.setattr(intern!(py, "trimmed"), python_tag(py, row.trimmed)?)?;
        }
        versions.setattr(intern!(py, "trimmed_place"), row.trimmed_place)?;
        Ok(Some(versions))
    }

    fn newest<'py>(&self, object: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.row(object).map(|row| python_tag(object.py(), row.newest())).transpose()
    }

    fn version<'py>(
        &self,
        object: &Bound<'py, PyString>,
        tag: Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = object.py();
        let Some((row, sought)) = self.row(object).zip(tag_of(&tag).ok()) else { return Ok(None) };
        let position = row.position(sought).ok();
        let Some((version, data)) = position.and_then(|at| row.version(at)) else {
            return Ok(None);
        };
        let element = python_element(py, version, data)?;
        (tag, element, version.place).into_pyobject(py).map(Some)
    }

    fn trimmed<'py>(
        &self,
        object: &Bound<'py, PyString>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, u32)>> {
        let Some(row) = self.row(object) else { return Ok(None) };
        Ok(Some((python_tag(object.py(), row.trimmed)?, row.trimmed_place)))
    }

    fn is_below(&self, object: &Bound<PyString>, tag: &Bound<PyAny>) -> bool {
        match (self.row(object), tag_of(tag)) {
            (Some(row), Ok(tag)) => row.is_below(tag, self.rows.capacity),
            _ => false,
        }
    }

    fn follows(&self, object: &Bound<PyString>) -> bool {
        self.row(object).is_some_and(|row| row.follows)
    }

    fn names<'py>(
        &self,
        py: Python<'py>,
        after: Option<&str>,
        limit: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let is_before = |name: &[u8]| after.is_some_and(|after| name <= after.as_bytes());
        let names = self.rows.from(&is_before).take(limit).map(|row| text(row.name()));
        PyList::new(py, names.collect::<Vec<_>>())
    }

    fn at_place<'py>(
        &self,
        py: Python<'py>,
        place: i64,
        after: Option<&str>,
        limit: usize,
    ) -> PyResult<(Bound<'py, PyList>, Option<Bound<'py, PyString>>)> {
        let is_before = |name: &[u8]| after.is_some_and(|after| name <= after.as_bytes());
        let (mut found, mut last) = (Vec::new(), None);
        for row in self.rows.from(&is_before).take(limit) {
            last = Some(row);
            if u32::try_from(place).is_ok_and(|place| row.is_at(place)) {
                found.push(text(row.name()));
            }
        }
        let last = last.map(|row| PyString::new(py, text(row.name())));
        Ok((PyList::new(py, found)?, last))
    }

    fn page<'py>(
        &self,
        py: Python<'py>,
        after: &str,
        prefix: &str,
        limit: usize,
    ) -> PyResult<(Bound<'py, PyTuple>, bool)> {
        let listed = LISTED_OBJECT.import(py, DOOR, "ListedObject")?;
        let (after, prefix) = (after.as_bytes(), prefix.as_bytes());
        let is_before = |name: &[u8]| name <= after || name < prefix;
        let (mut page, mut sum, mut more) = (Vec::new(), 0, false);
        for row in self.rows.from(&is_before) {
            let name = row.name();
            if !name.starts_with(prefix) {
                break;
            }
            if name.is_empty() || name.len() > KEY_BYTES_MAX {
                continue;
            }
            sum += characters(name);
            more = page.len() == limit || sum > PAGE_CHARACTERS_MAX;
            if more {
                break;
            }
            let is_deleted = row
                .version(0)
                .is_none_or(|(version, _)| i64::from(version.length) == DELETED_LENGTH);
            page.push(listed.call1((text(name), python_tag(py, row.newest())?, is_deleted))?);
        }
        Ok((PyTuple::new(py, page)?, more))
    }

    // -- changes ----------------------------------------------------------------------------------

    #[pyo3(signature = (object, tag, element, place = 0, follows = false))]
    fn put(
        &mut self,
        object: &Bound<PyString>,
        tag: &Bound<PyAny>,
        element: &Bound<PyAny>,
        place: u32,
        follows: bool,
    ) -> PyResult<u8> {
        let (name, taken) = (object.to_str()?.as_bytes(), Taken::of(element)?);
        let version = taken.version(tag_of(tag)?, place);
        let number = self.rows.find_or_add(name);
        if follows {
            self.rows.follow(number);
        }
        let mut account = self.account();
        let effect = self.rows.put(number, version, taken.content(), account.as_mut());
        self.settle(object.py(), account)?;
        Ok(match effect {
            Effect::None => PUT_NONE,
            Effect::Trimmed => PUT_TRIMMED,
            Effect::Stored => PUT_STORED,
        })
    }

    fn trim(&mut self, object: &Bound<PyString>, tag: &Bound<PyAny>, place: u32) -> PyResult<()> {
        let (name, tag, mut account) = (object.to_str()?.as_bytes(), tag_of(tag)?, self.account());
        self.rows.trim(name, tag, place, account.as_mut());
        self.settle(object.py(), account)
    }

    #[pyo3(name = "move")]
    fn move_(
        &mut self,
        object: &Bound<PyString>,
        tag: &Bound<PyAny>,
        element: &Bound<PyAny>,
        place: u32,
    ) -> PyResult<()> {
        self.hold(object, tag, element, Some(place))
    }

    fn move_trimmed(&mut self, object: &Bound<PyString>, place: u32) -> PyResult<()> {
        let mut account = self.account();
        self.rows.move_trimmed(object.to_str()?.as_bytes(), place, account.as_mut());
        self.settle(object.py(), account)
    }

    fn replace(
        &mut self,
        object: &Bound<PyString>,
        tag: &Bound<PyAny>,
        element: &Bound<PyAny>,
    ) -> PyResult<()> {
        self.hold(object, tag, element, None)
    }

    fn forget<'py>(&mut self, object: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyList>> {
        let mut account = self.account();
        let places = self.rows.forget(object.to_str()?.as_bytes(), account.as_mut());
        self.settle(object.py(), account)?;
        PyList::new(object.py(), places)
    }

    fn clear(&mut self) {
        let empty = Rows::new(self.rows.capacity);
        self.dropped.push(std::mem::replace(&mut self.rows, empty));
    }

    fn release(&mut self, mut limit: usize) -> bool {
        while let Some(rows) = self.dropped.last_mut() {
            limit -= rows.drop_some(limit);
            if rows.count() > 0 {
                return true;
            }
            self.dropped.pop();
        }
        false
    }

    // -- a start ----------------------------------------------------------------------------------

    fn begin_loading(&mut self) {
        self.rows.begin_loading();
    }

    fn end_loading(&mut self) {
        self.rows.end_loading();
    }
}

impl ObjectTable {
    /// The row of an object. No table has a name that is no UTF-8.
    fn row(&self, object: &Bound<PyString>) -> Option<&Row> {
        self.rows.get(object.to_str().ok()?.as_bytes())
    }

    /// `move` of a version, or `replace` without `place`
    fn hold(
        &mut self,
        object: &Bound<PyString>,
        tag: &Bound<PyAny>,
        element: &Bound<PyAny>,
        place: Option<u32>,
    ) -> PyResult<()> {
        let (name, taken) = (object.to_str()?.as_bytes(), Taken::of(element)?);
        let (version, mut account) = (taken.version(tag_of(tag)?, 0), self.account());
        if let Some(number) = self.rows.find(name) {
            self.rows.replace(number, version, taken.content(), place, account.as_mut());
        }
        self.settle(object.py(), account)
    }

    /// The changes of the journal's account that a call makes; None without a journal.
    pub fn account(&self) -> Option<Account> {
        self.usage.as_ref().map(|_| Account::default())
    }

    pub fn settle(&self, py: Python, account: Option<Account>) -> PyResult<()> {
        let (Some(usage), Some(account)) = (&self.usage, account) else { return Ok(()) };
        if account.places.is_empty() {
            return Ok(());
        }
        let add = usage.bind(py).getattr(intern!(py, "add"))?;
        for (place, more, fewer) in account.places {
            for bytes in [more, fewer].into_iter().filter(|bytes| *bytes != 0) {
                add.call1((place, bytes))?;
            }
        }
        Ok(())
    }
}

/// An element of Python's; `part`: its only part. It is kept without Python if it `is_small`.
struct Taken<'a, 'py> {
    element: &'a Bound<'py, PyAny>,
    index: u8,
    length: i32,
    checksum: u64,
    part: Option<Bound<'py, PyBytes>>,
    size: usize,
    is_small: bool,
}

impl<'a, 'py> Taken<'a, 'py> {
    fn of(element: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let py = element.py();
        let size = element.getattr(intern!(py, "size"))?.extract()?;
        let parts: Bound<PyTuple> = element.getattr(intern!(py, "parts"))?.cast_into()?;
        let part = match parts.len() {
            1 => parts.get_item(0)?.cast_into::<PyBytes>().ok(),
            _ => None,
        };
        let index = element.getattr(intern!(py, "index"))?.extract().ok();
        let length = element.getattr(intern!(py, "length"))?.extract().ok();
        let checksum = element.getattr(intern!(py, "checksum"))?.extract().ok();
        let fits = index.is_some() && length.is_some() && checksum.is_some();
        Ok(Taken {
            element,
            index: index.unwrap_or_default(),
            length: length.unwrap_or_default(),
            checksum: checksum.unwrap_or_default(),
            is_small: fits && size < DETACHED_BYTES_MIN && (part.is_some() || parts.is_empty()),
            part,
            size,
        })
    }

    fn version(&self, tag: Tag, place: u32) -> Version {
        let (index, length, checksum) = (self.index, self.length, self.checksum);
        Version { tag, checksum, length, place, index, is_bare: self.part.is_none() }
    }

    fn content(&self) -> Content<'_> {
        if self.is_small {
            Content::Small(self.part.as_ref().map_or(&[], |data| data.as_bytes()))
        } else {
            Content::Python(self.element.clone().unbind(), self.size)
        }
    }
}

static ELEMENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LISTED_OBJECT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static TAG: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static VERSION_LIST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

pub fn python_tag(py: Python, tag: Tag) -> PyResult<Bound<PyAny>> {
    TAG.import(py, DOOR, "Tag")?.call1((tag.number, tag.writer))
}

fn tag_of(tag: &Bound<PyAny>) -> PyResult<Tag> {
    let py = tag.py();
    Ok(Tag {
        number: tag.getattr(intern!(py, "number"))?.extract()?,
        writer: tag.getattr(intern!(py, "writer"))?.extract()?,
    })
}

fn python_element<'py>(
    py: Python<'py>,
    version: &Version,
    held: Held,
) -> PyResult<Bound<'py, PyAny>> {
    let data = match held {
        Held::Python(element, _) => return Ok(element.bind(py).clone()),
        Held::Small(data) => data,
    };
    let parts = if version.is_bare {
        PyTuple::empty(py)
    } else {
        PyTuple::new(py, [PyBytes::new(py, data)])?
    };
    let head = (version.index, version.length, version.checksum, parts);
    ELEMENT.import(py, DOOR, "Element")?.call1(head)
}

/// A name as text: every name came as UTF-8.
fn text(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
