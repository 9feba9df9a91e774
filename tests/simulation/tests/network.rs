//! Each fault of the network and of the server, seen from a socket.
#![cfg(lock_sim)]

use std::io;
use std::time::Duration;

use lock_core::sim::{self, Stream};
use lock_master::Master;
use lock_simulation::network::{ConnectionId, Connects, Cut, Delay, Target, Way};
use lock_simulation::process::Process;
use lock_simulation::world::{Settings, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const PONG: &[u8] = b"+PONG\r\n";
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
const OK: &[u8] = b"+OK\r\n";
const SECOND: Duration = Duration::from_secs(1);

/// Runs to its end without a finding.
fn run(main: impl AsyncFnOnce(World)) {
    let settings = Settings {
        seed: 1,
        keep_trace: true,
        ..Settings::default()
    };
    let outcome = World::run(settings, main);
    assert_eq!(outcome.findings, [], "{}", outcome.lines.join("\n"));
}

type Socket = Box<dyn Stream>;

fn connecting(process: &Process) -> JoinHandle<io::Result<Socket>> {
    process.spawn(async { sim::current().expect("a process").connect("p", 6379).await })
}

async fn connected(process: &Process) -> Socket {
    connecting(process).await.unwrap().unwrap()
}

/// Sends and reads until so many bytes have come, or the end, for up to a second.
async fn ask(socket: &mut Socket, request: &[u8], most: usize) -> Option<io::Result<Vec<u8>>> {
    if let Err(error) = socket.write_all(request).await {
        return Some(Err(error));
    }
    hear(socket, most).await
}

async fn hear(socket: &mut Socket, most: usize) -> Option<io::Result<Vec<u8>>> {
    let mut heard = Vec::new();
    let reading = async {
        while heard.len() < most {
            let mut buffer = [0; 64];
            match socket.read(&mut buffer).await? {
                0 => break,
                read => heard.extend(&buffer[..read]),
            }
        }
        Ok(())
    };
    match timeout(SECOND, reading).await {
        Ok(Ok(())) => Some(Ok(heard)),
        Ok(Err(_)) if !heard.is_empty() => Some(Ok(heard)),
        Ok(Err(error)) => Some(Err(error)),
        Err(_) => None,
    }
}

/// Whether a question is answered within a second.
async fn answers(socket: &mut Socket) -> bool {
    matches!(ask(socket, PING, PONG.len()).await, Some(Ok(heard)) if heard == PONG)
}

fn is_set(world: &World) -> bool {
    world.server().with(|master| master.string(b"k").is_some())
}

fn one(world: &World) -> ConnectionId {
    world.network().connections(1)[0]
}

#[test]
fn bytes_take_their_delay_each_way_and_stay_in_order() {
    run(async |world| {
        let mut socket = connected(&world.process(1)).await;
        world.network().delay(Target::All, Delay::between(100, 100));
        let began = world.now();
        assert!(answers(&mut socket).await);
        assert_eq!(world.now(), began + Duration::from_millis(200));
        // The faster one does not overtake.
        world
            .network()
            .delay(Target::Connection(one(&world)), Delay::between(1, 90));
        world.network().split(100);
        let many = PING.repeat(20);
        let heard = ask(&mut socket, &many, PONG.len() * 20).await;
        assert_eq!(heard.unwrap().unwrap(), PONG.repeat(20));
    });
}

#[test]
fn a_stall_holds_bytes_until_it_is_lifted() {
    for way in [Way::ToServer, Way::ToClient, Way::Both] {
        run(async |world| {
            let mut socket = connected(&world.process(1)).await;
            let mut other = connected(&world.process(2)).await;
            for target in [Target::Connection(one(&world)), Target::Process(1)] {
                world.server().with(Master::flush_all);
                world.network().stall(target, way);
                assert!(ask(&mut socket, SET, OK.len()).await.is_none());
                assert_eq!(is_set(&world), way == Way::ToClient);
                assert!(answers(&mut other).await);
                world.network().lift(target, way);
                assert_eq!(hear(&mut socket, OK.len()).await.unwrap().unwrap(), OK);
                assert!(is_set(&world));
            }
            world.network().stall(Target::All, way);
            assert!(!answers(&mut other).await);
            world.network().heal();
            assert_eq!(hear(&mut other, PONG.len()).await.unwrap().unwrap(), PONG);
        });
    }
}

#[test]
fn a_half_open_connection_is_silent_for_ever_and_new_ones_work() {
    run(async |world| {
        let process = world.process(1);
        let mut socket = connected(&process).await;
        let id = one(&world);
        world.network().half_open(id);
        assert!(ask(&mut socket, SET, 1).await.is_none());
        world.network().heal();
        assert!(hear(&mut socket, 1).await.is_none());
        assert!(!is_set(&world));
        assert!(answers(&mut connected(&process).await).await);
        drop(socket);
        sleep(SECOND).await;
        assert_eq!(world.network().known_to_server(), [id], "it does not know");
        assert_eq!(world.network().counts(1).open, 0);
        world.network().notice(id);
        assert_eq!(world.network().known_to_server(), []);
    });
}

#[test]
fn a_cut_before_a_request_keeps_it_from_the_server() {
    run(async |world| {
        let mut socket = connected(&world.process(1)).await;
        world.network().cut(Target::Process(1), Cut::BeforeRequest);
        let error = ask(&mut socket, SET, 1).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(!is_set(&world));
        assert_eq!(world.network().known_to_server(), []);
        // Once.
        assert!(answers(&mut connected(&world.process(1)).await).await);
    });
}

#[test]
fn a_cut_inside_a_reply_lets_so_many_bytes_through() {
    for most in [0, 2, 99] {
        run(async |world| {
            let mut socket = connected(&world.process(1)).await;
            world
                .network()
                .cut(Target::Connection(one(&world)), Cut::InsideReply(most));
            let heard = ask(&mut socket, SET, 99).await.unwrap();
            assert!(is_set(&world));
            match most {
                0 => assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
                most => assert_eq!(heard.unwrap(), OK[..most.min(OK.len() - 1)]),
            }
            assert!(ask(&mut socket, PING, 1).await.unwrap().is_err());
        });
    }
}

#[test]
fn a_cut_after_a_reply_lets_it_through() {
    run(async |world| {
        let mut socket = connected(&world.process(1)).await;
        world.network().cut(Target::All, Cut::AfterReply);
        assert_eq!(ask(&mut socket, SET, 99).await.unwrap().unwrap(), OK);
        assert!(hear(&mut socket, 1).await.unwrap().is_err());
        assert_eq!(world.network().known_to_server(), []);
    });
}

#[test]
fn a_reset_loses_what_is_under_way() {
    run(async |world| {
        let process = world.process(1);
        let (mut socket, mut other) = (connected(&process).await, connected(&process).await);
        world.network().delay(Target::All, Delay::between(100, 100));
        socket.write_all(SET).await.unwrap();
        assert_eq!(world.network().reset(Target::Connection(one(&world))), 1);
        assert!(hear(&mut socket, 1).await.unwrap().is_err());
        assert!(!is_set(&world));
        assert!(answers(&mut other).await);
        assert_eq!(world.network().reset(Target::Process(1)), 1);
        assert_eq!(world.network().reset(Target::All), 0);
    });
}

#[test]
fn attempts_to_connect_are_refused_slow_or_hang_and_are_counted() {
    run(async |world| {
        let process = world.process(1);
        let network = world.network();
        network.connects(Target::Process(1), Connects::Refused);
        let error = connecting(&process).await.unwrap().err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(connecting(&world.process(2)).await.unwrap().is_ok());
        network.connects(Target::Process(1), Connects::Slow(SECOND));
        let began = world.now();
        drop(connected(&process).await);
        assert_eq!(world.now(), began + SECOND);
        network.connects(Target::Process(1), Connects::Hang);
        let (waits, leaves) = (connecting(&process), connecting(&process));
        sleep(SECOND * 1000).await;
        assert!(!waits.is_finished());
        assert_eq!(network.counts(1).connecting, 2);
        leaves.abort();
        network.connects(Target::Process(1), Connects::Open);
        let mut socket = waits.await.unwrap().unwrap();
        assert!(answers(&mut socket).await);
        let counts = network.counts(1);
        assert_eq!(
            (counts.open, counts.connecting, counts.most_connecting),
            (1, 0, 2)
        );
        assert_eq!((counts.attempts, counts.made), (4, 2));
    });
}

#[test]
fn a_partition_holds_connects_back() {
    run(async |world| {
        world.network().stall(Target::Process(1), Way::ToServer);
        let waits = connecting(&world.process(1));
        sleep(SECOND).await;
        assert!(!waits.is_finished());
        world.network().lift(Target::Process(1), Way::ToServer);
        assert!(waits.await.unwrap().is_ok());
    });
}

#[test]
fn a_stopped_server_accepts_and_answers_when_it_goes_on() {
    run(async |world| {
        let process = world.process(1);
        let mut socket = connected(&process).await;
        world.server().stop();
        assert!(ask(&mut socket, SET, 1).await.is_none());
        let mut late = connected(&process).await;
        assert!(!answers(&mut late).await);
        assert!(!is_set(&world));
        world.server().resume();
        assert_eq!(hear(&mut socket, OK.len()).await.unwrap().unwrap(), OK);
        assert_eq!(hear(&mut late, PONG.len()).await.unwrap().unwrap(), PONG);
    });
}

#[test]
fn a_crashed_server_refuses_until_it_is_started_with_or_without_its_data() {
    for keep in [true, false] {
        run(async |world| {
            let process = world.process(1);
            let mut socket = connected(&process).await;
            ask(&mut socket, SET, OK.len()).await.unwrap().unwrap();
            world.server().crash();
            assert_eq!(hear(&mut socket, 1).await.unwrap().unwrap(), b"");
            assert!(connecting(&process).await.unwrap().is_err());
            world.server().restart(keep);
            assert!(answers(&mut connected(&process).await).await);
            assert_eq!(is_set(&world), keep);
        });
    }
}

#[test]
fn what_was_written_before_a_close_arrives() {
    run(async |world| {
        let mut socket = connected(&world.process(1)).await;
        world.network().delay(Target::All, Delay::between(50, 50));
        socket.write_all(SET).await.unwrap();
        drop(socket);
        sleep(SECOND).await;
        assert!(is_set(&world));
        assert_eq!(world.network().known_to_server(), []);
    });
}

#[test]
fn commands_of_others_are_run_and_their_messages_arrive() {
    run(async |world| {
        let mut socket = connected(&world.process(1)).await;
        let subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n";
        assert!(ask(&mut socket, subscribe, 1).await.unwrap().is_ok());
        world.server().execute(&[b"PUBLISH", b"c", b"hello"]);
        let heard = hear(&mut socket, 1).await.unwrap().unwrap();
        assert!(heard.ends_with(b"hello\r\n"));
    });
}
