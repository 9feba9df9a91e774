//! One named hold: how it is taken, and what is done with it by order.

use std::time::Duration;

use lock_core::{Leadership, Lock, LockError, LockGuard};
use lock_tests::connect;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::stamp;

pub(crate) enum Order {
    Look,
    Release,
    Write(Write),
    Fire,
}

/// A write to the resource that the lock protects: a list on a server, of the fencing tokens of its writers.
pub(crate) struct Write {
    pub(crate) checked: bool,
    pub(crate) url: String,
    pub(crate) resource: String,
}

pub(crate) enum How {
    Acquire,
    Try,
    Hammer,
}

impl How {
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "try" => Self::Try,
            "hammer" => Self::Hammer,
            _ => Self::Acquire,
        }
    }
}

pub(crate) async fn run(name: String, lock: Lock, how: How, orders: UnboundedReceiver<Order>) {
    let taking = async {
        match how {
            How::Acquire => lock.acquire().await.map(Some),
            How::Try => lock.try_acquire().await,
            How::Hammer => loop {
                match lock.try_acquire().await {
                    Ok(None) => tokio::time::sleep(Duration::from_micros(200)).await,
                    other => break other,
                }
            },
        }
    };
    hold(name, taking, orders).await;
}

/// A guard, or a leadership, which is one.
pub(crate) trait Holds {
    fn guard(&self) -> &LockGuard;
    async fn end(self) -> Result<(), LockError>;
}

impl Holds for LockGuard {
    fn guard(&self) -> &LockGuard {
        self
    }

    async fn end(self) -> Result<(), LockError> {
        self.release().await
    }
}

impl Holds for Leadership {
    fn guard(&self) -> &LockGuard {
        self
    }

    async fn end(self) -> Result<(), LockError> {
        self.resign().await
    }
}

pub(crate) async fn hold(
    name: String,
    taking: impl Future<Output = Result<Option<impl Holds>, LockError>>,
    mut orders: UnboundedReceiver<Order>,
) {
    let asked = stamp();
    let guard = taking.await;
    let granted = stamp();
    match guard {
        Ok(Some(held)) => {
            let guard = held.guard();
            // Read before what is left, so the true end is not before this one.
            let ends = stamp() + guard.remaining().as_nanos() as u64;
            let fence = guard.fencing_token().get();
            println!("granted {name} {fence} {asked} {granted} {ends}");
            serve(&name, held, &mut orders).await;
        }
        Ok(None) => println!("busy {name}"),
        Err(error) => println!("failed {name} {error}"),
    }
}

async fn serve(name: &str, held: impl Holds, orders: &mut UnboundedReceiver<Order>) {
    let guard = held.guard();
    let mut lost = false;
    let mut aim = None;
    loop {
        tokio::select! {
            // The order first: a look must not profit from the loss having been announced.
            biased;
            order = orders.recv() => match order {
                Some(Order::Look) => {
                    let now = stamp();
                    println!("held {name} {} {now}", guard.is_held());
                }
                Some(Order::Release) => {
                    let now = stamp();
                    match held.end().await {
                        Ok(()) => println!("released {name} {now}"),
                        Err(error) => println!("refused {name} {error}"),
                    }
                    return;
                }
                Some(Order::Write(write)) => {
                    let connection = connect(write.url.as_str()).await;
                    println!("aims {name} {}", guard.is_held());
                    aim = Some((connection, write));
                }
                Some(Order::Fire) => {
                    let (connection, write) = aim.take().expect("an aim");
                    // Without another look at the guard: the moment that no lock can protect.
                    let accepted = fire(connection, &write, guard.fencing_token().get()).await;
                    println!("{} {name}", if accepted { "wrote" } else { "rejected" });
                }
                None => return,
            },
            reason = guard.lost(), if !lost => {
                println!("lost {name} {} {reason:?}", stamp());
                lost = true;
            }
        }
    }
}

/// What a resource that checks fencing tokens does, and one that does not.
const WRITE: &str = "
local last = tonumber(redis.call('LINDEX', KEYS[1], -1) or '0')
if ARGV[2] == 'true' and tonumber(ARGV[1]) < last then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[1])
return 1";

async fn fire(mut connection: MultiplexedConnection, write: &Write, fence: u64) -> bool {
    redis::cmd("EVAL")
        .arg(WRITE)
        .arg(1)
        .arg(&write.resource)
        .arg(fence)
        .arg(write.checked.to_string())
        .query_async(&mut connection)
        .await
        .expect("the resource answers")
}
