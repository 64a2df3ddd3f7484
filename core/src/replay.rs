//! The usual batches of a server's journal at a start: `Replica.restore` of their facts, without
//! Python objects. A batch with any unusual fact has no effect here: Python takes it.

use crate::constants::{LEFT_LENGTH, PUT_DATA, TAGS_TRIMMED};
use crate::home::{Looked, Unusual, usual};
use crate::rows::{Account, Content, Version};
use crate::table::ObjectTable;
use crate::wire::{Cursor, Element, Tag};
use pyo3::buffer::PyBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use xxhash_rust::xxh3::Xxh3;

/// A fact has the configuration's id, a name and a tag at least.
const FACT_BYTES_MIN: usize = 32;
/// The prefix of a batch in a segment, with the check at its end.
const PREFIX_BYTES: usize = 40;
const CHECK_AT: usize = PREFIX_BYTES - 8;
/// Most configurations that a batch waits for.
const UNKNOWN_MAX: usize = 8;

struct Fact<'a> {
    configuration: &'a [u8],
    object: &'a [u8],
    tag: Tag,
    /// None: the tag was dropped.
    element: Option<Element<'a>>,
}

/// The facts of a batch, if all are small puts with their data, or dropped tags.
fn usual_facts(body: &[u8]) -> Option<Vec<Fact<'_>>> {
    let mut cursor = Cursor::new(body, 0);
    cursor.array_of(2)?;
    let count = cursor.array()?;
    let mut facts = Vec::with_capacity(count.min(body.len() / FACT_BYTES_MIN));
    for _ in 0..count {
        facts.push(usual_fact(&mut cursor)?);
    }
    for _ in 0..cursor.array()? {
        cursor.unsigned()?; // a place that the batch discards
    }
    if cursor.at == body.len() { Some(facts) } else { None }
}

fn usual_fact<'a>(cursor: &mut Cursor<'a>) -> Option<Fact<'a>> {
    let fields = cursor.array()?;
    let kind = cursor.unsigned()?;
    match (kind, fields) {
        (PUT_DATA, 7) => {
            cursor.unsigned()?;
            let (configuration, object) = (cursor.binary()?, cursor.text()?.as_bytes());
            let (tag, element) = (cursor.tag()?, cursor.element()?);
            cursor.nil()?;
            let is_whole = element.length <= 0 || !element.bytes().is_empty();
            let is_usual = is_whole && element.length > LEFT_LENGTH && tag != Tag::default();
            is_usual.then_some(Fact { configuration, object, tag, element: Some(element) })
        }
        (TAGS_TRIMMED, 4) => {
            let (configuration, object) = (cursor.binary()?, cursor.text()?.as_bytes());
            Some(Fact { configuration, object, tag: cursor.tag()?, element: None })
        }
        _ => None,
    }
}

/// The body of batch `sequence`, without parts, at the begin of `data`, and the size of its frame:
/// `parse_frame` of ares/store/journal/format.py.
fn batch(data: &[u8], salt: u64, sequence: u64) -> Option<(&[u8], usize)> {
    let number = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?));
    // the bytes of the body, u32, and the number of the parts, u32, which is 0
    let body = data.get(PREFIX_BYTES..)?.get(..usize::try_from(number(24)?).ok()?)?;
    let size = (PREFIX_BYTES + body.len()).next_multiple_of(8);
    let mut digest = Xxh3::with_seed(salt);
    digest.update(&data[..CHECK_AT]);
    digest.update(body);
    let is_next = data.starts_with(b"ares-bat") && number(8)? == sequence && size <= data.len();
    (is_next && number(CHECK_AT)? == digest.digest()).then_some((body, size))
}

/// A configuration that is hosted, and its table; None if the table was collected.
struct Home<'py> {
    table: Option<PyRefMut<'py, ObjectTable>>,
    follows: bool,
    account: Option<Account>,
}

impl<'py> Home<'py> {
    fn of(hosted: &Bound<'py, PyDict>, id: &[u8]) -> Looked<Option<Self>> {
        let py = hosted.py();
        let Some(hosting) = hosted.get_item(PyBytes::new(py, id))? else { return Ok(None) };
        let table = hosting.getattr(intern!(py, "objects"))?.cast_into::<ObjectTable>()?;
        let table = table.try_borrow_mut().map_err(|_| Unusual::Left)?;
        let follows = !hosting.getattr(intern!(py, "successor"))?.is_none();
        let account = table.account();
        let is_collected = hosting.getattr(intern!(py, "collected"))?.is_truthy()?;
        let table = Some(table).filter(|_| !is_collected);
        Ok(Some(Home { table, follows, account }))
    }

    /// `ConfigurationState.restore`
    fn restore(&mut self, fact: &Fact, place: u32) {
        let Some(table) = &mut self.table else { return };
        let (rows, account) = (&mut table.rows, self.account.as_mut());
        let Some(element) = &fact.element else {
            return rows.trim(fact.object, fact.tag, place, account);
        };
        let (version, content) =
            (Version::of(fact.tag, element, place), Content::Small(element.bytes()));
        let number = rows.find_or_add(fact.object);
        if rows.row(number).position(fact.tag).is_ok() {
            return rows.replace(number, version, content, Some(place), account);
        }
        if self.follows {
            rows.follow(number);
        }
        rows.put(number, version, content, account);
    }
}

/// The configurations of some facts by their ids; None: not hosted.
type Homes<'a, 'py> = HashMap<&'a [u8], Option<Home<'py>>>;

/// Join the facts of a batch at `place`; with `only`, the facts of this configuration. Return the
/// configurations that are not hosted, whose facts are passed over. None: no fact was joined.
#[pyfunction]
#[pyo3(signature = (hosted, body, place, only = None))]
pub fn replay<'py>(
    hosted: &Bound<'py, PyDict>,
    body: PyBuffer<u8>,
    place: u32,
    only: Option<&[u8]>,
) -> PyResult<Option<Vec<Bound<'py, PyBytes>>>> {
    let (py, mut homes) = (hosted.py(), HashMap::new());
    let body = body.to_vec(py)?;
    // each unknown configuration reads the batch again
    let unknown_max = if only.is_some() { 0 } else { UNKNOWN_MAX };
    match join(hosted, &mut homes, &body, place, only, unknown_max) {
        Ok(unknown) => {
            settle(py, homes)?;
            Ok(Some(unknown.into_iter().map(|id| PyBytes::new(py, id)).collect()))
        }
        Err(Unusual::Left) => Ok(None),
        Err(Unusual::Raised(error)) => Err(error),
    }
}

/// Join the batches at the begin of `frames`, the first with number `sequence`, up to a batch that
/// Python takes. Return the bytes and the number of the joined batches.
#[pyfunction]
pub fn replay_run(
    hosted: &Bound<PyDict>,
    frames: PyBuffer<u8>,
    salt: u64,
    sequence: u64,
    place: u32,
) -> PyResult<(usize, u64)> {
    let (data, mut homes) = (frames.to_vec(hosted.py())?, HashMap::new());
    let (mut at, mut count) = (0, 0);
    while let Some((body, size)) = batch(&data[at..], salt, sequence.wrapping_add(count)) {
        match join(hosted, &mut homes, body, place, None, 0) {
            Ok(_) => (at, count) = (at + size, count + 1),
            Err(Unusual::Left) => break,
            Err(Unusual::Raised(error)) => return Err(error),
        }
    }
    settle(hosted.py(), homes)?;
    Ok((at, count))
}

fn join<'a, 'py>(
    hosted: &Bound<'py, PyDict>,
    homes: &mut Homes<'a, 'py>,
    body: &'a [u8],
    place: u32,
    only: Option<&[u8]>,
    unknown_max: usize,
) -> Looked<Vec<&'a [u8]>> {
    let mut facts = usual_facts(body).ok_or(Unusual::Left)?;
    facts.retain(|fact| only.is_none_or(|only| only == fact.configuration));
    let mut unknown = Vec::new();
    for id in facts.iter().map(|fact| fact.configuration) {
        if !homes.contains_key(id) {
            let home = Home::of(hosted, id)?;
            unknown.extend(home.is_none().then_some(id));
            homes.insert(id, home);
        }
    }
    usual(unknown.len() <= unknown_max)?;
    for fact in &facts {
        if let Some(Some(home)) = homes.get_mut(fact.configuration) {
            home.restore(fact, place);
        }
    }
    Ok(unknown)
}

fn settle(py: Python, homes: Homes) -> PyResult<()> {
    let mut homes = homes.into_values().flatten();
    homes.try_for_each(|home| home.table.map_or(Ok(()), |table| table.settle(py, home.account)))
}
