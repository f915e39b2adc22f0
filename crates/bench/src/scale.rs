//! `just scale`: what the costs of a lock grow with. Prints the tables of `docs/scale.md`.
//!
//! - `connections`: the memory of a master for each client process, on real masters
//! - `regions`: masters far away, in virtual time
//! - `herd`: many clients that want one resource at the same moment, in virtual time
//! - `shards`: resources that are spread over several quorums, on real masters

mod connections;
mod herd;
mod regions;
mod shards;
mod virtual_time;

use std::process::ExitCode;
use std::str::FromStr;

pub(crate) use connections::{CHILD_ARGUMENT, be_clients};

/// The first argument of this section. Its parts and options follow.
pub(crate) const ARGUMENT: &str = "--scale";

const USAGE: &str = "\
usage: redquorum-bench --scale [connections | regions | herd | shards]... [OPTION LIST]...

Without a part, all of them are measured. A list is of numbers, with commas between them.

  --masters 5               the masters of a quorum, on this machine
  --clients 100,1000,10000  connections: the numbers of client processes
  --near 5,30,60,90,150     regions: round trips of a client in the middle to each master, in ms
  --far 150,130,110,80,5    regions: those of a client far away, to the same masters
  --waiters 4,200,1000,3000 herd: the numbers of clients; the time grows with their square
  --shards 1,2,4            shards: the numbers of quorums
  --rounds 11               shards: the number of rounds, of which the tables have the medians";

/// What to measure.
#[derive(Clone, Debug)]
struct Options {
    parts: Vec<Part>,
    masters: usize,
    clients: Vec<usize>,
    near: Vec<u64>,
    far: Vec<u64>,
    waiters: Vec<usize>,
    shards: Vec<usize>,
    rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Connections,
    Regions,
    Herd,
    Shards,
}

impl Part {
    const ALL: [(&str, Self); 4] = [
        ("connections", Self::Connections),
        ("regions", Self::Regions),
        ("herd", Self::Herd),
        ("shards", Self::Shards),
    ];
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            masters: 5,
            clients: vec![100, 1_000, 10_000],
            near: vec![5, 30, 60, 90, 150],
            far: vec![150, 130, 110, 80, 5],
            waiters: vec![4, 200, 1_000, 3_000],
            shards: vec![1, 2, 4],
            rounds: 11,
        }
    }
}

impl Options {
    fn read(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some((_, part)) = Part::ALL.into_iter().find(|(name, _)| name == word) {
                options.parts.push(part);
                continue;
            }
            let list = words.next().map_or("", String::as_str);
            match word.as_str() {
                "--masters" => options.masters = one(word, list)?,
                "--clients" => options.clients = numbers(word, list)?,
                "--near" => options.near = numbers(word, list)?,
                "--far" => options.far = numbers(word, list)?,
                "--waiters" => options.waiters = numbers(word, list)?,
                "--shards" => options.shards = numbers(word, list)?,
                "--rounds" => options.rounds = one(word, list)?,
                _ => return Err(format!("there is no part or option `{word}`")),
            }
        }
        if options.near.len() != options.far.len() {
            return Err("--near and --far are round trips to the same masters: give as many".into());
        }
        // What a scenario may have, and a `Redlock` on real masters.
        if [options.masters, options.near.len()].iter().any(|masters| *masters > 9) {
            return Err("a quorum of this program has at most 9 masters".to_owned());
        }
        Ok(options)
    }

    fn has(&self, part: Part) -> bool {
        self.parts.is_empty() || self.parts.contains(&part)
    }
}

fn numbers<T: FromStr + Default + PartialEq>(option: &str, list: &str) -> Result<Vec<T>, String> {
    let number = |word: &str| word.trim().parse().ok().filter(|number| *number != T::default());
    let all: Option<Vec<T>> = list.split(',').map(number).collect();
    all.ok_or_else(|| format!("{option} needs a list of numbers above 0, not `{list}`"))
}

fn one(option: &str, list: &str) -> Result<usize, String> {
    match numbers(option, list).as_deref() {
        Ok([number]) => Ok(*number),
        _ => Err(format!("{option} needs one number above 0, not `{list}`")),
    }
}

pub(crate) fn main(words: &[String]) -> ExitCode {
    if words.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(words) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("error: {why}\n\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    match print(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(3)
        }
    }
}

fn print(options: &Options) -> Result<(), String> {
    if options.has(Part::Connections) {
        connections::print(options.masters, &options.clients)?;
    }
    if options.has(Part::Regions) {
        regions::print(&options.near, &options.far)?;
    }
    if options.has(Part::Herd) {
        herd::print(&options.waiters)?;
    }
    if options.has(Part::Shards) {
        shards::print(options.masters, &options.shards, options.rounds)?;
    }
    Ok(())
}
