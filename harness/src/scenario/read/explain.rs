//! Rewrites messages of the TOML parser, of Serde and of this crate's own small languages: what is
//! wrong, how to fix it, and the word that it is about.

use crate::scenario::near::guess;

/// A message for the author of a scenario.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explanation {
    pub(super) message: String,
    pub(super) mend: String,
    /// The word inside the value that the message is about.
    pub(super) word: Option<String>,
}

impl Explanation {
    fn new(message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { message: message.into(), mend: mend.into(), word: None }
    }
}

/// What a broken piece of TOML lacks.
pub(super) fn syntax(message: &str) -> Explanation {
    let has = |part: &str| message.contains(part);
    let mend = if has("duplicate key") {
        "keep one of the two; several clients, faults and variants are written with a header of \
         their own each: `[[client]]`, `[[fault]]`, `[[variant]]`"
    } else if has("string values must be quoted") {
        "put it in quotes: \"…\""
    } else if has("array table") {
        "write headers of clients, faults and variants as `[[client]]`, on a line of their own"
    } else if has("string") || has("quote") {
        "close the string on the line on which it began, with the quote that opened it"
    } else if has("array") {
        "write lists as `[1, 2]`, with a comma between two elements and a `]` behind the last"
    } else if has("inline table") {
        "write tables as `{ a = 1, b = 2 }`, with a comma between two entries and a `}` behind the \
         last"
    } else if has("table") {
        "write headers as `[lock]`, on a line of their own"
    } else if has("key") || has("=") || has("missing value") || has("invalid value") {
        "write one `key = value` a line; text and times stand in quotes: `ttl = \"2s\"`"
    } else if has("dotted key") {
        "give the key another name, or write the table in one place"
    } else if has("comment") || has("carriage return") {
        "remove the control character"
    } else if has("sign") || has("zero") || has("radix") || has("prefix") || has("digits") {
        "write a plain number, such as 5 or 0.5"
    } else {
        "look for a missing quote, bracket or `=` here or just before"
    };
    Explanation::new(message.trim_end_matches(", expected literal string"), mend)
}

/// Why Serde rejects a value.
pub(super) fn shape(message: &str) -> Explanation {
    if let Some(rest) = message.strip_prefix("unexpected keys in table: ") {
        // The TOML reader reports this where Serde would report `unknown field`.
        let (keys, known) = rest.split_once(", available keys: ").unwrap_or((rest, ""));
        let key = keys.split(", ").next().unwrap_or(keys);
        let mut told = unknown("field", key, &known.split(", ").collect::<Vec<_>>());
        told.word = None;
        return told;
    }
    for what in ["field", "variant"] {
        let prefix = format!("unknown {what} `");
        if let Some(rest) = message.strip_prefix(prefix.as_str()) {
            let (name, expected) = rest.split_once('`').unwrap_or((rest, ""));
            let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
            return unknown(what, name, &known);
        }
    }
    if let Some(field) = message.strip_prefix("missing field `") {
        let field = field.trim_end_matches('`');
        return Explanation::new(
            format!("`{field}` is missing"),
            format!("add {}", example(field)),
        );
    }
    if let Some(field) = message.strip_prefix("duplicate field `") {
        let field = field.trim_end_matches('`');
        let twice = format!("`{field}` is there twice, under two names");
        return Explanation::new(
            twice,
            format!("keep one: `{field}` may be a single one or a list"),
        );
    }
    if let Some(rest) = message.strip_prefix("invalid type: ") {
        let (found, wanted) = rest.split_once(", expected ").unwrap_or((rest, "something else"));
        return Explanation::new(format!("wrong type: {found}"), format!("write {}", kind(wanted)));
    }
    if let Some(rest) = message.strip_prefix("invalid value: ") {
        let (found, wanted) = rest.split_once(", expected ").unwrap_or((rest, "something else"));
        return Explanation::new(
            format!("wrong value: {found}"),
            format!("write {}", kind(wanted)),
        );
    }
    if message.starts_with("wanted exactly 1 element") {
        let message = if message.contains("more than 1") {
            "one fault does several things"
        } else {
            "the fault does nothing"
        };
        return Explanation::new(
            message,
            "write a [[fault]] for each harm, such as `node.kill = { nodes = [1] }`",
        );
    }
    if message == "wanted string or table" {
        return Explanation::new(
            "wrong type: neither text nor a table",
            "write text in quotes, or a table `{ … }`",
        );
    }
    if message.starts_with("a number of rounds") {
        return Explanation::new("wrong type for `loop`", format!("write {message}"));
    }
    if message.starts_with("how often at most") {
        return Explanation::new("wrong type for `overtaken`", format!("write {message}"));
    }
    own(message)
}

/// Keys that were renamed, and their names now.
const RENAMED: [(&str, &str); 3] =
    [("guard", "restart-guard"), ("grace", "lock-delay"), ("blessed", "initialized")];

fn unknown(what: &str, name: &str, known: &[&str]) -> Explanation {
    let list: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let known_are = match list.len() {
        0 => "leave it out".to_owned(),
        _ => format!("known here: {}", list.join(", ")),
    };
    let message = match what {
        "field" => format!("unknown field `{name}`"),
        _ => format!("`{name}` is none of the words that can stand here"),
    };
    let renamed = RENAMED.iter().find(|(old, now)| *old == name && known.contains(now));
    if let Some((_, now)) = renamed {
        let mend = format!("write `{now}`: the key was renamed");
        return Explanation { message, mend, word: Some(name.to_owned()) };
    }
    let mend = format!("{}{known_are}", guess(name, known.iter().copied()));
    Explanation { message, mend, word: Some(name.to_owned()) }
}

/// Messages of this crate's `FromStr` and visitors: `what is wrong: what to do`.
fn own(message: &str) -> Explanation {
    const BEFORE_MENDS: [&str; 9] = [
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
    let cut = BEFORE_MENDS.iter().find_map(|mark| message.find(mark));
    let (what, mend) = match cut {
        Some(at) => (&message[..at], message[at + 2..].to_owned()),
        None if message.ends_with("is there twice") => (message, "name it once".to_owned()),
        None => (message, "compare with the output of `redquorum-chaos new`".to_owned()),
    };
    // In "`acquire L wiat 5s`: `wiat` is too much", the first part is the value, which is shown
    // anyway.
    let what = match what.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
        Some((_, rest)) if !rest.is_empty() => rest,
        _ => what,
    };
    let quoted = what.split('`').nth(1);
    let number = || what.split(' ').find(|word| word.parse::<i64>().is_ok());
    let word = quoted.or_else(number).map(str::to_owned);
    let guessed = match &word {
        Some(word) if what.contains(" is ") || what.contains("names no masters") => {
            guess(word.split('(').next().unwrap_or(word), words_of(&mend))
        }
        _ => String::new(),
    };
    Explanation { message: what.to_owned(), mend: format!("{guessed}{mend}"), word }
}

/// The words inside backticks: candidates for the word that the author meant.
fn words_of(mend: &str) -> impl Iterator<Item = &str> {
    let code = mend.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split([' ', '[', ']', '('])).filter(|word| word.len() > 1)
}

fn kind(wanted: &str) -> String {
    match wanted {
        "u32" | "u64" | "usize" | "i64" => {
            "a whole number, not negative, without quotes".to_owned()
        }
        "f64" => "a number such as 2.0, without quotes".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a string" => "text in quotes".to_owned(),
        "a sequence" => "a list such as [\"…\", \"…\"]".to_owned(),
        "struct Scenario" => "a scenario".to_owned(),
        wanted if wanted.starts_with("struct ") || wanted == "a map" => {
            "a table such as { key = value }".to_owned()
        }
        "string or table" => "text in quotes, or a table".to_owned(),
        wanted => wanted.to_owned(),
    }
}

fn example(field: &str) -> String {
    let example = match field {
        "name" => "name = \"my-lesson\"",
        "about" => "about = \"the lesson in one sentence\"",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_parted_from_the_mend() {
        let told =
            shape("`acquire L wiat 5s`: `wiat` is too much; write one of `acquire L [wait 5s]`");
        assert_eq!(told.message, "`wiat` is too much");
        assert_eq!(told.mend, "did you mean `wait`? write one of `acquire L [wait 5s]`");
        assert_eq!(told.word.as_deref(), Some("wiat"));
        let told = shape("unknown field `grace`, expected one of `ttl`, `lock-delay`");
        assert_eq!(told.mend, "write `lock-delay`: the key was renamed");

        let told = shape("unknown field `nodse`, expected `node` or `nodes`");
        assert_eq!(told.mend, "did you mean `nodes`? known here: `node`, `nodes`");
        let told = shape("master 2 is there twice");
        assert_eq!(
            (told.message.as_str(), told.mend.as_str()),
            ("master 2 is there twice", "name it once")
        );
    }

    #[test]
    fn every_message_has_a_mend() {
        for message in
            ["", "`", "``: ", "unknown field `", "missing field `", "invalid type: ", "x: write "]
        {
            assert!(
                !shape(message).mend.is_empty() && !syntax(message).mend.is_empty(),
                "{message}"
            );
        }
    }
}
