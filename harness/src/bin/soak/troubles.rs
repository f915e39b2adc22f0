//! Troubles: kills masters and client processes, one at a time, and starts them again.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redquorum_rig::{Masters, RigError};

use crate::client::Task;
use crate::figures::{Figures, Line};

/// A small generator with a seed (splitmix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    pub(crate) const fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

/// The client processes.
pub(crate) struct Herd {
    task: Task,
    places: Vec<Child>,
    lines: Receiver<(u32, Line)>,
    teller: Sender<(u32, Line)>,
}

impl Herd {
    pub(crate) fn start(task: &Task, processes: usize) -> Self {
        let (teller, lines) = channel();
        let mut herd = Self { task: task.clone(), places: Vec::new(), lines, teller };
        for _ in 0..processes {
            let child = herd.spawn();
            herd.places.push(child);
        }
        herd
    }

    fn spawn(&self) -> Child {
        let task = serde_json::to_string(&self.task).expect("it is JSON");
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
            .args(["--client", &task])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let (id, teller) = (child.id(), self.teller.clone());
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        std::thread::spawn(move || {
            let read = lines.map_while(Result::ok);
            // The last line of a killed process may be incomplete.
            let lines = read.filter_map(|line| serde_json::from_str(&line).ok());
            lines.for_each(|line| drop(teller.send((id, line))));
        });
        child
    }

    /// Kills one process of the second half. Those of the first half live through the whole run, so
    /// that their memory can be measured.
    fn kill_one(&mut self, chance: &mut Chance) {
        let first = self.places.len() / 2;
        let place = first + chance.index(self.places.len() - first);
        end(&mut self.places[place]);
        self.places[place] = self.spawn();
    }

    pub(crate) fn listen(&self, begin: Instant, figures: &mut Figures) {
        for (process, line) in self.lines.try_iter() {
            figures.hear(process, begin.elapsed(), line);
        }
    }

    /// Asks all processes to end by themselves, and waits for them.
    pub(crate) fn stop(&mut self, begin: Instant, figures: &mut Figures) {
        self.places.iter_mut().for_each(|child| drop(child.stdin.take()));
        let policy = Instant::now();
        for child in &mut self.places {
            figures.processes += 1;
            while matches!(child.try_wait(), Ok(None)) {
                if policy.elapsed() > Duration::from_secs(60) {
                    figures.hung += 1;
                    end(child);
                    break;
                }
                sleep(Duration::from_millis(20));
            }
        }
        // The last lines may still be on their way through the threads that read them.
        sleep(Duration::from_millis(200));
        self.listen(begin, figures);
    }
}

impl Drop for Herd {
    fn drop(&mut self) {
        self.places.iter_mut().for_each(end);
    }
}

/// `SIGKILL`. Harmless if the process has ended already.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Kills a master or a client process and starts it again before it returns: one at a time.
pub(crate) fn trouble(
    masters: &Masters,
    herd: &mut Herd,
    chance: &mut Chance,
    figures: &mut Figures,
) -> Result<(), RigError> {
    sleep(Duration::from_millis(300) + chance.millis(1200));
    if chance.below(4) == 0 {
        herd.kill_one(chance);
        figures.client_kills += 1;
    } else {
        let node = 1 + chance.index(masters.len());
        masters.kill(node)?;
        sleep(chance.millis(700));
        masters.restart(node)?;
        figures.master_kills += 1;
    }
    Ok(())
}
