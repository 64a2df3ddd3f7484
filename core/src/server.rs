//! What a server does with small reads and writes: ares/replica/hosting.py (`get_tag`, `get_data`, `put`) for all that one read brought.
//!
//! There is one table, that of the Python objects: `Hosting`, `Versions`, `Tag` and `Element` are read and written here as Python does it, so either
//! path goes on where the other stopped. First everything is parsed and looked at, and nothing is touched. What is unusual ends that with None, and the
//! Python path does the whole of it. Then it is applied and answered, in order, and nothing refuses any more.

use crate::seal::checksum;
use crate::wire::{
    put_array, put_boolean, put_element, put_nil, put_signed, put_tag, put_unsigned, Cursor, Element, Tag, ACK, BATCH_MESSAGES_MAX, DATA_REPLY,
    DETACHED_BYTES_MIN, GET_DATA, GET_TAG, PUT_DATA, TAG_REPLY, VERSION,
};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// As many end a client's turn: TURN_MESSAGES_MAX in ares/net/batching.py.
const TURN_MESSAGES_MAX: usize = 512;
/// More is the beginning of something large, mostly, and is not copied to be looked at.
const READ_BYTES_MAX: usize = 64 * 1024;
const KEY_BYTES_MAX: usize = 1024;
const INLINE_BYTES_MAX: usize = 8 * 1024;
const NUMBER_FLOOR: u64 = 1 << 48;
const DELETED: i64 = -1;
/// Putting objects whose names begin so takes another role than writing: `_OF_DOMAINS` in ares/security/roles.py.
const OF_DOMAINS: [&str; 2] = ["\0domain/", "\0follow/"];
/// In the journal: ares/replica/facts.py.
const PUT_BYTES: i64 = 80;
const TRIMMED_BYTES: i64 = 48;
const PUT_BYTES_MAX: usize = 176;
const PART_BYTES_MAX: usize = 16;
const CHARACTER_BYTES_MAX: usize = 4;

/// What ends a pass: it is the Python path's, or Python raised.
enum Unusual {
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

type Looked<T> = Result<T, Unusual>;

fn usual(condition: bool) -> Looked<()> {
    if condition { Ok(()) } else { Err(Unusual::Left) }
}

enum Asked<'a> {
    Tag,
    Data { element: bool, wanted: Option<Tag>, held: Option<Tag> },
    Put { tag: Tag, element: Element<'a> },
}

struct Request<'a> {
    call: u64,
    configuration: &'a [u8],
    object: &'a str,
    asked: Asked<'a>,
    /// Its own bytes: the fact of a put.
    bytes: &'a [u8],
}

fn parsed_request<'a>(cursor: &mut Cursor<'a>) -> Option<Request<'a>> {
    let start = cursor.at;
    let fields = cursor.array()?;
    let kind = cursor.unsigned()?;
    let (call, configuration, object) = (cursor.unsigned()?, cursor.binary()?, cursor.text()?);
    let asked = match (kind, fields) {
        (GET_TAG, 5) => Asked::Tag,
        (GET_DATA, 9) => {
            let element = cursor.boolean()?;
            let wanted = optional_tag(cursor)?;
            cursor.nil()?;
            Asked::Data { element, wanted, held: optional_tag(cursor)? }
        }
        (PUT_DATA, 7) => Asked::Put { tag: cursor.tag()?, element: cursor.element()? },
        _ => return None,
    };
    cursor.nil()?;
    Some(Request { call, configuration, object, asked, bytes: &cursor.data[start..cursor.at] })
}

fn optional_tag(cursor: &mut Cursor) -> Option<Option<Tag>> {
    if cursor.is_nil()? { Some(None) } else { Some(Some(cursor.tag()?)) }
}

/// The requests of one batch join the others.
fn parse_batch<'a>(batch: &'a [u8], requests: &mut Vec<Request<'a>>) -> Option<()> {
    let mut cursor = Cursor::new(batch, 1);
    if *batch.first()? != VERSION {
        return None;
    }
    let count = cursor.array()?;
    if count > BATCH_MESSAGES_MAX || requests.len() + count > TURN_MESSAGES_MAX {
        return None;
    }
    for _ in 0..count {
        requests.push(parsed_request(&mut cursor)?);
    }
    if cursor.at == batch.len() { Some(()) } else { None }
}

/// The only frame of each message, if there is nothing else: no command, no message in several frames, none that is not here to its end.
fn divided(read: &[u8]) -> Option<Vec<&[u8]>> {
    let mut frames = Vec::new();
    let mut rest = read;
    while !rest.is_empty() {
        let (size, body) = match *rest.first()? {
            0 => (usize::from(*rest.get(1)?), 2),
            2 => (usize::try_from(u64::from_be_bytes(rest.get(1..9)?.try_into().ok()?)).ok()?, 9),
            _ => return None,
        };
        let end = size.checked_add(body)?;
        frames.push(rest.get(body..end)?);
        rest = &rest[end..];
    }
    Some(frames)
}

/// One configuration, and what never changes of it.
struct Known {
    id: Py<PyBytes>,
    hosting: Py<PyAny>,
    objects: Py<PyDict>,
    index: i64,
    k: i64,
    capacity: usize,
}

impl Known {
    fn of(hosted: &Bound<PyDict>, id: &[u8]) -> Looked<Self> {
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
struct Home<'py> {
    id: Bound<'py, PyBytes>,
    hosting: Bound<'py, PyAny>,
    objects: Bound<'py, PyDict>,
    index: i64,
    k: i64,
    capacity: usize,
    asked: usize,
    elements: i64,
    bytes: i64,
    /// Of the journal, by place: what is needed there from now on, and what is needed there no more.
    live: Vec<(i64, i64, i64)>,
    pointed: [bool; 2],
}

impl<'py> Home<'py> {
    /// Only while there is no successor, and so nothing was collected.
    fn of(py: Python<'py>, known: &Known, commits: &[Option<Commit<'py>>; 2]) -> Looked<Self> {
        let (id, hosting) = (known.id.bind(py).clone(), known.hosting.bind(py).clone());
        usual(hosting.getattr(intern!(py, "successor"))?.is_none())?;
        let mut pointed = [false; 2];
        for (shown, commit) in pointed.iter_mut().zip(commits) {
            *shown = match commit {
                Some(commit) => commit.pointers.contains(&id)?,
                None => false,
            };
        }
        let objects = known.objects.bind(py).clone();
        let (index, k, capacity) = (known.index, known.k, known.capacity);
        Ok(Home { id, hosting, objects, index, k, capacity, asked: 0, elements: 0, bytes: 0, live: Vec::new(), pointed })
    }

    /// As `Share.add` of so many bytes at `place`; fewer, when they are needed no more.
    fn account(&mut self, place: i64, bytes: i64) {
        let position = self.live.iter().position(|row| row.0 == place).unwrap_or_else(|| {
            self.live.push((place, 0, 0));
            self.live.len() - 1
        });
        let row = &mut self.live[position];
        if bytes > 0 { row.1 += bytes } else { row.2 += bytes }
    }

    fn settle(&self, py: Python<'py>) -> PyResult<()> {
        for (name, more) in [(intern!(py, "elements"), self.elements), (intern!(py, "bytes"), self.bytes)] {
            if more != 0 {
                let sum: i64 = self.hosting.getattr(name)?.extract()?;
                self.hosting.setattr(name, sum + more)?;
            }
        }
        if !self.live.is_empty() {
            let add = self.hosting.getattr(intern!(py, "_share"))?.getattr(intern!(py, "add"))?;
            for (place, more, fewer) in &self.live {
                for bytes in [more, fewer] {
                    if *bytes != 0 {
                        add.call1((place, bytes))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// One group commit (ares/replica/unsynced.py), and the replies that wait for it now.
struct Commit<'py> {
    unsynced: Bound<'py, PyAny>,
    objects: Bound<'py, PySet>,
    pointers: Bound<'py, PySet>,
    replies: Vec<Bound<'py, PyAny>>,
    rows: usize,
    reads: usize,
    writes: usize,
}

impl<'py> Commit<'py> {
    fn of(unsynced: Bound<'py, PyAny>) -> Looked<Self> {
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
struct Found<'py> {
    home: usize,
    object: Bound<'py, PyString>,
    characters: usize,
    list: Option<List<'py>>,
    newest: Option<(Bound<'py, PyTuple>, Tag)>,
}

impl<'py> Found<'py> {
    /// The newest tag as it is now: most entries are still the same.
    fn newest(&self) -> Looked<Tag> {
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
struct List<'py> {
    versions: Bound<'py, PyAny>,
    entries: Bound<'py, PyList>,
}

impl<'py> List<'py> {
    fn of(versions: Bound<'py, PyAny>) -> Looked<Self> {
        let entries = versions.getattr(intern!(versions.py(), "entries"))?.cast_into().map_err(|_| Unusual::Left)?;
        Ok(List { versions, entries })
    }

    fn trimmed(&self) -> PyResult<Tag> {
        tag_of(&self.versions.getattr(intern!(self.versions.py(), "trimmed"))?)
    }

    fn trim(&self, tag: &Bound<'py, PyAny>) -> PyResult<()> {
        self.versions.setattr(intern!(self.versions.py(), "trimmed"), tag)
    }

    /// The entry of this tag.
    fn entry_of(&self, tag: Tag) -> Looked<Option<Bound<'py, PyTuple>>> {
        for position in 0..self.entries.len() {
            let entry = entry_at(&self.entries, position)?;
            if tag_in(&entry)? == tag {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

fn tag_of(tag: &Bound<PyAny>) -> PyResult<Tag> {
    let py = tag.py();
    Ok(Tag { number: tag.getattr(intern!(py, "number"))?.extract()?, writer: tag.getattr(intern!(py, "writer"))?.extract()? })
}

fn entry_at<'py>(entries: &Bound<'py, PyList>, position: usize) -> Looked<Bound<'py, PyTuple>> {
    entries.get_item(position)?.cast_into().map_err(|_| Unusual::Left)
}

fn tag_in(entry: &Bound<PyTuple>) -> Looked<Tag> {
    Ok(tag_of(&*entry.get_borrowed_item(0)?)?)
}

fn parts_of<'py>(element: &Bound<'py, PyAny>) -> Looked<Bound<'py, PyTuple>> {
    element.getattr(intern!(element.py(), "parts"))?.cast_into().map_err(|_| Unusual::Left)
}

fn size_in(parts: &Bound<PyTuple>) -> Looked<usize> {
    let mut size = 0;
    for part in parts.iter_borrowed() {
        size += match part.cast::<PyBytes>() {
            Ok(part) => part.as_bytes().len(),
            Err(_) => part.len()?,
        };
    }
    Ok(size)
}

fn length_of(element: &Bound<PyAny>) -> PyResult<i64> {
    element.getattr(intern!(element.py(), "length"))?.extract()
}

/// Nothing of a read's answer must be verified, or travels in frames of its own.
fn look_at_element(element: &Bound<PyAny>, asked_for: bool) -> Looked<()> {
    let parts = parts_of(element)?;
    let size = size_in(&parts)?;
    if size > INLINE_BYTES_MAX && !asked_for {
        return Ok(());
    }
    usual(size < DETACHED_BYTES_MIN && parts.len() <= 1 && (size > 0 || length_of(element)? <= 0))?;
    usual(parts.is_empty() || parts.get_borrowed_item(0)?.is_instance_of::<PyBytes>())
}

/// Of a whole value of `length` bytes; nil, if it is large and nobody asked for it.
fn write_element(out: &mut Vec<u8>, element: &Bound<PyAny>, length: i64, asked_for: bool) -> Looked<()> {
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
        data: match &data {
            Some(part) => Some(part.cast::<PyBytes>()?.as_bytes()),
            None => None,
        },
    };
    put_element(out, &written);
    Ok(())
}

/// What became of one read of the network. `reply`: the batch that is due at once.
#[pyclass(frozen, module = "ares._core")]
pub struct Served {
    #[pyo3(get)]
    reply: Option<Py<PyBytes>>,
    #[pyo3(get)]
    tags: usize,
    #[pyo3(get)]
    datas: usize,
    #[pyo3(get)]
    puts: usize,
    #[pyo3(get)]
    received_bytes: usize,
    #[pyo3(get)]
    reads: usize,
    #[pyo3(get)]
    writes: usize,
    #[pyo3(get)]
    facts: Option<Py<PyList>>,
    #[pyo3(get)]
    fact_bytes: usize,
    #[pyo3(get)]
    waiting: Option<Py<PyList>>,
    asked: Vec<(Py<PyBytes>, usize)>,
}

#[pymethods]
impl Served {
    #[getter]
    fn asked<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, usize)> {
        self.asked.iter().map(|(id, count)| (id.bind(py).clone(), *count)).collect()
    }
}

/// Answers for what is in `hosted`. `at_hand`: of a server with a journal, where there is room for so many bytes of facts, if nothing has to be done for it.
#[pyclass(frozen, module = "ares._core")]
pub struct Server {
    hosted: Py<PyDict>,
    known: Mutex<HashMap<Vec<u8>, Arc<Known>>>,
    at_hand: Option<Py<PyAny>>,
    tag: Py<PyAny>,
    element: Py<PyAny>,
    versions: Py<PyAny>,
    trimmed: Py<PyAny>,
    raw: Py<PyAny>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (hosted, at_hand = None))]
    fn new(py: Python, hosted: Py<PyDict>, at_hand: Option<Py<PyAny>>) -> PyResult<Self> {
        let named = |module: &str, name: &str| PyResult::Ok(py.import(module)?.getattr(name)?.unbind());
        Ok(Server {
            hosted,
            known: Mutex::default(),
            at_hand,
            tag: named("ares.model.tag", "Tag")?,
            element: named("ares.model.messages", "Element")?,
            versions: named("ares.dap.list", "Versions")?,
            trimmed: named("ares.replica.facts", "TagsTrimmed")?,
            raw: named("msgspec", "Raw")?,
        })
    }

    /// What one read brought: the bytes of a ZMTP connection without keys (anything with a buffer), or the batches that were in it, each a list of its
    /// frames. `writes`: whether the client may. `gathering`, `syncing`: the commits that replies may wait for, in at most `rows_max` rows.
    /// None: nothing was done.
    #[pyo3(signature = (came, writes, gathering = None, syncing = None, rows_max = 0))]
    fn serve<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> PyResult<Option<Served>> {
        let served = if let Ok(came) = came.cast::<PyList>() {
            self.serve_batches(came, writes, gathering, syncing, rows_max)
        } else {
            self.serve_read(came, writes, gathering, syncing, rows_max)
        };
        match served {
            Ok(served) => Ok(Some(served)),
            Err(Unusual::Left) => Ok(None),
            Err(Unusual::Raised(error)) => Err(error),
        }
    }
}

impl Server {
    /// A configuration that is hosted once stays.
    fn known(&self, py: Python, id: &[u8]) -> Looked<Arc<Known>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(id) {
            return Ok(found.clone());
        }
        let found = Arc::new(Known::of(self.hosted.bind(py), id)?);
        known.insert(id.to_vec(), found.clone());
        Ok(found)
    }

    fn serve_read<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> Looked<Served> {
        let py = came.py();
        let buffer = PyBuffer::<u8>::get(came)?;
        usual(buffer.item_count() <= READ_BYTES_MAX)?;
        let read = buffer.to_vec(py)?;
        let frames = divided(&read).ok_or(Unusual::Left)?;
        self.serve_frames(py, &frames, writes, gathering, syncing, rows_max)
    }

    fn serve_batches<'py>(
        &self,
        came: &Bound<'py, PyList>,
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> Looked<Served> {
        let mut held = Vec::with_capacity(came.len());
        for batch in came.iter() {
            usual(batch.len()? == 1)?;
            held.push(batch.get_item(0)?.cast_into::<PyBytes>().map_err(|_| Unusual::Left)?);
        }
        let frames: Vec<&[u8]> = held.iter().map(|frame| frame.as_bytes()).collect();
        self.serve_frames(came.py(), &frames, writes, gathering, syncing, rows_max)
    }

    fn serve_frames<'py>(
        &self,
        py: Python<'py>,
        frames: &[&[u8]],
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> Looked<Served> {
        let mut requests = Vec::new();
        for frame in frames {
            parse_batch(frame, &mut requests).ok_or(Unusual::Left)?;
        }
        usual(!requests.is_empty())?;
        let commits = [gathering.map(Commit::of).transpose()?, syncing.map(Commit::of).transpose()?];
        let journaled = self.at_hand.is_some();
        usual(journaled == commits[0].is_some())?;
        let mut turn = Turn { server: self, py, journaled, homes: Vec::new(), commits, place: 0, out: Vec::new(), replies: 0, facts: Vec::new(), fact_bytes: 0 };
        let found = turn.look(&requests, writes, rows_max)?;
        turn.apply(&requests, found, frames)
    }
}

/// One call: all that came at a time from one client.
struct Turn<'a, 'py> {
    server: &'a Server,
    py: Python<'py>,
    journaled: bool,
    homes: Vec<Home<'py>>,
    commits: [Option<Commit<'py>>; 2],
    place: i64,
    out: Vec<u8>,
    replies: usize,
    facts: Vec<Bound<'py, PyAny>>,
    fact_bytes: usize,
}

impl<'py> Turn<'_, 'py> {
    // -- looking, which touches nothing ------------------------------------------------------------------------------------

    fn look(&mut self, requests: &[Request], writes: bool, rows_max: usize) -> Looked<Vec<Found<'py>>> {
        let mut all = Vec::with_capacity(requests.len());
        let (mut room, mut rows) = (0, requests.len());
        for request in requests {
            let found = self.find(request)?;
            match &request.asked {
                Asked::Tag => (),
                Asked::Data { element, wanted, .. } => {
                    rows += self.homes[found.home].capacity;
                    self.look_at_read(&found, *element, *wanted)?;
                }
                Asked::Put { tag, element } => {
                    usual(writes)?;
                    room += fact_bytes_max(found.characters, element);
                    self.look_at_put(request, &found, *tag, element)?;
                }
            }
            all.push(found);
        }
        if let Some(at_hand) = &self.server.at_hand {
            usual(rows <= rows_max)?;
            if room > 0 {
                self.place = at_hand.bind(self.py).call1((room,))?.extract::<Option<i64>>()?.ok_or(Unusual::Left)?;
            }
        }
        Ok(all)
    }

    fn find(&mut self, request: &Request) -> Looked<Found<'py>> {
        usual(!request.object.is_empty() && request.object.len() <= KEY_BYTES_MAX)?;
        let home = match self.homes.iter().position(|home| home.id.as_bytes() == request.configuration) {
            Some(home) => home,
            None => {
                let known = self.server.known(self.py, request.configuration)?;
                self.homes.push(Home::of(self.py, &known, &self.commits)?);
                self.homes.len() - 1
            }
        };
        self.homes[home].asked += 1;
        let object = PyString::new(self.py, request.object);
        let list = self.homes[home].objects.get_item(&object)?.map(List::of).transpose()?;
        let characters = if request.object.is_ascii() { request.object.len() } else { request.object.chars().count() };
        let newest = match &list {
            Some(list) if !list.entries.is_empty() => {
                let entry = entry_at(&list.entries, 0)?;
                let tag = tag_in(&entry)?;
                Some((entry, tag))
            }
            _ => None,
        };
        Ok(Found { home, object, characters, list, newest })
    }

    /// What is put in the same call is small, and whole: it is enough to look at what is there.
    fn look_at_read(&self, found: &Found<'py>, asked_for: bool, wanted: Option<Tag>) -> Looked<()> {
        let Some(list) = &found.list else { return Ok(()) };
        let (newest, tag) = found.newest.as_ref().ok_or(Unusual::Left)?;
        match wanted {
            Some(wanted) if wanted != *tag => match list.entry_of(wanted)? {
                None => Ok(()),
                Some(entry) => look_at_element(&*entry.get_borrowed_item(1)?, asked_for),
            },
            _ => look_at_element(&*newest.get_borrowed_item(1)?, asked_for),
        }
    }

    fn look_at_put(&self, request: &Request, found: &Found<'py>, tag: Tag, element: &Element) -> Looked<()> {
        let home = &self.homes[found.home];
        let size = element.bytes().len() as i64;
        usual(!OF_DOMAINS.iter().any(|prefix| request.object.starts_with(prefix)))?;
        usual(element.index == home.index && DELETED <= element.length && size.checked_mul(home.k).is_some_and(|most| element.length <= most))?;
        usual(tag.number <= NUMBER_FLOOR && tag != Tag::default())?;
        let sealed = checksum(request.configuration, request.object.as_bytes(), tag.number, tag.writer, element.index, element.length, element.bytes());
        usual(sealed == Some(element.checksum))?;
        let (Some(list), Some((_, newest))) = (&found.list, &found.newest) else { return Ok(()) };
        if tag > *newest {
            return Ok(());
        }
        let Some(held) = list.entry_of(tag)? else { return Ok(()) };
        let held = held.get_borrowed_item(1)?;
        usual(size_in(&parts_of(&held)?)? > 0 || length_of(&held)? <= 0)
    }

    // -- doing it ----------------------------------------------------------------------------------------------------------

    fn apply(mut self, requests: &[Request], found: Vec<Found<'py>>, frames: &[&[u8]]) -> Looked<Served> {
        let (mut tags, mut datas, mut puts, mut reads, mut writes) = (0, 0, 0, 0, 0);
        for (request, mut found) in requests.iter().zip(found) {
            let (start, rows) = (self.out.len(), self.perform(request, &mut found)?);
            let is_write = matches!(request.asked, Asked::Put { .. });
            match request.asked {
                Asked::Tag => tags += 1,
                Asked::Data { .. } => datas += 1,
                Asked::Put { .. } => puts += 1,
            }
            if self.journaled && self.keep(&found, start, rows, is_write)? {
                continue;
            }
            self.replies += 1;
            reads += usize::from(!is_write);
            writes += usize::from(is_write);
        }
        for home in &self.homes {
            home.settle(self.py)?;
        }
        let facts = if self.facts.is_empty() { None } else { Some(PyList::new(self.py, &self.facts)?.unbind()) };
        Ok(Served {
            reply: self.reply()?,
            tags,
            datas,
            puts,
            received_bytes: frames.iter().map(|frame| frame.len()).sum(),
            reads,
            writes,
            facts,
            fact_bytes: self.fact_bytes,
            waiting: self.waiting()?,
            asked: self.homes.iter().map(|home| (home.id.clone().unbind(), home.asked)).collect(),
        })
    }

    fn reply(&self) -> PyResult<Option<Py<PyBytes>>> {
        if self.replies == 0 {
            return Ok(None);
        }
        let mut head = vec![VERSION];
        put_array(&mut head, self.replies);
        let (divide, size) = (head.len(), head.len() + self.out.len());
        let reply = PyBytes::new_with(self.py, size, |room| {
            room[..divide].copy_from_slice(&head);
            room[divide..].copy_from_slice(&self.out);
            Ok(())
        })?;
        Ok(Some(reply.unbind()))
    }

    fn waiting(&self) -> PyResult<Option<Py<PyList>>> {
        let mut rows = Vec::new();
        for commit in self.commits.iter().flatten().filter(|commit| !commit.replies.is_empty()) {
            let replies = PyList::new(self.py, &commit.replies)?;
            rows.push((&commit.unsynced, replies, commit.rows, commit.reads, commit.writes).into_pyobject(self.py)?);
        }
        if rows.is_empty() { Ok(None) } else { Ok(Some(PyList::new(self.py, rows)?.unbind())) }
    }

    /// The reply goes to the end of what is to be sent; returns of how many rows it is.
    fn perform(&mut self, request: &Request, found: &mut Found<'py>) -> Looked<usize> {
        if found.list.is_none() {
            found.list = self.homes[found.home].objects.get_item(&found.object)?.map(List::of).transpose()?;
        }
        match &request.asked {
            Asked::Tag => {
                put_array(&mut self.out, 5);
                put_unsigned(&mut self.out, TAG_REPLY);
                put_unsigned(&mut self.out, request.call);
                put_tag(&mut self.out, found.newest()?);
                put_nil(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
            Asked::Data { element, wanted, held } => self.answer_data(request.call, found, *element, *wanted, *held),
            Asked::Put { tag, element } => {
                self.put(request, found, *tag, element)?;
                put_array(&mut self.out, 4);
                put_unsigned(&mut self.out, ACK);
                put_unsigned(&mut self.out, request.call);
                put_nil(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
        }
    }

    /// `Hosting.get_data`. Without a successor nothing came after it, so all that is here was here before.
    fn answer_data(&mut self, call: u64, found: &Found<'py>, asked_for: bool, wanted: Option<Tag>, held: Option<Tag>) -> Looked<usize> {
        let out = &mut self.out;
        put_array(out, 9);
        put_unsigned(out, DATA_REPLY);
        put_unsigned(out, call);
        let Some(list) = &found.list else {
            put_array(out, 0);
            put_signed(out, -1);
            put_tag(out, Tag::default());
            for _ in 0..2 {
                put_nil(out);
            }
            put_boolean(out, false);
            put_nil(out);
            return Ok(1);
        };
        let (newest, count) = (found.newest()?, list.entries.len());
        put_array(out, count);
        put_tag(out, newest);
        for position in 1..count {
            put_tag(out, tag_in(&entry_at(&list.entries, position)?)?);
        }
        let entry = entry_at(&list.entries, 0)?;
        let length = length_of(&*entry.get_borrowed_item(1)?)?;
        put_signed(out, length);
        put_tag(out, list.trimmed()?);
        let shown = match wanted {
            Some(tag) if tag != newest => list.entry_of(tag)?,
            _ => Some(entry),
        };
        match shown {
            Some(entry) if held.is_none_or(|held| wanted.unwrap_or(newest) > held) => {
                let element = entry.get_borrowed_item(1)?;
                write_element(out, &element, length_of(&element)?, asked_for)?;
            }
            _ => put_nil(out),
        }
        put_nil(out);
        put_boolean(out, true);
        put_nil(out);
        Ok(1 + count)
    }

    /// `Hosting.put`, of what was checked.
    fn put(&mut self, request: &Request, found: &mut Found<'py>, tag: Tag, element: &Element) -> Looked<()> {
        let (py, capacity) = (self.py, self.homes[found.home].capacity);
        let mut position = 0;
        match &found.list {
            Some(list) if !list.entries.is_empty() && tag <= found.newest()? => {
                while position < list.entries.len() {
                    let held = tag_in(&entry_at(&list.entries, position)?)?;
                    if held == tag {
                        return Ok(());
                    }
                    if tag > held {
                        break;
                    }
                    position += 1;
                }
            }
            Some(_) => (),
            None => {
                let versions = self.server.versions.bind(py).call0()?;
                self.homes[found.home].objects.as_any().set_item(&found.object, &versions)?;
                found.list = Some(List::of(versions)?);
            }
        }
        let Some(list) = &found.list else { return Ok(()) };
        if position == capacity {
            return self.trim(request, found, list, tag, element);
        }
        let parts = match element.data {
            None => PyTuple::empty(py),
            Some(data) => PyTuple::new(py, [PyBytes::new(py, data)])?,
        };
        let stored = self.server.element.bind(py).call1((element.index, element.length, element.checksum, parts))?;
        list.entries.insert(position, (self.new_tag(tag)?, stored, self.place).into_pyobject(py)?)?;
        self.count_put(found, list, element.bytes().len() as i64)?;
        if self.journaled {
            let fact = self.server.raw.bind(py).call1((PyBytes::new(py, request.bytes),))?;
            self.note(found, fact, fact_bytes_max(found.characters, element))?;
        }
        Ok(())
    }

    fn new_tag(&self, tag: Tag) -> PyResult<Bound<'py, PyAny>> {
        self.server.tag.bind(self.py).call1((tag.number, tag.writer))
    }

    /// Drop what is beyond the List's capacity after one was put in, and count.
    fn count_put(&mut self, found: &Found<'py>, list: &List<'py>, size: i64) -> Looked<()> {
        let (place, characters) = (self.place, found.characters as i64);
        let home = &mut self.homes[found.home];
        home.bytes += size;
        if self.journaled {
            home.account(place, PUT_BYTES + characters + size);
        }
        let last = list.entries.len() - 1;
        if last < home.capacity {
            home.elements += 1;
            return Ok(());
        }
        let lost = entry_at(&list.entries, last)?;
        list.entries.del_item(last)?;
        let lost_size = size_in(&parts_of(&*lost.get_borrowed_item(1)?)?)? as i64;
        home.bytes -= lost_size;
        let before = list.trimmed()?;
        let is_trimmed = tag_in(&lost)? > before;
        if is_trimmed {
            list.trim(&*lost.get_borrowed_item(0)?)?;
        }
        if self.journaled {
            let lost_place = lost.get_borrowed_item(2)?.extract()?;
            home.account(lost_place, -(PUT_BYTES + characters + lost_size));
            if is_trimmed {
                tell_trimmed(home, &list.versions, characters, lost_place, before)?;
            }
        }
        Ok(())
    }

    /// The put is older than all that are held, of which there are enough.
    fn trim(&mut self, request: &Request, found: &Found<'py>, list: &List<'py>, tag: Tag, element: &Element) -> Looked<()> {
        let before = list.trimmed()?;
        if tag <= before {
            return Ok(());
        }
        let trimmed = self.new_tag(tag)?;
        list.trim(&trimmed)?;
        if self.journaled {
            let (home, place) = (&mut self.homes[found.home], self.place);
            tell_trimmed(home, &list.versions, found.characters as i64, place, before)?;
            let fact = self.server.trimmed.bind(self.py).call1((&home.id, request.object, trimmed))?;
            self.note(found, fact, fact_bytes_max(found.characters, element))?;
        }
        Ok(())
    }

    // -- what waits for a commit -------------------------------------------------------------------------------------------

    /// `Unsynced.note`
    fn note(&mut self, found: &Found<'py>, fact: Bound<'py, PyAny>, bytes: usize) -> Looked<()> {
        self.facts.push(fact);
        self.fact_bytes += bytes;
        let id = &self.homes[found.home].id;
        if let Some(commit) = &self.commits[0] {
            commit.objects.add((id, &found.object))?;
            commit.unsynced.getattr(intern!(self.py, "listings"))?.cast::<PySet>()?.add(id)?;
        }
        Ok(())
    }

    /// `Host._waits`: whether the reply that begins at `start` waits for a commit; then it is kept.
    fn keep(&mut self, found: &Found<'py>, start: usize, rows: usize, is_write: bool) -> Looked<bool> {
        let home = &self.homes[found.home];
        let key = (&home.id, &found.object).into_pyobject(self.py)?;
        for (commit, pointed) in self.commits.iter_mut().zip(home.pointed) {
            if let Some(commit) = commit {
                if pointed || commit.objects.contains(&key)? {
                    let reply = PyBytes::new(self.py, &self.out[start..]);
                    commit.replies.push(self.server.raw.bind(self.py).call1((reply,))?);
                    commit.rows += rows;
                    commit.reads += usize::from(!is_write);
                    commit.writes += usize::from(is_write);
                    self.out.truncate(start);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn fact_bytes_max(characters: usize, element: &Element) -> usize {
    let parts = usize::from(element.data.is_some());
    PUT_BYTES_MAX + CHARACTER_BYTES_MAX * characters + PART_BYTES_MAX * parts + element.bytes().len()
}

/// `Share.tell_trimmed`
fn tell_trimmed(home: &mut Home, versions: &Bound<PyAny>, characters: i64, place: i64, before: Tag) -> Looked<()> {
    let name = intern!(versions.py(), "trimmed_place");
    let bytes = TRIMMED_BYTES + characters;
    home.account(place, bytes);
    if before != Tag::default() {
        home.account(versions.getattr(name)?.extract()?, -bytes);
    }
    versions.setattr(name, place)?;
    Ok(())
}
