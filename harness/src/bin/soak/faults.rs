//! The faults, one at a time: client processes and masters are killed and started again; masters
//! are paused, demoted, and lose their connections or their scripts; client processes vanish. The
//! proxies before the masters recycle connections all the time.

use std::io::{self, BufRead, BufReader, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::client::{Event, Message, Task};
use crate::sections::{Figures, Step};
use rand::RngExt as _;
use rand::rngs::StdRng;
use redquorum_harness::stamp;
use redquorum_rig::{Masters, RespValue, RigError};

/// A random time below a bound.
pub(crate) fn millis(random: &mut StdRng, bound: u64) -> Duration {
    Duration::from_millis(random.random_range(0..bound))
}

/// The client processes.
pub(crate) struct Processes {
    task: Task,
    /// The addresses of masters behind proxies. Every other process has these.
    proxied: Vec<String>,
    /// The place of a process that has vanished, and when it is replaced.
    vanished: Option<(usize, Instant)>,
    places: Vec<Child>,
    messages: Receiver<(u32, Message)>,
    sender: Sender<(u32, Message)>,
}

impl Processes {
    pub(crate) fn start(task: &Task, proxied: &[String], processes: usize) -> Self {
        let (sender, messages) = channel();
        let (task, proxied) = (task.clone(), proxied.to_vec());
        let mut all = Self { task, proxied, vanished: None, places: Vec::new(), messages, sender };
        for place in 0..processes {
            let child = all.spawn(place);
            all.places.push(child);
        }
        all
    }

    fn spawn(&self, place: usize) -> Child {
        let mut task = self.task.clone();
        if place.is_multiple_of(2) {
            task.urls.clone_from(&self.proxied);
        }
        let task = serde_json::to_string(&task).expect("it is JSON");
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .args(["--client", &task])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let (id, sender) = (child.id(), self.sender.clone());
        let send = move |message| drop(sender.send((id, message)));
        send(Message { at: stamp::now(), event: Event::Start });
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            let read = lines.map_while(Result::ok);
            // The last line of a killed process may be incomplete.
            read.filter_map(|line| serde_json::from_str(&line).ok()).for_each(&send);
            send(Message { at: stamp::now(), event: Event::Gone });
        });
        child
    }

    /// Kills one process of the second half. Those of the first half live through the whole run, so
    /// that their memory can be measured.
    fn kill_one(&mut self, random: &mut StdRng) {
        let place = random.random_range(self.places.len() / 2..self.places.len());
        self.replace(place);
    }

    fn replace(&mut self, place: usize) {
        self.vanished.take_if(|(vanished, _)| *vanished == place);
        end(&mut self.places[place]);
        self.places[place] = self.spawn(place);
    }

    /// Stops the last process that has no proxy, for good: its connections stay open, and its
    /// positions stay in the queues, as if its machine had vanished. Its machine comes back when a
    /// later fault strikes.
    fn vanish(&mut self, random: &mut StdRng) -> bool {
        let place = self.places.len() - 1 - self.places.len() % 2;
        if self.vanished.is_some() {
            return false;
        }
        let process = self.places[place].id();
        let raw = rustix::process::Pid::from_child(&self.places[place]);
        if rustix::process::kill_process(raw, rustix::process::Signal::STOP).is_err() {
            return false;
        }
        let message = Message { at: stamp::now(), event: Event::Stopped };
        drop(self.sender.send((process, message)));
        let lasts = Duration::from_secs(5) + millis(random, 10_000);
        self.vanished = Some((place, Instant::now() + lasts));
        true
    }

    /// Replaces a process that vanished long enough ago.
    fn come_back(&mut self) {
        if let Some((place, until)) = self.vanished
            && Instant::now() >= until
        {
            self.replace(place);
        }
    }

    pub(crate) fn receive(&self, begin: Instant, figures: &mut Figures) {
        for (process, Message { at, event }) in self.messages.try_iter() {
            let sections = &mut figures.sections;
            match event {
                Event::Gone => sections.gone(process, at),
                // Its last message may still be on its way.
                Event::Stopped => {}
                _ => sections.receive(process, at),
            }
            let id = |section| (process, section);
            match event {
                Event::Start | Event::Gone => {}
                Event::Stopped => sections.stop(process, at),
                Event::Ask { section, resource } => sections.ask(id(section), resource, at),
                Event::Unpolled { section, until } => {
                    sections.step(id(section), at, Step::Unpolled(until));
                }
                Event::Leave { section } => sections.step(id(section), at, Step::Leaves),
                Event::Begin { section } => sections.step(id(section), at, Step::Begins),
                Event::End { section, held_until } => sections.end(id(section), at, held_until),
                Event::Figures(line) => figures.receive(process, begin.elapsed(), line),
            }
        }
    }

    /// Asks all processes to end by themselves, and waits for them.
    pub(crate) fn stop(&mut self, begin: Instant, figures: &mut Figures) {
        if let Some((place, _)) = self.vanished {
            self.replace(place);
        }
        self.places.iter_mut().for_each(|child| drop(child.stdin.take()));
        let asked = Instant::now();
        for child in &mut self.places {
            figures.processes += 1;
            while matches!(child.try_wait(), Ok(None)) {
                if asked.elapsed() > Duration::from_secs(60) {
                    figures.hung += 1;
                    end(child);
                    break;
                }
                sleep(Duration::from_millis(20));
            }
        }
        // The last lines may still be on their way through the threads that read them.
        sleep(Duration::from_millis(200));
        self.receive(begin, figures);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.places.iter_mut().for_each(end);
    }
}

/// `SIGKILL`. Harmless if the process has ended already.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Lets one fault strike, and heals it before it returns.
pub(crate) fn strike(
    masters: &Masters,
    processes: &mut Processes,
    random: &mut StdRng,
    figures: &mut Figures,
) -> Result<(), RigError> {
    sleep(Duration::from_millis(300) + millis(random, 1200));
    processes.come_back();
    let [node, other] = [(); 2].map(|()| random.random_range(1..=masters.len()));
    match random.random_range(0..10) {
        0 => {
            processes.kill_one(random);
            figures.client_kills += 1;
        }
        1 | 2 => {
            // Two of them or one: in any case a minority.
            for node in [node, other] {
                masters.pause(node)?;
            }
            sleep(millis(random, 500));
            for node in [node, other] {
                masters.resume(node)?;
            }
            figures.disturbances += 1;
        }
        3 => {
            masters.command(node, &[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"])?;
            masters.command(other, &[b"SCRIPT", b"FLUSH"])?;
            figures.disturbances += 1;
        }
        4 | 5 => figures.vanished += u64::from(processes.vanish(random)),
        6 | 7 => {
            // Of a server that does not exist, so that they keep their keys.
            for node in [node, other] {
                ok(masters.ask(node, "REPLICAOF 127.0.0.1 1")?);
            }
            sleep(millis(random, 1500));
            for node in [node, other] {
                ok(masters.ask(node, "REPLICAOF NO ONE")?);
            }
            figures.demotions += 1;
        }
        _ => {
            masters.kill(node)?;
            sleep(millis(random, 700));
            masters.restart(node)?;
            figures.master_kills += 1;
        }
    }
    Ok(())
}

fn ok(reply: RespValue) {
    assert!(matches!(&reply, RespValue::Status(ok) if ok.starts_with("OK")), "{reply:?}");
}

/// The greatest age of a connection, in milliseconds. Each connection has one between these.
const AGES: std::ops::Range<u64> = 2_000..8_000;

/// One proxy for each master. They run until the program ends.
pub(crate) struct Proxies {
    pub(crate) urls: Vec<String>,
    recycled: Arc<AtomicU64>,
}

impl Proxies {
    pub(crate) fn start(masters: impl Iterator<Item = SocketAddr>) -> io::Result<Self> {
        let mut all = Self { urls: Vec::new(), recycled: Arc::default() };
        for master in masters {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            all.urls.push(format!("redis://{}", listener.local_addr()?));
            let recycled = all.recycled.clone();
            spawn(move || {
                for client in listener.incoming().filter_map(Result::ok) {
                    let recycled = recycled.clone();
                    // If the master is down, the drop of `client` ends the connection.
                    spawn(move || drop(pass(&client, master, &recycled)));
                }
            });
        }
        Ok(all)
    }

    /// How many connections were closed because of their age.
    pub(crate) fn recycled(&self) -> u64 {
        self.recycled.load(Relaxed)
    }
}

/// Passes on the bytes of a connection in both directions, until its greatest age.
fn pass(client: &TcpStream, master: SocketAddr, recycled: &AtomicU64) -> io::Result<()> {
    let server = TcpStream::connect(master)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = [client, &server];
    for (from, to) in [(client, &server), (&server, client)] {
        from.set_nodelay(true)?;
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        let is_over = is_over.clone();
        spawn(move || {
            // The end of the one connection ends the other, whatever the reason.
            drop(copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Both));
            is_over.store(true, Relaxed);
        });
    }
    sleep(Duration::from_millis(rand::rng().random_range(AGES)));
    if !is_over.load(Relaxed) {
        recycled.fetch_add(1, Relaxed);
    }
    ends.into_iter().try_for_each(|end| end.shutdown(Shutdown::Both))
}
