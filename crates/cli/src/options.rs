//! The lock that a command uses: its masters and options, from a file, the environment and the
//! command line, in this order. The keys are those of the library's [`Config`].

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use redquorum::{BuildError, Builder, Config, ConfigKey, Plan, Redlock, Shards};

use crate::codes::Code;
use crate::complain;

/// The beginning of the names of environment variables.
const PREFIX: &str = "REDQUORUM_";

/// What the names of other variables begin with, behind the prefix: those that a command of `exec`
/// gets, the file, and those of examples, tests and the fault injector.
const OTHERS: [&str; 19] = [
    "CHAOS",
    "CLOCK",
    "CONFIG",
    "COUNT_THREADS",
    "DEADLINE",
    "FENCING_TOKEN",
    "MARIADB_",
    "NODES",
    "OPTIONS",
    "PERMIT",
    "PRELOAD",
    "PROGRAMS",
    "REDIS_",
    "REQUIRE_",
    "RESOURCE",
    "SOCKET",
    "UPDATE",
    "URLS",
    "USAGE_",
];

fn is_other(key: &str) -> bool {
    let is_option = Config::keys().any(|option| variable(option.key) == format!("{PREFIX}{key}"));
    !is_option && OTHERS.iter().any(|other| key.starts_with(other))
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct LockOptions {
    file: Option<PathBuf>,
    /// The options of the command line.
    given: Vec<(String, String)>,
}

/// The heading of these options in the help.
const HEADING: &str = "The lock";

impl Args for LockOptions {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE.toml")
            .value_parser(clap::value_parser!(PathBuf))
            .value_hint(ValueHint::FilePath)
            .help("A file with the options below. REDQUORUM_CONFIG names one, too")
            .help_heading(HEADING);
        let options = Config::keys().map(|ConfigKey { key, about, value, .. }| {
            let arg = Arg::new(key)
                .long(key)
                .value_name(value)
                .help(format!("{about} [env: {}]", variable(key)))
                .help_heading(HEADING);
            // `--fair` means `--fair=true`.
            let is_flag = value == "BOOL";
            if is_flag {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg
            }
        });
        command.args([file]).args(options)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LockOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Config::keys().filter_map(|ConfigKey { key, .. }| {
            Some((key.to_owned(), matches.get_one::<String>(key)?.clone()))
        });
        Ok(Self { file: matches.get_one::<PathBuf>("config").cloned(), given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

/// What is wrong with the options, and the remedy.
type Wrong = (String, String);

impl LockOptions {
    /// The description of the lock.
    ///
    /// # Errors
    /// An option that does not fit, or no masters. It was printed.
    pub(crate) fn builder(&self) -> Result<Builder, Code> {
        self.builder_from(env::vars_os())
            .map_err(|(wrong, fix)| complain(Code::USAGE, &wrong, &fix))
    }

    fn builder_from(
        &self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Builder, Wrong> {
        let (mut file, mut ours) = (self.file.clone(), Vec::new());
        for (name, value) in variables {
            match name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
                Some("CONFIG") if file.is_none() && !value.is_empty() => file = Some(value.into()),
                Some(key) if !is_other(key) => ours.push((name, value)),
                _ => {}
            }
        }
        let mut builder = Redlock::builder().name(own_name());
        let names_masters = |key: &str| key == "masters" || key == "shards";
        let mut has_masters = self.given.iter().any(|(key, _)| names_masters(key));
        if let Some(file) = file {
            let (config, masters) = read(&file)?;
            has_masters |= masters;
            builder = builder.config(config);
        }
        let [masters, shards] = ["masters", "shards"].map(variable);
        let is_named = |name: &OsString| *name == *masters || *name == *shards;
        has_masters |= ours.iter().any(|(name, value)| is_named(name) && !value.is_empty());
        let from_env = Config::from_variables(PREFIX, ours)
            .map_err(|error| (error.to_string(), "correct the variable, or unset it".to_owned()))?;
        let mut given = Config::default();
        for (key, value) in &self.given {
            given.set(key, value.as_str()).map_err(|error| {
                (format!("--{error}"), "`redquorum exec --help` lists the options".to_owned())
            })?;
        }
        if !has_masters
            || self.given.iter().any(|(key, value)| names_masters(key) && value.is_empty())
        {
            let fix = format!(
                "give their URLs: --masters redis://db1,redis://db2,redis://db3, or {masters}, or \
                 `masters` in a file (--config)"
            );
            return Err(("no masters are named".to_owned(), fix));
        }
        Ok(builder.config(from_env).config(given))
    }
}

/// What to do about an option that does not fit another, or an address.
const CORRECT: &str = "correct the option, in the file, the variable or on the command line";

/// Builds the lock of each shard, and connects to its masters. A lock without shards is the only
/// one.
///
/// # Errors
/// An option that does not fit. It was printed.
pub(crate) async fn build(builder: Builder) -> Result<Shards, Code> {
    builder.build_shards().await.map_err(|error| {
        let code = Code::of_build(&error);
        let fix = if code == Code::UNAVAILABLE {
            "look at the masters: redquorum doctor"
        } else {
            CORRECT
        };
        complain(code, &error.to_string(), fix)
    })
}

fn wrong(error: &BuildError) -> Code {
    complain(Code::of_build(error), &error.to_string(), CORRECT)
}

/// What the lock would connect to, for commands that look at masters themselves. If there are
/// shards, that of one of them.
///
/// # Errors
/// An option that does not fit. It was printed.
pub(crate) fn plan(builder: &Builder, shard: Option<&str>) -> Result<Plan, Code> {
    let plans = plans(builder)?;
    let names: Vec<String> = plans.iter().map(|(name, _)| name.clone()).collect();
    let is_it = |name: &str| shard.map_or(names.len() == 1, |shard| shard == name);
    let plan = plans.into_iter().find_map(|(name, plan)| is_it(&name).then_some(plan));
    plan.ok_or_else(|| {
        let text = match shard {
            Some(shard) => format!("there is no shard {shard:?}"),
            None => "the resources are spread over shards".to_owned(),
        };
        let fix = format!("name one of them, such as --shard {}", names.join(", --shard "));
        complain(Code::USAGE, &text, &fix)
    })
}

/// What the lock of a resource would connect to.
///
/// # Errors
/// An option that does not fit. It was printed.
pub(crate) fn plan_of(builder: &Builder, resource: &OsStr) -> Result<Plan, Code> {
    builder.plan_of(resource.as_bytes()).map_err(|error| wrong(&error))
}

/// What the locks of all shards would connect to, with the name of each; a lock without shards is
/// the only one.
///
/// # Errors
/// An option that does not fit. It was printed.
pub(crate) fn plans(builder: &Builder) -> Result<Vec<(String, Plan)>, Code> {
    builder.plans().map_err(|error| wrong(&error))
}

/// Who holds a lease, unless an option says so: host and process, as far as they fit.
fn own_name() -> String {
    let id = std::process::id();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let printable: String = host.chars().filter(|c| !c.is_control()).collect();
    let most = 28;
    let end = (0..=most.min(printable.len())).rev().find(|end| printable.is_char_boundary(*end));
    format!("{}/{id}", &printable[..end.unwrap_or_default()])
}

/// Reads a file, and whether it names masters.
fn read(path: &Path) -> Result<(Config, bool), Wrong> {
    let text = fs::read_to_string(path).map_err(|why| {
        (format!("{} cannot be read: {why}", path.display()), "correct its path".to_owned())
    })?;
    // The source line of an error may have a password, so only the message is shown.
    let wrong = |error: toml::de::Error| {
        // An unknown key has the whole file as its place.
        let span = error.span().filter(|span| span.len() < text.len());
        let line = span.map(|span| text[..span.start].matches('\n').count() + 1);
        let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
        let fix = "the keys are those of `redquorum exec --help`, without the dashes".to_owned();
        (format!("{}{line}: {}", path.display(), error.message()), fix)
    };
    let table = toml::from_str::<toml::Table>(&text).map_err(wrong)?;
    let masters = ["masters", "shards"].iter().any(|key| table.contains_key(*key));
    Ok((toml::from_str(&text).map_err(wrong)?, masters))
}
