//! Which process dies × in which call × when: {server, client, node plugin, controller plugin, a
//! task} is killed before each call that the life of a volume makes, while it is under way and not
//! yet done (during), and when it is done but not answered (after). Before a call is before the
//! work that leads to it, or, where another call leads to it, when that one's answer is on record
//! and no process has continued: the client, which makes all calls, stands still then. The plugin
//! holds each call at the moment that is meant until the kill is done, so that it never comes early
//! or late. However it goes, the volume is made, checked, grown, used by one job, read by the next,
//! and deleted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, ensure};
use drover_testkit::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{COMES, GOES, PATIENT, World, now};

const MADE: [&str; 3] = [
    "CreateVolume",
    "ValidateVolumeCapabilities",
    "ControllerExpandVolume",
];
/// How a volume that has grown comes to its node.
const COMES_GROWN: [&str; COMES.len() + 1] = {
    let [attached, staged, published] = COMES;
    [attached, staged, published, "NodeExpandVolume"]
};
const DELETED: &str = "DeleteVolume";
/// The volume, and the job, of the task that is killed.
const HELD: &str = "held";
const GIB: i64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
    NodePlugin,
    ControllerPlugin,
    Task,
}

const VICTIMS: [Victim; 5] = [
    Victim::Server,
    Victim::Client,
    Victim::NodePlugin,
    Victim::ControllerPlugin,
    Victim::Task,
];

/// When in a call, in the words of the plugin's rules.
const DURING: &str = "before";
const AFTER: &str = "after";

/// How long a call that may continue takes to end at most, while the client stands still, on a
/// machine that has much else to do. One that ended later would not be known to have.
const STILL: Duration = Duration::from_secs(5);

/// A kill that was done.
struct Strike {
    call: &'static str,
    /// Before the call, and not in it.
    ahead: bool,
    /// Nanoseconds since 1970.
    at: u128,
}

/// The life of one volume, in each of whose calls the same one dies.
struct Life<'w> {
    world: &'w World,
    victim: Victim,
    when: &'static str,
    id: String,
    /// What the plugin calls the volume whose task may be killed.
    held: &'w str,
    /// Who kills the same one comes after the other: a kill that had to wait would come too late.
    turn: &'w Mutex<()>,
}

/// The process that answered a call last.
fn last_pid(record: &[Value], call: &str) -> Option<i32> {
    let mut lines = record.iter().rev();
    pid_of(lines.find(|line| line["call"] == call)?)
}

/// The process that wrote a line of the record.
fn pid_of(line: &Value) -> Option<i32> {
    i32::try_from(line["pid"].as_i64()?).ok()
}

/// The process of the task that has written to a volume.
fn writing(world: &World, remote: &str) -> i32 {
    let pid = wait_for("a task", PATIENT, || {
        pid_in(world, remote).ok_or("it is not there")
    });
    pid.expect("it has written")
}

/// The process that a task has written into its volume.
fn pid_in(world: &World, remote: &str) -> Option<i32> {
    let path = world.path("state/volumes").join(remote).join("pid");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None::<Signal>).is_ok()
}

impl Life<'_> {
    /// The process that is to be killed.
    fn pid(&self) -> Option<i32> {
        let record = || self.world.record();
        let pid = match self.victim {
            Victim::NodePlugin => last_pid(&record(), "NodeGetCapabilities"),
            Victim::ControllerPlugin => last_pid(&record(), "ControllerGetCapabilities"),
            _ => pid_in(self.world, self.held),
        };
        pid.filter(|pid| alive(*pid))
    }

    /// Waits for the process that is to be killed, when it is another than an old one.
    fn other_than(&self, old: Option<i32>) -> i32 {
        let found = wait_for("a process", PATIENT, || {
            let found = self.pid().filter(|pid| Some(*pid) != old);
            found.ok_or("nobody runs")
        });
        found.unwrap_or_else(|error| panic!("{error:#}\n{}", self.world.explained()))
    }

    /// Kills, and waits until what was killed runs again; when it died.
    fn strike(&self) -> u128 {
        match self.victim {
            Victim::Server => return self.world.server.again(),
            Victim::Client => return self.world.clients[0].again(),
            _ => {}
        }
        // These run again by themselves: their job says so.
        let pid = self.other_than(None);
        let died = killed(pid);
        self.other_than(Some(pid));
        died
    }

    /// The file that lets a call continue.
    fn gate(&self, call: &str, when: &str) -> PathBuf {
        let name = format!("gate-{}-{call}-{when}", self.id);
        self.world.path(&name)
    }

    /// Waits until a call is held.
    fn wait_held(&self, about: (&str, &str), when: &str) {
        let held = wait_for(about.0, PATIENT, || {
            let held = held(&self.world.record(), about, when);
            held.ok_or_else(|| format!("{} of {} is not made", about.0, self.id))
        });
        if let Err(error) = held {
            let explained = self.world.explained();
            panic!("{:?} {}: {error}\n{explained}", self.victim, self.when);
        }
    }

    /// Has a call wait before its work, or after it, for every caller and every time, until it may
    /// continue.
    fn holds(&self, call: &str, when: &str) {
        let until = self.gate(call, when);
        self.world.fault(
            json!({"call": call, "volume": self.meant(call), "when": when,
            "do": {"hold": {"until": until}}}),
        );
    }

    fn lets_on(&self, call: &str, when: &str) {
        std::fs::write(self.gate(call, when), "").expect("a file");
    }

    /// Kills when a call is answered, by the record, and the one that follows it is not made.
    fn strike_between(&self, call: &str, next: &'static str) -> Strike {
        let at = loop {
            if let Some(at) = self.strike_after(call) {
                break at;
            }
        };
        let ahead = true;
        Strike {
            call: next,
            ahead,
            at,
        }
    }

    /// Kills when a call has ended, and the client stands still; none where it does not end.
    fn strike_after(&self, call: &str) -> Option<u128> {
        let meant = self.meant(call);
        let about = (call, meant.as_str());
        self.wait_held(about, AFTER);
        let plugin = match self.victim {
            Victim::Server | Victim::Client => None,
            _ => Some(self.other_than(None)),
        };
        let at = self.world.clients[0].while_still(|client| {
            held(&self.world.record(), about, AFTER)?;
            // Its plugin died of another one's kill, or its client had: it is made again.
            if !self.answered(about) {
                return None;
            }
            Some(match (self.victim, plugin) {
                (Victim::Server, _) => self.world.server.again(),
                (_, Some(pid)) => killed(pid),
                _ => client.renewed(),
            })
        })?;
        plugin.map(|pid| self.other_than(Some(pid)));
        Some(at)
    }

    /// Lets calls of a kind continue while the client stands still, and has those to come wait
    /// again where none of them was answered to somebody who waited.
    ///
    /// All that are under way continue: beside the one that a client made before it died there may
    /// be the one of the next client, on its way to where it would be held.
    fn answered(&self, about: (&str, &str)) -> bool {
        let since = now();
        self.lets_on(about.0, AFTER);
        let ended = wait_for(about.0, STILL, || {
            let record = self.world.record();
            let open = begun(&record, about).any(|begin| {
                let lives = pid_of(begin).is_some_and(alive);
                lives && end_of(&record, begin).is_none()
            });
            if open {
                return Err("it is under way");
            }
            Ok(())
        });
        let answered = || {
            let record = self.world.record();
            let mut ends = begun(&record, about).filter_map(|begin| end_of(&record, begin));
            ends.any(|end| time(end) >= since && end["late"] != true)
        };
        if ended.is_ok() && answered() {
            return true;
        }
        std::fs::remove_file(self.gate(about.0, AFTER)).expect("a file");
        let answered = answered();
        if answered {
            self.lets_on(about.0, AFTER);
        }
        answered
    }

    /// The volume that rules are for; a volume that is made has no name yet.
    fn meant(&self, call: &str) -> String {
        match call {
            "CreateVolume" => String::new(),
            _ => self.world.remote(&self.id),
        }
    }

    /// Has these calls wait for the kills; the volume that each of them is about.
    fn prepares(&self, calls: &[&'static str]) -> Vec<String> {
        for call in calls {
            self.holds(call, self.when);
        }
        let followed = calls.split_last().map_or(&[][..], |(_, followed)| followed);
        for call in followed.iter().filter(|_| self.when == DURING) {
            self.holds(call, AFTER);
        }
        calls.iter().map(|call| self.meant(call)).collect()
    }

    /// Waits for these calls, one after the other, and kills in each of them.
    fn strikes(&self, calls: &[&'static str], meant: &[String]) -> Vec<Strike> {
        let mut done = Vec::new();
        for (number, (&call, meant)) in calls.iter().zip(meant).enumerate() {
            self.wait_held((call, meant), self.when);
            let (at, ahead) = (self.strike(), false);
            self.lets_on(call, self.when);
            done.push(Strike { call, ahead, at });
            let next = calls.get(number + 1).filter(|_| self.when == DURING);
            done.extend(next.map(|next| self.strike_between(call, next)));
        }
        done
    }

    /// Does something in whose calls processes die.
    fn beset(&self, calls: &[&'static str], work: impl Fn() + Send) -> Vec<Strike> {
        let _turn = self.turn.lock().expect("no panic");
        let mut first = Vec::new();
        if self.when == DURING {
            let (at, ahead) = (self.strike(), true);
            let call = calls[0];
            first.push(Strike { call, ahead, at });
        }
        // Before the work begins, for it may come to the calls at once.
        let meant = self.prepares(calls);
        let rest = std::thread::scope(|scope| {
            let strikes = std::thread::Builder::new()
                .name(format!("{:?} {}", self.victim, self.when))
                .spawn_scoped(scope, || self.strikes(calls, &meant))
                .expect("a thread");
            work();
            strikes
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        first.extend(rest);
        first
    }

    fn lives(&self, made: &Mutex<()>) -> Vec<Strike> {
        let (world, id) = (self.world, self.id.as_str());
        let mut strikes = {
            // A rule for a volume without a name must meet its own.
            let _alone = made.lock().expect("no panic");
            self.beset(&MADE[..1], || world.create(id, GIB))
        };
        let register = format!("/v1/volume/csi/{id}");
        strikes.extend(self.beset(&MADE[1..2], || {
            world.put(&register, &World::described(id, GIB));
        }));
        strikes.extend(self.beset(&MADE[2..], || world.create(id, 2 * GIB)));
        let remote = world.remote(id);
        world.wait_quiet(&remote);
        let (writer, reader) = (format!("write-{id}"), format!("read-{id}"));
        let write =
            format!("cd $NOMAD_VOLUME_data; echo {id} > file; echo $$ > pid; exec sleep 1000");
        strikes.extend(self.beset(&COMES_GROWN, || {
            world.register(&world.job(&writer, "service", id, &write, 0));
            world.wait_status(&writer, "running");
        }));
        // What is requested twice, and done late, is no harm while it is used.
        world.wait_quiet(&remote);
        strikes.extend(self.beset(&GOES, || {
            match self.victim {
                // Its own volume goes because it was killed, and for nothing else.
                Victim::Task => _ = killed(writing(world, &remote)),
                _ => world.stop(&writer),
            }
            world.wait_free(id);
        }));
        world.stop(&writer);
        world.wait_quiet(&remote);
        let read = format!("test \"$(cat $NOMAD_VOLUME_data/file)\" = {id}");
        world.register(&world.job(&reader, "batch", id, &read, 0));
        world.wait_status(&reader, "complete");
        world.wait_free(id);
        strikes.extend(self.beset(&[DELETED], || {
            let path = format!("/v1/volume/csi/{id}/delete");
            world.sent("DELETE", &path, b"", &["volume not found"]);
        }));
        strikes
    }
}

/// Kills a process; when.
fn killed(pid: i32) -> u128 {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is killed");
    now()
}

/// When a line of the record was written, nanoseconds since 1970.
fn time(line: &Value) -> u128 {
    line["at"].to_string().parse().unwrap_or_default()
}

/// Where calls about a volume begin in the record.
fn begun<'r>(
    record: &'r [Value],
    (call, volume): (&'r str, &'r str),
) -> impl Iterator<Item = &'r Value> {
    record.iter().filter(move |line| {
        let about = line["begin"]["volume"].as_str().unwrap_or_default() == volume;
        line["call"] == call && !line["begin"].is_null() && about
    })
}

/// The end of the call that a line of the record is about.
fn end_of<'r>(record: &'r [Value], of: &Value) -> Option<&'r Value> {
    record.iter().find(|line| {
        let same = line["pid"] == of["pid"] && line["seq"] == of["seq"];
        same && !line["code"].is_null()
    })
}

/// The call about a volume that waits to continue, in a process that lives.
fn held(record: &[Value], (call, volume): (&str, &str), when: &str) -> Option<Value> {
    let mut lines = record.iter().rev();
    let line = lines.find(|line| {
        let meant = line["call"] == call && line["held"] == when && line["volume"] == volume;
        meant && pid_of(line).is_some_and(alive) && end_of(record, line).is_none()
    });
    line.cloned()
}

/// Every kill met its call: it had begun and was not answered, or it was not made at all.
fn met(record: &[Value], (id, remote): (&str, &str), strikes: &[Strike]) -> Result<()> {
    for strike in strikes {
        if strike.ahead {
            let mut begun = record.iter().filter(|line| {
                let about = match strike.call {
                    "CreateVolume" => line["begin"]["name"] == id,
                    _ => line["begin"]["volume"] == remote,
                };
                line["call"] == strike.call && about
            });
            let made = begun.next().is_some_and(|first| time(first) < strike.at);
            ensure!(!made, "nobody died before {} of {remote}", strike.call);
            continue;
        }
        let volume = match strike.call {
            "CreateVolume" => "",
            _ => remote,
        };
        let open = begun(record, (strike.call, volume))
            .filter(|line| time(line) < strike.at)
            .any(|begin| {
                let end = end_of(record, begin);
                end.is_none_or(|end| time(end) > strike.at)
            });
        ensure!(open, "nobody died in {} of {remote}", strike.call);
    }
    Ok(())
}

#[test]
fn csi_31_csi_34_whoever_dies_in_whichever_call_the_volume_lives_and_is_free_again() {
    let Some(world) = World::start("volumes and whatever dies", &["one"]) else {
        return;
    };
    world.create(HELD, GIB);
    let hold = "echo $$ > $NOMAD_VOLUME_data/pid; exec sleep 1000";
    world.register(&world.job(HELD, "service", HELD, hold, 1_000));
    world.wait_status(HELD, "running");
    let held = world.remote(HELD);
    let turns = VICTIMS.map(|_| Mutex::new(()));
    let (begun, made) = (std::time::Instant::now(), Mutex::new(()));
    let lives: Vec<_> = VICTIMS
        .into_iter()
        .zip(&turns)
        .flat_map(|(victim, turn)| [DURING, AFTER].map(|when| (victim, when, turn)))
        .map(|(victim, when, turn)| Life {
            world: &world,
            victim,
            when,
            id: format!("{victim:?}-{when}").to_lowercase(),
            held: &held,
            turn,
        })
        .collect();
    let strikes: BTreeMap<&str, Vec<Strike>> = std::thread::scope(|scope| {
        let made = &made;
        let threads = lives.iter().map(|life| {
            let thread = std::thread::Builder::new().name("a life".to_owned());
            let strikes = thread.spawn_scoped(scope, move || life.lives(made));
            (life.id.as_str(), strikes.expect("a thread"))
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|(id, thread)| (id, thread.join()));
        joined
            .map(|(id, strikes)| {
                (
                    id,
                    strikes.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                )
            })
            .collect()
    });
    let record = world.record();
    for (id, strikes) in &strikes {
        let calls = MADE.len() + COMES_GROWN.len() + GOES.len() + 1;
        let ahead = strikes.iter().filter(|strike| strike.ahead).count();
        assert_eq!(strikes.len() - ahead, calls, "{id}");
        let befores = if id.ends_with(DURING) { calls } else { 0 };
        assert_eq!(ahead, befores, "{id}");
        let created = record.iter().find(|line| line["begin"]["name"] == *id);
        assert!(created.is_some(), "{id}");
        let remote = remote_of(&record, id);
        met(&record, (id, &remote), strikes).unwrap_or_else(|error| panic!("{id}: {error}"));
    }
    assert_eq!(world.refused(), Vec::<Value>::new());
    // The task that was killed had its volume all the time.
    let calls: Vec<String> = world
        .calls(&held)
        .into_iter()
        .map(|(_, call)| call)
        .collect();
    assert_eq!(calls, COMES, "it came once and did not go");
    println!(
        "{} kills in {:?}",
        strikes.values().map(Vec::len).sum::<usize>(),
        begun.elapsed()
    );
}

/// What the plugin calls a volume that may be gone: the one that is written to by its job.
fn remote_of(record: &[Value], id: &str) -> String {
    let about = |line: &&Value| {
        let target = line["begin"]["staging"].as_str().unwrap_or_default();
        target.contains(&format!("/{id}/"))
    };
    let line = record.iter().find(about).expect("it was staged");
    line["begin"]["volume"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
