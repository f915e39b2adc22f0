//! The faults, one at a time: client processes and masters are killed and started again; masters
//! are paused, and lose their connections or their scripts.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand::rngs::StdRng;
use redquorum_harness::stamp;
use redquorum_rig::{Masters, RigError};

use crate::client::{Event, Message, Task};
use crate::figures::Figures;

/// A random time below a bound.
pub(crate) fn millis(random: &mut StdRng, bound: u64) -> Duration {
    Duration::from_millis(random.random_range(0..bound))
}

/// The client processes.
pub(crate) struct Processes {
    task: Task,
    places: Vec<Child>,
    messages: Receiver<(u32, Message)>,
    sender: Sender<(u32, Message)>,
}

impl Processes {
    pub(crate) fn start(task: &Task, processes: usize) -> Self {
        let (sender, messages) = channel();
        let mut all = Self { task: task.clone(), places: Vec::new(), messages, sender };
        for _ in 0..processes {
            let child = all.spawn();
            all.places.push(child);
        }
        all
    }

    fn spawn(&self) -> Child {
        let task = serde_json::to_string(&self.task).expect("it is JSON");
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
        end(&mut self.places[place]);
        self.places[place] = self.spawn();
    }

    pub(crate) fn receive(&self, begin: Instant, figures: &mut Figures) {
        for (process, Message { at, event }) in self.messages.try_iter() {
            let sections = &mut figures.sections;
            match event {
                Event::Gone => sections.gone(process),
                _ => sections.receive(process, at),
            }
            match event {
                Event::Start | Event::Gone => {}
                Event::Begin { section, resource } => {
                    sections.begin((process, section), resource, at);
                }
                Event::End { section, held_until } => sections.end((process, section), held_until),
                Event::Figures(line) => figures.receive(process, begin.elapsed(), line),
            }
        }
    }

    /// Asks all processes to end by themselves, and waits for them.
    pub(crate) fn stop(&mut self, begin: Instant, figures: &mut Figures) {
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
    let [node, other] = [(); 2].map(|()| random.random_range(1..=masters.len()));
    match random.random_range(0..8) {
        0 | 1 => {
            processes.kill_one(random);
            figures.client_kills += 1;
        }
        2 => {
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
        _ => {
            masters.kill(node)?;
            sleep(millis(random, 700));
            masters.restart(node)?;
            figures.master_kills += 1;
        }
    }
    Ok(())
}
