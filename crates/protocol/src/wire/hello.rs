//! Hello: the handshake of a new connection, before any other command, and the replies that it
//! needs.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::{Command, ErrorKind, Expect, Frame, readable, write_command};
use crate::bad_option::MAX_CLIENT_NAME;
use crate::guard::{MAX_MARKER, RunId};
use crate::vote::Reply;

/// The credentials and the database of a new connection. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// ACL user; without one, the default user.
    pub username: Option<String>,
    /// Password; without one, no `AUTH` is sent.
    pub password: Option<String>,
    /// Database number; 0 is not selected explicitly.
    pub database: u32,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "<hidden>"))
            .field("database", &self.database)
            .finish()
    }
}

/// What a master reports about itself in the handshake.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Greeting {
    /// The client id of this connection; `None` where ACLs forbid `CLIENT ID`.
    pub client_id: Option<u64>,
    /// The identity of the master's process; `None` where ACLs forbid `INFO`.
    pub run_id: Option<RunId>,
    /// The boot marker, if the master has one and a [`Guard`](crate::Guard) asked for it.
    pub boot: Option<Arc<str>>,
    /// Whether the master reports that it syncs every write before it replies, and that it was
    /// never a replica. A replica that took over has its master's marker, but not all of its data.
    /// `false` where ACLs forbid the commands that show it.
    pub durable: bool,
}

/// Why a connection may not be used.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Unfit(pub Arc<str>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Query {
    Auth,
    Select,
    ClientId,
    Name,
    LibName,
    LibVer,
    Info,
    Boot,
    Durable,
    Origin,
    Load(super::Script),
}

/// The handshake of one new connection: its commands, and how their replies are read.
#[derive(Clone, PartialEq, Eq)]
pub struct Handshake<'a> {
    hello: &'a Hello,
    name: &'a str,
    asked: Vec<Query>,
}

/// The name of a connection in `CLIENT LIST`, unless [`Handshake::named`] gives another.
pub const CLIENT_NAME: &str = "redquorum";

/// Whether Redis takes this name for a connection, and shows it as one word.
pub fn is_client_name(name: &str) -> bool {
    (1..=MAX_CLIENT_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Hello {
    /// Returns the handshake; with `guarded` it also asks for what a [`Guard`](crate::Guard) needs.
    pub fn handshake(&self, guarded: bool) -> Handshake<'_> {
        let mut asked = Vec::new();
        if self.password.is_some() {
            asked.push(Query::Auth);
        }
        if self.database != 0 {
            asked.push(Query::Select);
        }
        asked.extend([Query::ClientId, Query::Info]);
        // Behind the commands that show that no password is missing.
        asked.extend([Query::Name, Query::LibName, Query::LibVer]);
        if guarded {
            asked.extend([Query::Boot, Query::Durable, Query::Origin]);
        }
        asked.extend(super::scripts(guarded).map(Query::Load));
        Handshake { hello: self, name: CLIENT_NAME, asked }
    }

    /// Returns a master's reply in a form that may be shown: an error that repeats the password is
    /// cut down to its code.
    pub fn conceal<'a>(&self, frame: Frame<'a>) -> Frame<'a> {
        let secret = self.password.as_deref().unwrap_or_default().as_bytes();
        let repeats = |text: &[u8]| {
            !secret.is_empty() && text.windows(secret.len()).any(|part| part == secret)
        };
        match frame {
            Frame::Error(text) if repeats(text) => {
                let code = code(text);
                Frame::Error(if repeats(code) { b"" } else { code })
            }
            frame => frame,
        }
    }
}

impl<'a> Handshake<'a> {
    /// Returns the handshake with this name for the connection, for which [`is_client_name`] holds.
    #[must_use]
    pub fn named(self, name: &'a str) -> Self {
        debug_assert!(is_client_name(name), "{name:?} would be refused, or not be one word");
        Self { name, ..self }
    }

    /// Appends all commands to `out`. They are written at once.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let hello = self.hello;
        for asked in &self.asked {
            match *asked {
                Query::Auth => {
                    let mut args: Vec<&[u8]> = Vec::from([&b"AUTH"[..]]);
                    args.extend(hello.username.as_deref().map(str::as_bytes));
                    args.extend(hello.password.as_deref().map(str::as_bytes));
                    write_command(out, &args);
                }
                Query::Select => {
                    let database = super::decimal(hello.database.into(), &mut [0; 20]).to_vec();
                    write_command(out, &[b"SELECT", &database]);
                }
                Query::ClientId => write_command(out, &[b"CLIENT", b"ID"]),
                Query::Info => write_command(out, &[b"INFO", b"server"]),
                Query::Name => write_command(out, &[b"CLIENT", b"SETNAME", self.name.as_bytes()]),
                // From Redis 7.2 on. Older servers reply with an error.
                Query::LibName => {
                    write_command(
                        out,
                        &[b"CLIENT", b"SETINFO", b"LIB-NAME", CLIENT_NAME.as_bytes()],
                    );
                }
                Query::LibVer => {
                    let version = env!("CARGO_PKG_VERSION").as_bytes();
                    write_command(out, &[b"CLIENT", b"SETINFO", b"LIB-VER", version]);
                }
                // One byte more than the longest marker: a longer value is not a marker, and the
                // master need not send all of it.
                Query::Boot => {
                    let last = super::decimal(MAX_MARKER as u64, &mut [0; 20]).to_vec();
                    write_command(out, &[b"GETRANGE", super::BOOT, b"0", &last]);
                }
                Query::Durable => write_command(out, &[b"CONFIG", b"GET", b"*append*"]),
                Query::Origin => write_command(out, &[b"INFO", b"replication"]),
                Query::Load(script) => Command::Load(script).encode(out),
            }
        }
    }

    /// How many replies to await.
    pub const fn replies(&self) -> usize {
        self.asked.len()
    }

    /// Reads reply number `index` into `greeting`.
    ///
    /// # Errors
    /// [`Unfit`] if the connection may not be used. A master that forbids `CLIENT ID` or `INFO` is
    /// used without the protection that these commands give, and one that refuses a name for the
    /// connection without the name. One that is busy is not used yet.
    pub fn read(
        &self,
        index: usize,
        frame: &Frame<'_>,
        greeting: &mut Greeting,
    ) -> Result<(), Unfit> {
        let Some(asked) = self.asked.get(index).copied() else {
            return Err(Unfit(Arc::from("a reply to no command")));
        };
        match (asked, &self.hello.conceal(frame.clone())) {
            // The master sends this instead of any reply, before it hangs up.
            (_, Frame::Error(text)) if GOODBYES.iter().any(|bye| text.starts_with(bye)) => {
                return Err(unfit("the master takes no client", text));
            }
            // Show only the code of the error: an old server repeats the arguments in its text.
            (Query::Auth, Frame::Error(text)) => {
                let wrong = code(text) == b"WRONGPASS";
                let why =
                    if wrong { ": wrong user or password" } else { " (has it no password set?)" };
                return Err(unfit(&alloc::format!("authentication failed{why}"), code(text)));
            }
            (Query::Select, Frame::Error(text)) => {
                return Err(unfit("the database was not selected", text));
            }
            (Query::ClientId, Frame::Integer(id)) => greeting.client_id = u64::try_from(*id).ok(),
            (Query::Info, Frame::Bulk(text)) if is_sentinel(text) => {
                return Err(Unfit(Arc::from("it is a Sentinel, not a master")));
            }
            (Query::Info, Frame::Bulk(text)) => greeting.run_id = run_id(text),
            (Query::Boot, Frame::Bulk(text)) => greeting.boot = super::marker(text),
            (Query::Durable, Frame::Array(parts)) => greeting.durable = is_durable(parts),
            (Query::Origin, Frame::Bulk(text)) => greeting.durable &= was_no_replica(text),
            // A master that asks for a password replies so to every command. One that forbids only
            // these two commands replies otherwise.
            (Query::ClientId | Query::Info, Frame::Error(text)) if text.starts_with(b"NOAUTH") => {
                return Err(unfit("a password is needed", text));
            }
            // A busy server refuses every command for a while. That says nothing about the user's
            // rights: without its answers the connection would lack what they protect.
            (_, Frame::Error(text)) if ErrorKind::of(text) == ErrorKind::Busy => {
                return Err(unfit("the master is busy", text));
            }
            (Query::Origin, Frame::Error(_)) => greeting.durable = false,
            (
                Query::Name | Query::LibName | Query::LibVer,
                Frame::Simple(b"OK") | Frame::Error(_),
            ) => {}
            // A key that cannot be read is no marker, as the first look will show. Settings that
            // cannot be read are unknown.
            (Query::Boot, Frame::Null)
            | (Query::Auth | Query::Select, Frame::Simple(b"OK"))
            | (Query::Boot | Query::Durable | Query::ClientId | Query::Info, Frame::Error(_)) => {}
            (Query::Load(script), frame) => match Expect::Load(script).read(frame) {
                Reply::Alive => {}
                Reply::Unknown(cause) => {
                    let why = alloc::format!("a script was not loaded: {cause}");
                    return Err(Unfit(Arc::from(why)));
                }
                _ => return Err(Unfit(Arc::from("a script was not loaded"))),
            },
            _ => return Err(Unfit(Arc::from("a reply that is not Redis's"))),
        }
        Ok(())
    }
}

/// The beginnings of errors to a connection that the master will not serve: too many clients, and
/// protected mode.
const GOODBYES: [&[u8]; 2] = [b"ERR max number of clients", b"DENIED"];

/// The word in capitals that a Redis error starts with.
fn code(error: &[u8]) -> &[u8] {
    error.split(|byte| !byte.is_ascii_uppercase()).next().unwrap_or_default()
}

fn unfit(what: &str, text: &[u8]) -> Unfit {
    Unfit(Arc::from(alloc::format!("{what}: {}", readable(text))))
}

/// Whether these settings mean that every answered write is on the disk.
fn is_durable(settings: &[Frame<'_>]) -> bool {
    let says = |name: &[u8], value: &[u8]| {
        let pairs = settings.chunks_exact(2);
        pairs.filter(|pair| pair[0] == Frame::Bulk(name)).any(|pair| pair[1] == Frame::Bulk(value))
    };
    says(b"appendonly", b"yes")
        && says(b"appendfsync", b"always")
        // Otherwise it does not sync while it rewrites its file.
        && says(b"no-appendfsync-on-rewrite", b"no")
}

fn field<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let text = core::str::from_utf8(info).ok()?;
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}

/// Whether `INFO` is of a process that was never promoted. A promoted one has its old master's
/// replication id as its second one.
pub fn was_no_replica(info: &[u8]) -> bool {
    let second = field(info, "master_replid2");
    second.is_some_and(|name| !name.is_empty() && name.bytes().all(|digit| digit == b'0'))
}

/// Whether `INFO` is of a Sentinel. Valkey 9 calls the field `server_mode`.
pub fn is_sentinel(info: &[u8]) -> bool {
    let mode = field(info, "redis_mode").or_else(|| field(info, "server_mode"));
    mode == Some("sentinel")
}

/// The identity of the process in `INFO`.
pub fn run_id(info: &[u8]) -> Option<RunId> {
    let id = field(info, "run_id")?;
    (!id.is_empty() && id.len() <= 64).then(|| RunId(Arc::from(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The replies of a server that takes a name, and knows no library.
    const NAMED: [Frame<'static>; 3] = [
        Frame::Simple(b"OK"),
        Frame::Error(b"ERR unknown subcommand 'SETINFO'. Try CLIENT HELP."),
        Frame::Error(b"ERR unknown subcommand 'SETINFO'. Try CLIENT HELP."),
    ];

    fn read(hello: &Hello, frames: &[Frame<'_>]) -> Result<Greeting, Unfit> {
        let mut greeting = Greeting::default();
        for (index, frame) in frames.iter().enumerate() {
            hello.handshake(false).read(index, frame, &mut greeting)?;
        }
        Ok(greeting)
    }

    #[test]
    fn a_greeting_identifies_the_master_and_the_client() {
        let info = Frame::Bulk(b"# Server\r\nredis_version:7.0.15\r\nrun_id:0a1b\r\n");
        let loads = super::super::SCRIPTS.map(|script| Frame::Bulk(script.sha1.as_bytes()));
        let frames = [&[Frame::Integer(7), info], &NAMED[..], &loads[..]].concat();
        assert_eq!(Hello::default().handshake(false).replies(), frames.len());
        let greeting = read(&Hello::default(), &frames).unwrap();
        assert_eq!(greeting.client_id, Some(7));
        assert_eq!(greeting.run_id, Some(RunId(Arc::from("0a1b"))));
        // Another script under the same name is refused.
        let swapped = [&frames[..5], &[loads[1].clone()]].concat();
        assert!(read(&Hello::default(), &swapped).is_err());
    }

    #[test]
    fn a_guard_learns_the_marker_and_whether_every_write_is_synced() {
        let setting =
            |name: &'static [u8], value: &'static [u8]| [Frame::Bulk(name), Frame::Bulk(value)];
        let settings = |rewrite| {
            Frame::Array(
                [
                    setting(b"appendonly", b"yes"),
                    setting(b"appendfsync", b"always"),
                    setting(b"no-appendfsync-on-rewrite", rewrite),
                ]
                .concat(),
            )
        };
        let (hello, denied) = (Hello::default(), Frame::Error(b"NOPERM no permissions"));
        let never = Frame::Bulk(b"role:master\r\nmaster_replid:6c2a\r\nmaster_replid2:0000\r\n");
        let greeting = |boot: Frame<'_>, settings: Frame<'_>, origin: Frame<'_>| {
            let mut greeting = Greeting::default();
            let [name, lib, version] = NAMED;
            let known = [Frame::Integer(7), denied.clone(), name, lib, version];
            let frames = [&known[..], &[boot, settings, origin]].concat();
            for (index, frame) in frames.iter().enumerate() {
                hello.handshake(true).read(index, frame, &mut greeting).unwrap();
            }
            (greeting.boot.as_deref().map(alloc::borrow::ToOwned::to_owned), greeting.durable)
        };
        let greet = |boot, settings| greeting(boot, settings, never.clone());
        assert_eq!(greet(Frame::Bulk(b"a 1"), settings(b"no")), (Some("a 1".into()), true));
        assert_eq!(greet(Frame::Null, settings(b"yes")), (None, false));
        assert_eq!(greet(denied.clone(), denied.clone()), (None, false));
        assert_eq!(
            greet(Frame::Bulk(b"\xff"), Frame::Array(Vec::new())),
            (Some("?".into()), false)
        );
        // A process that took over from its master, and ones with an unknown origin.
        for origin in [&b"master_replid2:6c2a\r\n"[..], b"master_replid2:\r\n", b"", b"\xff"] {
            let (_, durable) = greeting(Frame::Null, settings(b"no"), Frame::Bulk(origin));
            assert!(!durable, "{origin:?}");
        }
        assert!(!greeting(Frame::Null, settings(b"no"), denied.clone()).1);
    }

    #[test]
    fn a_connection_has_a_name_unless_its_master_refuses_it() {
        let (hello, mut bytes) = (Hello::default(), Vec::new());
        let handshake = hello.handshake(false).named("billing@host-7");
        handshake.encode(&mut bytes);
        let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(has(b"SETNAME\r\n$14\r\nbilling@host-7\r\n"));
        assert!(has(b"LIB-NAME\r\n$9\r\nredquorum\r\n"));
        for index in 2..5 {
            let read = |frame| handshake.read(index, &frame, &mut Greeting::default());
            assert_eq!(read(NAMED[index - 2].clone()), Ok(()));
            assert_eq!(read(Frame::Error(b"NOPERM no permissions")), Ok(()));
            assert!(read(Frame::Integer(1)).is_err(), "it answers another command");
        }
        for (name, is) in
            [("a", true), ("", false), ("a b", false), ("a\n", false), ("\u{e4}", false)]
        {
            assert_eq!(is_client_name(name), is, "{name:?}");
        }
        assert!(is_client_name(&"a".repeat(128)) && !is_client_name(&"a".repeat(129)));
    }

    #[test]
    fn a_busy_master_is_not_taken_for_one_that_forbids_the_command() {
        let hello = Hello { password: Some("pw".into()), database: 3, ..Hello::default() };
        let handshake = hello.handshake(true);
        for text in ["BUSY Redis is busy running a script.", "LOADING Redis is loading"] {
            for index in 2..handshake.replies() {
                let frame = Frame::Error(text.as_bytes());
                let unfit = handshake.read(index, &frame, &mut Greeting::default()).unwrap_err();
                assert_eq!(*unfit.0, *alloc::format!("the master is busy: {text}"), "{index}");
            }
        }
    }

    #[test]
    fn no_error_repeats_the_password() {
        let hello = Hello { password: Some("hunter2".into()), ..Hello::default() };
        let echo = Frame::Error(b"ERR unknown command 'AUTH', with args beginning with: 'hunter2'");
        let unfit = read(&hello, &[echo]).unwrap_err();
        assert_eq!(&*unfit.0, "authentication failed (has it no password set?): ERR");
        assert!(!alloc::format!("{hello:?}").contains("hunter2"));
    }

    #[test]
    fn a_connection_that_is_not_to_a_master_or_not_to_its_database_is_not_used() {
        let hello = Hello { database: 3, ..Hello::default() };
        let info = |text: &'static str| Frame::Bulk(text.as_bytes());
        let error = |text: &'static str| Frame::Error(text.as_bytes());
        let fits = |frames: &[Frame<'_>]| read(&hello, frames).map(|greeting| greeting.run_id);
        let [ok, id] = [Frame::Simple(b"OK"), Frame::Integer(7)];
        let long = alloc::format!("run_id:{}", "a".repeat(65));
        let nameless = [
            "run_id:",
            "redis_version:7.0.15",
            // Longer than any process has: it is not kept.
            &long,
        ];
        for text in nameless {
            let frames = [ok.clone(), id.clone(), Frame::Bulk(text.as_bytes())];
            assert_eq!(fits(&frames), Ok(None), "{text}");
        }
        for (frames, why) in [
            (&[error("ERR DB index is out of range")][..], "the database was not selected: ERR"),
            (&[error("ERR max number of clients reached")], "the master takes no client: ERR"),
            (&[ok.clone(), error("DENIED x")], "the master takes no client: DENIED"),
            (&[ok.clone(), error("NOAUTH x")], "a password is needed: NOAUTH"),
            (&[ok.clone(), id.clone(), info("redis_mode:sentinel")], "it is a Sentinel"),
            (&[ok.clone(), id.clone(), info("server_mode:sentinel")], "it is a Sentinel"),
            (
                &[ok.clone(), id, Frame::Null, ok.clone(), ok.clone(), ok.clone()],
                "a reply that is not Redis's",
            ),
        ] {
            let unfit = fits(frames).unwrap_err();
            assert!(unfit.0.starts_with(why), "{unfit:?}");
        }
        let mut greeting = Greeting::default();
        let refused = Frame::Error(b"NOPERM no permissions");
        let load = hello.handshake(false).read(6, &refused, &mut greeting).unwrap_err();
        assert_eq!(&*load.0, "a script was not loaded: error: NOPERM no permissions");
    }

    #[test]
    fn an_error_that_repeats_the_password_is_shown_as_its_code() {
        let hello = Hello { password: Some("hunter2".into()), ..Hello::default() };
        let shown = |text: &'static str| match hello.conceal(Frame::Error(text.as_bytes())) {
            Frame::Error(text) => alloc::string::String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown("ERR unknown command 'hunter2'"), "ERR");
        assert_eq!(shown("NOPERM no permissions"), "NOPERM no permissions");
        let text = alloc::format!("{hello:?}");
        assert!(text.starts_with("Hello") && text.contains("<hidden>"), "{text}");
    }

    #[test]
    fn a_master_is_durable_only_if_all_three_settings_say_so() {
        let names = [&b"appendonly"[..], b"appendfsync", b"no-appendfsync-on-rewrite"];
        let durable = [&b"yes"[..], b"always", b"no"];
        for wrong in 0..4 {
            let value = |at: usize| if at == wrong { &b"everysec"[..] } else { durable[at] };
            let pairs = (0..3).map(|at| [Frame::Bulk(names[at]), Frame::Bulk(value(at))]);
            let settings = pairs.collect::<Vec<_>>().concat();
            assert_eq!(is_durable(&settings), wrong == 3, "{settings:?}");
        }
    }
}
