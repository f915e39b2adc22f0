//! The lane of a protected register: reads and writes with their fencing tokens, and refusals.

use std::collections::BTreeMap;

use super::chart::{Drawing, Lane, Mark, ROW, Room};
use super::text::{line, ms, name};
use redquorum_scenario::AccessKind;
use redquorum_scenario::history::{Event, Ns};

/// The largest number of registers, and of clients of each, that have a row of their own.
const MOST_REGISTERS: usize = 8;
const MOST_ROWS: usize = 6;

pub(super) fn lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let mut of: BTreeMap<&str, Vec<(usize, &Event)>> = BTreeMap::new();
    for (record, entry) in drawing.run.history.records.iter().enumerate() {
        if let Event::Touched { register, .. } = &entry.event {
            of.entry(register).or_default().push((record, &entry.event));
        }
    }
    let lanes = of.into_iter().take(MOST_REGISTERS);
    lanes.map(|(register, touches)| lane(register, &touches, drawing)).collect()
}

fn lane(register: &str, touches: &[(usize, &Event)], drawing: &Drawing<'_>) -> Lane {
    let mut lane = Lane::new(format!("register {}", name(register)), "register");
    let mut clients: Vec<&str> = Vec::new();
    let mut rows: Vec<Room> = Vec::new();
    let mut ats: Vec<f64> = Vec::new();
    for (record, touch) in touches {
        let Event::Touched { client, .. } = touch else { continue };
        let known = clients.iter().position(|one| *one == client.as_str());
        let row = known.unwrap_or_else(|| {
            clients.push(client);
            clients.len() - 1
        });
        let row = row.min(MOST_ROWS - 1);
        if rows.len() <= row {
            rows.push(Room::default());
        }
        let at = drawing.run.history.records[*record].ns;
        let Some(mut mark) = mark(touch, at, *record, drawing) else { continue };
        ats.push(drawing.scale.part(at));
        mark.y = 3 + 6 + u32::try_from(row).unwrap_or(0) * ROW;
        lane.marks.push(mark);
    }
    for index in 0..lane.marks.len() {
        let (y, at) = (lane.marks[index].y, ats[index]);
        let later = lane.marks.iter().zip(&ats).skip(index + 1);
        let next = later.take(64).find(|(mark, _)| mark.y == y).map_or(1.0, |(_, at)| *at);
        let mark = &mut lane.marks[index];
        let text = std::mem::take(&mut mark.text);
        rows[usize::try_from(y / ROW).unwrap_or(0)].place(mark, at, next, text);
    }
    for (row, client) in clients.iter().take(MOST_ROWS).enumerate() {
        let more = clients.len() > MOST_ROWS && row + 1 == MOST_ROWS;
        let text = if more { "others".to_owned() } else { name(client) };
        lane.caption(3 + u32::try_from(row).unwrap_or(0) * ROW, &text);
    }
    lane.height = 7 + u32::try_from(rows.len()).unwrap_or(0) * ROW;
    lane
}

fn mark(touch: &Event, at: Ns, record: usize, drawing: &Drawing<'_>) -> Option<Mark> {
    let Drawing { scale, names, .. } = *drawing;
    let Event::Touched { client, register, way, seen, version, sent, fence, refused } = touch
    else {
        return None;
    };
    let fenced = fence.map_or_else(String::new, |fence| format!(" under {fence}"));
    let what = match way {
        AccessKind::Read => format!("read version {seen}"),
        AccessKind::Write if seen.saturating_add(1) == *version || *refused => {
            format!("write on version {seen}")
        }
        AccessKind::Write => {
            format!("write on version {seen}, overwrites {}", version.saturating_sub(1))
        }
        AccessKind::Present => "present".to_owned(),
    };
    let (symbol, end, class) = match (refused, way) {
        (true, _) => ("cross", " refused", "bad"),
        (false, AccessKind::Write) => ("square", "", names.class(client)),
        (false, _) => ("ring", "", names.class(client)),
    };
    let sent = sent.map_or_else(String::new, |sent| format!(", sent {}", ms(sent)));
    let title = format!(
        "{}: {what} of {}{fenced}{}, {}{sent}, line {}",
        name(client),
        name(register),
        if *refused { ": refused" } else { ": accepted" },
        ms(at),
        line(record)
    );
    let text = format!("{what}{fenced}{end}");
    Some(Mark { x: scale.x(at), y: 0, class: class.to_owned(), symbol, text, title, left: false })
}
