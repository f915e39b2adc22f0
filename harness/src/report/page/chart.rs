//! The parts of a drawing: lanes of bars and marks over one time axis. Horizontal positions are
//! percentages of the axis, so that zooming only changes the width of the drawing. Also the colours
//! and names in it, and text from histories, cut to a length that a page can show.

use std::collections::BTreeMap;

use super::Run;
use redquorum_checker::Case;
use redquorum_scenario::history::{Ns, Window};
use serde::Serialize;

pub(super) const ROW: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    from: Ns,
    to: Ns,
}

/// What the lanes of a drawing show.
pub(super) struct Drawing<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) case: &'a Case<'a>,
    pub(super) scale: Scale,
    pub(super) names: &'a Names<'a>,
    /// Whether the drawing shows commands and steps.
    pub(super) full: bool,
}

/// A finished drawing.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Chart {
    pub(super) lanes: Vec<Lane>,
    pub(super) ticks: Vec<Tick>,
    /// The periods in which two clients believed at once that they hold the resource.
    pub(super) overlaps: Vec<Bar>,
    /// A vertical line for each fault.
    pub(super) strikes: Vec<Tick>,
    pub(super) height: u32,
    /// In milliseconds, for the script of the page.
    pub(super) from: f64,
    pub(super) to: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Tick {
    pub(super) x: String,
    pub(super) text: String,
}

/// A row with captions at the left, and its bars and marks.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Lane {
    pub(super) label: String,
    pub(super) note: String,
    pub(super) class: String,
    pub(super) y: u32,
    pub(super) height: u32,
    pub(super) rows: Vec<Caption>,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<Mark>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Caption {
    pub(super) y: u32,
    pub(super) text: String,
}

/// A bar: a state or an action with a duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Bar {
    pub(super) x: String,
    pub(super) w: String,
    pub(super) y: u32,
    pub(super) h: u32,
    pub(super) class: String,
    pub(super) text: String,
    pub(super) title: String,
}

/// A mark: an event without a duration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Mark {
    pub(super) x: String,
    pub(super) y: u32,
    pub(super) class: String,
    pub(super) symbol: &'static str,
    pub(super) text: String,
    /// Whether the text is to the left of the mark.
    pub(super) left: bool,
    pub(super) title: String,
}

impl Scale {
    /// An axis of at least a millisecond.
    pub(super) fn new(from: Ns, to: Ns) -> Self {
        Self { from, to: to.max(from.saturating_add(1_000_000)) }
    }

    /// The position of an instant on the axis, from 0 to 1. An instant outside the axis goes to the
    /// nearer end.
    #[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
    pub(super) fn part(self, at: Ns) -> f64 {
        let at = at.clamp(self.from, self.to);
        at.saturating_sub(self.from) as f64 / self.to.saturating_sub(self.from) as f64
    }

    /// A position in SVG notation.
    pub(super) fn x(self, at: Ns) -> String {
        percent(self.part(at))
    }

    /// A bar over a window. It carries a text if there is room for it.
    pub(super) fn bar(self, window: Window, y: u32, h: u32, class: &str, text: &str) -> Bar {
        let (from, to) = (self.part(window.from), self.part(window.to));
        let width = to - from;
        // The drawing clips a text that is too long, and shows it after zooming in. The first word
        // must fit.
        let first = text.split(' ').scan(0, |end, word| {
            *end += word.chars().count() + 1;
            Some(*end)
        });
        let needed = first.into_iter().find(|end| *end > 2).unwrap_or(2);
        let text = if width > width_of(needed) { text.to_owned() } else { String::new() };
        let class = class.to_owned();
        Bar { x: percent(from), w: percent(width), y, h, class, text, title: String::new() }
    }

    /// The text of a window's two ends. An end outside the axis is unknown, or comes later.
    pub(super) fn span_text(self, window: Window) -> String {
        if window.to >= Ns::MAX / 2 {
            format!("from {} on", ms(window.from))
        } else {
            format!("{} to {}", ms(window.from), ms(window.to))
        }
    }

    /// Round numbers along the axis.
    pub(super) fn ticks(self) -> Vec<Tick> {
        let length = self.to.saturating_sub(self.from);
        let mut step: Ns = 100_000;
        while length / step > 10 {
            // The steps are 1, 2, 5, 10, ….
            let leading = step / 10_i64.pow(step.ilog10());
            step = if leading == 2 { step / 2 * 5 } else { step.saturating_mul(2) };
        }
        let first = self.from.div_euclid(step).saturating_add(1).saturating_mul(step);
        let first = if self.from.rem_euclid(step) == 0 { self.from } else { first };
        let mut ticks = Vec::new();
        let mut at = first;
        while at <= self.to && ticks.len() < 20 {
            ticks.push(Tick { x: self.x(at), text: ms(at) });
            at = at.saturating_add(step);
        }
        ticks
    }

    #[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
    pub(super) fn ends(self) -> (f64, f64) {
        (self.from as f64 / 1e6, self.to as f64 / 1e6)
    }
}

impl Bar {
    pub(super) fn titled(mut self, title: String) -> Self {
        self.title = title;
        self
    }
}

impl Lane {
    pub(super) fn new(label: impl Into<String>, class: &str) -> Self {
        Self { label: label.into(), class: class.to_owned(), ..Self::default() }
    }

    pub(super) fn caption(&mut self, y: u32, text: &str) {
        self.rows.push(Caption { y, text: text.to_owned() });
    }

    /// Removes the elements beyond the number that a page can show, and adds a note about them.
    pub(super) fn limit(&mut self, most: usize) {
        let more = self.bars.len().saturating_sub(most) + self.marks.len().saturating_sub(most);
        self.bars.truncate(most);
        self.marks.truncate(most);
        if more > 0 {
            self.note = format!("{more} more are left out");
        }
    }
}

/// The free room for texts beside the marks of a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    end: f64,
}

impl Room {
    /// Places the text of a mark to its right. If the next mark or the edge is in the way, the text
    /// goes to the left. Without room on either side the mark has no text.
    pub(super) fn place(&mut self, mark: &mut Mark, at: f64, next: f64, text: String) {
        let width = width_of(text.chars().count()) + 0.012;
        if at >= self.end && at + width <= next.min(1.0) {
            self.end = at + width;
            mark.text = text;
        } else if at - width >= self.end {
            mark.left = true;
            mark.text = text;
        }
        self.cover(at);
    }

    /// Marks the axis as occupied up to this position.
    pub(super) const fn cover(&mut self, to: f64) {
        self.end = self.end.max(to);
    }
}

/// The part of the axis that this many characters take, on a screen of usual width.
#[expect(clippy::cast_precision_loss, reason = "a place on a screen")]
fn width_of(characters: usize) -> f64 {
    characters as f64 * 0.0065
}

/// Packs windows into as few rows as possible, and returns the row of each. `room` is the least
/// part of the axis that each window takes, for its text.
pub(super) fn pack(scale: Scale, windows: &[Window], room: f64) -> (Vec<u32>, u32) {
    let mut ends: Vec<f64> = Vec::new();
    let mut rows = Vec::new();
    for window in windows {
        let from = scale.part(window.from);
        let to = scale.part(window.to).max(from + room);
        let free = ends.iter().position(|end| *end <= from);
        let row = free.unwrap_or_else(|| {
            ends.push(0.0);
            ends.len() - 1
        });
        ends[row] = to;
        rows.push(u32::try_from(row).unwrap_or(u32::MAX));
    }
    (rows, u32::try_from(ends.len()).unwrap_or(u32::MAX))
}

fn percent(part: f64) -> String {
    let text = format!("{:.4}", part * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The colour of each client, and the client of each token.
pub(super) struct Names<'a> {
    classes: BTreeMap<&'a str, &'static str>,
    tokens: BTreeMap<&'a str, &'a str>,
}

const CLASSES: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

impl<'a> Names<'a> {
    pub(super) fn new(run: &'a Run<'_>, case: &Case<'a>) -> Self {
        let mut classes = BTreeMap::new();
        for (index, client) in run.history.header.scenario.clients.iter().enumerate() {
            let class = CLASSES[index % CLASSES.len()];
            classes.insert(client.id.as_str(), class);
            classes.entry(client.process().as_str()).or_insert(class);
        }
        let tokens = case.leases.iter().filter_map(|lease| Some((lease.token?, lease.client)));
        Self { classes, tokens: tokens.collect() }
    }

    /// The CSS class of a client, or of a process.
    pub(super) fn class(&self, name: &str) -> &'static str {
        self.classes.get(name).copied().unwrap_or("k7")
    }

    /// The client that was granted a token.
    pub(super) fn of_token(&self, token: &str) -> Option<&'a str> {
        self.tokens.get(token).copied()
    }
}

/// The longest text from a history that the page shows.
const LONGEST: usize = 240;

/// A text, cut if it is too long. A note gives the number of characters that are missing.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes more)", &text[..end], text.len() - end),
    }
}

/// A name, cut for a label.
pub(super) fn name(text: &str) -> String {
    let mut short: String = text.chars().take(24).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The first characters of a token, enough to distinguish it from others.
pub(super) fn token(text: &str) -> String {
    let text = text.strip_prefix("hex:").unwrap_or(text);
    text.chars().take(8).collect()
}

/// A time in milliseconds, to the microsecond: `12.345 ms`.
pub(super) fn ms(ns: Ns) -> String {
    let micros = ns / 1_000;
    let (sign, micros) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let decimals = format!("{:03}", micros % 1_000);
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{decimals} ms", micros / 1_000)
}

/// The line of a record in its `history.jsonl`. The first line is the header.
pub(in crate::report) const fn line(record: usize) -> usize {
    record + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_ticks_and_no_more_than_eleven() {
        for to in [1, 1_000_000, 655_351_000, 4_400_000_000, 3_600_000_000_000] {
            let ticks = Scale::new(0, to).ticks();
            assert!((2..=11).contains(&ticks.len()), "{to}: {}", ticks.len());
        }
        let texts: Vec<String> =
            Scale::new(0, 655_351_000).ticks().into_iter().map(|tick| tick.text).collect();
        assert_eq!(texts[..3], ["0 ms", "100 ms", "200 ms"]);
    }

    #[test]
    fn a_bar_that_overlaps_goes_to_a_row_of_its_own() {
        let of = |from: i64, to: i64| Window { from: from * 1_000_000, to: to * 1_000_000 };
        let scale = Scale::new(0, 100_000_000);
        let (rows, count) = pack(scale, &[of(0, 50), of(10, 20), of(60, 70)], 0.0);
        assert_eq!((rows, count), (vec![0, 1, 0], 2));
    }

    #[test]
    fn a_text_that_finds_no_room_at_its_right_stands_at_its_left_or_is_left_out() {
        let mut room = Room::default();
        let mut place = |at: f64, next: f64| {
            let mut mark = Mark::default();
            room.place(&mut mark, at, next, "acquire L".to_owned());
            (!mark.text.is_empty(), mark.left)
        };
        assert_eq!(place(0.0, 0.01), (false, false));
        assert_eq!(place(0.01, 0.5), (true, false));
        assert_eq!(place(0.5, 0.51), (true, true));
        assert_eq!(place(0.51, 1.0), (true, false));
        assert_eq!(place(0.99, 1.0), (true, true));
    }

    #[test]
    fn a_bar_beyond_the_axis_ends_with_the_axis() {
        let bar = Scale::new(0, 10_000_000).bar(
            Window { from: 5_000_000, to: Ns::MAX },
            0,
            ROW,
            "k0",
            "c1",
        );
        assert_eq!((bar.x.as_str(), bar.w.as_str()), ("50%", "50%"));
    }

    #[test]
    fn a_long_text_is_cut_with_a_note() {
        assert_eq!(cut("c1"), "c1");
        let long = cut(&"ä".repeat(10_000));
        assert!(long.starts_with("ää") && long.ends_with("… (19520 bytes more)"), "{long}");
        assert_eq!(name(&"x".repeat(30)).chars().count(), 25);
    }

    #[test]
    fn times_have_as_many_decimals_as_they_need() {
        let texts = [0, 2_650_000, 12_000_000, -50_000, 999].map(ms);
        assert_eq!(texts, ["0 ms", "2.65 ms", "12 ms", "-0.05 ms", "0 ms"]);
    }
}
