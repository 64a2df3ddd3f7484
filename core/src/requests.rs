//! The requests of small reads and writes on the wire, without Python: parsed before all checks.

use crate::constants::{
    BATCH_MESSAGES_MAX, GET_DATA, GET_TAG, PUT_DATA, TURN_MESSAGES_MAX, WIRE_VERSION,
};
use crate::wire::{Cursor, Element, NIL, Tag};

/// Small elements come with or without being asked for. `carried`: the bytes of a successor.
pub enum Asked<'a> {
    Tag,
    Data { wanted: Option<Tag>, carried: Option<&'a [u8]>, held: Option<Tag> },
    Put { tag: Tag, element: Element<'a> },
}

pub struct Request<'a> {
    pub call: u64,
    pub configuration: &'a [u8],
    pub object: &'a str,
    pub asked: Asked<'a>,
    /// The bytes of the request: the fact of a put.
    pub bytes: &'a [u8],
}

fn parsed_request<'a>(cursor: &mut Cursor<'a>) -> Option<Request<'a>> {
    let start = cursor.at;
    let fields = cursor.array()?;
    let kind = cursor.unsigned()?;
    let (call, configuration, object) = (cursor.unsigned()?, cursor.binary()?, cursor.text()?);
    let asked = match (kind, fields) {
        (GET_TAG, 5) => Asked::Tag,
        (GET_DATA, 9) => {
            cursor.boolean()?;
            let (wanted, at) = (optional_tag(cursor)?, cursor.at);
            cursor.skip()?;
            let carried = Some(&cursor.data[at..cursor.at]).filter(|bytes| *bytes != [NIL]);
            Asked::Data { wanted, carried, held: optional_tag(cursor)? }
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

/// Parse a batch and append its requests.
pub fn parse_batch<'a>(batch: &'a [u8], requests: &mut Vec<Request<'a>>) -> Option<()> {
    let mut cursor = Cursor::new(batch, 1);
    if *batch.first()? != WIRE_VERSION {
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

/// The frame of each message. None unless all are whole messages of one frame, without commands.
pub fn divided(read: &[u8]) -> Option<Vec<&[u8]>> {
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
