//! Rewrites messages of the TOML parser, of Serde and of this crate's own small languages: what is
//! wrong, how to fix it, and the word that it is about.

use crate::near::guess;

/// A message for the author of a scenario.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) message: String,
    pub(super) fix: String,
    /// The word inside the value that the message is about.
    pub(super) word: Option<String>,
}

impl Explanation {
    fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into(), word: None }
    }
}

/// What a broken piece of TOML lacks.
pub(super) fn syntax(message: &str) -> Explanation {
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
pub(super) fn shape(message: &str) -> Explanation {
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
pub(super) fn unknown_field(name: &str, known: &[&str]) -> Explanation {
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
