//! Reads a scenario file: first as TOML, then piece by piece into the types. Finally, it checks the
//! sense of the whole, as far as its pieces are right. Each problem has its place and its fix, and
//! one read reports as many problems as it can find, rendered as a compiler does. `read/check.rs`
//! has the checks.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::Scenario;
use crate::{Client, Cluster, Expect, Fault, Lock, Variant};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

mod check;

/// The number of syntax errors that are shown. After the first few, the parser guesses.
const MOST_SYNTAX: usize = 3;

/// Reads a scenario. Messages name the file. The scenario's name must be the file's without
/// `.toml`.
///
/// # Errors
/// All problems of the file.
pub fn read(file: &str, text: &str) -> Result<Scenario, Problems> {
    let problems = |list| Problems::new(file, text, list);
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let list = errors.iter().map(|error| {
            let why = syntax(error.message());
            let span = error.span().unwrap_or(text.len()..text.len());
            Problem::new(text, span, why.message, why.fix)
        });
        let mut list: Vec<Problem> = list.collect();
        list.sort_by_key(|problem| problem.line);
        list.dedup_by_key(|problem| problem.line);
        list.truncate(MOST_SYNTAX);
        return Err(problems(list));
    }
    let mut shape = Shape { text, problems: Vec::new() };
    let wrong = shape.fields(root.as_ref(), &FIELDS, &["name", "about", "client"], 0..0);
    let sound = Spanned::new(root.span(), without(file, root.as_ref().clone(), &wrong));
    let scenario = match Scenario::deserialize(sound.into_deserializer()) {
        Ok(scenario) => scenario,
        Err(why) => {
            // The error is known already, unless the pieces are right and only the whole is wrong.
            if shape.problems.is_empty() {
                shape.problem(&why, 0..0);
            }
            return Err(problems(shape.problems));
        }
    };
    let mut found = check::check(file, &scenario);
    found.retain(|found| found.place.is_before(&wrong));
    if found.is_empty() && shape.problems.is_empty() {
        return Ok(scenario);
    }
    let found = found.into_iter().map(|found| {
        let place = |place: &Place| place.span(text, root.as_ref());
        let problem = Problem::new(text, place(&found.place), found.message, found.fix);
        match &found.also {
            Some((other, why)) => problem.also(text, place(other), why.clone()),
            None => problem,
        }
    });
    Err(problems(shape.problems.into_iter().chain(found).collect()))
}

/// Whether a scenario that was not read from a file makes sense.
pub fn makes_sense(scenario: &Scenario) -> bool {
    check::check("", scenario).is_empty()
}

/// The line of a run's expectation in a scenario's text: the place to correct if the result
/// differs. `name` is the name of the run, with its variant.
pub fn line_of(text: &str, name: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let place = Place::default();
    let place = match name.split_once('/') {
        None => place.key("expect"),
        Some((_, variant)) => {
            let variants = root.as_ref().get("variant").and_then(|list| list.as_ref().as_array());
            let of = |table: &toml::Spanned<toml::de::DeValue<'_>>| {
                let name = table.as_ref().get("name").and_then(|name| name.as_ref().as_str());
                name == Some(variant)
            };
            let index = variants.and_then(|list| list.iter().position(of)).unwrap_or_default();
            place.key("variant").index(index).key("expect")
        }
    };
    let span = place.span(text, root.as_ref());
    Problem::new(text, span, String::new(), String::new()).line
}

const FIELDS: [&str; 9] =
    ["name", "about", "source", "cluster", "lock", "client", "fault", "expect", "variant"];
const OF_VARIANTS: [&str; 7] = ["name", "about", "cluster", "lock", "client", "fault", "expect"];

/// The parts that checks compare: the check of each looks at itself and at those before it.
const PARTS: [&str; 6] = ["cluster", "lock", "client", "fault", "expect", "variant"];

/// The scenario without its wrong pieces, so that what does not rest on them can be checked.
fn without<'i>(file: &str, mut root: DeTable<'i>, wrong: &[String]) -> DeTable<'i> {
    for key in wrong {
        root.remove(key.as_str());
    }
    let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (key, value) in [
        ("name", DeValue::String(stem.into())),
        ("about", DeValue::String("…".into())),
        ("client", DeValue::Array(DeArray::new())),
    ] {
        if wrong.iter().any(|wrong| wrong == key) {
            root.insert(Spanned::new(0..0, key.into()), Spanned::new(0..0, value));
        }
    }
    root
}

/// Reads each client, fault and table on its own, so that a wrong piece does not hide the others.
struct Shape<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl Shape<'_> {
    /// An error about a whole value has no place of its own: it takes the value's place.
    fn problem(&mut self, why: &toml::de::Error, value: Range<usize>) {
        self.explained(shape(why.message()), why.span().unwrap_or(value));
    }

    fn explained(&mut self, explained: Explanation, span: Range<usize>) {
        let Explanation { message, fix, word } = explained;
        let span = word.map_or(span.clone(), |word| narrowed(self.text, span, &word));
        self.problems.push(Problem::new(self.text, span, message, fix));
    }

    /// The pieces of a scenario or of a variant. Returns the keys of those that are wrong. A key
    /// that does not exist is a wrong piece of the name that it may stand for.
    fn fields(
        &mut self,
        table: &DeTable<'_>,
        known: &[&str],
        needed: &[&str],
        span: Range<usize>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, value) in table {
            let (name, before) = (key.get_ref().as_ref(), self.problems.len());
            match name {
                _ if !known.contains(&name) => {
                    self.explained(unknown_field(name, known), key.span());
                }
                "client" => self.each(key, value, Self::piece::<Client>),
                "fault" => self.each(key, value, Self::piece::<Fault>),
                "variant" => self.each(key, value, Self::variant),
                "cluster" => self.piece::<Cluster>(value),
                "lock" => self.piece::<Lock>(value),
                "expect" => self.piece::<Expect>(value),
                _ => self.piece::<String>(value),
            }
            if self.problems.len() > before {
                wrong.push(name.to_owned());
                wrong.extend(near(name, known.iter().copied()).map(str::to_owned));
            }
        }
        for name in needed {
            if !table.keys().any(|key| key.get_ref() == name) {
                self.explained(shape(&format!("missing field `{name}`")), span.clone());
                wrong.push((*name).to_owned());
            }
        }
        wrong
    }

    /// Serde reports the first error. Its part is taken out, and the rest is read again. An error
    /// of a whole from which a part was taken is no news: the whole may lack that part.
    fn piece<T: DeserializeOwned>(&mut self, value: &Spanned<DeValue<'_>>) {
        let (mut rest, mut wholes) = (value.clone(), Vec::new());
        while let Err(why) = T::deserialize(rest.clone().into_deserializer()) {
            let part = why.span().unwrap_or_else(|| value.span());
            if wholes.contains(&part) {
                return;
            }
            self.problem(&why, value.span());
            if !take_out(&mut rest, &part, &mut wholes) {
                return;
            }
        }
    }

    fn each(
        &mut self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        of: fn(&mut Self, &Spanned<DeValue<'_>>),
    ) {
        match value.as_ref() {
            DeValue::Array(list) => list.iter().for_each(|value| of(self, value)),
            _ => {
                let name = key.get_ref();
                let what = format!("there can be several: `{name}` is a list");
                let fix = format!("write the header with two brackets: `[[{name}]]`");
                self.problems.push(Problem::new(self.text, key.span(), what, fix));
            }
        }
    }

    fn variant(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.as_ref().as_table() {
            Some(table) => {
                self.fields(table, &OF_VARIANTS, &["name", "about", "expect"], value.span());
            }
            None => self.piece::<Variant>(value),
        }
    }
}

/// Takes the part with this span out of a value. Adds the spans of all that it was in. Returns
/// whether there was such a part.
fn take_out(
    value: &mut Spanned<DeValue<'_>>,
    part: &Range<usize>,
    wholes: &mut Vec<Range<usize>>,
) -> bool {
    let whole = value.span();
    let found = match value.get_mut() {
        DeValue::Table(table) => {
            let is_it = |(key, value): &(&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                key.span() == *part || value.span() == *part
            };
            match table.iter().find(is_it).map(|(key, _)| key.get_ref().to_string()) {
                Some(key) => table.remove(key.as_str()).is_some(),
                None => table.iter_mut().any(|(_, value)| take_out(value, part, wholes)),
            }
        }
        DeValue::Array(list) => {
            let before = list.len();
            let all = std::mem::replace(list, DeArray::new());
            *list = all.into_iter().filter(|one| one.span() != *part).collect();
            list.len() < before || list.iter_mut().any(|one| take_out(one, part, wholes))
        }
        _ => false,
    };
    if found {
        wholes.push(whole);
    }
    found
}

/// A path into a scenario file, such as `fault[1].net.drop.nodes[2]`, and the part of the value at
/// this path that is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    steps: Vec<PlaceStep>,
    /// Whether the key is meant, not its value.
    key: bool,
    /// The word inside a string that is meant.
    word: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceStep {
    Key(String),
    Index(usize),
}

impl Place {
    fn key(&self, key: impl Into<String>) -> Self {
        self.with(PlaceStep::Key(key.into()))
    }

    fn index(&self, index: usize) -> Self {
        self.with(PlaceStep::Index(index))
    }

    fn with(&self, step: PlaceStep) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Self { steps, key: false, word: None }
    }

    /// The key of this path, for a problem with the name.
    fn itself(&self) -> Self {
        Self { key: true, ..self.clone() }
    }

    /// A word of the string at this path.
    fn word(&self, word: impl AsRef<str>) -> Self {
        Self { word: Some(word.as_ref().to_owned()), ..self.clone() }
    }

    /// Whether this is a part of a scenario whose check does not rest on these wrong pieces.
    fn is_before(&self, wrong: &[String]) -> bool {
        let part = |key: &str| PARTS.iter().position(|part| *part == key);
        let Some(PlaceStep::Key(own)) = self.steps.first() else { return wrong.is_empty() };
        let first = wrong.iter().filter_map(|wrong| part(wrong)).min();
        !wrong.contains(own) && part(own).is_none_or(|own| first.is_none_or(|first| own < first))
    }

    fn is_within(&self, outer: &Self) -> bool {
        self.steps.starts_with(&outer.steps)
    }

    /// The span of the place. If the path does not exist, this is the span of its last step that
    /// exists.
    fn span(&self, text: &str, root: &DeTable<'_>) -> Range<usize> {
        let mut span = 0..0;
        let (mut table, mut array) = (Some(root), None);
        for (number, next) in self.steps.iter().enumerate() {
            let last = number + 1 == self.steps.len();
            let Some((key, value)) = step(table, array, next) else { return span };
            (table, array) = (value.as_ref().as_table(), value.as_ref().as_array());
            span = match key {
                // A table from a header has the span of the header; a table from dotted keys has
                // that of the last key.
                Some(key) if (last && self.key) || table.is_some() => key,
                _ => value.span(),
            };
        }
        match &self.word {
            Some(word) => narrowed(text, span, word),
            None => span,
        }
    }
}

/// The place of a whole word inside a span; the span if the word is not there.
fn narrowed(text: &str, span: Range<usize>, word: &str) -> Range<usize> {
    let part = |c: char| c.is_alphanumeric() || "._:-".contains(c);
    let Some(inside) = text.get(span.clone()).filter(|_| !word.is_empty()) else { return span };
    let whole = |start: usize| {
        !inside[..start].ends_with(part) && !inside[start + word.len()..].starts_with(part)
    };
    // The last occurrence: the verb `release` comes before a resource of that name.
    match inside.match_indices(word).map(|(start, _)| start).filter(|start| whole(*start)).last() {
        Some(start) => span.start + start..span.start + start + word.len(),
        None => span,
    }
}

/// The value of a step from a table or a list, with the span of its key.
fn step<'a, 'i>(
    table: Option<&'a DeTable<'i>>,
    array: Option<&'a DeArray<'i>>,
    step: &PlaceStep,
) -> Option<(Option<Range<usize>>, &'a Spanned<DeValue<'i>>)> {
    match step {
        PlaceStep::Index(index) => Some((None, array?.get(*index)?)),
        PlaceStep::Key(key) => {
            // `node = 1` is read as `nodes = [1]`.
            let find = |name: &str| table?.iter().find(|(key, _)| key.get_ref() == name);
            let (key, value) = find(key).or_else(|| find(key.strip_suffix('s')?))?;
            Some((Some(key.span()), value))
        }
    }
}

/// A message for the author of a scenario.
#[derive(Debug, PartialEq, Eq)]
struct Explanation {
    message: String,
    fix: String,
    /// The word inside the value that the message is about.
    word: Option<String>,
}

impl Explanation {
    fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into(), word: None }
    }
}

/// What a broken piece of TOML lacks.
fn syntax(message: &str) -> Explanation {
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    let fix = if has(&["duplicate key"]) {
        "keep one of the two; several clients, faults and variants are written with a header of \
         their own each: `[[client]]`, `[[fault]]`, `[[variant]]`"
    } else if has(&["string values must be quoted"]) {
        "put it in quotes: \"…\""
    } else if has(&["array table"]) {
        "write headers of clients, faults and variants as `[[client]]`, on a line of their own"
    } else if has(&["string", "quote"]) {
        "close the string on the line on which it began, with the quote that opened it"
    } else if has(&["array"]) {
        "write lists as `[1, 2]`, with a comma between two elements and a `]` behind the last"
    } else if has(&["inline table"]) {
        "write tables as `{ a = 1, b = 2 }`, with a comma between two entries and a `}` behind the \
         last"
    } else if has(&["table"]) {
        "write headers as `[lock]`, on a line of their own"
    } else if has(&["key", "=", "missing value", "invalid value"]) {
        "write one `key = value` a line; text and times stand in quotes: `ttl = \"2s\"`"
    } else if has(&["comment", "carriage return"]) {
        "remove the control character"
    } else if has(&["sign", "zero", "radix", "prefix", "digits"]) {
        "write a plain number, such as 5 or 0.5"
    } else {
        "look for a missing quote, bracket or `=` here or just before"
    };
    Explanation::new(message.trim_end_matches(", expected literal string"), fix)
}

/// Why Serde rejects a value.
fn shape(message: &str) -> Explanation {
    if let Some(rest) = message.strip_prefix("unexpected keys in table: ") {
        // The TOML reader reports this where Serde would report `unknown field`.
        let (keys, known) = rest.split_once(", available keys: ").unwrap_or((rest, ""));
        let key = keys.split(", ").next().unwrap_or(keys);
        let known: Vec<&str> = known.split(", ").collect();
        return Explanation { word: None, ..unknown_field(key, &known) };
    }
    if let Some((name, known)) = unknown(message, "unknown field `") {
        return unknown_field(name, &known);
    }
    if let Some((name, known)) = unknown(message, "unknown variant `") {
        let message = format!("`{name}` is none of the words that can stand here");
        return Explanation { message, ..unknown_field(name, &known) };
    }
    let field = |prefix| Some(message.strip_prefix(prefix)?.trim_end_matches('`'));
    if let Some(field) = field("missing field `") {
        return Explanation::new(
            format!("`{field}` is missing"),
            format!("add {}", example(field)),
        );
    }
    if let Some(field) = field("duplicate field `") {
        return Explanation::new(
            format!("`{field}` is there twice, under two names"),
            format!("keep one: `{field}` may be a single one or a list"),
        );
    }
    for what in ["type", "value"] {
        if let Some(rest) = message.strip_prefix(&format!("invalid {what}: ")) {
            let (found, wanted) =
                rest.split_once(", expected ").unwrap_or((rest, "something else"));
            return Explanation::new(
                format!("wrong {what}: {found}"),
                format!("write {}", kind(wanted)),
            );
        }
    }
    // What an untagged enum expects is its whole message.
    for (start, message_now) in [
        ("a number of rounds", "wrong type for `loop`"),
        ("how often at most", "wrong type for `overtaken`"),
        ("masters: ", "wrong type for `nodes`"),
        ("clients: ", "wrong type for `clients`"),
    ] {
        if message.starts_with(start) {
            return Explanation::new(message_now, format!("write {message}"));
        }
    }
    if message.starts_with("wanted exactly 1 element") {
        let several = message.contains("more than 1");
        return Explanation::new(
            if several { "one fault does several things" } else { "the fault does nothing" },
            "write a [[fault]] for each effect, such as `node.kill = { nodes = [1] }`",
        );
    }
    if message == "wanted string or table" {
        return Explanation::new(
            "wrong type: neither text nor a table",
            "write text in quotes, or a table `{ … }`",
        );
    }
    own(message)
}

/// Keys and words that were renamed, and their names now.
const RENAMED: [(&str, &str); 4] = [
    ("guard", "restart-guard"),
    ("grace", "lock-delay"),
    ("blessed", "initialized"),
    ("line", "queue"),
];

/// The unknown name in a message, and the known ones.
fn unknown<'a>(message: &'a str, prefix: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = message.strip_prefix(prefix)?;
    let (name, expected) = rest.split_once('`').unwrap_or((rest, ""));
    Some((name, expected.split('`').skip(1).step_by(2).collect()))
}

/// Explains that a field is unknown.
fn unknown_field(name: &str, known: &[&str]) -> Explanation {
    let renamed = RENAMED.iter().find(|(old, now)| *old == name && known.contains(now));
    let list: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let fix = match renamed {
        Some((_, now)) => format!("write `{now}`: the key was renamed"),
        None if list.is_empty() => "leave it out".to_owned(),
        None => {
            format!("{}known here: {}", guess(name, known.iter().copied()), list.join(", "))
        }
    };
    let message = format!("unknown field `{name}`");
    Explanation { message, fix, word: Some(name.to_owned()) }
}

/// Messages of this crate's `FromStr` and visitors: `what is wrong: what to do`.
fn own(message: &str) -> Explanation {
    const BEFORE_FIXES: [&str; 9] = [
        "; write ",
        ": write ",
        ": give ",
        ": keep ",
        ": leave ",
        ": count ",
        ": at most ",
        ": use ",
        ": name ",
    ];
    let cut = BEFORE_FIXES.iter().find_map(|mark| message.find(mark));
    let (what, fix) = match cut {
        Some(at) => (&message[..at], &message[at + 2..]),
        None if message.ends_with("is there twice") => (message, "name it once"),
        None => (message, "compare with the output of `redquorum-chaos new`"),
    };
    // In "`acquire L wiat 5s`: `wiat` is too much", the first part is the value, which is shown
    // anyway.
    let what = match what.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
        Some((_, rest)) if !rest.is_empty() => rest,
        _ => what,
    };
    let quoted = what.split('`').nth(1);
    let word = quoted.or_else(|| what.split(' ').find(|word| word.parse::<i64>().is_ok()));
    let guessed = match word {
        Some(word) if what.contains(" is ") || what.contains("names no masters") => {
            let word = word.split('(').next().unwrap_or(word);
            guess(word, words_of(fix).filter(|known| *known != word))
        }
        _ => String::new(),
    };
    Explanation {
        message: what.to_owned(),
        fix: format!("{guessed}{fix}"),
        word: word.map(str::to_owned),
    }
}

/// The words inside backticks: candidates for the word that the author meant.
fn words_of(fix: &str) -> impl Iterator<Item = &str> {
    let code = fix.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split([' ', '[', ']', '('])).filter(|word| word.len() > 1)
}

fn kind(wanted: &str) -> &str {
    match wanted {
        "u32" | "u64" | "usize" | "i64" => "a whole number, not negative, without quotes",
        "f64" => "a number such as 2.0, without quotes",
        "a boolean" => "true or false, without quotes",
        "a string" => "text in quotes",
        "a sequence" => "a list such as [\"…\", \"…\"]",
        "struct Scenario" => "a scenario",
        "string or table" => "text in quotes, or a table",
        wanted if wanted.starts_with("struct ") || wanted == "a map" => {
            "a table such as { key = value }"
        }
        wanted => wanted,
    }
}

fn example(field: &str) -> String {
    let example = match field {
        "name" => "name = \"my-scenario\"",
        "about" => "about = \"what it shows, in one sentence\"",
        "client" => "[[client]]` with an `id` and a `script",
        "id" => "id = \"c1\"",
        "script" => "script = [\"acquire L\", \"work 1s\", \"release L\"]",
        "expect" => "[variant.expect]",
        "nodes" => "nodes = [1]",
        "clients" => "clients = [\"c1\"]",
        "by" => "by = \"100ms\"",
        "factor" => "factor = 2.0",
        "every" => "every = \"100ms\"",
        "bytes" => "bytes = 100",
        "end" => "end = \"client\"",
        other => return format!("`{other} = …`"),
    };
    format!("`{example}`")
}

/// A problem in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong: a fragment in lower case.
    pub message: String,
    /// How to fix it.
    pub fix: String,
    /// The place, in bytes.
    pub span: Range<usize>,
    /// Another place that is related to the problem, and how it is related.
    pub also: Option<(Range<usize>, String)>,
}

/// All problems of one scenario file, in the order of its lines. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    text: String,
    list: Vec<Problem>,
}

impl Problem {
    pub(super) fn new(text: &str, span: Range<usize>, message: String, fix: String) -> Self {
        let span = inside(text, span);
        let before = &text[..span.start];
        let start_of_line = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start_of_line..].chars().count() + 1,
            message,
            fix,
            span,
            also: None,
        }
    }

    pub(super) fn also(mut self, text: &str, span: Range<usize>, why: String) -> Self {
        self.also = Some((inside(text, span), why));
        self
    }
}

/// The nearest range that lies within a text and cuts no character in two.
fn inside(text: &str, span: Range<usize>) -> Range<usize> {
    let start = floor(text, span.start);
    start..floor(text, span.end).max(start)
}

fn floor(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

impl Problems {
    pub(super) fn new(file: &str, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.span.start);
        list.dedup();
        Self { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// The name of the file, as the caller gave it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The problems, in the order of lines.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Renders all problems with the lines that they are about, with colours if `colour` is set.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let all: Vec<String> =
            self.list.iter().map(|problem| self.render_one(problem, &renderer)).collect();
        all.join("\n\n")
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let primary = AnnotationKind::Primary.span(problem.span.clone());
        let mut snippet =
            Snippet::source(self.text.as_str()).path(self.file.as_str()).annotation(primary);
        if let Some((span, why)) = &problem.also {
            let context = AnnotationKind::Context.span(span.clone()).label(why.as_str());
            snippet = snippet.annotation(context);
        }
        let group = Level::ERROR
            .primary_title(problem.message.as_str())
            .element(snippet)
            .element(Level::HELP.message(problem.fix.as_str()));
        renderer.render(&[group])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}

/// The candidate that is nearest to a misspelt word, if any is near.
pub fn near<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters may be wrong. Of `c3`, none may be: it is not a misspelt `c1`.
    let letters = word.chars().count();
    let most = letters / 3;
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most && *distance < candidate.chars().count())
        .min_by_key(|(distance, candidate)| {
            (*distance, candidate.chars().count().abs_diff(letters))
        })
        .map(|(_, candidate)| candidate)
}

/// `did you mean `x`? ` if a candidate is near; otherwise the empty string.
pub(super) fn guess<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    near(word, candidates).map_or_else(String::new, |near| format!("did you mean `{near}`? "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_fields_are_those_of_the_types() {
        fn fields<T: schemars::JsonSchema>() -> Vec<String> {
            let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
            let mut names: Vec<String> =
                schema["properties"].as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        }
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        assert_eq!(fields::<Scenario>(), sorted(FIELDS.to_vec()));
        assert_eq!(fields::<Variant>(), sorted(OF_VARIANTS.to_vec()));
    }

    #[test]
    fn similar_words_are_found_and_others_are_not() {
        let names = ["acquire", "extend", "release"];
        assert_eq!(near("aquire", names), Some("acquire"));
        assert_eq!(near("Release", names), Some("release"));
        assert_eq!(near("nodse", ["node", "nodes"]), Some("nodes"));
        assert_eq!((near("l", ["L"]), near("c3", ["c1"])), (Some("L"), None));
        assert_eq!(near("lock", names), None);
        assert_eq!(near("", names), None);
    }
}
