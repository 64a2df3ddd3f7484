//! The server half of small reads and writes: `get_tag`, `get_data` and `put` of
//! ares/replica/configuration_state.py for all requests of a read. Core and Python share the state
//! of a configuration and its table of objects: either path continues after the other.
//! First all requests are parsed and checked, with no change that Python can see; an unusual
//! request ends this with None, and the Python path serves all. Then all are applied and answered,
//! in order, without refusals.

use crate::client::locked;
use crate::constants::*;
use crate::home::{Commit, Home, Kept, Known, Looked, Unusual, usual};
use crate::requests::{Asked, Request, divided, parse_batch};
use crate::rows::{Content, Effect, Held, Row, Version, characters};
use crate::wire::{
    Element, Tag, put_array, put_binary, put_boolean, put_element, put_nil, put_signed, put_tag,
    put_text, put_unsigned,
};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Larger reads mostly begin large values, and are not copied to be looked at.
const COPIED_READ_BYTES_MAX: usize = 64 * 1024;

/// The result of a network read. `reply`: the batch due at once.
#[pyclass(frozen, get_all, module = "ares._core")]
pub struct ServedTurn {
    reply: Option<Py<PyBytes>>,
    tags: usize,
    datas: usize,
    puts: usize,
    received_bytes: usize,
    reads: usize,
    writes: usize,
    facts: Option<(usize, Py<PyBytes>)>,
    fact_bytes: usize,
    waiting: Vec<Kept>,
    asked: Vec<(Py<PyBytes>, usize)>,
}

/// Answers for `hosted`. `at_hand`: gives the place with room for facts; None without a journal.
#[pyclass(frozen, module = "ares._core")]
pub struct ServerCore {
    hosted: Py<PyDict>,
    known: Mutex<HashMap<Vec<u8>, Arc<Known>>>,
    at_hand: Option<Py<PyAny>>,
}

#[pymethods]
impl ServerCore {
    #[new]
    #[pyo3(signature = (hosted, at_hand = None))]
    fn new(hosted: Py<PyDict>, at_hand: Option<Py<PyAny>>) -> Self {
        ServerCore { hosted, known: Mutex::default(), at_hand }
    }

    /// Serve a read: the bytes of a connection without keys (a buffer), or batches as lists of
    /// frames. `writes`: the client may write. `gathering`, `syncing`: commits on which replies may
    /// wait, in at most `rows_max` rows. None: no request was served.
    #[pyo3(signature = (came, writes, gathering = None, syncing = None, rows_max = 0))]
    fn serve<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        gathering: Option<Bound<'py, PyAny>>,
        syncing: Option<Bound<'py, PyAny>>,
        rows_max: usize,
    ) -> PyResult<Option<ServedTurn>> {
        match self.serve_came(came, writes, [gathering, syncing], rows_max) {
            Ok(served) => Ok(Some(served)),
            Err(Unusual::Left) => Ok(None),
            Err(Unusual::Raised(error)) => Err(error),
        }
    }
}

impl ServerCore {
    /// The known configuration: a hosted configuration stays.
    fn known(&self, py: Python, id: &[u8]) -> Looked<Arc<Known>> {
        let seen = locked(&self.known).get(id).cloned();
        if let Some(known) = seen {
            return Ok(known);
        }
        let known = Arc::new(Known::of(self.hosted.bind(py), id)?);
        locked(&self.known).insert(id.to_vec(), known.clone());
        Ok(known)
    }

    fn serve_came<'py>(
        &self,
        came: &Bound<'py, PyAny>,
        writes: bool,
        commits: [Option<Bound<'py, PyAny>>; 2],
        rows_max: usize,
    ) -> Looked<ServedTurn> {
        let py = came.py();
        let read;
        let mut held = Vec::new();
        let frames = if let Ok(batches) = came.cast::<PyList>() {
            for batch in batches.iter() {
                usual(batch.len()? == 1)?;
                held.push(batch.get_item(0)?.cast_into::<PyBytes>().map_err(|_| Unusual::Left)?);
            }
            held.iter().map(|frame| frame.as_bytes()).collect()
        } else {
            let buffer = PyBuffer::<u8>::get(came)?;
            usual(buffer.item_count() <= COPIED_READ_BYTES_MAX)?;
            read = buffer.to_vec(py)?;
            divided(&read).ok_or(Unusual::Left)?
        };
        let mut requests = Vec::new();
        for frame in &frames {
            parse_batch(frame, &mut requests).ok_or(Unusual::Left)?;
        }
        usual(!requests.is_empty())?;
        let [gathering, syncing] = commits;
        let commits =
            [gathering.map(Commit::of).transpose()?, syncing.map(Commit::of).transpose()?];
        let journaled = self.at_hand.is_some();
        usual(journaled == commits[0].is_some())?;
        let (homes, out, facts) = (Vec::new(), Vec::new(), Vec::new());
        let mut turn = Turn {
            server: self,
            py,
            journaled,
            homes,
            commits,
            place: 0,
            out,
            replies: 0,
            facts,
            fact_count: 0,
            fact_bytes: 0,
        };
        let found = turn.look(&requests, writes, rows_max)?;
        turn.apply(&requests, found, &frames)
    }
}

/// A call: all requests of a client that came at a time.
struct Turn<'a, 'py> {
    server: &'a ServerCore,
    py: Python<'py>,
    journaled: bool,
    homes: Vec<Home<'py>>,
    commits: [Option<Commit<'py>>; 2],
    place: u32,
    out: Vec<u8>,
    replies: usize,
    facts: Vec<u8>,
    fact_count: usize,
    fact_bytes: usize,
}

impl<'py> Turn<'_, 'py> {
    // -- checks, without a change -----------------------------------------------------------------

    fn look(
        &mut self,
        requests: &[Request],
        writes: bool,
        rows_max: usize,
    ) -> Looked<Vec<Found<'py>>> {
        let mut all = Vec::with_capacity(requests.len());
        let (mut room, mut rows) = (0, requests.len());
        for request in requests {
            let found = self.find(request)?;
            match &request.asked {
                Asked::Tag => (),
                Asked::Data { carried, wanted, .. } => {
                    let home = &mut self.homes[found.home];
                    if let Some(carried) = carried {
                        // the server knows the successor
                        usual(home.successor.as_ref().is_some_and(|known| known[..] == **carried))?;
                        home.carried += 1;
                        home.asked -= 1;
                    }
                    rows += self.homes[found.home].known.capacity;
                    usual(self.row(&found).is_none_or(|row| is_usual(row, *wanted)))?;
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
                self.place = at_hand
                    .bind(self.py)
                    .call1((room,))?
                    .extract::<Option<u32>>()?
                    .ok_or(Unusual::Left)?;
            }
        }
        Ok(all)
    }

    fn find(&mut self, request: &Request) -> Looked<Found<'py>> {
        usual(!request.object.is_empty() && request.object.len() <= KEY_BYTES_MAX)?;
        let home =
            match self.homes.iter().position(|home| home.id.as_bytes() == request.configuration) {
                Some(home) => home,
                None => {
                    let known = self.server.known(self.py, request.configuration)?;
                    self.homes.push(Home::of(self.py, known, &self.commits)?);
                    self.homes.len() - 1
                }
            };
        self.homes[home].asked += 1;
        let name = request.object.as_bytes();
        let row = self.homes[home].table.rows.find(name);
        Ok(Found { home, row, characters: characters(name) as usize, object: None })
    }

    fn row(&self, found: &Found) -> Option<&Row> {
        found.row.map(|row| self.homes[found.home].table.rows.row(row))
    }

    fn look_at_put(
        &self,
        request: &Request,
        found: &Found<'py>,
        tag: Tag,
        element: &Element,
    ) -> Looked<()> {
        let home = &self.homes[found.home];
        let size = element.bytes().len() as i64;
        usual(
            !request.object.starts_with(RESERVED)
                || OF_WRITERS.iter().any(|prefix| request.object.starts_with(prefix)),
        )?;
        usual(
            element.index == home.known.index
                && DELETED_LENGTH <= element.length
                && size.checked_mul(home.known.k).is_some_and(|most| element.length <= most),
        )?;
        usual(tag.number <= NUMBER_FLOOR && tag != Tag::default())?;
        usual(self.row(found).is_none_or(|row| is_whole(row, tag)))?; // no repair
        let sealed = element.seal(request.configuration, request.object, tag);
        usual(sealed == Some(element.checksum))
    }

    // -- application ------------------------------------------------------------------------------

    fn apply(
        mut self,
        requests: &[Request],
        found: Vec<Found<'py>>,
        frames: &[&[u8]],
    ) -> Looked<ServedTurn> {
        let (mut tags, mut datas, mut puts, mut reads, mut writes) = (0, 0, 0, 0, 0);
        for (request, mut found) in requests.iter().zip(found) {
            let (start, rows) = (self.out.len(), self.perform(request, &mut found)?);
            let is_write = matches!(request.asked, Asked::Put { .. });
            match request.asked {
                Asked::Tag => tags += 1,
                Asked::Data { .. } => datas += 1,
                Asked::Put { .. } => puts += 1,
            }
            if self.journaled && self.keep(request, &mut found, start, rows, is_write)? {
                continue;
            }
            self.replies += 1;
            reads += usize::from(!is_write);
            writes += usize::from(is_write);
        }
        for home in &mut self.homes {
            home.settle(self.py)?;
        }
        Ok(ServedTurn {
            reply: self.reply()?,
            tags,
            datas,
            puts,
            received_bytes: frames.iter().map(|frame| frame.len()).sum(),
            reads,
            writes,
            facts: (self.fact_count > 0)
                .then(|| (self.fact_count, PyBytes::new(self.py, &self.facts).unbind())),
            fact_bytes: self.fact_bytes,
            waiting: self
                .commits
                .iter()
                .flatten()
                .filter(|commit| commit.rows > 0)
                .map(Commit::kept)
                .collect(),
            asked: self.homes.iter().map(|home| (home.id.clone().unbind(), home.asked)).collect(),
        })
    }

    fn reply(&self) -> PyResult<Option<Py<PyBytes>>> {
        if self.replies == 0 {
            return Ok(None);
        }
        let mut batch = vec![WIRE_VERSION];
        put_array(&mut batch, self.replies);
        batch.extend_from_slice(&self.out);
        Ok(Some(PyBytes::new(self.py, &batch).unbind()))
    }

    /// Apply a request, and append the reply to `out`; return the reply's rows.
    fn perform(&mut self, request: &Request, found: &mut Found<'py>) -> Looked<usize> {
        if found.row.is_none() {
            found.row = self.homes[found.home].table.rows.find(request.object.as_bytes());
        }
        match &request.asked {
            Asked::Tag => {
                begin_reply(&mut self.out, 5, TAG_REPLY, request.call);
                let newest = self.row(found).map_or_else(Tag::default, Row::newest);
                put_tag(&mut self.out, newest);
                self.homes[found.home].put_successor(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
            Asked::Data { wanted, held, .. } => {
                Ok(self.answer_data(request.call, found, *wanted, *held))
            }
            Asked::Put { tag, element } => {
                self.put(request, found, *tag, element)?;
                begin_reply(&mut self.out, 4, ACK, request.call);
                self.homes[found.home].put_successor(&mut self.out);
                put_nil(&mut self.out);
                Ok(1)
            }
        }
    }

    /// `ConfigurationState.get_data`
    fn answer_data(
        &mut self,
        call: u64,
        found: &Found<'py>,
        wanted: Option<Tag>,
        held: Option<Tag>,
    ) -> usize {
        let (out, home) = (&mut self.out, &self.homes[found.home]);
        begin_reply(out, 9, DATA_REPLY, call);
        let Some(row) = found.row.map(|row| home.table.rows.row(row)) else {
            put_array(out, 0);
            put_signed(out, -1);
            put_tag(out, Tag::default());
            put_nil(out);
            home.put_successor(out);
            put_boolean(out, false);
            put_nil(out);
            return 1;
        };
        put_array(out, row.count());
        row.versions().for_each(|(version, _)| put_tag(out, version.tag));
        put_signed(out, row.version(0).map_or(-1, |(newest, _)| newest.length.into()));
        put_tag(out, row.trimmed);
        let shown = wanted.unwrap_or(row.newest());
        match version_of(row, shown) {
            Some((version, Held::Small(data))) if held.is_none_or(|held| shown > held) => {
                put_version(out, version, data)
            }
            _ => put_nil(out),
        }
        home.put_successor(out);
        put_boolean(out, home.order_known && !row.follows);
        put_nil(out);
        1 + row.count()
    }

    /// `ConfigurationState.put` of a checked version.
    fn put(
        &mut self,
        request: &Request,
        found: &mut Found<'py>,
        tag: Tag,
        element: &Element,
    ) -> Looked<()> {
        let home = &mut self.homes[found.home];
        let rows = &mut home.table.rows;
        let number = rows.find_or_add(request.object.as_bytes());
        found.row = Some(number);
        if home.successor.is_some() {
            rows.follow(number);
        }
        let version = Version::of(tag, element, self.place);
        let content = Content::Small(element.bytes());
        match rows.put(number, version, content, home.account.as_mut()) {
            Effect::Stored if self.journaled => self.facts.extend_from_slice(request.bytes),
            Effect::Trimmed if self.journaled => {
                put_array(&mut self.facts, 4);
                put_unsigned(&mut self.facts, TAGS_TRIMMED);
                put_binary(&mut self.facts, request.configuration);
                put_text(&mut self.facts, request.object);
                put_tag(&mut self.facts, tag);
            }
            _ => return Ok(()),
        }
        self.note(request, found, element)
    }

    // -- replies that wait for a commit -----------------------------------------------------------

    /// `GroupCommit.note` of the fact written last.
    fn note(&mut self, request: &Request, found: &mut Found<'py>, element: &Element) -> Looked<()> {
        self.fact_count += 1;
        self.fact_bytes += fact_bytes_max(found.characters, element);
        let home_number = found.home;
        let object = found.object(self.py, request);
        let home = &mut self.homes[home_number];
        if let Some(commit) = &self.commits[0] {
            match &home.noted[0] {
                Some(objects) => objects.add(object)?,
                None => commit
                    .objects
                    .set_item(&home.id, &*home.noted[0].insert(PySet::new(self.py, [object])?))?,
            }
        }
        Ok(())
    }

    /// `StorageServer._waits`: keep the reply from `start` on and return true if it has to wait.
    fn keep(
        &mut self,
        request: &Request,
        found: &mut Found<'py>,
        start: usize,
        rows: usize,
        is_write: bool,
    ) -> Looked<bool> {
        let home = &self.homes[found.home];
        for (place, commit) in self.commits.iter_mut().enumerate() {
            let Some(commit) = commit else { continue };
            let noted = home.noted[place]
                .as_ref()
                .map_or(Ok(false), |objects| objects.contains(found.object(self.py, request)))?;
            if noted || home.pointed[place] {
                commit.replies.extend_from_slice(&self.out[start..]);
                commit.rows += rows;
                commit.reads += usize::from(!is_write);
                commit.writes += usize::from(is_write);
                self.out.truncate(start);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The configuration and the row of a request. `object`: the name, once Python needs it.
struct Found<'py> {
    home: usize,
    row: Option<u32>,
    characters: usize,
    object: Option<Bound<'py, PyString>>,
}

impl<'py> Found<'py> {
    fn object(&mut self, py: Python<'py>, request: &Request) -> &Bound<'py, PyString> {
        self.object.get_or_insert_with(|| PyString::new(py, request.object))
    }
}

fn version_of(row: &Row, tag: Tag) -> Option<(&Version, Held<'_>)> {
    row.version(row.position(tag).ok()?)
}

/// Whether the version with this tag is small and has its data, or is absent.
fn is_whole(row: &Row, tag: Tag) -> bool {
    version_of(row, tag).is_none_or(|(version, held)| match held {
        Held::Small(data) => !data.is_empty() || version.length <= 0,
        Held::Python(..) => false,
    })
}

/// Whether a row can answer for its newest version, or for the version `wanted`.
fn is_usual(row: &Row, wanted: Option<Tag>) -> bool {
    row.count() > 0 && is_whole(row, wanted.unwrap_or(row.newest()))
}

fn put_version(out: &mut Vec<u8>, version: &Version, data: &[u8]) {
    let element = Element {
        index: version.index.into(),
        length: version.length.into(),
        checksum: version.checksum,
        data: (!version.is_bare).then_some(data),
    };
    put_element(out, &element);
}

fn begin_reply(out: &mut Vec<u8>, fields: usize, kind: u64, call: u64) {
    put_array(out, fields);
    put_unsigned(out, kind);
    put_unsigned(out, call);
}

fn fact_bytes_max(characters: usize, element: &Element) -> usize {
    let parts = usize::from(element.data.is_some());
    PUT_BYTES_MAX
        + CHARACTER_BYTES_MAX * characters
        + PART_BYTES_MAX * parts
        + element.bytes().len()
}
